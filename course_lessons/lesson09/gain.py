"""Old against new, on a machine that is never quiet."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from random import Random
from typing import Any

from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
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
            before = timed(old)
            after = timed(new)
        else:
            after = timed(new)
            before = timed(old)
        ratios.append(before / after)
    return tuple(statistics.quantiles(ratios, n=4, method="inclusive"))


class _Shared:
    """A machine that others use too: how long a call takes depends on when it is made.

    The first call of each loop is slow, and every call that comes second in a round is so by ``second``.
    """

    def __init__(self, old: float, new: float, load: Sequence[float], second: float) -> None:
        self.now, self.calls, self._load, self._second = 0.0, "", load, second
        self._seconds = {"o": old, "n": new}

    def clock(self) -> float:
        return self.now

    def old(self) -> None:
        self._run("o")

    def new(self) -> None:
        self._run("n")

    def _run(self, which: str) -> None:
        took = self._seconds[which] * (1 if which in self.calls else 9)
        done = len(self.calls) - 2
        if done >= 0:
            took *= self._load[done // 2 % len(self._load)] * (self._second if done % 2 else 1)
            took *= 1 + done * 7 % 11 / 50
        self.calls += which
        self.now += took


def _case(rounds: int, *settings: Any) -> tuple[Any, ...]:
    machine = _Shared(*settings)
    return machine.old, machine.new, rounds, machine.clock


def _cases() -> list[tuple[Any, ...]]:
    return [
        _case(5, 2.0, 1.6, (1, 1, 3, 1.5, 1), 1.1),
        _case(7, 1.0, 4.0, (1.0, 1.2, 5.0, 1.1, 1.3, 1.0, 2.0), 1.3),
        _case(8, 3.0, 3.0, (1, 2, 4, 8), 1.25),
    ]


def _draw(random: Random) -> tuple[Any, ...]:
    rounds = random.randrange(4, 12)
    load = [random.choice((1, 1, 1.5, 3, 6)) for _ in range(rounds)]
    old, new = random.uniform(1, 4), random.uniform(0.5, 4)
    return _case(rounds, old, new, load, random.uniform(1.1, 1.5))


def _look(got: Any, old: Any, *_: Any) -> tuple[str, Any]:
    """Return the order of the calls, and the numbers."""
    return old.__self__.calls, got


def _shown(looked: tuple[str, Any]) -> str:
    calls = " ".join({"o": "old", "n": "new"}[call] for call in looked[0])
    return f"{', '.join(f'{number:.4g}' for number in looked[1])} (calls: {calls})"


def _read(judge: Judge, got: Any) -> list[float]:
    return [judge.number(number) for number in judge.listed(got, "three numbers")]


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
        'return tuple(statistics.quantiles(ratios, n=4, method="inclusive"))': 'a, b = (statistics.quantiles(each, n=4, method="inclusive") for each in zip(*ratios))\n'
        "return tuple(x / y for x, y in zip(a, b))",
    },
}


EXERCISE = Exercise(
    id="09.gain",
    title="Old against new, on a machine that is never quiet",
    level=2,
    minutes=12,
    task="""
Write `gain(old, new, rounds, clock)`, the ledger's own measurement. `old()` and `new()` run the two loops
for equally many images; `clock()` returns seconds. Warm both up with one call each that is not timed, the old one first. Then
come `rounds` rounds. In each, time one call of each; the old loop begins the first round, the new one the
second, and so on in turns. A round gives one number: how many times as fast the new loop was. Return
**(lower quartile, median, upper quartile)** of these numbers, as
`statistics.quantiles(numbers, n=4, method="inclusive")` gives them.
""",
    hints=(
        "Suppose another program slows the machine down for a minute. How do you keep that out of the "
        "result? Both calls of a round have to meet it, and you have to compare them with each other.",
        "Write a small function that reads `clock()` before and after a call and returns the difference. "
        "In a round, `turn % 2` tells you which loop begins. Either way, divide the old loop's seconds "
        "by the new one's, and keep that one number. The quartiles come at the end.",
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
        _cases,
        known_mistakes_of(gain, _MISTAKES),
        read=_read,
        look=_look,
        draw=_draw,
        situation=lambda old, new, rounds, clock: (
            f"{rounds} rounds on a machine that others use too"
        ),
        shown=_shown,
    ),
    why="Each round compares two neighbours, so slow minutes cancel, and swapping cancels what the first call "
    "of a pair does to the second. The quartiles say whether the median means anything.",
    diagnoses={
        "no-warm-up": "The first call of each loop is slow (libraries load, memory is fetched). It must not be timed.",
        "in-blocks": "You run all rounds of one loop, and then those of the other. If the machine gets slower in between, one of them "
        "is blamed for it.",
        "same-order": "The same loop began every round. What the first call leaves behind, such as heat and a full cache, "
        "always meets the other.",
        "upside-down": "That is the new loop's time over the old one's: below 1 where the new loop is faster.",
        "ratio-of-medians": "You compared the middle of one list with the middle of the other. They may be from "
        "different rounds, and so from a quiet minute and a busy one.",
    },
)
