"""Choose, and do not trust."""

from __future__ import annotations

from typing import Any

from course_utils.exercises import Exercise, Judge


def pick_device(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if kind in available and works(kind):
            return kind
    return "cpu"


def _check_pick_device(answer: Any, judge: Judge) -> None:
    cases = (
        (["cuda"], "", "cuda"),
        (["mps"], "", "mps"),
        (["xpu"], "", "xpu"),
        ([], "", "cpu"),
        (["cuda"], "cuda", "cpu"),
        (["mps"], "mps", "cpu"),
        (["xpu"], "xpu", "cpu"),
        (["mps", "xpu", "cuda"], "", "cuda"),
        (["mps", "xpu"], "", "xpu"),
        (["cuda", "xpu"], "cuda", "xpu"),
        (["cuda", "mps"], "cuda", "mps"),
        (["mps", "xpu", "cuda"], "cuda xpu", "mps"),
    )
    for available, broken, expected in cases:
        works = _Probe(available, broken.split())
        got = answer(available, works)
        situation = f"available {available}" + (f", but {broken} fails" if broken else "")
        if got is None and expected == "cpu":
            judge.no("no-fallback", seen=f"{situation}: None", expected="'cpu'")
        if works.asked_absent:
            judge.no(
                "tried-an-absent-device",
                seen=f"{situation}: works({works.asked_absent[0]!r}) was called",
                expected="works() only for kinds that are available",
            )
        judge.is_a(got, str, "a string such as 'cuda'")
        if got == expected:
            continue
        if got not in [*available, "cpu"]:
            diagnosis = "not-there"
        elif got in works.broken:
            diagnosis = "available-is-not-works"
        elif got == "cpu":
            diagnosis = "gave-up" if works.broken else "forgot-a-kind"
        else:
            diagnosis = "order"
        judge.no(diagnosis, seen=f"{situation}: {got!r}", expected=repr(expected))


class _Probe:
    """Stands for a small kernel run on a device; remembers calls for devices that are not there."""

    def __init__(self, available: list[str], broken: list[str]) -> None:
        self.available, self.broken = list(available), broken
        self.asked_absent: list[str] = []

    def __call__(self, kind: str) -> bool:
        if kind not in [*self.available, "cpu"]:
            self.asked_absent.append(kind)
        return kind not in self.broken


EXERCISE = Exercise(
    id="01.pick_device",
    title="Choose, and do not trust",
    task="`available` is a list of the kinds of accelerator that PyTorch reports, in any order, such "
    "as `['mps']` or `[]`. `works(kind)` runs a small kernel there and returns whether the result "
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
        "forgot-a-kind": "A kind that is there and works was passed over for the CPU. CUDA is not the "
        "only accelerator: there are three kinds to ask about.",
        "not-there": "You chose a device that this machine does not have. The first tensor sent there "
        "raises an error: look into `available` before you choose.",
        "no-fallback": "With no accelerator that works, the program must still get a device: every "
        "machine has a CPU.",
        "available-is-not-works": "Available means that a driver and a device were found. It does "
        "not mean that a kernel runs there: ask `works` before you trust it.",
        "gave-up": "One kind failed its test, and the answer fell back to the CPU at once. A machine can "
        "have a second accelerator that works: go on to the next kind.",
        "tried-an-absent-device": "A kernel was tried on a device that is not there. On a real "
        "machine that raises an error: ask first whether the kind is available.",
    },
)
