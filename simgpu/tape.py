"""A tape of what a program asks of the simulated devices, with the line that asked, to be played again.

`replay` models the same events on another card, or with some of them changed, and runs no operator.
"""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from . import latency
from .clock import Clock, HostClock
from .profiles import Profile


class Line(NamedTuple):
    """A line of the user's program."""

    file: str
    number: int

    @property
    def text(self) -> str:
        """The line's source, or an empty text."""
        return linecache.getline(self.file, self.number).strip()

    def __str__(self) -> str:
        return f"{_shown(self.file)}:{self.number}"


CELLS: dict[str, int] = {}
"""The numbers of the cells that ran under ``%%gpu``, by the file that IPython has given to each."""


def _shown(file: str) -> str:
    """Return a file's name; of a notebook's cell, the one that IPython's tracebacks have: ``In[5]``."""
    if file in CELLS:
        return f"In[{CELLS[file]}]"
    if cell := re.search(r"\bipython-input-(\d+)-", file):
        return f"In[{cell[1]}]"
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    label = getattr(getattr(shell, "compile", None), "format_code_name", lambda file: None)(file)
    return label[1] if label else Path(file).name


@dataclass(slots=True)
class Event:
    """Something that the program asked of a device.

    ``kind`` is ``"kernel"``, ``"copy"``, ``"synchronize"``, ``"record"`` or ``"wait"`` (of an event, by a
    stream or the host), ``"work"`` (of the host) or ``"load"`` (a batch of a DataLoader, measured).
    """

    kind: str
    device: int = 0
    line: Line | None = None  # of the user's program
    inner: str = ""  # the file of the innermost frame, if it is PyTorch's
    phase: str = "forward"  # or "backward", "optimizer"
    name: str = ""
    seconds: float = 0.0  # of the kernel or the host's work
    host: float = 0.0  # seconds of the host before it, launch apart
    waited: float = 0.0  # seconds that the call took the host otherwise: that it waited
    stream: int | None = 0
    work: Any = None
    direction: str = ""
    bytes: int = 0
    pinned: bool = False
    blocking: bool = True
    time: float = 0.0  # of a recorded event
    forward: Line | None = None  # in backward: the line whose gradient it computes
    again: bool = False  # a copy of a tensor that was copied before and hasn't changed


class RecordingClock(Clock):
    """A `Clock` that writes each call on a tape; a clock becomes one for a while by its ``__class__``."""

    recorder: Any
    _pending: float  # seconds of the host since the last event
    _inside: bool  # whether a method that is being recorded calls another

    def _write(self, event: Event, call: Callable[..., Any], *args: Any, dispatch: float = 0.0) -> Any:
        """Call a method of `Clock`, put its event on the tape, and return what it returned.

        ``dispatch`` is in its arguments already: seconds of the host before the event.
        """
        if self._inside:
            return call(self, *args)
        before, self._inside = self._host.now, True
        try:
            result = call(self, *args)
        finally:
            self._inside = False
        event.waited = self._host.now - before - dispatch
        if event.kind in ("kernel", "copy"):
            event.seconds = result.seconds
            event.waited -= self.profile.launch
        event.host, self._pending = self._pending + dispatch, 0.0
        self.recorder.add(event)
        return result

    def launch(
        self,
        name: str,
        seconds: float,
        stream: int = 0,
        blocks: Any = (),
        writes: Any = (),
        bytes: float = 0,
        flops: float = 0,
        dispatch: float = 0.0,
        work: Any = None,
    ) -> Any:
        """Queue a kernel, as `Clock.launch`."""
        event = Event("kernel", self.index, name=name, stream=stream, work=work)
        args = (name, seconds, stream, blocks, writes, bytes, flops, dispatch)
        return self._write(event, Clock.launch, *args, dispatch=dispatch)

    def copy(
        self,
        direction: Any,
        nbytes: int,
        pinned: bool = False,
        blocking: bool = True,
        stream: int = 0,
        blocks: Any = (),
        writes: Any = (),
        dispatch: float = 0.0,
    ) -> Any:
        """Queue a copy, as `Clock.copy`."""
        event = Event("copy", self.index, stream=stream, direction=direction, bytes=nbytes)
        event.pinned, event.blocking = pinned, blocking
        args = (direction, nbytes, pinned, blocking, stream, blocks, writes, dispatch)
        return self._write(event, Clock.copy, *args, dispatch=dispatch)

    def pin(self, nbytes: int) -> None:
        """Advance the host's clock by the time of pinning, as `Clock.pin`."""
        self._write(Event("pin", self.index, bytes=nbytes), Clock.pin, nbytes)

    def synchronize(self, stream: int | None = None) -> None:
        """Make the host wait for a stream, as `Clock.synchronize`."""
        self._write(Event("synchronize", self.index, stream=stream), Clock.synchronize, stream)

    def wait_for(self, time: float) -> None:
        """Make the host wait for an event, as `Clock.wait_for`."""
        self._write(Event("wait", self.index, stream=None, time=time), Clock.wait_for, time)

    def advance_host(self, seconds: float) -> None:
        """Advance the host's clock, as `Clock.advance_host`."""
        self._host.now += seconds
        self._pending += seconds

    def record(self, stream: int = 0) -> float:
        """Record an event, as `Clock.record`."""
        event = Event("record", self.index, stream=stream)
        event.time = self._write(event, Clock.record, stream)
        return event.time

    def wait(self, stream: int, time: float) -> None:
        """Delay a stream, as `Clock.wait`."""
        self._write(Event("wait", self.index, stream=stream, time=time), Clock.wait, stream, time)


