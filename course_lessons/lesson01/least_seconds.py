"""Which limit do you hit?"""

import numbers

from course_language import _
from course_lessons.shared.edited import variants
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference, near


def least_seconds(flops, bytes_moved, peak_flops, bandwidth):
    compute = flops / peak_flops
    memory = bytes_moved / bandwidth
    limit = "compute" if compute > memory else "memory"
    return max(compute, memory), limit


_CASES = (
    (2e12, 1e9, 1e13, 1e12),
    (1e9, 12e9, 1e13, 1e12),
    (3e6, 4e6, 2e11, 4e10),
    (2e10, 3e10, 1e10, 9e10),  # fewer FLOPs than bytes, and computing takes longer
    (0.0, 6e8, 1e13, 3e11),
    (0.0, 5e9, 2e11, 4e10),
)


def _random_case(rng):
    """Return random arguments for which one of the limits takes 1.3 to 1000 times as long as the other."""
    peak, bandwidth = 10 ** rng.uniform(10, 14), 10 ** rng.uniform(9, 12)
    seconds = 10 ** rng.uniform(-4, 1)
    shorter = 10 ** rng.uniform(-3, -0.1)
    compute, memory = rng.choice(((1.0, shorter), (shorter, 1.0)))
    return seconds * compute * peak, seconds * memory * bandwidth, peak, bandwidth


def _validated_result(judge, got):
    """Return ``(seconds, limit)`` with ``seconds`` as a float, or refuse the result."""
    judge.is_a(got, (tuple, list), _("a pair: seconds and 'compute' or 'memory'"))
    if len(got) != 2:
        judge.no(seen=got, expected=_("two things: seconds, and the limit's name"))
    if isinstance(got[0], str) and isinstance(got[1], numbers.Real):
        judge.no(seen=got, expected=_("the seconds, then the limit's name"))
    if got[1] not in ("compute", "memory", None):
        judge.no(seen=got[1], expected=_("'compute' or 'memory'"))
    return judge.number(got[0]), got[1]


def _values_agree(got, right):
    """Return whether seconds and names agree; a ``right`` name of None agrees with any name."""
    return near(got[0], right[0]) and right[1] in (None, got[1])


_returning_seconds = variants(least_seconds, "max(compute, memory), limit", "{}, None")
_comparing = variants(least_seconds, "compute > memory")
_MISTAKES = {
    "added": _returning_seconds("compute + memory"),
    "easier-limit": _returning_seconds("min(compute, memory)"),
    "crossed": _returning_seconds("max(flops / bandwidth, bytes_moved / peak_flops)", "flops / bandwidth"),
    "copy-free": _returning_seconds("max(compute, memory) if flops else 0.0"),
    "amounts-compared": _comparing("flops > bytes_moved", "bytes_moved > flops"),
}


EXERCISE = Exercise(
    id="01.least_seconds",
    title="Which limit do you hit?",
    task="A piece of work needs `flops` FLOPs (0 for a copy) and moves `bytes_moved` bytes. The device "
    "computes at most `peak_flops` FLOPs per second and moves at most `bandwidth` bytes per second. It "
    "does both at the same time. Return a pair. First the least number of seconds that the work can "
    "take, then the limit that decides it, `'compute'` or `'memory'`. If both take equally long, you may "
    "name either.",
    level=2,
    minutes=8,
    hints=(
        "Look at the two jobs one by one. How long would the arithmetic take if nothing had to be "
        "moved? And how long would the moving take without any arithmetic?",
        "The device does both jobs at the same time. Imagine that two friends start together, and one "
        "paints the door while the other cleans the windows. When can they both go home? For the name, "
        "compare the two times and not `flops` with `bytes_moved`, because a device can often do far "
        "more FLOPs than bytes in a second.",
        "Here two cooks start together, and you ask whose work ends last.\n\n"
        """```python
amount = {"potatoes": 90, "beans": 600}
per_minute = {"potatoes": 6, "beans": 50}
minutes = {job: amount[job] / per_minute[job] for job in amount}
print(minutes)  # 15 and 12
print(max(minutes, key=minutes.get))  # potatoes, though there are more beans
```""",
    ),
    reference=least_seconds,
    check_answer=ComparesToReference(
        least_seconds, _CASES, _MISTAKES, read=_validated_result, draw=_random_case, alike=_values_agree
    ),
    why="This is the roofline, written as a time. If you measure far more than this, something else is "
    "to blame, such as overhead, waiting or a bad memory pattern, and lesson 08 shows you how to "
    "find it.",
    diagnoses={
        "added": "You added the two times. Fetching and computing overlap.",
        "easier-limit": "Your seconds are the shorter of the two times. The work is done when both are over.",
        "crossed": "The rates are crossed: FLOPs are divided by FLOPs per second, bytes by bytes per second.",
        "copy-free": "A copy has no FLOPs, and still takes time: its bytes must be moved.",
        "amounts-compared": "The seconds are right. For the name you compare FLOPs with bytes, and the "
        "device can do more of one than of the other. Compare the two times.",
    },
)
