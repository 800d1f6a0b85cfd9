"""``torch.sim``: the counterpart of ``torch.cuda`` for simulated devices."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from . import typed
from .machine import MACHINE, Device

_DeviceLike = torch.device | str | int | None


class Event:
    """An event in a stream, as ``torch.cuda.Event``.

    Parameters
    ----------
    enable_timing
        Must be True for `elapsed_time`.
    """

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self.enable_timing = enable_timing
        self._device: Device | None = None
        self._time = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Record the event in a stream (None: the current one), after all work queued in it so far."""
        self._device = stream._device if stream else MACHINE.device()
        number = stream.stream_id if stream else self._device.stream
        self._time = self._device.clock.record(number)

    def wait(self, stream: Stream | None = None) -> None:
        """Make later work of a stream (None: the current one) wait for the event; the host does not wait."""
        device = stream._device if stream else MACHINE.device()
        device.clock.wait(stream.stream_id if stream else device.stream, self._time)

    def query(self) -> bool:
        """Return whether the event has been reached by now, or was never recorded.

        If it was recorded, a call advances the host's clock by a microsecond, so that a polling loop ends.
        """
        return self._device is None or _query(self._device, self._time)

    def synchronize(self) -> None:
        """Make the host wait for the event."""
        if self._device is not None:
            self._device.clock.wait_for(self._time)
            MACHINE.count_synchronization()

    def elapsed_time(self, end_event: Event) -> float:
        """Return the modelled milliseconds from this event to ``end_event``.

        Raises
        ------
        RuntimeError
            If either has not been reached yet; synchronize first.
        ValueError
            If either was not recorded, or was created without ``enable_timing=True``.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._device is None or end_event._device is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not all(e._device.clock.reached(e._time) for e in (self, end_event)):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (end_event._time - self._time) * 1e3


class Stream:
    """A queue of operations that run in order, concurrently with those of other streams.

    In a ``with`` block it is its device's current stream. ``priority`` is ignored.
    """

    def __init__(self, device: _DeviceLike = None, priority: int = 0, *, _number: int | None = None) -> None:
        self._device = MACHINE.device(device)
        self.device = self._device.torch_device
        self.stream_id = self._device.clock.new_stream() if _number is None else _number
        self._previous: list[int] = []

    @property
    def device_type(self) -> int:
        """PyTorch's number for this type of device."""
        return int(torch._C._autograd.DeviceType.PrivateUse1)

    @property
    def device_index(self) -> int:
        """The index of the device: 0 for ``sim:0``."""
        return self._device.index

    def synchronize(self) -> None:
        """Make the host wait until the stream has completed its queued work."""
        self._device.clock.synchronize(self.stream_id)
        MACHINE.count_synchronization()

    def query(self) -> bool:
        """Return whether the stream has completed its queued work; see `Event.query`."""
        return _query(self._device, self._device.clock.mark(self.stream_id))

    def wait_stream(self, stream: Stream) -> None:
        """Make later work of this stream wait for all work queued in another so far."""
        self.wait_event(stream.record_event())

    def wait_event(self, event: Event) -> None:
        """Make later work of this stream wait for an event."""
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event (None: a new one) in this stream, and return it."""
        event = event or Event()
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        """Return False: simulated devices capture no CUDA graphs. Optimizers ask at every step."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self._device.index, self.stream_id) == (
            other._device.index,
            other.stream_id,
        )

    def __hash__(self) -> int:
        return hash((self._device.index, self.stream_id))

    def __repr__(self) -> str:
        return f"<torch.sim.Stream device={self.device} number={self.stream_id}>"

    def __enter__(self) -> Stream:
        self._previous.append(self._device.stream)  # a list, because a stream may be entered repeatedly
        self._device.stream = self.stream_id
        return self

    def __exit__(self, *_: object) -> None:
        self._device.stream = self._previous.pop()


def _query(device: Device, time: float) -> bool:
    """Return whether the host's time has reached ``time``.

    Each call advances the host's clock, so that a polling loop ends.
    """
    MACHINE.host.advance(_QUERY_SECONDS, "query")
    MACHINE.run_arrivals()
    return device.clock.reached(time)


_QUERY_SECONDS = 1e-6


