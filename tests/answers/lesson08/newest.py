"""Known answers to 08.newest: wrong ones by the diagnosis that each must get, and a right one."""

import contextlib
import itertools
import pickle
import re

from course_lessons.lesson08.newest import TWINS, newest
from course_lessons.shared.edited import edited


def _newest_loads_all(folder, load):
    good = []
    for file in folder.glob("step_*.pt"):
        try:
            good.append((int(file.stem[5:]), load(file)))
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            continue
    return max(good, key=lambda pair: pair[0])[1] if good else None


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


def _removes(folder, load):
    files = folder.glob("step_*.pt")
    for file in sorted(files, key=lambda f: int(f.stem[5:]), reverse=True):
        try:
            return load(file)
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            file.unlink()
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
    "no-path": {"load(file)": "load(file.name)"},
    "no-file": lambda folder, load: newest(folder, load) if [*folder.iterdir()] else max(()),
    "gives-none": lambda folder, load: None,
    "not-none": lambda folder, load: newest(folder, load) or {},
    "wrong-file": {"int(f.stem[5:])": "len(f.stem)"},
    "loads-more": _newest_loads_all,
    "other-thing": {"return load(file)": "return file, load(file)"},
    "hides-bugs": ({_ERRORS: "Exception"}, {"RuntimeError, ": "RuntimeError, ValueError, "}),
    "changed-folder": _removes,
}
RIGHT = {"pattern": _by_pattern, "open files": _texts}
