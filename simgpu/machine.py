"""The simulated hardware: devices with memory, a clock and a random generator, and one host.

Each process has one `Machine`, `MACHINE`, without devices until ``simgpu.enable`` is called.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .allocator import Allocator, Block
from .clock import Clock, HostClock
from .counters import Copy, Counters
from .expandable import ExpandableAllocator
from .history import History
from .profiles import Profile

CPU = torch.device("cpu")


class Memory:
    """The block of device memory shared by a tensor and all its views; freed when the last is deleted."""

    __slots__ = ("_block", "device", "nbytes")

    def __init__(self, device: Device, nbytes: int) -> None:
        self.device = device
        self.nbytes = nbytes
        self._block: Block = device.allocator.allocate(nbytes)

    def resize(self, nbytes: int) -> None:
        """Replace the block by one of ``nbytes``, as a tensor that grows does.

        Both are allocated for a moment. The data aren't copied.
        """
        block = self.device.allocator.allocate(nbytes)
        self.device.allocator.free(self._block)
        self._block, self.nbytes = block, nbytes

    def __del__(self) -> None:
        block = getattr(self, "_block", None)  # None if the allocation failed
        if block is not None:
            self.device.allocator.free(block)
            self.device.clock.forget_block(id(self))


class SynchronizationError(RuntimeError):
    """An operation made the host wait, and the program has asked for an error then."""


class Device:
    """One simulated GPU: its allocator, clock, random state and current stream."""

    def __init__(
        self,
        index: int,
        profile: Profile,
        capacity: int,
        host: HostClock,
        *,
        expandable_segments: bool = False,
    ) -> None:
        self.index = index
        self.profile = profile
        with torch._C.DisableTorchFunction():  # else `named`'s mode would make it a ``cuda`` one
            self.torch_device = torch.device("sim", index)
        allocator_type = ExpandableAllocator if expandable_segments else Allocator
        self.allocator = allocator_type(capacity, index)
        self.clock = Clock(index, profile, host)
        self.stream = 0  # the current stream
        self.rng = torch.Generator().get_state()
        self.history: History | None = None  # while it is recorded

    def record_history(self, max_entries: int | None) -> None:
        """Start to record the last ``max_entries`` allocator events; None stops, and deletes the history.

        If it is recording already, the history continues, with the number of entries it has had.
        """
        history = None if max_entries is None else self.history or History(max_entries)
        self.history, self.allocator.on_event = history, None

        def record(action: str, address: int, nbytes: int) -> None:
            try:
                history.record(action, address, nbytes, self.clock.host)
            except Exception:  # noqa: BLE001  (an error of the history must not fail an allocation)
                MACHINE.count_unmodelled()

        if history is not None:
            self.allocator.on_event = record

    def seed(self, seed: int) -> None:
        """Seed the random number generator."""
        self.rng = torch.Generator().manual_seed(seed).get_state()


@dataclass
class Machine:
    """The simulated devices of the process, the host's clock, the current device and the active counters."""

    devices: list[Device] = field(default_factory=list)
    host: HostClock = field(default_factory=HostClock)
    current: int = 0
    counting: list[Counters] = field(default_factory=list)
    arrivals: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    device_types: tuple[str, ...] = ("sim",)  # and "cuda", while programs that say so run here
    used: bool = False
    forked: bool = False
    sync_debug_mode: int = 0  # 1: warn where an operation makes the host wait, 2: raise

    def device(self, which: torch.device | str | int | None = None) -> Device:
        """Return a device by name or index; None means the current device.

        Raises
        ------
        RuntimeError
            If there is no such device, or in a process forked after the devices were in use.
        ValueError
            If it is not a sim device.
        """
        index = which
        if isinstance(which, str):
            which = torch.device(which)
        if isinstance(which, torch.device):
            if which.type not in self.device_types:
                raise ValueError(f"Expected a sim device, but got: {which}")
            index = which.index
        if index is None:
            index = self.current
        if not 0 <= index < len(self.devices):
            if not self.devices:
                raise RuntimeError("There is no simulated device: call simgpu.enable() first.")
            raise RuntimeError(
                "sim error: invalid device ordinal. "
                f"sim:{index} was asked for; there {self._devices_text()}. "
                "simgpu.enable(devices=...) makes more."
            )
        if self.forked:
            raise RuntimeError(
                "Cannot re-initialize sim in forked subprocess. "
                "To use sim with multiprocessing, you must use the 'spawn' start method"
            )
        self.used = True
        return self.devices[index]

    def run_arrivals(self) -> None:
        """Run the callbacks of the non-blocking copies to pinned memory that have ended by the host's time.

        Until such a copy has ended, the host reads the previous values.
        """
        callbacks = [callback for end, callback in self.arrivals if end <= self.host.now]
        self.arrivals = [arrival for arrival in self.arrivals if arrival[0] > self.host.now]
        for callback in callbacks:
            callback()

    def count_synchronization(self) -> None:
        """Run due arrivals and count a synchronization; called after the host has waited for a device."""
        self.run_arrivals()
        for counters in self.counting:
            counters.synchronizations += 1

    def count_unmodelled(self) -> None:
        """Count an operation whose cost or trace could not be determined."""
        for counters in self.counting:
            counters.unmodelled += 1

    def copy(
        self,
        device: Device,
        direction: str,
        nbytes: int,
        *,
        pinned: bool = False,
        non_blocking: bool = False,
        reads: tuple[Memory, ...] = (),
        writes: tuple[Memory, ...] = (),
        dispatch: float = 0.0,
    ) -> float:
        """Charge a copy to a device's clock, and count it and its synchronization; no data are copied here.

        Return when it ends, in seconds of virtual time. Other parameters are as for `Clock.copy`.
        """
        try:
            span = device.clock.copy(
                direction,
                nbytes,
                pinned,
                not non_blocking,
                device.stream,
                [id(memory) for memory in reads],
                [id(memory) for memory in writes],
                dispatch,
            )
            seconds, race, end = span.seconds, span.race, span.end
        except Exception:  # noqa: BLE001  (an error of the clock must not fail the copy)
            self.count_unmodelled()
            seconds, race, end = 0.0, False, self.host.now
        synchronizes = direction in ("h2d", "d2h") and not (pinned and non_blocking)
        for counters in self.counting:
            counters.copies.append(Copy(direction, nbytes, pinned, non_blocking, seconds))
            counters.races += race
            counters.synchronizations += synchronizes
        if self.arrivals:
            self.run_arrivals()
        if self.sync_debug_mode and direction in ("h2d", "d2h") and not non_blocking:
            self._report_synchronization()
        return end

    def _report_synchronization(self) -> None:
        """Warn of a synchronization, or raise; see ``torch.sim.set_sync_debug_mode``."""
        if self.sync_debug_mode == 2:
            raise SynchronizationError("called a synchronizing sim operation")
        warnings.warn("called a synchronizing sim operation", UserWarning, stacklevel=2)

    def snapshot(self) -> dict[str, Any]:
        """Return the memory snapshot of all devices, in the format of ``torch.cuda.memory._snapshot()``."""
        segments, traces = [], []
        for device in self.devices:
            history = device.history or History(0)
            traces.append(list(history.events))
            for segment in device.allocator.snapshot():
                for block in segment["blocks"]:
                    used = block["state"] != "inactive"
                    block["frames"] = history.frames.get(block["address"], []) if used else []
                segments.append({**segment, "segment_pool_id": (0, 0), "frames": []})
        return {"segments": segments, "device_traces": traces}

    def _devices_text(self) -> str:
        """Return the number of devices in words, for an error message."""
        count = len(self.devices)
        return "is one device, sim:0" if count == 1 else f"are {count} devices"


MACHINE = Machine()


def _after_fork() -> None:
    """Mark a forked child process as unable to use the devices, if the parent has used them."""
    MACHINE.forked = MACHINE.used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_memory(memory: int | str) -> int:
    """Return a size in bytes: from ``300_000_000``, ``"300 MB"`` (10**6 bytes) or ``"15 GiB"`` (2**30 bytes).

    Raises
    ------
    ValueError
        If it is not a size, or not positive.
    """
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", memory)
        if match and match[2].upper() in _UNITS:
            memory = int(float(match[1]) * _UNITS[match[2].upper()])
    if isinstance(memory, bool) or not isinstance(memory, int) or memory <= 0:
        raise ValueError(
            f"{memory!r} is no size of memory. Give bytes, or a text such as '300 MB' or '15 GiB'."
        )
    return memory
