"""Checkpoints that are written atomically and verified when they are read, as lesson 04 teaches."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from course_language import _
from course_utils.files import write

_DAMAGE = (
    RuntimeError,
    EOFError,
    ValueError,
    zipfile.BadZipFile,
    pickle.UnpicklingError,
    zlib.error,
)
_SUMS = "SHA256SUMS"


def save(folder: Path, epochs: int, **parts: Any) -> None:
    """Save the ``state_dict`` of each part to ``last.pt``: write a temporary file, fsync it, then rename it.

    Parameters
    ----------
    folder
        Created if it does not exist. An existing ``last.pt`` is renamed to ``previous.pt``.
    epochs
        The number of completed epochs; saved too.
    parts
        Objects with a ``state_dict``, by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    new, last, previous = (folder / name for name in ("last.pt.new", "last.pt", "previous.pt"))
    with new.open("wb") as file:
        torch.save({name: part.state_dict() for name, part in parts.items()} | {"epochs": epochs}, file)
        file.flush()  # out of Python's buffer
        os.fsync(file.fileno())  # out of the system's, onto the disk
    if last.exists():
        os.replace(last, previous)
    os.replace(new, last)


def resume(folder: Path, **parts: Any) -> int:
    """Load the newest undamaged checkpoint into ``parts``; return the number of completed epochs.

    It is 0 if there is no checkpoint. Calls ``load_state_dict`` on each part with the state saved under its
    name. Damaged checkpoints are renamed to ``NAME.damaged``. In a distributed run, call it on every rank:
    rank 0 chooses the file, and all ranks read it, so ``folder`` must be shared.

    Raises
    ------
    RuntimeError
        On every rank, if there are checkpoints and none can be read.
    """
    name: str | None = None
    state: dict[str, Any] = {}
    problem: str | None = None
    distributed = dist.is_initialized()
    if not distributed or dist.get_rank() == 0:
        try:
            name, state = newest_whole(folder, "last.pt", "previous.pt")
        except RuntimeError as error:
            problem = str(error)
    if distributed:
        chosen = [name, problem]
        dist.broadcast_object_list(chosen)  # which file it is, and not what it holds
        name, problem = chosen
    if problem:
        raise RuntimeError(problem)
    if name and not state:
        state = torch.load(folder / name, map_location="cpu", weights_only=True)
    if state:
        for key, part in parts.items():
            part.load_state_dict(state[key])
    if distributed:
        dist.barrier()  # no rank saves over a file that another still reads
    return state.get("epochs", 0)


def newest_whole(folder: Path, *names: str) -> tuple[str | None, dict[str, Any]]:
    """Read the newest undamaged checkpoint; return its file name and its content.

    A damaged file (truncated, changed, or with objects that ``weights_only=True`` refuses) is renamed to
    ``NAME.damaged``, so that the next `save` does not put it in the place of a good one.

    Parameters
    ----------
    folder
        The folder of the checkpoints.
    names
        The file names to try, the newest first.

    Returns
    -------
    tuple
        ``(name, content)``; ``(None, {})`` if there is no checkpoint.

    Raises
    ------
    RuntimeError
        If there are checkpoints (damaged ones included) and none can be read.
    """
    existing = [name for name in names if (folder / name).exists()]
    for name in existing:
        data = (folder / name).read_bytes()  # fails where the disk does: no damage
        try:
            archive = zipfile.ZipFile(io.BytesIO(data))
            # torch.load compares no checksum, and reads nothing where a part is marked as a folder (bit 4).
            if archive.testzip() or any(part.external_attr & 16 for part in archive.infolist()):
                raise ValueError(_("a wrong bit"))
            return name, torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except _DAMAGE:
            print(_("{name} is cut short or damaged: put aside as {name}.damaged.").format(name=name))
            os.replace(folder / name, folder / f"{name}.damaged")
    if existing or any(folder.glob("*.damaged")):
        raise RuntimeError(
            _("No checkpoint in {folder} can be read. Start again in an empty folder.").format(folder=folder)
        )
    return None, {}


def seal(folder: str | Path) -> None:
    """Write ``SHA256SUMS`` with the SHA-256 of each file in a folder.

    Call it after all ranks have saved; only rank 0 writes. ``sha256sum --check SHA256SUMS`` verifies it.
    """
    if not dist.is_initialized() or dist.get_rank() == 0:
        lines = [f"{digest}  {name}\n" for name, digest in _digests(Path(folder)).items()]
        write(Path(folder) / _SUMS, "".join(lines))


def verify(folder: str | Path) -> None:
    """Compare each file in a folder with the checksum that `seal` wrote.

    Raises
    ------
    RuntimeError
        If there is no ``SHA256SUMS``, or files are missing, changed or added: the message names them.
    """
    try:
        lines = (Path(folder) / _SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise RuntimeError(
            _("{folder} is not whole: it has no {sums}, which is written last.").format(
                folder=folder, sums=_SUMS
            )
        ) from None
    wanted, actual = dict(line.partition("  ")[::-2] for line in lines), _digests(Path(folder))
    if wrong := sorted(name for name in wanted | actual if wanted.get(name) != actual.get(name)):
        raise RuntimeError(
            _("{folder} is damaged: {wrong}. Load the one before it.").format(
                folder=folder, wrong=", ".join(wrong)
            )
        )


def _digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder, in hexadecimal, by file name."""
    files = sorted(p for p in folder.iterdir() if p.is_file() and _SUMS not in p.name)
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
