"""A save that cannot half happen."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import torch

from course_language import _
from course_utils.exercises import Exercise

from .disk import GONE, Bomb, Watch, saved, value_in


def save_atomic(state, path):
    new = path.with_name(path.name + ".new")
    with open(new, "wb") as file:
        torch.save(state, file)
        os.fsync(file.fileno())
    os.replace(new, path)


def _check_answer(answer, judge):
    """Check two saves, one that is killed while it writes, one killed before the rename, and two more."""
    raw = answer.__wrapped__  # a simulated crash is not an error of the learner's code
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "last.pt"
        with Watch(path).watching():
            answer(saved(1), path)
        _expect_saved_state(judge, path, 1, _("after the first save"))
        judge.expect(_("after the first save"), torch.load(path, weights_only=True), saved(1))

        with Watch(path).watching() as watch:
            answer(saved(2), path)
        _expect_saved_state(judge, path, 2, _("after the second save"))
        _judge_renames_and_syncs(watch, path, judge)
        _judge_leftover_files(path, judge, "wrong-value")

        watch = Watch(path)
        with suppress(Exception):  # whatever the simulated crash turns into, the disk is judged
            raw({**saved(3), "bomb": Bomb(watch)}, path)
        expected = _("the checkpoint from before, whole")
        if value_in(path) != 2:
            seen = _("killed while writing: the checkpoint from before is gone")
            judge.no("overwrites", seen=seen, expected=expected)
        watch.undo()
        with Watch(path, crash=True).watching() as watch, suppress(Exception):
            raw(saved(4), path)
        if value_in(path) != 2:
            seen = _("killed just before the rename: no checkpoint is left")
            judge.no("gap", seen=seen, expected=expected)
        watch.undo()
        try:
            answer(saved(5), path)
        except Exception as error:
            error.case = ((_("Case"), _("the next save after a crash")),)
            raise
        _expect_saved_state(judge, path, 5, _("at the next save after a crash"))
        _judge_leftover_files(path, judge)
        with Watch(path).watching():
            answer(saved(6), path)
        _judge_leftover_files(path, judge)


def _judge_leftover_files(path, judge, diagnosis="leftovers"):
    """Refuse an answer that leaves files besides the checkpoint in its folder."""
    if left := sorted(p.name for p in path.parent.iterdir() if p != path):
        seen = _("files left: {left}").format(left=", ".join(left))
        judge.no(diagnosis, seen=seen, expected=_("only last.pt"))


def _judge_renames_and_syncs(watch, path, judge):
    """Judge the second save by the renames and ``os.fsync`` calls that ``watch`` recorded."""
    if not watch.renames:
        judge.no(seen=_("no rename"), expected=_("a second file, renamed when it is whole"))
    for source, value in watch.renames:
        if source == path:
            judge.no(seen=_("last.pt was moved away"), expected=_("last.pt, until it is replaced"))
        if value is GONE:
            seen = _("last.pt was gone before the rename")
            judge.no("gap", seen=seen, expected=_("last.pt, until then"))
        if value != 1:
            judge.no("overwrites", seen=_("last.pt was changed first"), expected=_("a second file first"))
        if source.parent != path.parent:
            judge.no("other-folder", seen=_("no second file beside last.pt"), expected=_("one beside it"))
    if not watch.synced:
        judge.no("no-fsync", seen=_("no os.fsync before the rename"), expected="os.fsync")
    if not any(2 in values.values() for values in watch.synced):
        seen = _("at {sync_call} no new file was complete").format(sync_call=watch.sync_call)
        expected = _("{sync_call} on a new file that loads").format(sync_call=watch.sync_call)
        judge.no(seen=seen, expected=expected)


def _expect_saved_state(judge, path, value, when):
    """Refuse unless the file at ``path`` holds the state of save number ``value``."""
    got = value_in(path)
    if got != value:
        missing = _("a file without the state that was given") if path.exists() else _("no file")
        seen = missing if got is None else _("the state of save {got}").format(got=got)
        judge.no(seen=f"{when}: {seen}", expected=_("the state of save {value}").format(value=value))


EXERCISE = Exercise(
    id="04.save_atomic",
    title="A save that cannot half happen",
    level=2,
    minutes=10,
    task="""
Write `save_atomic(state, path)`. It saves with `torch.save`, so that `path`, a `pathlib.Path`, holds the
whole old state or the whole new one at every moment. The new one is on the disk before it takes the name.
The check kills your code while it writes, and just before the rename. After that the next save must work.
After a save that works, no other file may be in the folder, not even one that a killed save left.
""",
    hints=(
        'When you open a file with `"wb"`, it\'s empty at once. So where must the new state go while '
        "it's being written? And which single move can put it in the place of the old one?",
        "`os.replace(a, b)` puts `a` in the place of `b` in one move, but only within one disk, so "
        "write the second file in the same folder. What you wrote may still wait in the system's "
        "memory, so `os.fsync(file.fileno())` has to put it on the disk first. With a fixed name for "
        "the second file, the next save writes over what a killed one left.",
        "Here a new score takes the place of an old one.\n\n"
        """```python
from pathlib import Path
from tempfile import mkdtemp

folder = Path(mkdtemp())
(folder / "score.txt").write_text("7")
(folder / "draft.txt").write_text("8")  # killed here, you still have the 7
(folder / "draft.txt").replace(folder / "score.txt")  # as os.replace does
print([(file.name, file.read_text()) for file in folder.iterdir()])  # [('score.txt', '8')]
```""",
    ),
    reference=save_atomic,
    check_answer=_check_answer,
    why="Cloud sessions end without asking, often in the middle of the longest operation, and that "
    "is the save. Half a checkpoint in the place of a whole one is worse than none.",
    diagnoses={
        "overwrites": "The only good checkpoint is written over while the new one is not complete: a crash "
        "leaves neither.",
        "gap": "For a moment there is no checkpoint at all: the old one is gone and the new one is "
        "not in place yet. `os.replace` needs no room made first.",
        "no-fsync": "The new file may still be in the system's memory when it gets the good name. "
        "After a power cut the name can stand for an empty file.",
        "other-folder": "The new file is written in another folder. That can be another disk, and "
        "between disks there is no rename in one move.",
        "leftovers": "After a crash and the next save, a file is left beside the checkpoint. A killed "
        "process runs no `finally`. But with a fixed name, the next save writes over the file.",
    },
)
