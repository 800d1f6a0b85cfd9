"""Known answers to 09.newest."""

import contextlib
import pickle
import re

from course_lessons.lesson09.newest import MISTAKES


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


WRONG = MISTAKES
RIGHT = {"pattern": _by_pattern, "open files": _texts}