@dataclass(frozen=True)
class Properties:
    """The properties of a simulated device; ``total_memory`` in bytes."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    L2_cache_size: int
    max_threads_per_multi_processor: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    warp_size: int = 32
    max_threads_per_block: int = 1024
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    is_integrated: bool = False
    is_multi_gpu_board: bool = False


# Of a multiprocessor, by compute capability: threads, and bytes of shared memory that one block may ask for
# (CUDA C++ programming guide, "Technical Specifications per Compute Capability").
_BY_CAPABILITY = {
    (7, 0): (2048, 96 * 1024),
    (7, 5): (1024, 64 * 1024),
    (8, 0): (2048, 163 * 1024),
    (8, 6): (1536, 99 * 1024),
    (8, 9): (1536, 99 * 1024),
    (9, 0): (2048, 227 * 1024),
    (10, 0): (2048, 227 * 1024),
    (12, 0): (1536, 99 * 1024),
}


class StreamContext:
    """A context manager in which a stream is the current one; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


class autocast(torch.autocast):
    """Mixed precision on the simulated device, as ``torch.cuda.amp.autocast``."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
    ) -> None:
        super().__init__("sim", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def _module(name: str, **members: Any) -> types.ModuleType:
    """Return a module of ``torch.sim`` with these members."""
    module = types.ModuleType(f"torch.sim.{name}")
    vars(module).update(members)
    return module


class _Ranges:
    """The functions of ``torch.cuda.nvtx``: ranges for NVIDIA's profiler, here only counted."""

    def __init__(self) -> None:
        self.depth = 0

    def range_push(self, msg: str) -> int:
        """Begin a range; return how many it is in."""
        self.depth += 1
        return self.depth - 1

    def range_pop(self) -> int:
        """End the innermost range; return how many it was in."""
        self.depth -= 1
        return self.depth

    def mark(self, msg: str) -> None:
        """Do nothing."""

    @contextlib.contextmanager
    def range(self, msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
        """Return a context manager that is one range."""
        self.range_push(msg)
        try:
            yield
        finally:
            self.range_pop()


_RANGES = _Ranges()

_MEMORY_NAMES = (
    "empty_cache memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached "
    "max_memory_cached memory_stats memory_stats_as_nested_dict memory_summary memory_snapshot mem_get_info "
    "reset_peak_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated "
    "reset_max_memory_cached set_per_process_memory_fraction get_per_process_memory_fraction "
    "host_memory_stats list_gpu_processes"
)
_RANDOM_NAMES = (
    "manual_seed manual_seed_all seed seed_all initial_seed get_rng_state get_rng_state_all set_rng_state "
    "set_rng_state_all"
)
_SYNC_DEBUG_MODES = ("default", "warn", "error")

_GRAPHS = "Simulated devices capture no graphs: run the program without them, or on a real GPU."
_SENSORS = "A simulated device has no sensors; simgpu.clock() says how long it was busy."
_POOLS = "The simulated device has one allocator and one pool."
_ABSENT = {
    **dict.fromkeys(("CUDAGraph", "graph", "make_graphed_callables", "graph_pool_handle"), _GRAPHS),
    **dict.fromkeys(
        ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "device_memory_used"),
        _SENSORS,
    ),
    **dict.fromkeys(
        ("MemPool", "use_mem_pool", "CUDAPluggableAllocator", "change_current_allocator"), _POOLS
    ),
    "jiterator": "There is no compiler for a simulated device.",
    "cudart": "There is no CUDA runtime under a simulated device.",
}
"""Names of ``torch.cuda`` that a simulated device cannot have, and why."""


class SimMemory(types.ModuleType):
    """The module ``torch.sim.memory``: records memory history in the format of ``torch.cuda.memory``."""

    def _record_memory_history(
        self, enabled: str | None = "all", *_: Any, max_entries: int = sys.maxsize, **__: Any
    ) -> None:
        """Start to record on all devices, or go on; ``enabled=None`` stops, and discards the history.

        CUDA's other arguments are ignored.
        """
        for device in MACHINE.devices:
            device.record_history(max_entries if enabled else None)

    def _snapshot(self, device: _DeviceLike = None) -> dict[str, Any]:
        """Return the segments and the history of all devices; ``device`` is ignored."""
        return MACHINE.snapshot()

    def _dump_snapshot(self, filename: str = "dump_snapshot.pickle") -> None:
        """Write `_snapshot` to a pickle file for https://pytorch.org/memory_viz."""
        with open(filename, "wb") as file:
            pickle.dump(self._snapshot(), file, protocol=4)  # the viewer reads no newer one


