"""Known answers to 08.first_that_runs."""

from __future__ import annotations


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


def _catching(kinds: str):
    return {"(RuntimeError, AssertionError)": kinds}


_IF_IT_COUNTS = """result = work(device)
if result:
    return device, result"""
WRONG = {
    "assertion": _catching("RuntimeError"),
    "gives-up": _catching("(torch.OutOfMemoryError, NotImplementedError, AssertionError)"),
    "tries-all": _every,
    "false-result": {"return device, work(device)": _IF_IT_COUNTS},
    "hides-bugs": _catching("Exception"),
}
RIGHT = {"with a dict": _with_a_dict}
