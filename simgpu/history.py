"""What was allocated and freed when, and by which line: the memory snapshot of a simulated device.

The form is that of ``torch.cuda.memory._snapshot()``, so what reads a GPU's snapshot reads this one.
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
    """The last ``max_entries`` events of one device since recording began."""

    def __init__(self, max_entries: int) -> None:
        self.events: deque[dict[str, Any]] = deque(maxlen=min(max_entries, sys.maxsize))
        self.frames: dict[int, Frames] = {}
        """For each block in use, by address, where it was allocated."""

    def record(self, action: str, address: int, nbytes: int, time: float) -> None:
        """Record one event.

        Parameters
        ----------
        action
            ``"alloc"``, ``"free"``, ``"segment_alloc"``, ``"segment_free"`` or ``"oom"``.
        address, nbytes
            Where, and how much was asked for. Of ``"oom"`` the first is how much the device has left.
        time
            When, in seconds of virtual time.
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
    """Return where the program is, innermost first, without this package's own frames."""
    frames: Frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            key = {"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name}
            frames.append(key)
        frame = frame.f_back
    return frames
