"""A checkpoint of several ranks: rank 0 saves it, every rank loads it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch


def save(path: Path, epochs: int, **parts: Any) -> None:
    """Save the state of each part, so that ``path`` is at any moment a whole checkpoint, old or new (lesson 03).

    Parameters
    ----------
    path
        The file.
    epochs
        How many are done.
    parts
        What has a ``state_dict``, by name.
    """
    state = {name: part.state_dict() for name, part in parts.items()}
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        torch.save({**state, "epochs": epochs}, file)
        file.flush()  # out of Python's buffer
        os.fsync(file.fileno())  # out of the system's, onto the disk
    os.replace(new, path)


def resume(path: Path, **parts: Any) -> int:
    """Load the state of each part where there is a checkpoint; return how many epochs are done."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return state["epochs"]
