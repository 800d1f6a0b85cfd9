"""Known wrong answers to 03.save_atomic, by the diagnosis that each must get."""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path

import torch

from course_lessons.lesson03.save_atomic import save_atomic
from course_utils.exercises.edited import edited


def _save_in_place(state, path):
    torch.save(state, path)


def _save_without_fsync(state, path):
    new = path.with_name(path.name + ".new")
    torch.save(state, new)
    os.replace(new, path)


def _save_without_flush(state, path):
    memory = io.BytesIO()
    torch.save(state, memory)
    new = path.with_name(path.name + ".new")
    with open(new, "wb") as file:
        file.write(memory.getvalue())
        os.fsync(file.fileno())
    os.replace(new, path)


def _save_elsewhere(state, path):
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / path.name
        with open(new, "wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        os.replace(new, path)


def _save_under_new_names(state, path):
    handle, name = tempfile.mkstemp(dir=path.parent)
    with open(handle, "wb") as file:
        torch.save(state, file)
        os.fsync(file.fileno())
    os.replace(name, path)


WRONG = {
    "overwrites": _save_in_place,
    "no-fsync": _save_without_fsync,
    "not-flushed": _save_without_flush,
    "other-folder": _save_elsewhere,
    "gap": edited(
        save_atomic,
        {"os.replace(new, path)": ("path.unlink(missing_ok=True)\nos.rename(new, path)")},
    ),
    "leftovers": _save_under_new_names,
}
