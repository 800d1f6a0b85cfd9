"""Record what an answer does to the disk while it saves, and kill it there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import torch

from course_language import _

GONE = _("no file")
_SYNCS = [call for call in ("fsync", "fdatasync", "sync") if hasattr(os, call)]
_SYNC_FLAGS = getattr(os, "O_SYNC", 0) | getattr(os, "O_DSYNC", 0)


class Crash(Exception):
    """The power cut that the check simulates."""


class Bomb:
    """An object that crashes the program while it is pickled."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def __reduce__(self) -> Any:
        self.watch.kill(_("simulated: the process was killed while it wrote the checkpoint"))


class Watch:
    """Records syncs and renames beside a checkpoint, and crashes before a rename where ``crash`` is set.

    Attributes
    ----------
    renames
        For each rename, the file that was renamed, and the value in the checkpoint just before.
    synced
        The values in the files that are synced, at each sync before the first rename.
    sync_call
        The last of these syncs.
    """

    def __init__(self, path: Path, crash: bool = False) -> None:
        self.path, self.crash = path, crash
        self.renames: list[tuple[Path, object]] = []
        self.synced: list[dict[str, object]] = []
        self.sync_call = ""
        self._write_through: set[int] = set()  # inodes of files whose writes wait for the disk
        self._files_at_kill: dict[Path, bytes] = {}
        self._open, self._replace = os.open, os.replace

    def open(self, file: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        fd = self._open(file, flags, *args, **kwargs)
        if flags & _SYNC_FLAGS:
            self._write_through.add(os.fstat(fd).st_ino)
        return fd

    def _recording(self, call: str) -> Callable[..., None]:
        """Return a replacement of ``os.fsync``, ``os.fdatasync`` or ``os.sync`` that records."""
        original = getattr(os, call)

        def sync(*fd: Any, **kwargs: Any) -> None:
            if call != "sync":  # which would wait for everything on this machine
                original(*fd, **kwargs)
            files = [p for p in self.path.parent.iterdir() if p != self.path]
            for file in (*fd, *kwargs.values()):
                inode = os.fstat(file if isinstance(file, int) else file.fileno()).st_ino
                files = [p for p in files if p.stat().st_ino == inode]
            if not self.renames:
                self.synced.append({p.name: value_in(p) for p in files})
                self.sync_call = f"os.{call}"

        return sync

    def kill(self, message: str) -> NoReturn:
        self._files_at_kill = {p: p.read_bytes() for p in self.path.parent.iterdir() if p.is_file()}
        raise Crash(message)

    def undo(self) -> None:
        """Restore the files as they were at the kill: a killed process runs no ``except`` and ``finally``."""
        for file, content in self._files_at_kill.items():
            file.write_bytes(content)

    def replace(self, src: Any, dst: Any, **kwargs: Any) -> None:
        value = value_in(self.path) if self.path.exists() else GONE
        source, target = (Path(os.fsdecode(name)).resolve() for name in (src, dst))
        if not self.renames and source.exists() and source.stat().st_ino in self._write_through:
            self.synced.append({source.name: value_in(source)})
            self.sync_call = "os.O_SYNC"
        if source != target:
            self.renames.append((source, value))
        if self.crash:
            self.kill(_("simulated: the process was killed before the rename"))
        self._replace(src, dst, **kwargs)

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        def path_replace(path: Path, target: Any) -> Path:  # Python 3.10's does not call os.replace
            self.replace(path, target)
            return type(path)(target)

        with (
            mock.patch.multiple(os, **{call: self._recording(call) for call in _SYNCS}),
            mock.patch.multiple(os, open=self.open, replace=self.replace, rename=self.replace),
            mock.patch.multiple(Path, replace=path_replace, rename=path_replace),
        ):
            yield self


def value_in(path: Path) -> object:
    """Return the number in a saved state; None where the file cannot be read, or holds less."""
    try:
        state = torch.load(path, weights_only=True)
        return state["value"] if torch.equal(state["weights"], saved(0)["weights"]) else None
    except Exception:  # noqa: BLE001  (whatever is no saved state)
        return None


def saved(value: int) -> dict[str, Any]:
    """Return a state that holds a number."""
    return {"value": value, "weights": torch.arange(100.0)}
