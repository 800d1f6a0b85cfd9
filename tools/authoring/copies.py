"""Executed copies of the lessons as shipped, for the site; they are cached."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
import tempfile
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
"""The default folder of the copies."""
SHOWN = "~/pytorch-gpu-course"  # replaces the real paths in outputs
_IMPORTED = ("course_utils", "course_language", "course_lessons", "simgpu")
_NOT_IMPORTED = {"__pycache__", "cli", "tests"}  # parts of these packages that no lesson uses
_USERS_OWN = re.compile(r"COURSE_|IPYTHON|JUPYTER_|MPLBACKEND$|PYTHONWARNINGS$")


def machine_facts(device: str = "") -> dict[str, Any]:
    """Return the date, PyTorch's version, and the device, CPU and number of cores that a lesson runs on.

    ``device`` is as the environment variable ``COURSE_DEVICE``; by default the best one that works. The
    dict's keys are date, torch, device, cpu and cores.
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


def executed_copy(course: Course, lesson: Lesson, folder: Path = KEPT, device: str = "") -> NotebookNode:
    """Return a lesson's notebook with outputs: the stored copy if lesson, code and machine are unchanged.

    Otherwise the lesson is executed as shipped, its exercises unsolved, in an empty temporary folder, and the
    copy is stored. ``metadata.course.run`` of the copy is the dict of `machine_facts`, with the cache key.

    Parameters
    ----------
    folder
        Where copies are stored, each under ``lesson.file``.
    device
        As ``COURSE_DEVICE``; by default the best device that works.

    Raises
    ------
    AuthoringError
        If a cell fails or takes too long; the message names the lesson.
    """
    nb = read(course.path.parent / lesson.file)
    run = machine_facts(device)
    key = _cache_key(dumps(nb), run, posixpath.dirname(lesson.file))
    kept = folder / lesson.file
    with contextlib.suppress(AuthoringError):  # missing or damaged
        copy = read(kept)
        if copy.metadata.get("course", {}).get("run", {}).get("key") == key:
            return copy
    try:
        done = _execute(nb, device, lesson.file)
    except AuthoringError as error:
        raise AuthoringError(f"{lesson.file}: {error}") from None
    done.metadata.setdefault("course", {})["run"] = run | {"key": key}
    files.write(kept, dumps(done))
    return done


def _execute(nb: NotebookNode, device: str, name: str) -> NotebookNode:
    """Execute a notebook in a temporary folder, with an environment free of the user's own settings.

    Paths of that folder and of the clone are replaced by `SHOWN` in the outputs.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        base = Path(scratch).resolve()
        for folder in ("notebooks", "tmp"):
            (base / folder).mkdir()
        env = {name: value for name, value in os.environ.items() if not _USERS_OWN.match(name)}
        env |= {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")])),
            "COURSE_PROGRESS": str(base / "progress.jsonl"),
            "TMPDIR": str(base / "tmp"),
            "IPYTHONDIR": str(base / "ipython"),
            "JUPYTER_CONFIG_DIR": str(base / "jupyter"),
            "JUPYTER_PREFER_ENV_PATH": "1",
            "COURSE_WIDGETS": "frames",  # interactive figures work on a static page
        }
        if device:
            env["COURSE_DEVICE"] = device
        text = dumps(executed(nb, base / "notebooks", env, name))
        for seen in (base, ROOT):
            text = text.replace(json.dumps(str(seen))[1:-1], SHOWN)
        return parse(text)


def _cache_key(text: str, run: dict[str, Any], language: str) -> str:
    """Return a hash of what a lesson's outputs depend on: its text, imported packages, PyTorch, machine.

    ``language`` is the subfolder of the notebook, "" for English.
    """
    unused = _NOT_IMPORTED | {*languages()} - {language}
    sums = hashlib.sha256(text.encode())
    sums.update(repr([run[name] for name in ("torch", "device", "cpu", "cores")]).encode())
    for path in sorted(path for name in _IMPORTED for path in (ROOT / name).rglob("*")):
        parts = path.relative_to(ROOT).parts
        if path.is_file() and not unused & set(parts) and path.suffix != ".po":
            sums.update("/".join(parts).encode() + path.read_bytes())
    return sums.hexdigest()
