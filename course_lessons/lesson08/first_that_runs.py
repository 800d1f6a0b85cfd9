"""A chain to fall back on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_utils.exercises import Exercise, Judge

from .checking import unguarded


def first_that_runs(work, devices):
    reasons = []
    for device in devices:
        try:
            return device, work(device)
        except (RuntimeError, AssertionError) as error:
            if isinstance(error, AssertionError) and "CUDA" not in str(error):
                raise
            reasons.append((device, str(error)))
    raise RuntimeError(f"no device works: {reasons}")


_REFUSALS: dict[str, Exception] = {
    "cuda": AssertionError("Torch not compiled with CUDA enabled"),
    "cuda:1": RuntimeError("CUDA error: no kernel image is available for execution on the device"),
    "xpu": RuntimeError("PyTorch is not linked with support for xpu devices"),
    "mps": NotImplementedError("The operator 'aten::_linalg_eigh' is not implemented for MPS"),
    "sim": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
}


class _Job:
    """Work that runs on some devices only; ``bug`` is raised wherever it runs, and else ``result`` returned."""

    def __init__(self, result: Any = "result", bug: BaseException | None = None) -> None:
        self.result, self.bug = result, bug
        self.tried: list[str] = []

    def __call__(self, device: str) -> Any:
        self.tried.append(device)
        if device in _REFUSALS:
            raise _REFUSALS[device]
        if self.bug:
            raise self.bug
        return self.result


def _check_first_that_runs(answer: Callable[..., Any], judge: Judge) -> None:
    answer = unguarded(answer)
    for devices in (
        ["hpu", "cpu"],
        ["cpu"],
        *([name, "cpu"] for name in _REFUSALS),
        ["cuda:1", "xpu", "npu", "cpu"],
    ):
        _judge_first(answer, devices, _Job(f"result of {devices}"), judge)
    for result in (None, 0, [], False):
        _judge_first(answer, ["xpu", "hpu", "cpu"], _Job(result), judge)
    for bug in (ValueError("bad shape"), KeyError("label"), KeyboardInterrupt()):
        _judge_bug(answer, bug, judge)
    _judge_failure(answer, ["cuda", "sim"], judge)
    _judge_failure(answer, ["cuda:1", "mps", "cuda"], judge)
    _judge_failure(answer, ["mps"], judge)
    _judge_bug(answer, AssertionError("no rows"), judge)


def _judge_first(answer: Callable[..., Any], devices: list[str], job: _Job, judge: Judge) -> None:
    first = next(device for device in devices if device not in _REFUSALS)
    try:
        got = answer(job, devices)
    except (RuntimeError, AssertionError) as error:
        got = f"{type(error).__name__}: {error}"
        kind = "assertion" if isinstance(error, AssertionError) else "gives-up"
    else:
        kind = ""
    tried = f"tried {job.tried} of {devices}"
    if first in job.tried and not job.result and (kind or job.tried[-1] != first):
        judge.no(
            "false-result",
            seen=f"{first} gave {job.result!r}, then: {got}",
            expected=(first, job.result),
        )
    if kind:
        judge.no(kind, seen=f"{got}, for {devices}", expected="on to the next device")
    if len(job.tried) > len(set(job.tried)):
        judge.no(seen=tried, expected="each device once")
    if job.tried != devices[: len(job.tried)]:
        judge.no(seen=tried, expected="one after the other, from the first")
    if first != job.tried[-1]:
        judge.no(
            "tries-all" if first in job.tried else "wrong-value",
            seen=tried,
            expected=f"stop after {first}",
        )
    right = (first, job.result)
    if isinstance(got, (tuple, list)) and tuple(got) == right:
        return
    for alone in right:
        if got == alone and got is not None:
            judge.no(seen=got, expected=right)
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        judge.is_a(got, tuple, "a pair: device, result")
        judge.no("wrong-type", seen=got, expected="a pair: device, result")
    if tuple(got) == right[::-1]:
        judge.no(seen=got, expected=right)
    judge.no(seen=got, expected=right)


def _judge_bug(answer: Callable[..., Any], bug: BaseException, judge: Judge) -> None:
    job = _Job(bug=bug)
    try:
        got = answer(job, ["xpu", "hpu", "cpu"])
    except BaseException as error:  # noqa: BLE001  (a KeyboardInterrupt is one of the cases)
        if error is bug:
            return
        got = f"{type(error).__name__}: {error}"
    kind = "other-assertion" if isinstance(bug, AssertionError) else "hides-bugs"
    judge.no(
        kind if job.tried[-1] == "cpu" else "wrong-value",
        seen=f"{got}, after work raised {bug!r}",
        expected=f"{bug!r} itself",
    )


def _judge_failure(answer: Callable[..., Any], devices: list[str], judge: Judge) -> None:
    try:
        got = answer(_Job(), devices)
    except RuntimeError as error:
        said = str(error)
        if said.strip() == "":
            said = "a RuntimeError without a text"
        for device in devices:
            if str(_REFUSALS[device]) not in said:
                judge.no(seen=said, expected=f"{device}'s reason too: {_REFUSALS[device]}")
        for device in devices:
            if device not in said:
                judge.no(seen=said, expected=f"the name {device} too")
        return
    except Exception as error:  # noqa: BLE001  (whatever else came out is the finding)
        judge.no(seen=f"{type(error).__name__}: {error}", expected="RuntimeError")
    judge.no(seen=f"{got}, though nothing works", expected="RuntimeError")


EXERCISE = Exercise(
    id="08.first_that_runs",
    title="A chain to fall back on",
    level=2,
    minutes=10,
    task="""
Write `first_that_runs(work, devices)`: call `work(device)` on one device after the other, and return the pair (device,
result) of the first that works. A device refuses with a `RuntimeError` (running out of memory is one) or with the
`AssertionError` *Torch not compiled with CUDA enabled*. Anything else, such as a `ValueError` or another
`AssertionError`, is a bug in `work` and must come out at once. If every device refuses, raise a `RuntimeError` whose
text names each device and its reason.
""",
    hints=(
        "Catch the two kinds, and nothing more: `except (A, B) as error`. What does `str(error)` tell you of an `AssertionError`? "
        "A bare `raise` lets an error go on as it is.",
        "Collect a text a device in a list while you go. After the loop, raise with all of them.",
    ),
    reference=first_that_runs,
    check_answer=_check_first_that_runs,
    why="A fallback that swallows everything turns a typing error into a program that runs on the CPU, somehow, slowly. Say "
    "which device was taken, and keep the reasons.",
    diagnoses={
        "assertion": "A build without CUDA refuses with an AssertionError. That is a refusal, too.",
        "gives-up": "An error of one device ended the chain, though another one works.",
        "false-result": "A device worked, and its result counts as false in an `if`. Only an error is a refusal.",
        "tries-all": "The work was done again on further devices. Stop at the first that works.",
        "hides-bugs": "An error that no device causes was taken for a refusal. Let it out as it is.",
    },
)
