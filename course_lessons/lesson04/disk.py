"""Records the file operations of an answer that saves a checkpoint, and simulates a crash during them."""

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
    """Raised to simulate a power cut."""


class Bomb:
    """An object that crashes the program when it is pickled."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def __reduce__(self) -> Any:
        self.watch.kill(_("simulated: the process was killed while it wrote the checkpoint"))


class Watch:
    """Records syncs and renames in a checkpoint's folder; with ``crash``, raises `Crash` before a rename.

    Attributes
    ----------
    renames
        For each rename, the source file, and the value in the checkpoint (see `value_in`) just before.
    synced
        For each sync before the first rename, the values in the synced files, by name.
    sync_call
        The function or flag of the last of these syncs.
    """

    def __init__(self, path: Path, crash: bool = False) -> None:
        self.path, self.crash = path, crash
        self.renames: list[tuple[Path, object]] = []
        self.synced: list[dict[str, object]] = []
        self.sync_call = ""
        self._write_through: set[int] = set()  # inodes of files opened with O_SYNC or O_DSYNC
        self._files_at_kill: dict[Path, bytes] = {}
        self._open, self._replace = os.open, os.replace

    def open(self, file: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        """Replace ``os.open``: remember files opened for synchronous writes."""
        fd = self._open(file, flags, *args, **kwargs)
        if flags & _SYNC_FLAGS:
            self._write_through.add(os.fstat(fd).st_ino)
        return fd

    def _recording_sync(self, call: str) -> Callable[..., None]:
        """Return a replacement for ``os.fsync``, ``os.fdatasync`` or ``os.sync`` that records synced
        files.
        """
        original = getattr(os, call)

        def sync(*fd: Any, **kwargs: Any) -> None:
            """Sync, and record the values in the synced files."""
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
        """Raise `Crash`; keep the files' content as of now for `undo`."""
        self._files_at_kill = {p: p.read_bytes() for p in self.path.parent.iterdir() if p.is_file()}
        raise Crash(message)

    def undo(self) -> None:
        """Restore the files as they were at the crash: a killed process runs no ``except`` or ``finally``."""
        for file, content in self._files_at_kill.items():
            file.write_bytes(content)

    def replace(self, src: Any, dst: Any, **kwargs: Any) -> None:
        """Replace ``os.replace`` and ``os.rename``: record the rename, and crash before it if asked to."""
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
        """Patch the functions of ``os`` and ``Path`` in the block; yield self."""

        def path_replace(path: Path, target: Any) -> Path:  # Python 3.10's does not call os.replace
            self.replace(path, target)
            return type(path)(target)

        with (
            mock.patch.multiple(os, **{call: self._recording_sync(call) for call in _SYNCS}),
            mock.patch.multiple(os, open=self.open, replace=self.replace, rename=self.replace),
            mock.patch.multiple(Path, replace=path_replace, rename=path_replace),
        ):
            yield self


def value_in(path: Path) -> object:
    """Return the value in a state that `saved` made; None if the file cannot be read or is incomplete."""
    try:
        state = torch.load(path, weights_only=True)
        return state["value"] if torch.equal(state["weights"], saved(0)["weights"]) else None
    except Exception:  # noqa: BLE001  (whatever is no saved state)
        return None


def saved(value: int) -> dict[str, Any]:
    """Return a state to save that contains a value."""
    return {"value": value, "weights": torch.arange(100.0)}
