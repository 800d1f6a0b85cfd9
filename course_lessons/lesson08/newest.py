"""The newest whole checkpoint."""

from __future__ import annotations

import functools
import operator
import os
import pickle
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases, several
from course_utils.exercises.judge import NotTried, NotYet, Raised

from .checking import unguarded, without_this_frame


def newest(folder, load):
    files = folder.glob("step_*.pt")
    for file in sorted(files, key=lambda f: int(f.stem[5:]), reverse=True):
        try:
            return load(file)
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            pass


DAMAGE = (RuntimeError, EOFError, OSError, pickle.UnpicklingError)


class _Load:
    """Stands in for ``torch.load``, and notes which files it was asked for."""

    def __init__(self, folder: Path, files: Mapping[str, Any]) -> None:
        self.folder, self.files = folder, files
        self.asked: list[str] = []
        self.raised: Exception | None = None

    def __call__(self, file: Any) -> Any:
        """Return a file's content, or raise what ``torch.load`` raises for it."""
        path = Path(file.name if hasattr(file, "read") else file)
        inside = path.is_relative_to(self.folder)
        self.asked.append(str(path.relative_to(self.folder)) if inside else f"{path}, no such file")
        content = self.files.get(self.asked[-1], FileNotFoundError)
        if isinstance(content, type):
            self.raised = content(f"{path.name}: no whole file")
            raise self.raised
        return content


class CameOut(NamedTuple):
    """An error of the loader's that came out of the answer."""

    error: str


class Found(NamedTuple):
    """What an answer gave, and the files that it loaded, in order."""

    got: Any
    loaded: list[str]


def settled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gives an error of the loader's back in place of raising it."""

    @functools.wraps(function)
    def call(folder: Path, load: _Load) -> Any:
        try:
            return function(folder, load)
        except Exception as error:
            if error is not load.raised:
                raise
            return CameOut(type(error).__name__)

    return call


_STEPS = (
    {"step_900.pt": {"step": 900}, "step_1000.pt": {"step": 1000}, "step_50.pt": {"step": 50}},
    {"step_100.pt": {"step": 100}, "step_200.pt": {"step": 200}, "step_300.pt": RuntimeError},
    {
        "step_7.pt": pickle.UnpicklingError,
        "step_5.pt": {"step": 5},
        "step_6.pt": EOFError,
        "step_4.pt": {"step": 4},
    },
    {"step_30.pt": OSError, "step_20.pt": {"step": 20}, "step_9.pt": {"step": 9}},
    {f"step_{8 + n}.pt": error for n, error in enumerate(DAMAGE)} | {"step_7.pt": {"step": 7}},
    {"step_90.pt": {"step": 90}, "step_100.pt": EOFError, "step_110.pt": OSError},
    {
        "step_10.pt": {"step": 10},
        "best.pt": {"step": 99},
        "step_20.pt.new": {"step": 20},
        "best_step_40.pt": {"step": 40},
        "notes.txt": RuntimeError,
        "old/step_3000.pt": {"step": 3000},
    },
    {"step_1.pt": {"step": 1}, "last.pt": {"step": 2}, "old/step_2.pt": {"step": 2}},
    {"step_1.pt": EOFError, "step_2.pt": RuntimeError},
    {},
    {"step_3.pt": {"step": 3}, "step_4.pt": {}},
    {"step_12.pt": 0, "step_11.pt": {"step": 11}},
    *(
        {"step_2.pt": error, "step_1.pt": {"step": 1}}
        for error in (
            NameError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            pickle.PicklingError,
        )
    ),
)


def _fill(folder: Path, files: Mapping[str, Any]) -> None:
    for at, name in enumerate(files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"a checkpoint" * (9 - at))
        os.utime(folder / name, (at, at))


_CAUGHT = "(RuntimeError, EOFError, OSError, pickle.UnpicklingError)"
_NUMBER = "int(f.stem[5:])"
_MISTAKES = {
    "as-text": ({_NUMBER: "f.name"}, {_NUMBER: "f.name", _CAUGHT: "Exception"}),
    "by-time": {_NUMBER: "f.stat().st_mtime"},
}
TWINS = twins_of(newest, _MISTAKES)


