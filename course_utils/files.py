"""Read untrusted files with limits on size and nesting, and write files atomically."""

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
"""The largest file, in bytes, that is read by default: more than any hand-in."""
DEEPEST = 20
"""The deepest nesting of JSON lists and objects that is accepted; the course's own files have five levels."""


class FileError(ValueError):
    """A file cannot be used; the message, part of a sentence, says why."""


def read_text(path: Path, below: Path | None = None, max_bytes: int = LARGEST, errors: str = "strict") -> str:
    """Return the text of an untrusted file, decoded as UTF-8.

    Parameters
    ----------
    path
        The file. Anything but a regular file (a pipe, a device, a folder) is refused.
    below
        A folder that contains the file: no symbolic link is followed below it. None allows links.
    max_bytes
        The maximum size in bytes.
    errors
        How invalid UTF-8 is handled, as in ``bytes.decode``.

    Raises
    ------
    FileError
        If it cannot be read, is larger, or is not UTF-8.
    """
    try:
        with os.fdopen(_open(path, below), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
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
    """Parse JSON text as ``json.loads(text, **how)``; FileError if it is invalid or nested too deeply."""
    try:
        parsed = json.loads(text, **how)
    except RecursionError:
        raise FileError(_("it is nested more than {deepest} deep").format(deepest=deepest)) from None
    except ValueError as error:
        raise FileError(_("it is damaged: not whole JSON ({error})").format(error=error)) from None
    level = [parsed]
    for __ in range(deepest):
        level = [child for value in level for child in _child_values(value)]
        if not level:
            return parsed
    raise FileError(_("it is nested more than {deepest} deep").format(deepest=deepest))


def clean(text: str, most: int = 120) -> str:
    """Return an untrusted text for printing: no control characters, and at most ``most`` characters."""
    shown = "".join("?" if unicodedata.category(c)[0] == "C" else c for c in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Context manager to write a file atomically: yield a temporary path; on success, rename it to ``path``.

    If the block raises or the process is killed, ``path`` keeps its old content. Parent folders are created,
    and leftover temporary files deleted. An OSError's ``filename`` is ``path``.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            temporary.unlink()  # left by a process that died; a link is not followed
        # Temporary files of killed processes. Windows cannot tell whether a process is alive.
        for leftover in path.parent.glob(f".{escape(path.name)}.*.new") if os.name == "posix" else ():
            with suppress(OSError, ValueError, OverflowError):
                try:
                    os.kill(int(leftover.name.split(".")[-2]), 0)
                except ProcessLookupError:
                    leftover.unlink()
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


def write(path: Path, content: str | bytes) -> None:
    """Write a file atomically; text is encoded as UTF-8, and its line ends are kept."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def _open(path: Path, below: Path | None) -> int:
    """Open a regular file for reading; return its descriptor. OSError for any other kind of file.

    It does not block on a pipe. Links below the folder ``below`` are refused, unless it is None.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if below is None:
        descriptor = os.open(path, flags)
    elif os.open in os.supports_dir_fd:
        descriptor = os.open(below, os.O_RDONLY)
        for part in path.relative_to(below).parts:
            parent = descriptor
            try:
                descriptor = os.open(part, flags | os.O_NOFOLLOW, dir_fd=parent)
            finally:
                os.close(parent)
    else:  # Windows
        steps = [path, *path.parents]
        if any(step.is_symlink() for step in steps[: steps.index(below)]):
            raise OSError(errno.ELOOP, _("a link leads to it"))
        descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, _("it is no file"))
    return descriptor


def _child_values(value: Any) -> list[Any]:
    """Return the elements of a list, or the values of a dict; nothing for any other value."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
