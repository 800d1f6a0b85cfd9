"""Executed copies of the lessons as they are shipped, for those who read and do not run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from course_language import languages
from course_utils import files
from course_utils.cli.bootstrap import ROOT
from course_utils.course import Course, Lesson
from course_utils.stubs import AuthoringError
from tools.authoring.form import dumps, parse, read
from tools.authoring.lesson import executed

KEPT = ROOT / "executed" / "site"
"""Where copies are kept."""
LINE = "{desc}: cell {n_fmt} of {total_fmt}, {elapsed}"
SHOWN = "~/pytorch-gpu-course"  # stands in the outputs for the folders the lesson saw
_RUN = ("course_utils", "course_language", "course_lessons", "simgpu")
_NOT_RUN = {"__pycache__", "cli", "tests"}  # what no lesson uses
_USERS_OWN = re.compile(r"COURSE_|IPYTHON|JUPYTER_|MPLBACKEND$|PYTHONWARNINGS$")


def facts(device: str = "") -> dict[str, Any]:
    """Describe what a lesson runs on here.

    Parameters
    ----------
    device
        As ``COURSE_DEVICE``; by default the best device that works.
    """
    import torch

    from course_utils.devices import abilities, get_device
    from course_utils.this_machine import cpu_name, usable_cores

    return {
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "device": abilities(get_device(device or None, quiet=True)).name,
        "cpu": cpu_name(),
        "cores": usable_cores(),
    }


def executed_copy(
    course: Course,
    lesson: Lesson,
    folder: Path,
    device: str = "",
    on_cell: Callable[[int], None] = lambda index: None,
) -> NotebookNode:
    """Return a lesson with its outputs, from the copy kept of an earlier run where nothing has changed.

    The lesson runs in an empty folder, unsolved, as a learner gets it. ``metadata.course.run`` of the copy
    says on what it ran.

    Parameters
    ----------
    folder
        Where copies are kept, ``FILE`` for each lesson.
    device
        As ``COURSE_DEVICE``; by default the best device that works.
    on_cell
        Told the position of each cell as it starts; not called where the kept copy serves.

    Raises
    ------
    AuthoringError
        If a cell fails or takes too long.
    """
    nb = read(course.path.parent / lesson.file)
    run = facts(device)
    key = _key(dumps(nb), run, posixpath.dirname(lesson.file))
    kept = folder / lesson.file
    with contextlib.suppress(AuthoringError):  # there is none yet, or a damaged one
        copy = read(kept)
        if copy.metadata.get("course", {}).get("run", {}).get("key") == key:
            return copy
    done = _run(nb, device, on_cell)
    done.metadata.setdefault("course", {})["run"] = run | {"key": key}
    files.write(kept, dumps(done))
    return done


def executed_copies(
    course: Course, lessons: Sequence[Lesson], device: str
) -> dict[str, NotebookNode]:
    """Return the `executed_copy` of each lesson, by its file, and show how far it is.

    Raises
    ------
    AuthoringError
        As `executed_copy`; the message names the lesson.
    """
    from course_utils import bar

    sizes = [len(read(course.path.parent / lesson.file).cells) for lesson in lessons]
    copies: dict[str, NotebookNode] = {}
    with bar(total=sum(sizes), bar_format=LINE) as progress:

        def on_cell(cell: int) -> None:
            progress.update(sum(sizes[: len(copies)]) + cell - progress.n)

        for lesson in lessons:
            progress.set_description(lesson.file)
            try:
                copies[lesson.file] = executed_copy(course, lesson, KEPT, device, on_cell)
            except AuthoringError as error:
                raise AuthoringError(f"{lesson.file}: {error}") from None
            on_cell(0)
    return copies


def _run(nb: NotebookNode, device: str, on_cell: Callable[[int], None]) -> NotebookNode:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        place = Path(scratch).resolve()
        notebooks = place / "notebooks"
        for folder in (notebooks, place / "tmp"):
            folder.mkdir()
        env = {name: value for name, value in os.environ.items() if not _USERS_OWN.match(name)}
        path = [str(ROOT), *filter(None, [env.get("PYTHONPATH")])]
        env |= {
            "PYTHONPATH": os.pathsep.join(path),
            "COURSE_PROGRESS": str(place / "progress.jsonl"),
            "TMPDIR": str(place / "tmp"),
            "IPYTHONDIR": str(place / "ipython"),
            "JUPYTER_CONFIG_DIR": str(place / "jupyter"),
            "JUPYTER_PREFER_ENV_PATH": "1",
            "COURSE_WIDGETS": "frames",  # what can be moved is moved on a page, too
        }
        if device:
            env["COURSE_DEVICE"] = device
        done = executed(nb, notebooks, env, on_cell)
        text = dumps(done)
        for own in (place, ROOT):
            text = text.replace(json.dumps(str(own))[1:-1], SHOWN)
        return parse(text)


def _key(text: str, run: dict[str, Any], language: str) -> str:
    """Tell apart what would run differently: the lesson, what it imports, PyTorch and the machine."""
    unused = _NOT_RUN | {*languages()} - {language}
    sums = hashlib.sha256(text.encode())
    sums.update(repr([run[name] for name in ("torch", "device", "cpu", "cores")]).encode())
    for path in sorted(path for name in _RUN for path in (ROOT / name).rglob("*")):
        parts = path.relative_to(ROOT).parts
        if path.is_file() and not unused & set(parts) and path.suffix != ".po":
            sums.update("/".join(parts).encode() + path.read_bytes())
    return sums.hexdigest()
