"""Old against new, on a machine that is never quiet."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Exercise, Judge
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
        self.now, self.calls, self.log, self._load, self._second = 0.0, "", "", load, second
        self._seconds = {"o": old, "n": new}

    def clock(self) -> float:
        """Return the time in seconds."""
        self.log += "c"
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
        self.log += which
        self.now += took


_MACHINES = (
    ({"old": 2.0, "new": 1.6, "load": (1, 1, 3, 1.5, 1), "second": 1.1}, 5),
    ({"old": 1.0, "new": 4.0, "load": (1.0, 1.2, 5.0, 1.1, 1.3, 1.0, 2.0), "second": 1.3}, 7),
    ({"old": 3.0, "new": 3.0, "load": (1, 2, 4, 8), "second": 1.25}, 8),
)


def _draw(random: Random) -> tuple[dict[str, Any], int]:
    rounds = random.randrange(4, 12)
    load = [random.choice((1, 1, 1.5, 3, 6)) for _ in range(rounds)]
    settings = {"old": random.uniform(1, 4), "new": random.uniform(0.5, 4), "load": load}
    return {**settings, "second": random.uniform(1.1, 1.5)}, rounds


def _right_order(rounds: int) -> str:
    return "".join("on" if turn % 2 == 0 else "no" for turn in range(rounds))


def _on_machine(gain: Callable[..., Any], judge: Judge | None = None) -> Callable[..., Any]:
    """Return what runs a function on a machine; a judge looks at the order of the calls."""

    def run(settings: dict[str, Any], rounds: int) -> Any:
        machine = _Shared(**settings)
        got = gain(machine.old, machine.new, rounds, machine.clock)
        if judge is not None:
            got = judge.listed(got, "three numbers")
            _judge_order(machine.calls, machine.log, rounds, judge)
        return got

    return run


def _judge_order(calls: str, log: str, rounds: int, judge: Judge) -> None:
    right = _right_order(rounds)
    if "c" not in log:
        judge.no("other-clock", seen="clock() was never called", expected="the time read from it")
    if calls == f"on{right}":
        return
    untimed = log.split("c")[0]  # before the clock was read at all
    timed = calls[len(untimed) :]
    pairs = {calls[i : i + 2] for i in range(len(untimed), len(calls), 2)}
    for diagnosis, seen, expected in (
        ("no-warm-up", not untimed, "one call of each that is not timed"),
        ("one-warm-up", len(untimed) == 1, "one call of each before the clock is read"),
        ("other-warm-up", untimed not in ("on", "no"), "old new"),
        ("fewer-calls", len(timed) < 2 * rounds, f"{2 * rounds} calls in {rounds} rounds"),
        ("more-calls", len(timed) > 2 * rounds, f"{2 * rounds} calls in {rounds} rounds"),
        ("in-blocks", not pairs <= {"on", "no"}, _named(right)),
        ("same-order", len(pairs) == 1, _named(right)),
        ("other-order", timed != right, _named(right)),
        ("warm-up-order", untimed != "on", "old new"),
    ):
        if seen:
            before = diagnosis in ("one-warm-up", "other-warm-up", "warm-up-order")
            judge.no(diagnosis, seen=_named(untimed if before else timed), expected=expected)


def _named(calls: str) -> str:
    return " ".join({"o": "old", "n": "new"}[call] for call in calls)


def _three(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.4g}" for number in numbers)


def _read(judge: Judge, got: Sequence[Any]) -> list[float]:
    if len(got) != 3:
        judge.no("not-three", seen=got, expected="(lower quartile, median, upper quartile)")
    return [judge.number(x) for x in got]


_QUARTILES = 'tuple(statistics.quantiles(ratios, n=4, method="inclusive"))'
_ORDERED = "sorted(ratios)"


def _returns(*values: str) -> tuple[Callable[..., Any], ...]:
    return tuple(edited(gain, {_QUARTILES: value}) for value in values)


def _ratios(*values: str) -> tuple[Callable[..., Any], ...]:
    return tuple(edited(gain, {"before / after": value}) for value in values)


_MISTAKES = {
    "upside-down": (
        {"before / after": "after / before"},
        {"before / after": "after / before", ', method="inclusive"': ""},
        {"before / after": "after / before", _QUARTILES: f"{_QUARTILES}[::-1]"},
    ),
    "first-over-second": _ratios("after / before if turn % 2 else before / after"),
    "second-over-first": _ratios("before / after if turn % 2 else after / before"),
    "difference": _ratios("before - after", "after - before"),
    "one-less": _ratios("before / after - 1"),
    "ratio-of-medians": (
        {
            "append(before / after)": "append((before, after))",
            f"return {_QUARTILES}": 'a, b = (statistics.quantiles(each, n=4, method="inclusive") for each in zip(*ratios))\n'
            "return tuple(x / y for x, y in zip(a, b))",
        },
    ),
    "of-sums": (
        {
            "append(before / after)": "append((before, after))",
            f"return {_QUARTILES}": "a, b = map(sum, zip(*ratios))\nreturn (a / b,) * 3",
        },
    ),
    "one-loop": _ratios("before", "after", "1 / after"),
    "clock-runs-on": (
        {
            "begin = clock()\nwork()\nreturn clock() - begin": "work()\nreturn clock() - begin",
            "for turn in range(rounds):": "for turn in range(rounds):\n    begin = clock()",
        },
    ),
    "exclusive": ({', method="inclusive"': ""},),
    "extremes": _returns(
        *(
            f"min(ratios), statistics.{middle}(ratios), max(ratios)"
            for middle in ("median", "fmean")
        )
    ),
    "mean": _returns(
        f"(lambda q: (q[0], statistics.fmean(ratios), q[2]))({_QUARTILES})",
        "(statistics.fmean(ratios),) * 3",
    ),
    "rounded": _returns(*(f"tuple(round(x, {n}) for x in {_QUARTILES})" for n in (1, 2, 3, 4))),
    "descending": _returns(f"{_QUARTILES}[::-1]"),
    "median-elsewhere": _returns(
        *(
            f"(lambda q: ({order}))({_QUARTILES})"
            for order in ("q[1], q[0], q[2]", "q[0], q[2], q[1]")
        )
    ),
    "by-places": _returns(
        f"tuple({_ORDERED}[len(ratios) * i // 4] for i in (1, 2, 3))",
        f"tuple({_ORDERED}[(len(ratios) - 1) * i // 4] for i in (1, 2, 3))",
        f"({_ORDERED}[len(ratios) // 4], statistics.median(ratios), {_ORDERED}[3 * len(ratios) // 4])",
    ),
}
GAIN_TWINS = twins_of(gain, _MISTAKES)

_OVER_MACHINES = OverCases(
    _on_machine(gain),
    _MACHINES,
    {diagnosis: tuple(map(_on_machine, several)) for diagnosis, several in GAIN_TWINS.items()},
    read=_read,
    draw=_draw,
    otherwise="other-numbers",
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
        "other-clock": "Read the time with the `clock` that your function is given.",
        "no-warm-up": "The first call of each loop is slow (libraries load, memory is fetched). It must not be "
        "timed.",
        "one-warm-up": "Only one of the two loops is warmed up before the clock is read.",
        "other-warm-up": "Before the clock is read, each of the two loops is to be called once.",
        "warm-up-order": "You warm up the new loop first. The task has the old one first.",
        "fewer-calls": "Too few calls after the warm-up: each loop runs once in every one of the rounds.",
        "more-calls": "Too many calls after the warm-up: each loop runs once in every one of the rounds.",
        "in-blocks": "A loop was called twice before the other was. In each round both run: if the machine gets "
        "slower in between, one of them is blamed for it.",
        "same-order": "The same loop began every round. What the first call leaves behind, such as heat and a "
        "full cache, always meets the other.",
        "other-order": "The old loop begins the first round, the new one the second, and so on.",
        "not-three": "Return three numbers.",
        "upside-down": "That is the new loop's time over the old one's: below 1 where the new loop is faster.",
        "first-over-second": "In every second round you divided the new loop's time by the old one's. Whoever begins, "
        "the new loop's time is below the line.",
        "second-over-first": "In the first round, and in every second one after it, you divided the new loop's time by the "
        "old one's. Whoever begins, the new loop's time is below the line.",
        "difference": "You subtract the times. How many times as fast is a ratio.",
        "one-less": "You subtract 1 from the ratio. Equal times are to give 1.",
        "ratio-of-medians": "You compared the middle of one list with the middle of the other. They may be from "
        "different rounds, and so from a quiet minute and a busy one.",
        "of-sums": "You add up the times before you divide. A round gives a number of its own.",
        "clock-runs-on": "The clock is started once a round, so the time of the second call contains the first.",
        "exclusive": "These are quartiles by the other rule, which is for a sample of something larger. The task names "
        'the method "inclusive".',
        "extremes": "The least and the greatest number are what one interruption makes of them. Quartiles bear "
        "a few.",
        "mean": "A mean is among your three numbers. One slow round moves it: the median is asked for.",
        "rounded": "You round the three numbers. Leave them as they are.",
        "one-loop": "Only one loop's time is in your numbers. A ratio needs both.",
        "descending": "Your three numbers begin with the upper quartile. The lower one comes first.",
        "median-elsewhere": "The right three numbers, but the median belongs between the quartiles.",
        "by-places": "You take quartiles at whole places of the sorted list. Where a quartile falls between two numbers, "
        "the task's method lies between them too.",
        "other-numbers": "The calls come in the right order. The three numbers are not the quartiles of the ratios, old "
        "seconds over new.",
    },
)
