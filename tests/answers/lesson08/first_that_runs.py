"""Known answers to 08.first_that_runs."""

from __future__ import annotations

from course_lessons.lesson08.first_that_runs import first_that_runs


def _every(work, devices):
    found = []
    for device in devices:
        try:
            found.append((device, work(device)))
        except (RuntimeError, AssertionError):
            continue
    return found[0]


def _with_a_dict(work, devices):
    said = {}
    for device in devices:
        try:
            result = work(device)
        except AssertionError as error:
            if "not compiled" not in str(error):
                raise
            said[device] = error
        except RuntimeError as error:
            said[device] = error
        else:
            return (device, result)
    raise RuntimeError(f"nothing works: {said}")


def _wrapping(work, devices):
    def wrapped(device):
        try:
            return work(device)
        except Exception as error:
            known = isinstance(error, RuntimeError) or "CUDA" in str(error)
            raise error if known else TypeError("a bug") from error

    return first_that_runs(wrapped, devices)


def _catching(kinds: str):
    return {"(RuntimeError, AssertionError)": kinds}


_IF_IT_COUNTS = """result = work(device)
if result:
    return device, result"""
_LETS_OUT = """if isinstance(error, AssertionError) and "CUDA" not in str(error):
    raise"""
WRONG = {
    "assertion": _catching("RuntimeError"),
    "gives-up": _catching("(torch.OutOfMemoryError, NotImplementedError, AssertionError)"),
    "tries-all": _every,
    "half-a-pair": (
        {"device, work(device)": "work(device)"},
        {"return device, work(device)": "work(device)\nreturn device"},
    ),
    "swapped": {"device, work(device)": "work(device), device"},
    "twice": {"return device": "work(device)\nreturn device"},
    "other-order": {"in devices": "in devices[::-1]"},
    "too-few": {"reasons.append(": "return device, reasons.append("},
    "other-device": {"return device,": "return devices[0],"},
    "other-result": {", work(device)": ", str(work(device))[1:]"},
    "false-result": {"return device, work(device)": _IF_IT_COUNTS},
    "other-assertion": {_LETS_OUT: ""},
    "wraps-bugs": _wrapping,
    "no-names": {"(device, str(error))": "str(error)"},
    "other-error": {"raise RuntimeError": "raise ValueError"},
    "hides-bugs": _catching("Exception"),
    "no-reasons": ({": {reasons}": ""}, {": {reasons}": ": {reasons[-1]}"}),
    "silent": {'raise RuntimeError(f"no device works: {reasons}")': ""},
}
RIGHT = {"with a dict": _with_a_dict}
