"""What an answer does to the disk while it saves, and where it is killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import torch


class Crash(Exception):
    """The power cut that the check simulates."""


class Bomb:
    """Something whose saving fails half way."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def __reduce__(self) -> Any:
        self.watch.kill("simulated: the process was killed while it wrote the checkpoint")


GONE = "no file"
_SYNCS = [call for call in ("fsync", "fdatasync", "sync") if hasattr(os, call)]
_WAITS = getattr(os, "O_SYNC", 0) | getattr(os, "O_DSYNC", 0)


class Watch:
    """What happened on the disk while an answer ran, and where to crash.

    Attributes
    ----------
    renames
        For each rename, the file that moved, and what the checkpoint held just before.
    synced
        What the files beside the checkpoint that are synced held, at each sync before the first rename.
    call
        The last of these syncs.
    direct
        The files, by their numbers, that were opened so that each write waits for the disk.
    left
        What stood in the folder when the process was killed.
    """

    def __init__(self, path: Path, crash: bool = False) -> None:
        self.path, self.crash = path, crash
        self.renames: list[tuple[Path, object]] = []
        self.synced: list[dict[str, object]] = []
        self.call = ""
        self.direct: set[int] = set()
        self.left: dict[Path, bytes] = {}
        self._open, self._replace = os.open, os.replace

    def open(self, file: Any, flags: int, *args: Any, **more: Any) -> int:
        fd = self._open(file, flags, *args, **more)
        if flags & _WAITS:
            self.direct.add(os.fstat(fd).st_ino)
        return fd

    def syncing(self, call: str) -> Callable[..., None]:
        """Return what stands for a call by which files reach the disk: one file, or all without an argument."""
        made = getattr(os, call)

        def sync(*fd: Any, **named: Any) -> None:
            if call != "sync":  # which would wait for everything on this machine
                made(*fd, **named)
            files = [p for p in self.path.parent.iterdir() if p != self.path]
            for one in (*fd, *named.values()):  # a number, or a file that has one
                at = os.fstat(one if isinstance(one, int) else one.fileno()).st_ino
                files = [p for p in files if p.stat().st_ino == at]
            if not self.renames:
                self.synced.append({p.name: value_in(p) for p in files})
                self.call = f"os.{call}"

        return sync

    def kill(self, how: str) -> NoReturn:
        self.left = {p: p.read_bytes() for p in self.path.parent.iterdir() if p.is_file()}
        raise Crash(how)

    def undo(self) -> None:
        """Put back what stood there at the kill: a killed process runs no ``except`` and no ``finally``."""
        for file, held in self.left.items():
            file.write_bytes(held)

    def replace(self, src: Any, dst: Any, **more: Any) -> None:
        held = value_in(self.path) if self.path.exists() else GONE
        source, target = (Path(os.fsdecode(name)).resolve() for name in (src, dst))
        if not self.renames and source.exists() and source.stat().st_ino in self.direct:
            self.synced.append({source.name: value_in(source)})
            self.call = "os.O_SYNC"
        if source != target:
            self.renames.append((source, held))
        if self.crash:
            self.kill("simulated: the process was killed before the rename")
        self._replace(src, dst, **more)

    def moved(self, path: Path, target: Any) -> Path:
        self.replace(path, target)
        return type(path)(target)

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        with (
            mock.patch.multiple("os", **{call: self.syncing(call) for call in _SYNCS}),
            mock.patch("os.open", self.open),
            mock.patch("os.replace", self.replace),
            mock.patch("os.rename", self.replace),
            mock.patch("pathlib.Path.replace", lambda path, target: self.moved(path, target)),
            mock.patch("pathlib.Path.rename", lambda path, target: self.moved(path, target)),
        ):
            yield self


def value_in(path: Path) -> object:
    """The number in a saved state, or None where the file is missing, cannot be read, or holds less."""
    try:
        held = torch.load(path, weights_only=True)
        return held["value"] if torch.equal(held["weights"], saved(0)["weights"]) else None
    except Exception:  # noqa: BLE001  (whatever is no saved state)
        return None


def saved(value: int) -> dict[str, Any]:
    return {"value": value, "weights": torch.arange(100.0)}
