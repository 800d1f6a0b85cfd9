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
    """Work that runs on some devices only; ``bug`` is raised wherever it runs."""

    def __init__(self, bug: BaseException | None = None) -> None:
        self.bug = bug
        self.tried: list[str] = []

    def __call__(self, device: str) -> str | None:
        self.tried.append(device)
        if device in _REFUSALS:
            raise _REFUSALS[device]
        if self.bug:
            raise self.bug
        return None if device == "cpu" else f"result from {device}"


def _check_first_that_runs(answer: Callable[..., Any], judge: Judge) -> None:
    answer = unguarded(answer)
    for devices in (
        ["hpu", "cpu"],
        ["cpu"],
        *([name, "cpu"] for name in _REFUSALS),
        ["cuda:1", "xpu", "npu", "cpu"],
    ):
        job = _Job()
        try:
            got = answer(job, devices)
        except (RuntimeError, AssertionError) as error:
            name = type(error).__name__
            kind = "assertion" if isinstance(error, AssertionError) else "gives-up"
            judge.no(kind, seen=f"{name}: {error}, for {devices}", expected="on to the next device")
        working = [device for device in devices if device not in _REFUSALS]
        right = (working[0], _Job()(working[0]))
        if job.tried[len(devices) - len(working) + 1 :]:
            judge.no("tries-all", seen=f"tried {job.tried}", expected=f"stop after {working[0]}")
        if got == right:
            continue
        if got == right[1] and got is not None:
            judge.no("result-only", seen=got, expected=right)
        judge.is_a(got, tuple, "a pair: device, result")
        judge.no("wrong-pair", seen=got, expected=right)
    for bug in (ValueError("bad shape"), KeyError("label"), KeyboardInterrupt()):
        _judge_bug(answer, bug, judge)
    _judge_failure(answer, ["cuda", "xpu"], judge)
    _judge_failure(answer, ["mps"], judge)


def _judge_bug(answer: Callable[..., Any], bug: BaseException, judge: Judge) -> None:
    job = _Job(bug)
    try:
        got = answer(job, ["cuda", "hpu", "cpu"])
    except BaseException as error:  # noqa: BLE001  (a KeyboardInterrupt is one of the cases)
        if error is bug:
            return
        got = f"{type(error).__name__}: {error}"
    judge.no("hides-bugs", seen=f"{got}, after work raised {bug!r}", expected=f"{bug!r} itself")


def _judge_failure(answer: Callable[..., Any], devices: list[str], judge: Judge) -> None:
    try:
        got = answer(_Job(), devices)
    except RuntimeError as error:
        said = str(error)
        missing = [d for d in devices if d not in said or str(_REFUSALS[d]) not in said]
        if missing:
            judge.no(
                "no-reasons", seen=said, expected=f"each device and its reason, {missing[0]} too"
            )
        return
    except Exception as error:  # noqa: BLE001  (whatever else came out is the finding)
        judge.no("other-error", seen=f"{type(error).__name__}: {error}", expected="RuntimeError")
    judge.no("silent", seen=f"{got}, though nothing works", expected="RuntimeError")


EXERCISE = Exercise(
    id="08.first_that_runs",
    title="A chain to fall back on",
    level=2,
    minutes=10,
    task="""
Write `first_that_runs(work, devices)`: call `work(device)` on one device after the other, and return the pair
(device, result) of the first that works. A device refuses with a `RuntimeError` (which includes running out of memory,
and an operation that it lacks), or with the `AssertionError` *Torch not compiled with CUDA enabled*. Anything else,
a `ValueError` for example, is a bug in `work` and must come out at once. If every device refuses, raise a
`RuntimeError` whose text names each device and its reason.
""",
    hints=(
        "Catch the two kinds, and nothing more: `except (A, B) as error`.",
        "Collect a text a device in a list while you go. After the loop, raise with all of them.",
    ),
    reference=first_that_runs,
    check_answer=_check_first_that_runs,
    why="A fallback that swallows everything turns a typing error into a program that runs on the CPU, somehow, slowly. Say "
    "which device was taken, and keep the reasons.",
    diagnoses={
        "assertion": "A build without CUDA refuses with an AssertionError. That is a refusal, too.",
        "gives-up": "An error of one device ended the chain, though another one works.",
        "tries-all": "The work was done again on further devices. Stop at the first that works.",
        "result-only": "Return the pair: which device it was, and the result.",
        "wrong-pair": "That is not the first device that works, with its result.",
        "hides-bugs": "An error that no device causes was taken for a refusal. Let it out as it is.",
        "no-reasons": "The error must name every device and what it said.",
        "other-error": "If nothing works, raise a RuntimeError.",
        "silent": "Nothing works, and the caller is not told.",
    },
)