class Played(NamedTuple):
    """What a replay took, in seconds, and for how long the devices computed."""

    seconds: float
    busy: float


Change = Callable[[Event], "Event | None"]


def replay(
    events: Iterable[Event],
    profile: Profile,
    recorded: Profile,
    *,
    change: Change | None = None,
    host: float = 1.0,
) -> Played:
    """Model events from an idle device until all is done, and run no operator.

    Parameters
    ----------
    profile, recorded
        The card to model, and the one on which the events were recorded.
    change
        Returns for each event what takes its place, or None.
    host
        The host's overhead in units of that of the card's usual host.
    """
    clock_host = HostClock()
    clocks: dict[int, Clock] = {}
    times: dict[float, float] = {}
    ratio = host * profile.host / recorded.host
    same_card = profile.key == recorded.key
    for event in events:
        changed = event if change is None else change(event)
        if changed is None:
            continue
        event = changed
        clock = clocks.get(event.device)
        if clock is None:
            clock = clocks[event.device] = Clock(event.device, profile, clock_host)
        while (event.stream or 0) >= len(clock._streams):
            clock.new_stream()
        clock_host.now += event.host * ratio
        if event.kind == "kernel":
            # A launch is host's work, too; `Clock.launch` adds it once, as the usual host takes it.
            clock_host.now += profile.launch * (host - 1)
            known = event.work is None or (same_card and event.seconds)
            seconds = event.seconds if known else latency.seconds(event.work, profile)
            clock.launch(event.name, seconds, event.stream)
        elif event.kind == "copy":
            clock.copy(event.direction, event.bytes, event.pinned, event.blocking, event.stream)
        elif event.kind == "synchronize":
            clock.synchronize(event.stream)
        elif event.kind == "record":
            times[event.time] = clock.record(event.stream)
        elif event.kind == "wait":
            time = times.get(event.time, 0.0)
            if event.stream is None:
                clock.wait_for(time)
            else:
                clock.wait(event.stream, time)
        elif event.kind == "pin":
            clock.pin(event.bytes)
        elif event.kind == "work":
            clock_host.advance(event.seconds)
    end = max([clock_host.now, *(clock.device for clock in clocks.values())])
    return Played(end, max((clock.busy for clock in clocks.values()), default=0.0))


# --- The line of the user's program

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent)
# PyTorch's frames around a dispatch mode's method, in a dry run.
_AROUND = tuple(f"{_TORCH}/{name}" for name in ("_compile.py", "_dynamo/eval_frame.py", "utils/_pytree.py"))
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_origins: dict[str, str] = {}
_lines: dict[tuple[str, int], Line] = {}


def origin(file: str) -> str:
    """Return whose code a file is: "ours", "torch", "library" or "user"; cached."""
    whose = _origins.get(file)
    if whose is None:
        if file.startswith((_OURS, *_AROUND)) and not file.startswith(f"{_OURS}/tests"):
            whose = "ours"
        elif file.startswith(_TORCH):
            whose = "torch"
        elif file.startswith((*LIBRARIES, "<frozen")):
            whose = "library"
        else:
            whose = "user"
        _origins[file] = whose
    return whose


def calling_line(depth: int = 2) -> tuple[Line | None, str]:
    """Return the innermost line that is neither PyTorch's nor a library's, and the innermost file of PyTorch.

    The second is empty if PyTorch's C++ was called by another's code.
    """
    frame = sys._getframe(depth)
    inner = None
    while frame is not None:
        file = frame.f_code.co_filename
        whose = _origins.get(file) or origin(file)
        if whose != "ours":
            if inner is None:
                inner = file if whose == "torch" else ""
            if whose == "user":
                key = (file, frame.f_lineno)  # not the code: that of two equal cells is equal
                line = _lines.get(key)
                if line is None:
                    line = _lines[key] = Line(file, frame.f_lineno)
                return line, inner
        frame = frame.f_back
    return None, inner or ""
