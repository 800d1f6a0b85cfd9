"""A chain to fall back on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference, as_tuple
from course_utils.exercises.values import same


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
        self.does = f"raises {bug!r}" if bug else f"returns {result!r}"
        self.tried: list[str] = []

    def __call__(self, device: str) -> Any:
        self.tried.append(device)
        if device in _REFUSALS:
            raise _REFUSALS[device]
        if self.bug:
            raise self.bug
        return self.result


def _cases() -> Iterator[tuple[_Job, list[str]]]:
    for devices in (["hpu", "cpu"], ["cpu"], *([name, "cpu"] for name in _REFUSALS)):
        yield _Job(), devices
    for result in (None, 0, [], False):
        yield _Job(result), ["xpu", "hpu", "cpu"]
    bugs = ValueError(), KeyError(1), KeyboardInterrupt(), AssertionError(), AssertionError("x")
    for bug in bugs:
        yield _Job(bug=bug), ["xpu", "hpu", "cpu"]
    for devices in (["cuda:1", "xpu", "npu", "cpu"], ["cuda", "sim"], ["cuda:1", "mps", "cuda"]):
        yield _Job(), devices


def _outcome(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gives back what came out of a call, the work's errors too."""

    def call(job: _Job, devices: list[str]) -> Any:
        try:
            return function(job, devices)
        except BaseException as raised:
            error = getattr(raised, "error", raised)
            if error is job.bug or error in _REFUSALS.values():
                return f"{error!r} came out"
            if not isinstance(error, RuntimeError):
                raise
            text = str(error)
            named = [d for d in devices if d in text and str(_REFUSALS.get(d)) in text]
            return {"RuntimeError with the names and reasons of": named}

    return call


_KINDS = "(RuntimeError, AssertionError)"
MISTAKES = {
    "assertion": {_KINDS: "RuntimeError"},
    "gives-up": {_KINDS: "(torch.OutOfMemoryError, NotImplementedError, AssertionError)"},
    "false-result": {
        "return device, work(device)": "result = work(device)\nif result:\n    return device, result"
    },
    "tries-all": {
        "reasons = []": "reasons, results = [], []",
        "return device, work(device)": "results.append((device, work(device)))",
        "raise RuntimeError(": "if results:\n    return results[0]\nraise RuntimeError(",
    },
    "hides-bugs": (
        {_KINDS: "Exception"},
        {'if isinstance(error, AssertionError) and "CUDA" not in str(error):\n    raise\n': ""},
    ),
}
_CHAINS = ComparesToReference(
    _outcome(first_that_runs),
    _cases,
    {
        name: tuple(map(_outcome, as_tuple(known_mistakes)))
        for name, known_mistakes in known_mistakes_of(first_that_runs, MISTAKES).items()
    },
    look=lambda got, job, devices: {"outcome": got, "tried": job.tried},
    alike=same,
    situation=lambda job, devices: f"devices {devices}; where it runs, work {job.does}",
)


def _check_first_that_runs(answer: Callable[..., Any], judge: Judge) -> None:
    def pair(job: _Job, devices: list[str]) -> Any:
        return tuple(judge.is_a(answer(job, devices), (tuple, list), "a pair: device, result"))

    _CHAINS(_outcome(pair), judge)


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
        "Which errors say that the device refuses, and which ones say that `work` has a bug? An "
        "`AssertionError` can be either, so its class isn't enough. What else does an error bring along?",
        "`except (A, B) as error` catches these two classes and nothing more, and `str(error)` is the "
        "message. Inside the `except` block, a bare `raise` lets the same error out, as if you'd never "
        "caught it. Note each refusal in a list, because you need all of them after the loop. A result of "
        "0 or `None` is still a result, so let only errors decide.",
        """Here a product is skipped if its shapes don't fit, and any other error comes out.

```python
try:
    torch.ones(2, 3) @ torch.ones(2, 3)
except RuntimeError as error:
    if "shapes" not in str(error):
        raise  # some other error, which we don't want to hide
    print("skipped:", error)
```""",
    ),
    reference=first_that_runs,
    check_answer=_check_first_that_runs,
    why="A fallback that swallows every error turns a typo in your GPU code into a program that runs on "
    "the CPU, slowly, and nobody knows why. Say which device was taken, and keep the reasons.",
    diagnoses={
        "assertion": "A build without CUDA refuses with an AssertionError. That is a refusal, too.",
        "gives-up": "An error of one device ended the chain, though another one works.",
        "false-result": "A device worked, and its result counts as false in an `if`. Only an error is a refusal.",
        "tries-all": "The work was done again on further devices. Stop at the first that works.",
        "hides-bugs": "An error that no device causes was taken for a refusal. Let it out as it is.",
    },
)
