"""Choose, and do not trust."""

from __future__ import annotations

import operator
from collections.abc import Callable
from random import Random
from typing import Any

from course_lessons.shared.edited import edited
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases


def pick_device(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if kind in available and works(kind):
            return kind
    return "cpu"


_KINDS = ("cuda", "xpu", "mps")
_CASES = tuple(
    (available.split(), broken.split())
    for available, broken in (
        *(("cuda", ""), ("mps", ""), ("xpu", ""), ("", "")),
        *(("cuda", "cuda"), ("mps", "mps"), ("xpu", "xpu")),
        *(("mps xpu cuda", ""), ("mps xpu", ""), ("cuda xpu", "cuda"), ("cuda mps", "cuda")),
        *(("mps xpu cuda", "cuda xpu"), ("mps cuda", "mps cuda"), ("xpu cuda mps", "xpu")),
    )
)


def _draw(random: Random) -> tuple[list[str], list[str]]:
    available = random.sample(_KINDS, random.randrange(4))
    return available, [kind for kind in available if random.random() < 0.4]


class _Probe:
    """Stands for a small kernel run on a device; remembers calls for devices that are not there."""

    def __init__(self, available: list[str], broken: list[str]) -> None:
        self.available, self.broken = list(available), broken
        self.asked_absent: list[str] = []

    def __call__(self, kind: str) -> bool:
        if kind not in self.available:
            self.asked_absent.append(kind)
        return kind not in self.broken


def _on_machine(pick: Callable[..., Any], judge: Judge | None = None) -> Callable[..., Any]:
    """Return what lets a function choose on a machine; a judge looks at the name, and at what was tried."""

    def run(available: list[str], broken: list[str]) -> Any:
        works = _Probe(available, broken)
        got = pick(available, works)
        if judge is not None:
            where = _situation(available, broken)
            if works.asked_absent:
                judge.no(
                    seen=f"works({works.asked_absent[0]!r}) was called for {where}",
                    expected="works() only for kinds that are in the list",
                )
            if got is None and not set(available) - set(broken):
                judge.no("no-fallback", seen=f"None for {where}", expected="'cpu'")
            judge.is_a(got, str, "a string such as 'cuda'")
            if got not in (*_KINDS, "cpu"):
                judge.no(
                    seen=f"{got!r} for {where}",
                    expected="'cuda', 'xpu', 'mps', 'cpu'",
                )
        return got

    return run


def _situation(available: list[str], broken: list[str]) -> str:
    return f"available {available}" + (f", but {' and '.join(broken)} fails" if broken else "")


_ORDER, _BOTH = '("cuda", "xpu", "mps")', "kind in available and works(kind)"
_GIVES_UP = {
    f"if {_BOTH}:\n    return kind": 'if kind in available:\n    return kind if works(kind) else "cpu"'
}


def _of(*edits: dict[str, str]) -> tuple[Callable[..., Any], ...]:
    return tuple(edited(pick_device, each) for each in edits)


PICK_TWINS = {
    "order": _of({_ORDER: "available"}),
    "available-is-not-works": _of(
        {f"{_BOTH}": "kind in available"}, {_BOTH: "kind in available", _ORDER: "available"}
    ),
    "gave-up": _of(_GIVES_UP),
}
_OVER_MACHINES = OverCases(
    _on_machine(pick_device),
    _CASES,
    {name: tuple(map(_on_machine, several)) for name, several in PICK_TWINS.items()},
    draw=_draw,
    read=lambda judge, got: got,
    alike=operator.eq,
    otherwise=lambda got, right, available, broken: (
        "not-there"
        if got not in [*available, "cpu"]
        else "available-is-not-works"
        if got in broken
        else "passed-over"
    ),
    situation=_situation,
    shown=repr,
)


def _check_pick_device(answer: Callable[..., Any], judge: Judge) -> None:
    _OVER_MACHINES(_on_machine(answer, judge), judge)


EXERCISE = Exercise(
    id="01.pick_device",
    title="Choose, and do not trust",
    task="`available` is a list of those of `'cuda'`, `'xpu'` and `'mps'` that PyTorch reports, in any "
    "order, such as `['mps']` or `[]`. `works(kind)` tries a small product there and returns whether the result "
    "was right; it may be called only for kinds in the list. Return the first of `'cuda'`, `'xpu'`, "
    "`'mps'` that is available **and** works. If there is none, return `'cpu'`.",
    level=1,
    minutes=6,
    hints=(
        "Go through the three kinds in the order of preference, not in the order of the list.",
        "Two questions for each kind: is it in the list, and does it work? Ask them in this order.",
        "`for kind in ('cuda', 'xpu', 'mps'):` and inside it one `if` with `and`. What stands after "
        "the loop?",
    ),
    reference=pick_device,
    check_answer=_check_pick_device,
    why="This is what `get_device()` does. All the rest of a program needs only its answer.",
    diagnoses={
        "order": "The preference decides, not the order in which the kinds are reported: CUDA, then "
        "XPU, then MPS.",
        "not-there": "You chose a device that this machine does not have. The first tensor sent there "
        "raises an error: look into `available` before you choose.",
        "no-fallback": "With no accelerator that works, the program must still get a device: every "
        "machine has a CPU.",
        "available-is-not-works": "Available means that a driver and a device were found. It does "
        "not mean that a kernel runs there: ask `works` before you trust it.",
        "gave-up": "One kind failed its test, and the answer fell back to the CPU at once. A machine can "
        "have a second accelerator that works: go on to the next kind.",
    },
)