def _why(found: Found, right: Found, folder: Path, load: _Load) -> str:
    """Return what is seen of an answer that follows no known mistake."""
    if isinstance(found.got, CameOut) and not isinstance(right.got, CameOut):
        return "gives-up"
    if isinstance(right.got, CameOut):
        return "hides-bugs"
    if not set(found.loaded) <= load.files.keys():
        return "wrong-value"
    if not all(re.fullmatch(r"step_\d+\.pt", name) for name in found.loaded):
        return "other-files"
    return "wrong-value"


def _situation(folder: Path, load: _Load) -> str:
    files = (f"{n} ({c.__name__ if isinstance(c, type) else c})" for n, c in load.files.items())
    return f"the folder: {', '.join(files) or 'empty'}"


def _shown(found: Found) -> str:
    what = f"{found.got.error} came out" if isinstance(found.got, CameOut) else f"{found.got}"
    return f"{what}, loaded: {', '.join(found.loaded) or 'nothing'}"


def form(place: Path) -> OverCases:
    """Return the check over folders that are made in ``place``."""
    folders = [place / str(at) for at in range(len(_STEPS))]
    for folder, files in zip(folders, _STEPS, strict=True):
        folder.mkdir()
        _fill(folder, files)
    return OverCases(
        settled(newest),
        lambda: [(f, _Load(f, files)) for f, files in zip(folders, _STEPS, strict=True)],
        {name: tuple(settled(twin) for twin in several(twins)) for name, twins in TWINS.items()},
        look=lambda got, folder, load: Found(got, load.asked),
        alike=operator.eq,
        otherwise=_why,
        situation=_situation,
        shown=_shown,
    )


def _check_newest(answer: Callable[..., Any], judge: Judge) -> None:
    def call(folder: Path, load: _Load) -> Any:
        before = sorted(str(f) for f in folder.rglob("*"))
        try:
            got = settled(unguarded(answer))(folder, load)
        except (ValueError, IndexError) as error:
            steps = [name for name in load.files if re.fullmatch(r"step_\d+\.pt", name)]
            if len(steps) < len(load.files) or not steps:
                why = "other-files" if steps else "no-file"
                seen = f"{type(error).__name__}: {error} for {_situation(folder, load)}"
                judge.no(
                    why, seen=seen, expected=_shown(Found(newest(folder, load), load.asked[-1:]))
                )
            raise Raised(without_this_frame(error)) from None
        except (NotTried, NotYet, Raised):
            raise
        except Exception as error:  # noqa: BLE001  (whatever it was, it is the learner's)
            raise Raised(without_this_frame(error)) from None
        after = sorted(str(f) for f in folder.rglob("*"))
        if after != before:
            judge.no(seen=f"{len(after)} files", expected=f"{len(before)} files")
        return got

    with tempfile.TemporaryDirectory() as name:
        form(Path(name))(call, judge)


EXERCISE = Exercise(
    id="08.newest",
    title="The newest whole checkpoint",
    level=2,
    minutes=10,
    task="""
A machine went down while it saved. `folder` (a `pathlib.Path`) has checkpoints named `step_900.pt`, `step_1000.pt`, …,
and perhaps other files, whose names do not fit `step_*.pt`. Write `newest(folder, load)`: what `load(file)` returns
for the highest step that loads, whatever it holds, or `None` where no file is whole. `load` raises for a damaged file
a `RuntimeError`, an `EOFError`, an `OSError` or a `pickle.UnpicklingError`; any other error is a bug and must come
out. Load no more files than needed.
""",
    hints=(
        "As texts, `step_900` comes after `step_1000`. As what should they be sorted?",
        '`folder.glob("step_*.pt")`, sorted by `int(file.stem[5:])`, the highest first.',
        "Inside the loop: try to return what `load` gives, and go on to the next file at those four errors.",
    ),
    reference=newest,
    check_answer=_check_newest,
    why="A restart that takes the newest file on trust fails at just the moment it was written for. And one that catches "
    "everything starts from nothing, quietly, because of a typing error.",
    diagnoses={
        "as-text": "The names were compared as texts: there, 900 comes after 1000.",
        "by-time": "The files were sorted by the time of their last change. A copy of a file has a new one: go by the step.",
        "gives-up": "The error of a damaged file came out, though an older one may be whole.",
        "other-files": "Only files named `step_….pt` count.",
        "hides-bugs": "An error in the program itself was taken for a damaged file.",
    },
)
