"""Parses PyTorch's out-of-memory message."""

from __future__ import annotations

import re

from course_language import _


def figures(message: str) -> dict[str, int]:
    """Parse the message of a ``torch.OutOfMemoryError``; return a dict of sizes in bytes.

    Keys: ``"requested"``, the allocation that failed; ``"capacity"`` of the device; ``"free"`` on the device;
    ``"process"``, held by this process; ``"allocated"``, the part of it that tensors take; ``"unallocated"``,
    the part that PyTorch's allocator reserves beside them.

    Raises
    ------
    ValueError
        If one of the sizes is missing in the text.
    """
    sizes = {}
    for name, pattern in _FIGURES.items():
        if not (matches := _sizes(pattern, message)):
            raise ValueError(
                _("This message does not say what is {name}: {message!r}").format(
                    name=name, message=message[:80]
                )
            )
        sizes[name] = matches[0]
    if numbered := _sizes("Process [0-9]+ has {size}", message):
        # In a container this process is listed by its number, too. It is the one that holds about as much
        # as PyTorch has reserved.
        reserved = sizes["allocated"] + sizes["unallocated"]
        own = min(numbered, key=lambda nbytes: abs(nbytes - reserved))
        sizes["process"] = next(iter(_sizes("this process has {size}", message)), own)
    return sizes


_FIGURES = {
    "requested": "Tried to allocate {size}",
    "capacity": "total capacity of {size}",
    "free": "of which {size}",
    "process": "(?:this process|Process [0-9]+) has {size}",
    "allocated": "Of the allocated memory {size}",
    "unallocated": "and {size} is reserved by PyTorch",
}
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def _sizes(pattern: str, message: str) -> list[int]:
    """Return all sizes in a message that match a pattern with the placeholder ``{size}``, in bytes."""
    matches = re.findall(pattern.format(size="([0-9.]+) ([A-Za-z]+)"), message)
    return [round(float(number) * _UNITS[unit]) for number, unit in matches]
