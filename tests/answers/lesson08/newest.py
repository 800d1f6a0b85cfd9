"""Known answers to 08.newest: wrong ones by the diagnosis that each must get, and a right one."""

import contextlib
import itertools
import pickle
import re

from course_lessons.lesson08.newest import TWINS, newest
from course_lessons.shared.edited import edited


def _any_number(file):
    digits = "".join(itertools.takewhile(str.isdigit, file.name.partition("_")[2]))
    return int(digits or 1000)


def _by_pattern(folder, load):
    found = {}
    for file in folder.iterdir():
        if match := re.fullmatch(r"step_(\d+)\.pt", file.name):
            found[int(match[1])] = file
    for step in sorted(found)[::-1]:
        try:
            state = load(found[step])
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            continue
        return state
    return None


def _texts(folder, load):
    steps = [p.name for p in folder.iterdir() if p.match("step_*.pt")]
    for name in sorted(steps, key=lambda name: (len(name), name), reverse=True):
        with (
            contextlib.suppress(RuntimeError, EOFError, OSError, pickle.UnpicklingError),
            open(folder / name, "rb") as file,
        ):
            return load(file)
    return None


_ERRORS = "(RuntimeError, EOFError, OSError, pickle.UnpicklingError)"
WRONG = {
    **TWINS,
    "gives-up": ({f"except {_ERRORS}": "except ZeroDivisionError"}, {"OSError, ": ""}),
    "other-files": edited(
        newest, {'"step_*.pt"': '"*.*"', "int(f.stem[5:])": "number(f)"}, number=_any_number
    ),
    "hides-bugs": ({_ERRORS: "Exception"}, {"RuntimeError, ": "RuntimeError, ValueError, "}),
}
RIGHT = {"pattern": _by_pattern, "open files": _texts}
