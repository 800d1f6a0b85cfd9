"""Old against new, on a machine that is never quiet."""

import statistics
from functools import partial

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def gain(old, new, rounds, clock):
    def timed(work):
        begin = clock()
        work()
        return clock() - begin

    old()
    new()
    ratios = []
    for turn in range(rounds):
        if turn % 2 == 0:
            before, after = timed(old), timed(new)
        else:
            after, before = timed(new), timed(old)
        ratios.append(before / after)
    return tuple(statistics.quantiles(ratios, n=4, method="inclusive"))


class _SharedMachine:
    """A machine with other users, on virtual time: how long a call takes depends on when it is made.

    ``old`` and ``new`` are seconds, ``load`` the factors by round. The first call of each takes 9 times
    as long, and the second call of a round ``second`` times.
    """

    def __init__(self, old, new, load, second):
        self.now, self.calls, self._load, self._second = 0.0, [], load, second
        self._seconds = {"old": old, "new": new}

    def clock(self):
        """Return the virtual time in seconds."""
        return self.now

    def run(self, which):
        """Advance the time by one call of ``which``, "old" or "new", and add it to ``calls``."""
        seconds = self._seconds[which] * (1 if which in self.calls else 9)
        done = len(self.calls) - 2
        if done >= 0:
            seconds *= self._load[done // 2 % len(self._load)] * (self._second if done % 2 else 1)
            seconds *= 1 + done * 7 % 11 / 50
        self.calls.append(which)
        self.now += seconds


def _make_case(rounds, *settings):
    """Return the arguments of ``gain`` for a new machine with these settings."""
    machine = _SharedMachine(*settings)
    return partial(machine.run, "old"), partial(machine.run, "new"), rounds, machine.clock


def _random_case(rng):
    """Return a random case with 4 to 11 rounds."""
    rounds = rng.randrange(4, 12)
    load = [rng.choice((1, 1, 1.5, 3, 6)) for _ in range(rounds)]
    return _make_case(rounds, rng.uniform(1, 4), rng.uniform(0.5, 4), load, rng.uniform(1.1, 1.5))


def _format_value(looked):
    """Return a compared value, ``(calls, quartiles)``, as text."""
    numbers = ", ".join(f"{number:.4g}" for number in looked[1])
    return _("{numbers} (calls: {calls})").format(numbers=numbers, calls=" ".join(looked[0]))


_QUARTILES = 'statistics.quantiles(ratios, n=4, method="inclusive")'
_OF_EACH = 'statistics.quantiles(each, n=4, method="inclusive") for each in zip(*ratios)'
_MISTAKES = {
    "no-warm-up": {"old()\nnew()": ""},
    "in-blocks": {
        "for turn in range(rounds):": "befores = [timed(old) for _ in range(rounds)]\n"
        "ratios = [before / timed(new) for before in befores]\nfor turn in ():"
    },
    "same-order": {"turn % 2 == 0": "True"},
    "upside-down": {"before / after": "after / before"},
    "ratio-of-medians": {
        "append(before / after)": "append((before, after))",
        f"tuple({_QUARTILES})": f"tuple(x / y for x, y in zip(*({_OF_EACH})))",
    },
}


EXERCISE = Exercise(
    id="10.gain",
    title="Old against new, on a machine that is never quiet",
    level=2,
    minutes=12,
    task="""
Write `gain(old, new, rounds, clock)`, which measures like the ledger. `old()` and `new()` run the two loops
for equally many images, and `clock()` returns the time in seconds. First warm up: call `old()` once, then
`new()` once, and time neither. Then come `rounds` rounds. In each, time one call of each loop. The old loop
begins the first round, the new one the second, and so on in turns. Each round gives you one number, which
says how many times as fast the new loop was. Return **(lower quartile, median, upper quartile)** of these
numbers, as `statistics.quantiles(numbers, n=4, method="inclusive")` gives them.
""",
    hints=(
        "Suppose another program slows the machine down for a minute. How do you keep that out of the "
        "result? Both calls of a round have to meet it, and you have to compare them with each other.",
        "Write a small function that reads `clock()` before and after a call and returns the difference. In "
        "a round, `turn % 2` tells you which loop begins. Either way, divide the old loop's seconds by the "
        "new one's, and keep that one number. The quartiles come at the end.",
        "Here scales a and b weigh an apple in three rounds, and take turns at being first. Each round "
        "leaves one number.\n"
        """
```python
import statistics
drifts = []
for turn, (first, second) in enumerate([(80, 82), (83, 81), (79, 80)]):
    a, b = (first, second) if turn % 2 == 0 else (second, first)
    drifts.append(b - a)  # 2, 2 and 1
print(statistics.quantiles(drifts, n=4, method="inclusive"))  # [1.5, 2.0, 2.0]
```""",
    ),
    reference=gain,
    check_answer=ComparesToReference(
        gain,
        lambda: [
            _make_case(5, 2.0, 1.6, (1, 1, 3, 1.5, 1), 1.1),
            _make_case(7, 1.0, 4.0, (1.0, 1.2, 5.0, 1.1, 1.3, 1.0, 2.0), 1.3),
            _make_case(8, 3.0, 3.0, (1, 2, 4, 8), 1.25),
        ],
        known_mistakes_of(gain, _MISTAKES),
        read=lambda judge, got: [judge.number(n) for n in judge.listed(got, _("three numbers"))],
        look=lambda got, *case: (case[3].__self__.calls, got),
        draw=_random_case,
        situation=lambda *case: _("{rounds} rounds on a machine that others use too").format(rounds=case[2]),
        shown=_format_value,
    ),
    why="Each round compares two neighbours, so slow minutes cancel, and swapping cancels what the first "
    "call of a pair does to the second. The quartiles say whether the median means anything.",
    diagnoses={
        "no-warm-up": "The first call of each loop is slow, because libraries load. It must not be timed.",
        "in-blocks": "You run all rounds of one loop, and then those of the other. If the machine gets "
        "slower in between, one of them is blamed for it.",
        "same-order": "The same loop began every round. What the first call leaves behind, such as heat and "
        "a full cache, always meets the other.",
        "upside-down": "That is the new loop's time over the old one's. Below 1, the new loop was faster.",
        "ratio-of-medians": "You compared the middle of one list with the middle of the other. They may be "
        "from different rounds, and so from a quiet minute and a busy one.",
    },
)
