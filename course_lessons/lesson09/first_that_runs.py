"""A chain to fall back on."""

import torch

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference
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


_REFUSALS = {
    "cuda": AssertionError("Torch not compiled with CUDA enabled"),
    "cuda:1": RuntimeError("CUDA error: no kernel image is available for execution on the device"),
    "xpu": RuntimeError("PyTorch is not linked with support for xpu devices"),
    "mps": NotImplementedError("The operator 'aten::_linalg_eigh' is not implemented for MPS"),
    "sim": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
}
_BUGS = ValueError(), KeyError(1), KeyboardInterrupt(), AssertionError(), AssertionError("x")


class _Work:
    """A stand-in for ``work``: raises as ``_REFUSALS`` says, or ``bug``, if any; ``tried`` has its calls."""

    def __init__(self, result="result", bug=None):
        self.result, self.bug, self.tried = result, bug, []

    def __call__(self, device):
        self.tried.append(device)
        if device in _REFUSALS:
            raise _REFUSALS[device]
        if self.bug:
            raise self.bug
        return self.result


def _make_cases():
    """Yield new ``(work, devices)`` cases."""
    for devices in (["hpu", "cpu"], ["cpu"], *([name, "cpu"] for name in _REFUSALS)):
        yield _Work(), devices
    for result in (None, 0, [], False):
        yield _Work(result), ["xpu", "hpu", "cpu"]
    for bug in _BUGS:
        yield _Work(bug=bug), ["xpu", "hpu", "cpu"]
    for devices in (["cuda:1", "xpu", "npu", "cpu"], ["cuda", "sim"], ["cuda:1", "mps", "cuda"]):
        yield _Work(), devices


def _run_case(function, work, devices):
    """Return the pair that a call returns, or what it raises: in words, for a RuntimeError as a dict."""
    try:
        return tuple(Judge().is_a(function(work, devices), (tuple, list), _("a pair: device, result")))
    except BaseException as raised:
        error = getattr(raised, "error", raised)
        if error is work.bug or error in _REFUSALS.values():
            return _("{error!r} came out").format(error=error)
        if not isinstance(error, RuntimeError):
            raise
        text = str(error)
        named = [d for d in devices if d in text and str(_REFUSALS.get(d)) in text]
        return {"RuntimeError with the names and reasons of": named}


def _describe_case(work, devices):
    """Return the case in words."""
    does = _("raises {bug!r}") if work.bug else _("returns {result!r}")
    does = does.format(bug=work.bug, result=work.result)
    return _("devices {devices}; where it runs, work {does}").format(devices=devices, does=does)


_KINDS = "(RuntimeError, AssertionError)"
_RETURN = "return device, work(device)"
_MISTAKES = {
    "assertion": {_KINDS: "RuntimeError"},
    "gives-up": {_KINDS: "(torch.OutOfMemoryError, NotImplementedError, AssertionError)"},
    "false-result": {_RETURN: "result = work(device)\nif result:\n    return device, result"},
    "tries-all": {
        "reasons = []": "reasons, results = [], []",
        _RETURN: "results.append((device, work(device)))",
        "raise RuntimeError(": "if results:\n    return results[0]\nraise RuntimeError(",
    },
    "hides-bugs": (
        {_KINDS: "Exception"},
        {'if isinstance(error, AssertionError) and "CUDA" not in str(error):\n    raise\n': ""},
    ),
}


EXERCISE = Exercise(
    id="09.first_that_runs",
    title="A chain to fall back on",
    level=2,
    minutes=10,
    task="""
Write `first_that_runs(work, devices)`: call `work(device)` on one device after the other, and return the pair
(device, result) of the first that works. A device refuses with a `RuntimeError` (running out of memory is
one) or with the `AssertionError` *Torch not compiled with CUDA enabled*. Anything else, such as a
`ValueError` or another `AssertionError`, is a bug in `work` and must come out at once. If every device
refuses, raise a `RuntimeError` whose text names each device and its reason.
""",
    hints=(
        "Which errors say that the device refuses, and which ones say that `work` has a bug? An "
        "`AssertionError` can be either, so its class isn't enough. What else does an error bring along?",
        "`except (A, B) as error` catches these two classes and nothing more, and `str(error)` is the "
        "message. Inside the `except` block, a bare `raise` lets the same error out, as if you'd never "
        "caught it. Note each refusal in a list, because you need all of them after the loop. A result of 0 "
        "or `None` is still a result, so let only errors decide.",
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
    check_answer=ComparesToReference(
        first_that_runs,
        _make_cases,
        known_mistakes_of(first_that_runs, _MISTAKES),
        run=_run_case,
        look=lambda got, work, devices: {"outcome": got, "tried": work.tried},
        alike=same,
        situation=_describe_case,
    ),
    why="A fallback that swallows every error turns a typo in your GPU code into a program that runs on the "
    "CPU, slowly, and nobody knows why. Say which device was taken, and keep the reasons.",
    diagnoses={
        "assertion": "A build without CUDA refuses with an AssertionError. That is a refusal, too.",
        "gives-up": "An error of one device ended the chain, though another one works.",
        "false-result": "A device worked, though its result counts as false in an `if`.",
        "tries-all": "The work was done again on further devices. Stop at the first that works.",
        "hides-bugs": "An error that no device causes was taken for a refusal. Let it out as it is.",
    },
)
