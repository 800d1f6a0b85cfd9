"""Files that others wrote, read with limits; files of ours, written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

from course_language import _

LARGEST = 5_000_000
"""Bytes: a larger file is none that a seat or a learner hands in."""
DEEPEST = 20
"""Lists and tables within one another: the course's own files have five."""


class FileError(ValueError):
    """A file cannot be used; the message says why in one sentence."""


def read_text(path: Path, below: Path | None = None, most: int = LARGEST, errors: str = "strict") -> str:
    """Return the text of a file that somebody else may have made.

    Parameters
    ----------
    path
        The file. What is no plain file (a pipe, a device, a folder) is refused.
    below
        Where it is given, no link is followed on the way from this folder to the file.
    most
        How many bytes it may have.
    errors
        What becomes of bytes that are not UTF-8, as in ``bytes.decode``.

    Raises
    ------
    FileError
        Where it cannot be read, is larger, or is not UTF-8.
    """
    try:
        with os.fdopen(_open(path, below), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(most + 1)
        if len(data) > most:
            megabytes = max(size, len(data)) / 1e6
            raise FileError(
                _("it has {megabytes:.0f} MB, far more than such a file").format(megabytes=megabytes)
            )
        return data.decode("utf-8-sig", errors)
    except UnicodeDecodeError:
        raise FileError(_("it cannot be read: it is not text")) from None
    except OSError as error:
        why = _("a link leads to it") if error.errno == errno.ELOOP else error.strerror or error
        raise FileError(_("it cannot be read: {why}").format(why=why)) from None


def parse(text: str, deepest: int = DEEPEST, **how: Any) -> Any:
    """Return the value of JSON text, by ``json.loads``; FileError where it is none, or nested too deep."""
    try:
        found = json.loads(text, **how)
    except RecursionError:
        raise FileError(_("it is nested more than {deepest} deep").format(deepest=deepest)) from None
    except ValueError as error:
        raise FileError(_("it is damaged: not whole JSON ({error})").format(error=error)) from None
    inside = [found]
    for __ in range(deepest):
        inside = [value for one in inside for value in _members(one)]
        if not inside:
            return found
    raise FileError(_("it is nested more than {deepest} deep").format(deepest=deepest))


def clean(text: str, most: int = 120) -> str:
    """Return a text from elsewhere as it may stand in a terminal: one line, no control characters."""
    shown = "".join("?" if unicodedata.category(c)[0] == "C" else c for c in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a place to write to; what stands there in the end takes the name of ``path`` in one move.

    Killed or failed at any moment, ``path`` is what it was before. Folders are made. An OSError names
    ``path``.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            new.unlink()  # of a process that died; a link is not followed
        # What other writers left that were killed. Windows cannot ask whether a process lives.
        for left in path.parent.glob(f".{escape(path.name)}.*.new") if os.name == "posix" else ():
            with suppress(OSError, ValueError, OverflowError):
                try:
                    os.kill(int(left.name.split(".")[-2]), 0)
                except ProcessLookupError:
                    left.unlink()
        yield new
        with new.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException as error:
        with suppress(OSError):
            new.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


def write(path: Path, content: str | bytes) -> None:
    """Write a file whole, or leave it as it was; text as UTF-8, with the line ends it has."""
    with replacing(path) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)


def _open(path: Path, below: Path | None) -> int:
    """Open for reading, without waiting for a pipe's other end."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if below is None:
        found = os.open(path, flags)
    elif os.open in os.supports_dir_fd:
        found = os.open(below, os.O_RDONLY)
        for part in path.relative_to(below).parts:
            outer = found
            try:
                found = os.open(part, flags | os.O_NOFOLLOW, dir_fd=outer)
            finally:
                os.close(outer)
    else:  # Windows
        ways = [path, *path.parents]
        if any(way.is_symlink() for way in ways[: ways.index(below)]):
            raise OSError(errno.ELOOP, _("a link leads to it"))
        found = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(0, _("it is no file"))
    return found


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
