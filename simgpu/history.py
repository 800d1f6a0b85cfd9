"""The memory history of a simulated device: its allocations and frees, with time and stack frames.

The format is that of ``torch.cuda.memory._snapshot()``, so the same tools read it.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from types import FrameType
from typing import Any

Frames = list[dict[str, Any]]

_HERE = str(Path(__file__).parent)


class History:
    """The last ``max_entries`` allocator events of one device since recording began."""

    def __init__(self, max_entries: int) -> None:
        self.events: deque[dict[str, Any]] = deque(maxlen=min(max_entries, sys.maxsize))
        self.frames: dict[int, Frames] = {}
        """For each block in use, by address: the stack frames of its allocation."""

    def record(self, action: str, address: int, nbytes: int, time: float) -> None:
        """Record one allocator event with the current stack frames.

        Parameters
        ----------
        action
            ``"alloc"``, ``"free"``, ``"segment_alloc"``, ``"segment_free"``, ``"segment_map"``,
            ``"segment_unmap"`` or ``"oom"``.
        address, nbytes
            The address and the requested bytes. For ``"oom"`` the first is the free bytes of the device.
        time
            Seconds of virtual time.
        """
        frames = _frames()
        if action == "alloc":
            self.frames[address] = frames
        elif action == "free":
            self.frames.pop(address, None)
        key = "device_free" if action == "oom" else "addr"
        for name in ("free_requested", "free_completed") if action == "free" else (action,):
            event = {"action": name, key: address, "size": nbytes, "stream": 0, "frames": frames}
            self.events.append({**event, "time_us": round(time * 1e6)})


def _frames() -> Frames:
    """Return the caller's stack, innermost frame first, without frames of this package.

    Each frame is a dict with the keys filename, line and name.
    """
    frames: Frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            key = {"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name}
            frames.append(key)
        frame = frame.f_back
    return frames
