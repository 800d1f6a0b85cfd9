"""The newest whole checkpoint."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from course_utils.exercises import Exercise, Judge

from .checking import unguarded


def newest(folder, load):
    files = folder.glob("step_*.pt")
    for file in sorted(files, key=lambda f: int(f.stem[5:]), reverse=True):
        try:
            return load(file)
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            pass


def _damaged(kind: str) -> bytes:
    return {"empty": b"", "cut": b"PK\x03\x04 half of a checkpoint", "noise": b"<html>"}[kind]


class _Folder:
    """A folder of checkpoints, some of them damaged, and the loader that reads them."""

    def __init__(self, path: Path, files: dict[str, Any]) -> None:
        self.path = path
        self.loaded: list[str] = []
        for name, content in files.items():
            file = path / name
            if isinstance(content, str):
                file.write_bytes(_damaged(content))
            elif isinstance(content, int):
                torch.save({"step": content, "weight": torch.full((3,), float(content))}, file)

    def load(self, file: Any) -> Any:
        """Load a checkpoint as a training script does."""
        self.loaded.append(Path(file).name)
        return torch.load(file, map_location="cpu", weights_only=True)


def _check_newest(answer: Callable[..., Any], judge: Judge) -> None:
    answer = unguarded(answer)
    for files, right in (
        ({"step_900.pt": 900, "step_1000.pt": 1000, "step_50.pt": 50}, 1000),
        ({"step_100.pt": 100, "step_200.pt": 200, "step_300.pt": "cut"}, 200),
        ({"step_7.pt": "noise", "step_5.pt": 5, "step_6.pt": "empty"}, 5),
        ({"step_10.pt": 10, "best.pt": 99, "step_20.pt.new": 20, "notes.txt": "empty"}, 10),
        ({"step_1.pt": "empty", "step_2.pt": "cut"}, None),
        ({}, None),
    ):
        with tempfile.TemporaryDirectory() as name:
            folder = _Folder(Path(name), files)
            case = ", ".join(
                f"{n} ({'damaged' if isinstance(c, str) else 'good'})" for n, c in files.items()
            )
            try:
                got = answer(folder.path, folder.load)
            except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
                seen = f"{type(error).__name__} from {folder.loaded[-1:] or 'nowhere'}; the folder: {case}"
                judge.no("gives-up", seen=seen, expected=f"step {right}" if right else "None")
            except (ValueError, IndexError) as error:
                kind = "no-file" if not files else "other-files"
                judge.no(kind, seen=f"{type(error).__name__}: {error}", expected=str(right))
            _judge_newest(got, right, folder, case, judge)
    _judge_own_bug(answer, judge)


def _judge_newest(got: Any, right: int | None, folder: _Folder, case: str, judge: Judge) -> None:
    shown = {"seen": f"{got}; the folder: {case}", "expected": f"step {right}" if right else "None"}
    if got is None or right is None:
        if got is not right:
            judge.no("gives-none" if got is None else "wrong-file", **shown)
        return
    judge.is_a(got, dict, "what load() returned")
    step = got.get("step")
    if step == 900 and right == 1000:
        judge.no("as-text", **shown)
    if step in (99, 20) and right == 10:
        judge.no("other-files", **shown)
    if step != right:
        judge.no("wrong-file", **shown)
    if len(folder.loaded) > 1 + sum(int(n[5:-3]) > right for n in set(folder.loaded) - {"best.pt"}):
        judge.no("loads-all", seen=f"loaded {folder.loaded}", expected="stop at the first good one")


def _judge_own_bug(answer: Callable[..., Any], judge: Judge) -> None:
    """A typing error in the loader is no damaged file."""

    def load(file: Any) -> Any:
        raise NameError("name 'tortch' is not defined")

    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "step_1.pt").write_bytes(b"")
        try:
            got = answer(Path(name), load)
        except NameError:
            return
        judge.no(
            "hides-bugs", seen=f"{got}, after load raised a NameError", expected="the NameError"
        )


EXERCISE = Exercise(
    id="08.newest",
    title="The newest whole checkpoint",
    level=2,
    minutes=10,
    task="""
A machine went down while it saved. `folder` (a `pathlib.Path`) has checkpoints named `step_900.pt`, `step_1000.pt`, …,
and perhaps other files. Write `newest(folder, load)`: what `load(file)` returns for the one with the highest step that
loads. `load` is `torch.load` with its arguments filled in. For a damaged file it raises a `RuntimeError`, an `EOFError`,
an `OSError` or a `pickle.UnpicklingError`. Load no more files than needed, and return `None` where no file is whole.
Any other error is a bug and must come out.
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
        "gives-up": "A damaged file ended the search, though an older one may be whole.",
        "other-files": "Only files named `step_….pt` count.",
        "gives-none": "There is a whole checkpoint in the folder.",
        "no-file": "An empty folder is no error: return None.",
        "wrong-file": "That is not the newest whole checkpoint.",
        "loads-all": "More files were loaded than needed. Begin with the newest, and stop at the first that loads.",
        "hides-bugs": "An error in the program itself was taken for a damaged file.",
    },
)
