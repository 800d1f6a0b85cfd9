"""A simulated accelerator: ``torch.device("sim")`` on any machine.

It computes on the CPU, so every result is real. It *behaves* as a GPU does: tensors have a place and
must be moved, memory is limited, work is queued and the host does not wait for it. And it keeps a
virtual clock, so it can say how long a GPU would have taken. Whatever it says of time is **modelled**.

Nothing happens until `enable` is called. To read how it is made, begin with ``tensor.py``:

=============== ===========================================================
``tensor.py``    the tensor and what happens to each operation
``machine.py``   the devices: memory, clock and random generator of each
``allocator.py`` device memory; ``expandable.py``: with expandable segments
``clock.py``     virtual time; ``host.py``: what asking costs the host
``cost.py``      what an operation does; ``products.py``: of which products; ``latency.py``: how long
                 it takes, by the figures of ``profiles.json``
``counters.py``  launches, waits, copies; ``timeline.py``: what happened when
``history.py``   what was allocated when, and by which line: memory snapshots
``backend.py``   what PyTorch must be told; ``module.py``: ``torch.sim``
``mismatch.py``  what is said where tensors are in different places
``autocast.py``  mixed precision; ``kernels.py``, ``serialize.py``: special cases
``storage.py``   storages that are made on the device
``generator.py`` random numbers; ``trial.py``: whether a training step works
``replicas.py``  ``nn.DataParallel``
``elsewhere.py`` a process of its own, where this one trains on a real GPU
=============== ===========================================================
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

# Two files have the names of functions below. Imported now, they cannot take the functions' places
# when something imports them later.
from . import clock as _clock  # noqa: F401
from . import timeline as _timeline  # noqa: F401

if TYPE_CHECKING:
    import torch

    from .clock import Clock
    from .counters import Counters
    from .profiles import Profile
    from .timeline import Timeline

__all__ = [
    "clock",
    "count",
    "enable",
    "enabled",
    "fault",
    "first",
    "give_way",
    "host_work",
    "problem",
    "profile",
    "timeline",
]


def problem() -> str | None:
    """Return in one sentence why this PyTorch cannot have the simulated device, or None."""
    try:
        from torch.utils.backend_registration import (  # noqa: F401
            _setup_privateuseone_for_python_backend,
        )

        from . import backend
    except (ImportError, AttributeError) as error:
        import torch

        return (
            f"PyTorch {torch.__version__} lacks what the simulated device rests on ({error}); the course "
            "goes on without it."
        )
    return backend.problem()


def give_way(device: torch.device | str) -> str | None:
    """Keep the simulated device out of this process, which trains on a real one.

    PyTorch trains on one kind of accelerator in a process: with the simulated device registered, a backward
    pass on any other ends in an assertion of PyTorch's. Where CUDA or XPU have been used `problem` sees it
    by itself; of MPS it must be told. ``give_way("cpu")`` takes back what was told.

    Returns
    -------
    str or None
        Why it is too late, where the simulated device has been asked for already; else None.
    """
    from . import backend

    return backend.give_way(device)


def fault() -> str | None:
    """Return None where a small training step works on a simulated device, else what went wrong.

    The step runs once a process, on a device of its own, and leaves no trace on the others.

    Raises
    ------
    RuntimeError
        Where this PyTorch cannot register a device from Python; see `problem`.
    """
    first()
    from . import trial

    return trial.fault()


def enabled() -> bool:
    """Return whether there is a simulated device in this process."""
    from .machine import MACHINE

    return bool(MACHINE.devices)


def enable(profile: str = "T4", devices: int = 1, memory: int | str | None = None) -> torch.device:
    """Add simulated devices to this process and return the first, ``sim:0``.

    Asked for again with the same arguments it changes nothing; with others it reconfigures the devices
    there are, and their tensors stay.

    Parameters
    ----------
    profile
        The GPU to simulate, such as ``"T4"``, ``"A100"`` or ``"RTX 4090"``; ``simgpu.profiles.names()``
        has them all.
    devices
        How many.
    memory
        Of each device, in bytes or as ``"300 MB"`` or ``"15 GiB"``; by default the profile's.

    Raises
    ------
    RuntimeError
        Where this PyTorch cannot register a device from Python; see `problem`.
    ValueError
        Where an argument is wrong, or tensors in use stand in the way.
    """
    reason = problem()
    if reason is not None:
        raise RuntimeError(reason)
    from . import backend
    from .machine import MACHINE, Device, parse_memory
    from .profiles import load

    chosen = load(profile)
    if isinstance(devices, bool) or not isinstance(devices, int) or not 1 <= devices <= 64:
        raise ValueError(f"devices={devices!r}: give a whole number from 1 to 64.")
    capacity = chosen.total_memory if memory is None else parse_memory(memory)
    backend.register()
    if any(device.allocator.allocated for device in MACHINE.devices[devices:]):
        gc.collect()  # a traceback that nobody needs may still hold tensors
    for device in MACHINE.devices[devices:]:
        if device.allocator.allocated:
            raise ValueError(
                f"sim:{device.index} still holds tensors; delete them before asking for {devices} devices."
            )
    kept = MACHINE.devices[:devices]
    before = [device.allocator.capacity for device in kept]
    try:
        for device in kept:
            device.allocator.capacity = capacity
    except ValueError:  # all of them change, or none
        for device, old in zip(kept, before, strict=True):
            device.allocator.capacity = old
        raise
    for device in kept:
        device.profile = chosen
        device.clock.use(chosen)
    del MACHINE.devices[devices:]
    for index in range(len(MACHINE.devices), devices):
        MACHINE.devices.append(Device(index, chosen, capacity, MACHINE.host))
    MACHINE.current = min(MACHINE.current, devices - 1)
    return MACHINE.devices[0].torch_device


def first() -> torch.device:
    """Return ``sim:0``, after adding it with `enable`'s defaults where there is no simulated device.

    Raises
    ------
    RuntimeError
        Where this PyTorch cannot register a device from Python; see `problem`.
    """
    from .machine import MACHINE

    return MACHINE.devices[0].torch_device if MACHINE.devices else enable()


def profile(device: torch.device | str | int | None = None) -> Profile:
    """Return the figures of the GPU that a device simulates."""
    from .machine import MACHINE

    return MACHINE.device(device).profile


def clock(device: torch.device | str | int | None = None) -> Clock:
    """Return a device's clock. Its times are modelled, in seconds."""
    from .machine import MACHINE

    return MACHINE.device(device).clock


def host_work(seconds: float, name: str = "host work") -> None:
    """Let the host be busy for so long on the virtual clock, with loading data for example.

    Raises
    ------
    ValueError
        Where ``seconds`` is negative.
    """
    from .machine import MACHINE

    MACHINE.host.advance(seconds, name)
    MACHINE.arrive()


@contextlib.contextmanager
def count() -> Iterator[Counters]:
    """Count launches, waits and copies within a ``with`` block."""
    from .counters import Counters
    from .machine import MACHINE

    counters = Counters()
    MACHINE.counting.append(counters)
    try:
        yield counters
    finally:
        MACHINE.counting[:] = [c for c in MACHINE.counting if c is not counters]


@contextlib.contextmanager
def timeline() -> Iterator[Timeline]:
    """Collect what happens on the virtual clock within a ``with`` block, to plot or to export."""
    from .clock import Span
    from .machine import MACHINE
    from .timeline import Timeline

    spans: list[Span] = []
    collect = spans.append
    MACHINE.host.listeners.append(collect)
    try:
        yield Timeline(spans)
    finally:
        MACHINE.host.listeners.remove(collect)