class SimModule(types.ModuleType):
    """The module ``torch.sim``: the functions of ``torch.cuda``. Memory is in bytes, time is modelled.

    A ``device`` is a ``torch.device``, a text such as ``"sim:1"``, an index, or None: the current device.
    """

    Event = Event
    Stream = Stream
    OutOfMemoryError = torch.OutOfMemoryError
    memory = SimMemory("torch.sim.memory")
    _initialized = True  # asked by checkpointing, which then keeps the random state
    StreamContext = StreamContext
    nvtx = _RANGES
    has_half = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        for memory_name in _MEMORY_NAMES.split():
            setattr(self.memory, memory_name, getattr(self, memory_name))
        self.random = _module("random", **{name: getattr(self, name) for name in _RANDOM_NAMES.split()})
        amp = torch.amp
        self.amp = _module(
            "amp",
            autocast=autocast,
            GradScaler=functools.partial(amp.GradScaler, "sim"),
            custom_fwd=functools.partial(amp.custom_fwd, device_type="sim"),
            custom_bwd=functools.partial(amp.custom_bwd, device_type="sim"),
        )

    def __getattr__(self, name: str) -> Any:
        kind = typed.named(name)
        if kind is not None:
            return kind
        reason = f". {_ABSENT[name]}" if name in _ABSENT else ""
        raise AttributeError(f"module 'torch.sim' has no attribute '{name}'{reason}")

    def is_available(self) -> bool:
        """Return whether there is a simulated device."""
        return bool(MACHINE.devices)

    def is_initialized(self) -> bool:
        """Return True: there is nothing to initialize."""
        return True

    def init(self) -> None:
        """Do nothing, as ``torch.cuda.init`` does once initialized."""

    _lazy_init = init

    def _is_in_bad_fork(self) -> bool:
        """Return whether this is a child process forked after the devices were in use."""
        return MACHINE.forked

    def device_count(self) -> int:
        """Return the number of simulated devices."""
        return len(MACHINE.devices)

    def current_device(self) -> int:
        """Return the index of the current device."""
        return MACHINE.current

    def set_device(self, device: _DeviceLike) -> None:
        """Make a device the current one."""
        MACHINE.current = MACHINE.device(device).index

    @contextlib.contextmanager
    def device(self, device: _DeviceLike) -> Iterator[None]:
        """Return a context manager in which a device is the current one."""
        previous_index = MACHINE.current
        self.set_device(device)
        try:
            yield
        finally:
            MACHINE.current = previous_index

    def synchronize(self, device: _DeviceLike = None) -> None:
        """Make the host wait until a device (None: the current one) has completed its queued work."""
        MACHINE.device(device).clock.synchronize()
        MACHINE.count_synchronization()

    def stream(self, stream: Stream | None) -> Any:
        """Return a context manager in which a stream is the current one; None changes nothing."""
        return stream if stream is not None else contextlib.nullcontext()

    def current_stream(self, device: _DeviceLike = None) -> Stream:
        """Return the current stream of a device."""
        sim_device = MACHINE.device(device)
        return Stream(sim_device.index, _number=sim_device.stream)

    def default_stream(self, device: _DeviceLike = None) -> Stream:
        """Return the default stream of a device."""
        return Stream(device, _number=0)

    def set_stream(self, stream: Stream) -> None:
        """Make a stream the current one of its device; the current device stays."""
        stream._device.stream = stream.stream_id

    def memory_allocated(self, device: _DeviceLike = None) -> int:
        """Return the bytes allocated for tensors."""
        return MACHINE.device(device).allocator.allocated

    def max_memory_allocated(self, device: _DeviceLike = None) -> int:
        """Return the peak of `memory_allocated`."""
        return MACHINE.device(device).allocator.max_allocated

    def memory_reserved(self, device: _DeviceLike = None) -> int:
        """Return the bytes that the caching allocator holds."""
        return MACHINE.device(device).allocator.reserved

    def max_memory_reserved(self, device: _DeviceLike = None) -> int:
        """Return the peak of `memory_reserved`."""
        return MACHINE.device(device).allocator.max_reserved

    def reset_peak_memory_stats(self, device: _DeviceLike = None) -> None:
        """Set the peaks to the current values."""
        MACHINE.device(device).allocator.reset_peak()

    reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
    memory_cached, max_memory_cached = memory_reserved, max_memory_reserved

    def set_per_process_memory_fraction(self, fraction: float, device: _DeviceLike = None) -> None:
        """Let the allocator hold at most this share of a device's memory, 0 to 1.

        Raises
        ------
        ValueError
            If ``fraction`` is not from 0 to 1.
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        MACHINE.device(device).allocator.fraction = float(fraction)

    def get_per_process_memory_fraction(self, device: _DeviceLike = None) -> float:
        """Return the share that `set_per_process_memory_fraction` set, by default 1."""
        return MACHINE.device(device).allocator.fraction

    def memory_stats_as_nested_dict(self, device: _DeviceLike = None) -> dict[str, Any]:
        """Return `memory_stats` with a dict for each part of its keys."""
        nested: dict[str, Any] = {}
        for key, value in self.memory_stats(device).items():
            *path, last = key.split(".")
            place = nested
            for part in path:
                place = place.setdefault(part, {})
            place[last] = value
        return nested

    def host_memory_stats(self) -> OrderedDict[str, int]:
        """Return an empty dict: pinned memory is ordinary memory here, and not counted."""
        return OrderedDict()

    def list_gpu_processes(self, device: _DeviceLike = None) -> str:
        """Return which processes use a device: this one alone."""
        index = MACHINE.device(device).index
        megabytes = self.memory_reserved(index) / 2**20
        return f"GPU:{index}\nprocess {os.getpid():>10d} uses {megabytes:>12.3f} MB GPU memory"

    def set_sync_debug_mode(self, debug_mode: int | str) -> None:
        """Warn (1, ``"warn"``) or raise (2, ``"error"``) where an operation makes the host wait; 0: neither.

        As on CUDA, explicit synchronization (`synchronize`, a stream's or an event's) isn't reported.
        """
        if isinstance(debug_mode, str):
            if debug_mode not in _SYNC_DEBUG_MODES:
                raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
            debug_mode = _SYNC_DEBUG_MODES.index(debug_mode)
        if debug_mode not in (0, 1, 2):
            raise RuntimeError("invalid value of debug_mode, expected 0, 1, or 2")
        MACHINE.sync_debug_mode = debug_mode

    def get_sync_debug_mode(self) -> int:
        """Return the number that `set_sync_debug_mode` set."""
        return MACHINE.sync_debug_mode

    def can_device_access_peer(self, device: _DeviceLike, peer_device: _DeviceLike) -> bool:
        """Return whether a device reads another's memory: each does every other's, but not its own."""
        return MACHINE.device(device) is not MACHINE.device(peer_device)

    def ipc_collect(self) -> None:
        """Do nothing: no memory is shared with other processes."""

    def is_tf32_supported(self) -> bool:
        """Return whether the current device has tensor cores for TF32."""
        return MACHINE.device().profile.tf32_flops is not None

    def get_arch_list(self) -> list[str]:
        """Return the architectures that can be simulated now: those of the devices."""
        return sorted({"sm_{}{}".format(*device.profile.capability) for device in MACHINE.devices})

    def device_of(self, obj: Any) -> Any:
        """Return a context manager in which a tensor's device is the current one; others change nothing."""
        on_device = isinstance(obj, torch.Tensor) and obj.device.type == "sim"
        return self.device(obj.device) if on_device else contextlib.nullcontext()

    def reset_accumulated_memory_stats(self, device: _DeviceLike = None) -> None:
        """Set the totals of ``memory_stats()`` to the current values, and its counts of errors to 0."""
        MACHINE.device(device).allocator.reset_accumulated()

    def memory_stats(self, device: _DeviceLike = None) -> OrderedDict[str, int]:
        """Return the allocator's figures by the keys of ``torch.cuda.memory_stats()``."""
        return OrderedDict(sorted(MACHINE.device(device).allocator.stats().items()))

    def memory_summary(self, device: _DeviceLike = None, abbreviated: bool = False) -> str:
        """Return the allocator's figures as a text table; ``abbreviated`` is ignored."""
        return MACHINE.device(device).allocator.summary()

    def memory_snapshot(self, device: _DeviceLike = None) -> list[dict[str, Any]]:
        """Return the allocator's segments and blocks."""
        return MACHINE.device(device).allocator.snapshot()

    def mem_get_info(self, device: _DeviceLike = None) -> tuple[int, int]:
        """Return the free and the total bytes of a device."""
        allocator = MACHINE.device(device).allocator
        return allocator.free_memory, allocator.capacity

    def empty_cache(self) -> None:
        """Return the cached memory that no tensor uses to the driver, on every device."""
        for device in MACHINE.devices:
            device.allocator.empty_cache()

    def empty_host_cache(self) -> None:
        """Do nothing: pinned memory is ordinary memory here, and not cached."""

    def is_current_stream_capturing(self) -> bool:
        """Return False: simulated devices capture no CUDA graphs."""
        return False

    def get_device_name(self, device: _DeviceLike = None) -> str:
        """Return the device's name, such as ``"Simulated Tesla T4"``."""
        return f"Simulated {MACHINE.device(device).profile.name}"

    def get_device_capability(self, device: _DeviceLike = None) -> tuple[int, int]:
        """Return the CUDA compute capability of the simulated GPU, as (major, minor)."""
        return MACHINE.device(device).profile.capability

    def get_device_properties(self, device: _DeviceLike = None) -> Properties:
        """Return a device's name, compute capability, memory, number of processors and their limits."""
        sim_device = MACHINE.device(device)
        profile = sim_device.profile
        threads, shared_memory = _BY_CAPABILITY[profile.capability]
        return Properties(
            self.get_device_name(sim_device.index),
            *profile.capability,
            total_memory=sim_device.allocator.capacity,
            multi_processor_count=profile.processors,
            L2_cache_size=profile.l2,
            max_threads_per_multi_processor=threads,
            shared_memory_per_block_optin=shared_memory,
            shared_memory_per_multiprocessor=profile.shared_memory,
        )

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """Return whether the current device supports bfloat16: by emulation or, with False, by hardware."""
        profile = MACHINE.device().profile
        return bool(profile.bf16_flops or (including_emulation and profile.bf16_emulated_flops))

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Return the dtypes that autocast supports."""
        return [torch.float16, torch.bfloat16]

    def manual_seed(self, seed: int) -> None:
        """Seed the current device's random generator."""
        MACHINE.device().seed(seed)

    def seed(self) -> None:
        """Seed the current device's random generator with a number that nobody knows."""
        self.manual_seed(torch.Generator().seed())

    def seed_all(self) -> None:
        """Seed every device's random generator with one number that nobody knows."""
        self.manual_seed_all(torch.Generator().seed())

    def initial_seed(self) -> int:
        """Return the number that the current device's random generator was seeded with."""
        generator = torch.Generator()
        generator.set_state(MACHINE.device().rng)
        return generator.initial_seed()

    def manual_seed_all(self, seed: int) -> None:
        """Seed every device's random generator; called by ``torch.manual_seed``."""
        for device in MACHINE.devices:
            device.seed(seed)

    def get_rng_state(self, device: _DeviceLike = None) -> torch.Tensor:
        """Return the state of a device's random generator."""
        return MACHINE.device(device).rng.clone()

    def set_rng_state(self, new_state: torch.Tensor, device: _DeviceLike = None) -> None:
        """Set the state of a device's random generator; raise if it is not a valid state."""
        torch.Generator().set_state(new_state)  # raises if it is not a valid state
        MACHINE.device(device).rng = new_state.clone()

    def get_rng_state_all(self) -> list[torch.Tensor]:
        """Return the states of all devices' random generators."""
        return [device.rng.clone() for device in MACHINE.devices]

    def set_rng_state_all(self, new_states: list[torch.Tensor]) -> None:
        """Set the states of all devices' random generators."""
        for device, state in zip(MACHINE.devices, new_states, strict=True):
            self.set_rng_state(state, device.index)
