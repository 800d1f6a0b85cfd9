"""What a checkpoint needs beside the idea: the generators of a device, and a file read whole or put aside."""

from __future__ import annotations

import io
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_BROKEN = (RuntimeError, EOFError, ValueError, zipfile.BadZipFile, pickle.UnpicklingError)


def generators(
    device: torch.device | str,
) -> dict[str, tuple[Callable[[], Any], Callable[[Any], None]]]:
    """Return for each source of random numbers how to read its state and how to set it.

    Parameters
    ----------
    device
        Where the training runs: an accelerator has a generator of its own.
    """
    found: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
        "torch": (torch.get_rng_state, torch.set_rng_state),
        "python": (random.getstate, random.setstate),
    }
    module = torch.get_device_module(device)
    if hasattr(module, "get_rng_state"):
        found[torch.device(device).type] = (module.get_rng_state, module.set_rng_state)
    return found


def newest_whole(folder: Path, *names: str) -> tuple[str | None, dict[str, Any]]:
    """Read the newest checkpoint that is whole; return its name and what it holds.

    One that is cut short, damaged or carries code is put aside as ``NAME.damaged``, so that the next save
    does not push it over a good one.

    Parameters
    ----------
    folder
        Where the checkpoints lie.
    names
        Their names, the newest first.

    Returns
    -------
    tuple
        ``(None, {})`` where there is no checkpoint.

    Raises
    ------
    RuntimeError
        Where there are some, and none can be read.
    """
    there = [name for name in names if (folder / name).exists()]
    for name in there:
        data = (folder / name).read_bytes()  # fails where the disk does: no damage
        try:
            if zipfile.ZipFile(io.BytesIO(data)).testzip():  # torch.load compares no checksum
                raise ValueError("a wrong bit")
            return name, torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except _BROKEN:
            print(f"{name} is cut short or damaged: put aside as {name}.damaged.")
            os.replace(folder / name, folder / f"{name}.damaged")
    if there or any(folder.glob("*.damaged")):
        raise RuntimeError(
            f"No checkpoint in {folder} can be read. Start again in an empty folder."
        )
    return None, {}
