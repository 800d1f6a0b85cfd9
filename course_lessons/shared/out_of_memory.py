"""The out-of-memory message of PyTorch, read into numbers."""

from __future__ import annotations

import re

from course_language import _


def figures(message: str) -> dict[str, int]:
    """Return the figures in the message of a ``torch.OutOfMemoryError``, in bytes.

    ``"requested"``: what was asked for; ``"capacity"`` of the device; ``"free"``: what nobody holds;
    ``"process"``: what this process holds; ``"allocated"``: what its tensors take of that;
    ``"unallocated"``: what PyTorch keeps reserved beside them.

    Raises
    ------
    ValueError
        Where the text lacks one of them.
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
        # In a container one's own process is listed by its number. It holds what PyTorch has reserved,
        # and the CUDA context.
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
    matches = re.findall(pattern.format(size="([0-9.]+) ([A-Za-z]+)"), message)
    return [round(float(number) * _UNITS[unit]) for number, unit in matches]
