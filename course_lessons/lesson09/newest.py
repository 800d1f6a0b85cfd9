"""The newest whole checkpoint."""

import os
import pickle
import tempfile
from pathlib import Path

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import same


def newest(folder, load):
    files = folder.glob("step_*.pt")
    for file in sorted(files, key=lambda f: int(f.stem[5:]), reverse=True):
        try:
            return load(file)
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            pass


_BUGS = (NameError, ValueError, KeyError, TypeError, AttributeError, pickle.PicklingError)
_FOLDERS = (  # what the files hold, the oldest first; an error's type where a file raises it
    {"step_1000.pt": {"step": 1000}, "step_50.pt": {"step": 50}, "step_900.pt": {"step": 900}},
    {"step_7.pt": pickle.UnpicklingError, "step_4.pt": 4, "step_6.pt": EOFError, "step_5.pt": 5},
    {"step_90.pt": 90, "step_100.pt": EOFError, "step_110.pt": OSError},
    {"step_10.pt": {"step": 10}, "best.pt": {"step": 99}, "old/step_3000.pt": {"step": 3000}},
    {"step_1.pt": 1, "step_20.pt.new": {}, "best_step_40.pt": {}, "notes.txt": "notes"},
    {"step_1.pt": EOFError, "step_2.pt": RuntimeError},
    {},
    {"step_3.pt": {"step": 3}, "step_4.pt": {}},
    *({"step_2.pt": bug, "step_1.pt": {"step": 1}} for bug in _BUGS),
)

_DAMAGE = "(RuntimeError, EOFError, OSError, pickle.UnpicklingError)"
_NUMBER = "int(f.stem[5:])"
MISTAKES = {
    "as-text": {_NUMBER: "f.name"},
    "by-time": {_NUMBER: "f.stat().st_mtime"},
    "gives-up": {f"except {_DAMAGE}": "except ZeroDivisionError"},
    "other-files": {'"step_*.pt"': '"*.*"', _NUMBER: "int(''.join(filter(str.isdigit, f.stem)) or 1000)"},
    "hides-bugs": {_DAMAGE: "Exception"},
}


class _Load:
    """A stand-in for ``torch.load``; ``asked`` lists the files of its calls, ``raised`` is its last error."""

    def __init__(self, folder, files):
        self.folder, self.files = folder, files
        self.asked, self.raised = [], None

    def __call__(self, file):
        path = file.name if hasattr(file, "read") else file
        self.asked.append(os.path.relpath(path, self.folder))
        content = self.files.get(self.asked[-1], FileNotFoundError)
        if isinstance(content, type):
            self.raised = content(_("{path}: no whole file").format(path=path))
            raise self.raised
        return content


def _run_case(function, folder, load):
    """Return what a call returns, or in words the error of ``load`` that it did not catch."""
    try:
        return function(folder, load)
    except Exception as error:
        if getattr(error, "error", error) is not load.raised:
            raise
        return _("{error} came out").format(error=type(load.raised).__name__)


def _describe_case(folder, load):
    """Return the files of the folder in words."""
    files = (f"{n} ({c.__name__ if isinstance(c, type) else c})" for n, c in load.files.items())
    return _("the folder: {files}").format(files=", ".join(files) or _("empty"))


def _check_answer(answer, judge):
    """Check the answer in temporary folders with the files of ``_FOLDERS``, the oldest first."""
    with tempfile.TemporaryDirectory() as parent:
        folders = [Path(parent, str(number)) for number in range(len(_FOLDERS))]
        for folder, files in zip(folders, _FOLDERS, strict=True):
            folder.mkdir()
            for time, file in enumerate(folder / name for name in files):
                file.parent.mkdir(exist_ok=True)
                file.touch()
                os.utime(file, (time, time))
        ComparesToReference(
            newest,
            lambda: [(f, _Load(f, files)) for f, files in zip(folders, _FOLDERS, strict=True)],
            known_mistakes_of(newest, MISTAKES),
            run=_run_case,
            look=lambda got, folder, load: {
                "result": got,
                "loaded": load.asked,
                "in the folder": len(list(folder.rglob("*"))),
            },
            alike=same,
            situation=_describe_case,
        )(answer, judge)


EXERCISE = Exercise(
    id="09.newest",
    title="The newest whole checkpoint",
    level=2,
    minutes=10,
    task="""
A machine went down while it saved. `folder` (a `pathlib.Path`) has checkpoints named `step_900.pt`,
`step_1000.pt`, …, and perhaps other files, whose names do not fit `step_*.pt`. Write `newest(folder, load)`:
what `load(file)` returns for the highest step that loads, whatever it holds, or `None` where no file is
whole. `load` raises for a damaged file a `RuntimeError`, an `EOFError`, an `OSError` or a
`pickle.UnpicklingError`; any other error is a bug and must come out. Load no more files than needed.
""",
    hints=(
        "What order do the names get if you sort them as text? There, `step_900` comes after `step_1000`. "
        "Ask what you should sort by instead, and how you get it out of a file's name.",
        '`folder.glob("step_*.pt")` gives only the files that count, and `file.stem` is the name without its '
        "`.pt`. Sort the files by the number in it, with `key=` and `reverse=True`. Then try one after "
        "another, and return what the first good one gives. Catch only the four errors that mean damage, so "
        "that a bug still comes out.",
        """This function returns the first text that is a number, and `None` if there isn't one. To catch
several kinds of errors, put them in a tuple after `except`.

```python
def first_number(texts):
    for text in texts:
        try:
            return float(text)
        except ValueError:
            pass  # go on with the next text

print(first_number(["n/a", "", "3.5", "7"]))  # 3.5
```""",
    ),
    reference=newest,
    check_answer=_check_answer,
    why="A restart that takes the newest file on trust fails at just the moment it was written for. And one "
    "that catches everything starts from nothing, quietly, because of a typing error.",
    diagnoses={
        "as-text": "The names were compared as texts: there, 900 comes after 1000.",
        "by-time": "The files were sorted by the time of their last change. Go by the step.",
        "gives-up": "The error of a damaged file came out, though an older one may be whole.",
        "other-files": "Only files named `step_….pt` count.",
        "hides-bugs": "An error in the program itself was taken for a damaged file.",
    },
)
