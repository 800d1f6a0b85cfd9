"""Virtual time: one clock for the host and one for each device.

Nothing here really waits. From the duration of each operation the clocks compute when it starts and
ends. The host queues an operation on the device and continues (only the launch costs it time); the
device runs its operations one after another. That is all that "asynchronous" means on a GPU.

The model, in full:

- A stream is a queue: its operations run in the order in which they came.
- A device has three engines: one computes, one copies from the host, one copies to the host. An
  operation starts a moment after the host has issued it, when its stream is free and its engine is free;
  from one kernel to the next there is a short gap. So a copy overlaps with computing when it is on
  another stream, and two kernels never overlap.
- Calling an operator costs the host time, whether or not it waits (see `host`).
- The host waits when it synchronises, when a copy makes it wait (see `Clock.copy`), and when it is
  `AHEAD` kernels ahead of the device.

Left out: kernels of different streams that share the device, and copies that slow each other down on
the bus.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Literal

from .host import AHEAD, costs
from .messages import N_, _
from .profiles import Profile

Direction = Literal["h2d", "d2h", "d2d", "p2p"]

ENGINES: dict[Direction, str] = {
    "h2d": "host to device",
    "d2h": "device to host",
    "d2d": "compute",
    "p2p": "device to device",
}


@dataclass(slots=True)
class Span:
    """An interval of activity of the host, or of one engine of a device.

    ``kind`` is ``"kernel"``, ``"copy"``, or on the host ``"launch"``, ``"wait"``, ``"work"`` and, while the
    CPU copies the bytes of pageable memory, ``"copy"``.
    """

    lane: str  # "host", "sim:0 compute", "sim:0 host to device", ...
    name: str
    start: float  # in seconds of virtual time, as ``end``
    end: float
    kind: str
    stream: int = 0  # 0 is the default stream
    bytes: float = 0
    flops: float = 0
    race: bool = False  # it used memory that another stream may still have been writing

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return self.end - self.start


class HostClock:
    """The host's virtual clock, shared by all devices of the process.

    Attributes
    ----------
    now
        Seconds of virtual time since the start.
    listeners
        Functions called with every `Span`. Without listeners spans are discarded.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.listeners: list[Callable[[Span], None]] = []

    def advance(self, seconds: float, name: str = N_("host work"), kind: str = "work") -> None:
        """Advance the clock by ``seconds`` in which the host is busy, and emit a `Span`.

        Raises
        ------
        ValueError
            If ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"The host cannot work for {seconds} s: give a time of 0 or more.")
        start = self.now
        self.now = start + seconds
        if self.listeners:
            self.emit(Span("host", _(name), start, self.now, kind))

    def wait_until(self, time: float, name: str = N_("wait for the device")) -> None:
        """Advance the clock to ``time`` (seconds) as a wait; do nothing if that is past."""
        if time > self.now:
            self.advance(time - self.now, name, "wait")

    def emit(self, span: Span) -> None:
        """Call every listener with a span."""
        for listener in tuple(self.listeners):
            listener(span)


class Clock:
    """The virtual clock of one device: its streams and engines; it advances the host's clock."""

    def __init__(self, index: int, profile: Profile, host: HostClock) -> None:
        self.index = index
        self.set_profile(profile)
        self._host = host
        self._streams = [0.0]  # when each stream will have completed its queued work
        self._engines = dict.fromkeys(ENGINES.values(), 0.0)  # the same for each engine
        self._lanes = {engine: f"sim:{index} {engine}" for engine in self._engines}
        self._queue: deque[float] = deque(maxlen=AHEAD)  # the ends of the last AHEAD kernels
        self._busy = 0.0
        self._created = host.now
        self._fences = [0.0]  # up to when each stream has waited for the others
        # Which stream wrote a block last, and until when; kept once there is a second stream.
        self._writers: dict[Hashable, tuple[int, float]] = {}

    def set_profile(self, profile: Profile) -> None:
        """Simulate this GPU from now on, with its usual host."""
        self.profile = profile
        self.costs = costs(profile.host)

    @property
    def host(self) -> float:
        """The host's current time, in seconds."""
        return self._host.now

    @property
    def device(self) -> float:
        """The time at which the device will have completed all queued work, in seconds."""
        return max(self._streams)

    @property
    def has_multiple_streams(self) -> bool:
        """Whether there is more than one stream, so that operations may race."""
        return len(self._streams) > 1

    @property
    def busy(self) -> float:
        """Seconds that the device has computed, queued work included."""
        return self._busy

    @property
    def idle(self) -> float:
        """Seconds that the device has not computed, from its creation to the later of `host` and `device`."""
        return max(self.host, self.device) - self._created - self._busy

    def launch(
        self,
        name: str,
        seconds: float,
        stream: int = 0,
        blocks: Collection[Hashable] = (),
        writes: Collection[Hashable] = (),
        bytes: float = 0,
        flops: float = 0,
        dispatch: float = 0.0,
        work: object = None,
    ) -> Span:
        """Queue a kernel of ``seconds``, advance the host by dispatch and launch; return the kernel's span.

        The host waits only if `AHEAD` kernels are queued.

        Parameters
        ----------
        blocks, writes
            The memory blocks that it reads and writes, to detect races between streams.
        bytes, flops
            Recorded in the span.
        dispatch
            Host overhead of the operator beside the launch, in seconds.
        work
            What it computes, as `cost.Work`; used by `tape` alone, which models it on other cards.
        """
        host, costs, queue = self._host, self.costs, self._queue
        if len(queue) == AHEAD and queue[0] > host.now:
            host.wait_until(queue[0], _("wait for room in the queue"))
        issued = host.now
        host.now = now = issued + dispatch + self.profile.launch
        streams, engines = self._streams, self._engines
        start = max(now + costs.start, max(streams[stream], engines["compute"]) + costs.gap)
        end = start + seconds
        streams[stream] = engines["compute"] = end
        queue.append(end)
        self._busy += seconds
        span = Span(self._lanes["compute"], name, start, end, "kernel", stream, bytes, flops)
        if len(streams) > 1:
            span.race = self._races(stream, end, blocks, writes)
        if host.listeners:
            host.emit(Span("host", name, issued, now, "launch", stream))
            host.emit(span)
        return span

    def copy(
        self,
        direction: Direction,
        nbytes: int,
        pinned: bool = False,
        blocking: bool = True,
        stream: int = 0,
        blocks: Collection[Hashable] = (),
        writes: Collection[Hashable] = (),
        dispatch: float = 0.0,
    ) -> Span:
        """Queue a copy of ``nbytes``, and make the host wait where CUDA would; return the copy's span.

        Between host and device the host continues at once only if its memory is pinned *and* the copy is
        not blocking. Pageable memory is copied by the driver through a pinned staging buffer, so the host is
        busy until the end; ``non_blocking=True`` saves only the synchronization with the stream. Other
        parameters are as for `launch`.

        Parameters
        ----------
        direction
            ``"h2d"``, ``"d2h"``, ``"d2d"`` within the device, or ``"p2p"`` to another one.
        pinned
            Whether the host memory is pinned.
        """
        profile, host, engine = self.profile, self._host, ENGINES[direction]
        issued = host.now
        host.now = now = issued + dispatch + profile.launch
        start = max(now + self.costs.start, self._streams[stream], self._engines[engine])
        end = start + self.copy_seconds(direction, nbytes, pinned)
        self._streams[stream] = self._engines[engine] = end
        if engine == "compute":
            self._busy += end - start
        name = _("copy on the device") if direction == "d2d" else _("copy {engine}").format(engine=engine)
        span = Span(self._lanes[engine], name, start, end, "copy", stream, nbytes)
        if len(self._streams) > 1:
            span.race = self._races(stream, end, blocks, writes)
        if host.listeners:
            host.emit(Span("host", name, issued, now, "launch", stream))
            host.emit(span)
        if direction in ("h2d", "d2h"):
            if not pinned:
                host.wait_until(start)
                host.advance(end - host.now, _("carry the bytes"), "copy")
            if blocking:
                self.synchronize(stream)
        return span

    def copy_seconds(self, direction: Direction, nbytes: int, pinned: bool = False) -> float:
        """Return the duration of a copy of ``nbytes`` from its start to its end, in seconds."""
        profile = self.profile
        if direction == "d2d":  # read and written
            rate = profile.bandwidth * profile.memory_efficiency
            return profile.kernel_floor + 2 * nbytes / rate
        if direction == "p2p":
            return profile.copy_latency + nbytes / profile.peer
        rate = profile.bus_pinned if pinned else profile.bus_pageable
        return profile.copy_latency + nbytes / rate

    def pin(self, nbytes: int) -> None:
        """Advance the host's clock by the time of ``tensor.pin_memory()``, for ``nbytes`` bytes."""
        self._host.advance(nbytes / self.profile.pinning, "pin_memory")

    def synchronize(self, stream: int | None = None) -> None:
        """Make the host wait until a stream (None: every stream) has completed its queued work."""
        self.wait_for(self.device if stream is None else self._streams[stream])

    def wait_for(self, time: float) -> None:
        """Make the host wait until the device's ``time``, in seconds, as ``Event.synchronize`` does."""
        self._host.wait_until(time)
        self._host.advance(self.profile.sync_cost, "synchronize", "wait")
        self._fences = [max(fence, time) for fence in self._fences]
        self._writers = {block: last for block, last in self._writers.items() if last[1] > time}

    def advance_host(self, seconds: float) -> None:
        """Advance the host's clock by ``seconds`` for an operator that launches no kernel; emit no span."""
        self._host.now += seconds

    def new_stream(self) -> int:
        """Add a stream and return its number."""
        self._streams.append(0.0)
        self._fences.append(0.0)
        return len(self._streams) - 1

    def record(self, stream: int = 0) -> float:
        """Record an event in a stream: return when the stream will reach it, in seconds.

        Recording costs the host `Costs.event`.
        """
        self._host.now += self.costs.event
        return self.mark(stream)

    def mark(self, stream: int = 0) -> float:
        """Return when the stream will have completed all that is queued in it now, in seconds."""
        self._streams[stream] = max(self._streams[stream], self._host.now)
        return self._streams[stream]

    def wait(self, stream: int, time: float) -> None:
        """Delay later work of a stream until ``time``, as ``stream.wait_event``; the host does not wait."""
        self._streams[stream] = max(self._streams[stream], time)
        self._fences[stream] = max(self._fences[stream], time)

    def reached(self, time: float) -> bool:
        """Return whether the host's time has reached a recorded ``time``, as ``Event.query``."""
        return time <= self._host.now

    def forget_block(self, block: Hashable) -> None:
        """Delete the record of the last write to a block, because its memory was freed."""
        self._writers.pop(block, None)

    def _races(
        self, stream: int, end: float, reads: Collection[Hashable], writes: Collection[Hashable]
    ) -> bool:
        """Return whether another stream may still be writing a block in use; record the blocks written.

        It is a race if the stream has not waited for the writer, even if the writer happens to have ended: on
        a real device that would be luck.
        """
        fence = self._fences[stream]
        written = [self._writers.get(block, (stream, 0.0)) for block in (*reads, *writes)]
        self._writers.update(dict.fromkeys(writes, (stream, end)))
        return any(writer != stream and until > fence for writer, until in written)
