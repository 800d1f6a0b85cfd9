"""Known answers to 08.first_that_runs."""

from __future__ import annotations

from course_lessons.lesson08.first_that_runs import first_that_runs
from course_utils.exercises.edited import edited


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
        except (AssertionError, RuntimeError) as error:
            said[device] = error
        else:
            return (device, result)
    raise RuntimeError(f"nothing works: {said}")


def _catching(kinds: str):
    return edited(first_that_runs, {"(RuntimeError, AssertionError)": kinds})


WRONG = {
    "assertion": _catching("RuntimeError"),
    "gives-up": _catching("(torch.OutOfMemoryError, NotImplementedError, AssertionError)"),
    "tries-all": _every,
    "result-only": edited(first_that_runs, {"device, work(device)": "work(device)"}),
    "hides-bugs": _catching("Exception"),
    "no-reasons": edited(first_that_runs, {": {reasons}": ""}),
    "silent": edited(first_that_runs, {'raise RuntimeError(f"no device works: {reasons}")': ""}),
}
RIGHT = {"with a dict": _with_a_dict}
