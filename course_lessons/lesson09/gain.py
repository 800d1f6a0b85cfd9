"""Old against new, on a machine that is never quiet."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases, near


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
        """Return the time in seconds."""
        return self.now

    def old(self) -> None:
        """Run the old loop."""
        self._run("o")

    def new(self) -> None:
        """Run the new loop."""
        self._run("n")

    def _run(self, which: str) -> None:
        took = self._seconds[which] * (1 if which in self.calls else 9)
        done = len(self.calls) - 2
        if done >= 0:
            took *= self._load[done // 2 % len(self._load)] * (self._second if done % 2 else 1)
            took *= 1 + done * 7 % 11 / 50
        self.calls += which
        self.now += took


_MACHINES = (
    ({"old": 2.0, "new": 1.6, "load": (1, 1, 3, 1.5, 1), "second": 1.1}, 5),
    ({"old": 1.0, "new": 4.0, "load": (1.0, 1.2, 5.0, 1.1, 1.3, 1.0, 2.0), "second": 1.3}, 7),
    ({"old": 3.0, "new": 3.0, "load": (1, 2, 4, 8), "second": 1.25}, 8),
)


def _right_order(rounds: int) -> str:
    return "".join("on" if turn % 2 == 0 else "no" for turn in range(rounds))


def _on_machine(gain: Callable[..., Any], judge: Judge | None = None) -> Callable[..., Any]:
    """Return what runs a function on a machine; a judge looks at the order of the calls."""

    def run(settings: dict[str, Any], rounds: int) -> Any:
        machine = _Shared(**settings)
        got = gain(machine.old, machine.new, rounds, machine.clock)
        if judge is not None:
            got = got.tolist() if hasattr(got, "tolist") else got  # an array or a tensor
            judge.is_a(got, (tuple, list), "three numbers")
            _judge_order(machine.calls, rounds, judge)
        return got

    return run


def _judge_order(calls: str, rounds: int, judge: Judge) -> None:
    if len(calls) == 2 * rounds:
        judge.no("no-warm-up", seen=f"{len(calls)} calls", expected=f"2 and then {2 * rounds}")
    if len(calls) != 2 * rounds + 2 or set(calls[:2]) != {"o", "n"}:
        judge.no(
            "other-calls",
            seen=_named(calls),
            expected=f"each loop once to warm up, then each once in {rounds} rounds",
        )
    timed = calls[2:]
    pairs = [timed[i : i + 2] for i in range(0, len(timed), 2)]
    if any(set(pair) != {"o", "n"} for pair in pairs):
        judge.no("in-blocks", seen=_named(timed), expected=_named(_right_order(rounds)))
    if len(set(pairs)) == 1:
        judge.no("same-order", seen=_named(timed), expected=_named(_right_order(rounds)))
    if timed != _right_order(rounds):
        judge.no("other-order", seen=_named(timed), expected=_named(_right_order(rounds)))


def _named(calls: str) -> str:
    return " ".join({"o": "old", "n": "new"}[call] for call in calls)


def _three(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.4g}" for number in numbers)


def _read(judge: Judge, got: Sequence[Any]) -> list[float]:
    if len(got) != 3:
        judge.no("not-three", seen=got, expected="(lower quartile, median, upper quartile)")
    return [judge.number(x) for x in got]


_QUARTILES = 'tuple(statistics.quantiles(ratios, n=4, method="inclusive"))'
GAIN_TWINS = {
    "upside-down": edited(gain, {"before / after": "after / before"}),
    "first-over-second": edited(
        gain, {"before / after": "after / before if turn % 2 else before / after"}
    ),
    "ratio-of-medians": edited(
        gain,
        {
            "before / after": "(before, after)",
            f"return {_QUARTILES}": 'a, b = (statistics.quantiles(each, n=4, method="inclusive") for each in zip(*ratios))\n'
            "return tuple(x / y for x, y in zip(a, b))",
        },
    ),
    "exclusive": edited(gain, {', method="inclusive"': ""}),
    "extremes": edited(gain, {_QUARTILES: "min(ratios), statistics.median(ratios), max(ratios)"}),
}

_OVER_MACHINES = OverCases(
    _on_machine(gain),
    _MACHINES,
    {diagnosis: _on_machine(twin) for diagnosis, twin in GAIN_TWINS.items()},
    read=_read,
    alike=lambda got, right: all(map(near, got, right)),
    situation=lambda settings, rounds: f"{rounds} rounds on a machine that others use too",
    shown=_three,
)


def _check_gain(answer: Callable[..., Any], judge: Judge) -> None:
    _OVER_MACHINES(_on_machine(answer, judge), judge)


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
        "When another program slows the machine down for a while, what keeps it from touching the result? "
        "Both calls of a round must meet it, and be compared with each other.",
        "Write a small function that times one call. In a round, `turn % 2` says who begins.",
        "The speed-up of a round is the old loop's seconds over the new one's. Collect one for each round, and take "
        "the quartiles at the end.",
    ),
    reference=gain,
    check_answer=_check_gain,
    why="Each round compares two neighbours, so slow minutes cancel, and swapping cancels what the first call "
    "of a pair does to the second. The quartiles say whether the median means anything.",
    diagnoses={
        "no-warm-up": "The first call of each loop is slow (libraries load, memory is fetched). It must not be "
        "timed.",
        "other-calls": "After one call each to warm up, each loop runs once in every round.",
        "in-blocks": "All calls of one loop came before the other's: if the machine gets slower in between, the "
        "second loop is blamed for it.",
        "same-order": "The same loop began every round. What the first call leaves behind, such as heat, or a "
        "full cache, always meets the other.",
        "other-order": "The old loop begins the first round, the new one the second, and so on.",
        "not-three": "Return three numbers.",
        "upside-down": "That is the new loop's time over the old one's: below 1 where the new loop is faster.",
        "first-over-second": "In every second round you divided the new loop's time by the old one's. Whoever begins, "
        "the new loop's time is below the line.",
        "ratio-of-medians": "You compared the middle of one list with the middle of the other. They may be from "
        "different rounds, and so from a quiet minute and a busy one.",
        "exclusive": "These are quartiles by the other rule, which is for a sample of something larger. The task names "
        'the method "inclusive".',
        "extremes": "The least and the greatest number are what one interruption makes of them. Quartiles bear "
        "a few.",
    },
)
