"""Compute the crossover."""

import numbers
import operator

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def smallest_winner(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    for n in sizes:
        cpu = 2 * n**3 / cpu_flops
        transfers = 3 * 4 * n**2 / bus_bytes
        device = launch_seconds + transfers + 2 * n**3 / device_flops
        if device < cpu:
            return n
    return None


_SIZES = [2**k for k in range(4, 15)]

_CASES = (
    (_SIZES, 1e11, 1e13, 1e-5, 1e10),
    (_SIZES, 1e11, 1e13, 5e-3, 1e11),
    (_SIZES, 1e11, 1e13, 1e-6, 2e9),
    (_SIZES, 2e11, 1e11, 1e-5, 1e10),
    ([64, 128], 256.0, 512.0, 256.0, 64.0),  # a tie at 64, in numbers without any rounding
    ([32, 64, 96], 1024.0, 4096.0, 0.0, 256.0),  # one at 32, without a launch
    ([100, 120], 1e11, 1e13, 1e-9, 1e12),  # the first wins already
    ([100, 120, 160], 1e11, 1e13, 1e-5, 2e10),  # the last only
    ([], 1e11, 1e13, 1e-5, 1e10),
)


def _random_case(rng):
    """Return a random case: a machine on which the device begins to win between two whole numbers, and sizes
    around them.
    """
    cpu, n = 10 ** rng.choice((0.3, 1, 2, 10, 11, 12)), rng.randrange(6, 600) + 0.5
    device = cpu * rng.choice((0.8, 1.5, 2, 2, 3, 3, 10, 100))
    ahead = 2 * n**3 / cpu - 2 * n**3 / device if device > cpu else 2 * n**3 / cpu
    moving = ahead * rng.choice((0.02, 0.1, 0.4, 0.7, 0.95))
    step = max(1, int(n) // rng.randrange(8, 14))
    stop = rng.choice((n - step, n + step, n + 6 * step, 9 * n, 20 * n))
    return list(range(step, int(stop), step)), cpu, device, ahead - moving, 12 * n**2 / moving


_TRANSFERS = "3 * 4 * n**2 / bus_bytes"
_MISTAKES = {
    "tie": {"device < cpu": "device <= cpu"},
    "no-transfers": ({_TRANSFERS: "0"}, {_TRANSFERS: "3 * 4 * n / bus_bytes"}),
    "one-way": {_TRANSFERS: "2 * 4 * n**2 / bus_bytes"},
    "not-bytes": {_TRANSFERS: "3 * n**2 / bus_bytes"},
    "no-launch": {"launch_seconds + transfers": "transfers"},
}


def _validated_result(judge, got):
    """Return the result if it is a whole number or None, else refuse it."""
    return got if got is None else judge.is_a(got, numbers.Integral, _("one of the sizes"))


def _describe_case(sizes, cpu, device, launch, bus):
    """Return the case in words; of five sizes or more the first two and the last."""
    which = f"{sizes}" if len(sizes) < 5 else f"[{sizes[0]}, {sizes[1]}, …, {sizes[-1]}]"
    return _(
        "sizes {which}, CPU {cpu:.3g} FLOP/s, device {device:.3g} FLOP/s, "
        "launch {launch:.3g} s, bus {bus:.3g} B/s"
    ).format(which=which, cpu=cpu, device=device, launch=launch, bus=bus)


EXERCISE = Exercise(
    id="01.smallest_winner",
    title="Compute the crossover",
    task="An n × n float32 product takes 2·n³ FLOPs. The CPU does `cpu_flops` per second. The device "
    "does `device_flops` per second, but it also needs `launch_seconds` for the launch. And all **three** "
    "matrices cross the bus, two going and one coming back, at `bus_bytes` bytes per second. The `sizes` "
    "rise. Return the first of them for which the device takes less time in all, or `None` if there is none.",
    level=3,
    minutes=12,
    hints=(
        "Take one size n, and write two times on paper. The CPU's time has one part, and the device's "
        "has three. Which of these parts grow with n?",
        "FLOPs divided by FLOPs per second give seconds, and so do bytes divided by bytes per second. "
        "A matrix has n² numbers, and a float32 number takes 4 bytes. The device's three parts come "
        "one after another. Go through the sizes from the smallest, and stop as soon as the device "
        "needs less time.",
        "Here you look for the first order for which a shop in town is cheaper, though the bus there "
        "costs 4 euros.\n\n"
        """```python
def first_cheaper(orders):
    for eggs in orders:
        if 4 + 0.25 * eggs < 0.5 * eggs:
            return eggs

print(first_cheaper([6, 12, 16, 24]))  # 24, because 16 cost the same
print(first_cheaper([6, 12]))  # None
```""",
    ),
    reference=smallest_winner,
    check_answer=ComparesToReference(
        smallest_winner,
        _CASES,
        known_mistakes_of(smallest_winner, _MISTAKES),
        read=_validated_result,
        draw=_random_case,
        alike=operator.eq,
        situation=_describe_case,
    ),
    why="Compute grows with n³, transfers grow with n², and the launch doesn't grow at all, so a "
    "device that computes faster wins once n is large enough. The launch and the bus decide how "
    "large that is.",
    diagnoses={
        "tie": "At this size both take the same time. Less means less.",
        "no-transfers": "The transfers make next to no difference to your answer: two matrices of n² numbers "
        "have to get to the device, and the result has to come back.",
        "one-way": "Only two matrices cross your bus. The result comes back too.",
        "not-bytes": "The bus is given in bytes per second, and a float32 number has more than one.",
        "no-launch": "The launch makes no difference to your answer: the device pays for it before it "
        "computes anything, and the CPU does not.",
    },
)
