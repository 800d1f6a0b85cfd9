"""A simulated accelerator: ``torch.device("sim")`` on any machine.

It computes on the CPU, so every result is real. It *behaves* as a GPU does: tensors are on a device and
must be moved, memory is limited, kernels are queued and run asynchronously to the host. It keeps a
virtual clock, so it can say how long a GPU would have taken: every time it reports is **modelled**.

Nothing happens until `enable` is called. To read how it is made, begin with ``tensor.py``:

====================== ==================================================================
``tensor.py``          the tensor subclass and the dispatch of each operation
``machine.py``         the devices: memory, clock and random generator of each
``allocator.py``       the caching allocator; ``expandable.py``: with expandable segments
``clock.py``           virtual time; ``host.py``: host overhead of dispatch and launch
``cost.py``            FLOPs and bytes of an operation; ``products.py``: its matrix products;
                       ``latency.py``: seconds, by the figures of ``profiles.json``
``counters.py``        launches, synchronizations, copies; ``timeline.py``: traces
``history.py``         memory snapshots: what was allocated when, and by which line
``backend.py``         registration with PyTorch; ``module.py``: ``torch.sim``
``mismatch.py``        the errors of CUDA where tensors are on different devices
``autocast.py``        mixed precision; ``kernels.py``, ``serialize.py``: special cases
``recurrent.py``       LSTM, GRU and RNN over a sequence; ``refusals.py``: what CUDA refuses
``storage.py``         untyped storages on the device; ``typed.py``: ``torch.sim.FloatTensor``
``generator.py``       ``torch.Generator``; ``selftest.py``: whether a training step works
``data_parallel.py``   ``nn.DataParallel``
``backward_errors.py`` errors raised during a backward pass
``nodata.py``          tensors with sizes, memory and time, and no values
``named.py``           programs that say "cuda"; ``named_cuda.py``: ``torch.cuda``,
                       ``named_distributed.py``: NCCL by name, ``patches.py``: revertible patches
``run.py``             ``python -m simgpu run``; ``magic.py``: ``%%gpu`` in a notebook;
                       ``options.py``: the options of both
``report.py``          the report of a program: memory, time, waits; ``advice.py``: findings;
                       ``recorder.py`` and ``tape.py``: what they rest on; ``dry.py``: no values
``profiled.py``        the same report of a real GPU, from a profiler's trace
``worker.py``          a worker process, where this process trains on a real GPU
====================== ==================================================================
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import torch

# Three modules have the names of functions below: imported first, they cannot replace the functions later.
from . import clock as _clock
from . import report as _report
from . import timeline as _timeline
from .counters import Counters
from .machine import MACHINE, Device, parse_memory
from .messages import N_, _
from .profiles import Profile, load

__all__ = [
    "clock",
    "count",
    "disable_for",
    "enable",
    "enabled",
    "first",
    "host_work",
    "profile",
    "report",
    "self_test",
    "temporary_device",
    "timeline",
    "unavailable_reason",
]


def unavailable_reason() -> str | None:
    """Return why this process cannot have the simulated device, as one sentence, or None if it can.

    The sentence is in the chosen language.
    """
    try:
        from torch.utils.backend_registration import (  # noqa: F401
            _setup_privateuseone_for_python_backend,
        )

        from . import backend
    except (ImportError, AttributeError) as error:
        return _(
            "PyTorch {version} lacks what the simulated device rests on ({error}); the course "
            "goes on without it."
        ).format(version=torch.__version__, error=error)
    return backend.unavailable_reason()


problem = unavailable_reason
"""The name under which notebooks call `unavailable_reason`."""


def disable_for(device: torch.device | str) -> str | None:
    """Do not register the simulated device in this process, because it trains on the real ``device``.

    PyTorch trains on one kind of accelerator in a process: with the simulated device registered, a backward
    pass on any other fails an assertion of PyTorch's. Where CUDA or XPU have been initialized,
    `unavailable_reason` detects it; MPS must be named here. ``disable_for("cpu")`` reverts the call.

    Returns
    -------
    str or None
        An error message if the simulated device is registered already; else None.
    """
    from . import backend

    return backend.disable_for(device)


def self_test() -> str | None:
    """Run a small training step on a simulated device; return None if it works, else the error message.

    The step runs once in a process (later calls return the cached result), on a device of its own that
    leaves the others' state unchanged. If there is no simulated device yet, ``sim:0`` is enabled first.

    Raises
    ------
    RuntimeError
        If this PyTorch cannot register a device from Python; see `unavailable_reason`.
    """
    from . import selftest

    first()
    return selftest.training_step_error()


def enabled() -> bool:
    """Return whether this process has a simulated device: whether `enable` has been called."""
    return bool(MACHINE.devices)


def enable(
    profile: str = "T4",
    devices: int = 1,
    memory: int | str | None = None,
    *,
    named: str | None = None,
) -> torch.device:
    """Add simulated devices to this process and return the first, ``sim:0``.

    Called again with the same arguments it changes nothing; with others it reconfigures the existing
    devices and keeps their tensors.

    Parameters
    ----------
    profile
        The GPU to simulate, such as ``"T4"``, ``"A100"`` or ``"RTX 4090"``; see ``simgpu.profiles.names()``.
    devices
        How many simulated devices there shall be, 1 to 64.
    memory
        The capacity of each device, in bytes or as ``"300 MB"`` or ``"15 GiB"``; by default the profile's.
    named
        With ``"cuda"``, programs that say ``"cuda"`` run on the devices, and the result is ``cuda:0``; see
        ``named.py``. None changes nothing about names.

    Raises
    ------
    RuntimeError
        If this PyTorch cannot register a device from Python; see `unavailable_reason`. With ``named``, if
        there is a real GPU.
    ValueError
        If an argument is invalid, or if a device that holds tensors would be removed, or get less memory than
        they take.
    """
    reason = unavailable_reason()
    if reason is not None:
        raise RuntimeError(reason)
    from . import backend

    gpu_profile = load(profile)
    if named not in (None, "cuda"):
        raise ValueError(f"named={named!r}: give 'cuda', or leave it out.")
    if named:
        from . import named as names

        if reason := names.unavailable_reason():
            raise RuntimeError(reason)  # before anything is registered beside the real GPU
    if isinstance(devices, bool) or not isinstance(devices, int) or not 1 <= devices <= 64:
        raise ValueError(f"devices={devices!r}: give a whole number from 1 to 64.")
    capacity = gpu_profile.total_memory if memory is None else parse_memory(memory)
    backend.register()
    if any(device.allocator.allocated for device in MACHINE.devices[devices:]):
        gc.collect()  # an old traceback may still hold tensors
    for device in MACHINE.devices[devices:]:
        if device.allocator.allocated:
            raise ValueError(
                f"sim:{device.index} still holds tensors; delete them before asking for {devices} devices."
            )
    kept = MACHINE.devices[:devices]
    old_capacities = [device.allocator.capacity for device in kept]
    try:
        for device in kept:
            device.allocator.capacity = capacity
    except ValueError:  # all capacities change, or none
        for device, old in zip(kept, old_capacities, strict=True):
            device.allocator.capacity = old
        raise
    for device in kept:
        device.profile = gpu_profile
        device.clock.set_profile(gpu_profile)
    del MACHINE.devices[devices:]
    for index in range(len(MACHINE.devices), devices):
        MACHINE.devices.append(Device(index, gpu_profile, capacity, MACHINE.host))
    MACHINE.current = min(MACHINE.current, devices - 1)
    if named:
        from . import named_cuda, named_distributed

        names.enable(named_cuda.patch, named_distributed.patch)
        return names.outward(MACHINE.devices[0].torch_device)
    return MACHINE.devices[0].torch_device


def first() -> torch.device:
    """Return the device ``sim:0``; if there is no simulated device, call `enable` with its defaults first.

    Raises
    ------
    RuntimeError
        If this PyTorch cannot register a device from Python; see `unavailable_reason`.
    """
    return MACHINE.devices[0].torch_device if MACHINE.devices else enable()


@contextlib.contextmanager
def temporary_device(
    memory: int | str, profile: str = "T4", *, expandable_segments: bool = False
) -> Iterator[torch.device]:
    """Return a context manager that adds one simulated device and yields it as a ``torch.device``.

    Within the block it is the current simulated device; delete its tensors before the block ends. The
    existing devices and their tensors stay as they are. If there is no simulated device yet, ``sim:0`` is
    enabled first, and stays.

    Parameters
    ----------
    memory
        Its capacity, in bytes or as ``"300 MB"``.
    profile
        The GPU to simulate.
    expandable_segments
        Whether its allocator works as with ``PYTORCH_ALLOC_CONF=expandable_segments:True``.

    Raises
    ------
    RuntimeError
        If this PyTorch cannot register a device from Python; see `unavailable_reason`.
    """
    first()
    device = Device(
        len(MACHINE.devices),
        load(profile),
        parse_memory(memory),
        MACHINE.host,
        expandable_segments=expandable_segments,
    )
    MACHINE.devices.append(device)
    previous_index, MACHINE.current = MACHINE.current, device.index
    try:
        yield device.torch_device
    finally:
        MACHINE.devices.remove(device)
        MACHINE.current = previous_index


def profile(device: torch.device | str | int | None = None) -> Profile:
    """Return the profile (the figures) of the GPU that a device simulates; None means the current device."""
    return MACHINE.device(device).profile


def clock(device: torch.device | str | int | None = None) -> _clock.Clock:
    """Return a device's virtual clock; None means the current device. Its times are modelled, in seconds."""
    return MACHINE.device(device).clock


def host_work(seconds: float, name: str = N_("host work")) -> None:
    """Advance the host's virtual clock by ``seconds``, for work that is not simulated, such as data loading.

    ``name`` labels the span in a timeline.

    Raises
    ------
    ValueError
        If ``seconds`` is negative.
    """
    MACHINE.host.advance(seconds, name)
    MACHINE.run_arrivals()


@contextlib.contextmanager
def count() -> Iterator[Counters]:
    """Return a context manager that counts launches, synchronizations and copies; yields `Counters`.

    They count during the block, on all devices, and can be read in it and later.
    """
    counters = Counters()
    MACHINE.counting.append(counters)
    try:
        yield counters
    finally:
        MACHINE.counting[:] = [c for c in MACHINE.counting if c is not counters]


@contextlib.contextmanager
def timeline() -> Iterator[_timeline.Timeline]:
    """Return a context manager that records the virtual clock's spans; yields a `timeline.Timeline`."""
    spans: list[_clock.Span] = []
    record = spans.append
    MACHINE.host.listeners.append(record)
    try:
        yield _timeline.Timeline(spans)
    finally:
        MACHINE.host.listeners.remove(record)


@contextlib.contextmanager
def report(*, dry: bool = False) -> Iterator[_report.Report]:
    """Return a context manager that records a program on the devices; yields a `report.Report`.

    Read it after the block: ``print(seen)``, ``seen.findings``. If there is no simulated device yet,
    ``sim:0`` is enabled first.

    Parameters
    ----------
    dry
        Compute nothing: as `simgpu.nodata.NoData`, and tensors of a mebibyte or more on the CPU have no
        values either. The devices' memory is unlimited for the time, so that you learn by how much a program
        doesn't fit.
    """
    from . import dry as _dry
    from .recorder import Recorder

    first()
    recorder = Recorder()
    seen = _report.Report(recorder, dry)
    with _dry.without_values() if dry else contextlib.nullcontext():
        recorder.start()
        try:
            yield seen
        finally:
            recorder.stop()
            card = MACHINE.devices[0].profile
            if card is not seen.profile:  # the program has chosen another
                seen.profile, seen.capacity = card, card.total_memory


def load_ipython_extension(ipython: Any) -> None:
    """Give a notebook ``%%gpu`` and ``%gpu``; IPython calls it for ``%load_ext simgpu``."""
    from . import magic

    magic.register(ipython, enable, report)
