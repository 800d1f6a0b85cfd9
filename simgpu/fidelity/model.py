"""How long the simulated device takes for what a row measured, or how much memory: nothing is computed."""

from __future__ import annotations

from typing import NamedTuple

from simgpu import cost, profiles
from simgpu.clock import Clock, HostClock
from simgpu.profiles import Profile

from .calls import works_of
from .hardware import profile_of
from .interpret import interpret
from .rows import Row
from .stepping import run
from .units import measured
from .workload import Calls, Collective, Copy, Interpretation, Step, Uninterpretable, Workload


class Found(NamedTuple):
    """A row beside what the simulated device makes of it.

    Attributes
    ----------
    row, meaning
        What was measured, and what it was taken for.
    profile
        The name of the profile that stands for the card.
    quantity
        ``"seconds"`` or ``"bytes"``.
    measured, modelled
        In these.
    """

    row: Row
    meaning: Interpretation
    profile: str
    quantity: str
    measured: float
    modelled: float

    @property
    def ratio(self) -> float:
        """Modelled over measured."""
        return self.modelled / self.measured


class LeftOut(NamedTuple):
    """A row that was not modelled, and why; the reason ends the sentence "not modelled, because …"."""

    row: Row
    reason: str


def eager_overhead(profile: Profile) -> float:
    """Return the host's seconds on one eager call, up to the launch."""
    return profile.launch


def launch_period(profile: Profile) -> float:
    """Return how many seconds lie between two launches of a program that does nothing else."""
    return profile.launch


def modelled(workload: Workload, profile: str, host: bool = False) -> dict[str, float]:
    """Return what the simulated device makes of a workload, by quantity.

    Parameters
    ----------
    workload
        What to do.
    profile
        The name of the card.
    host
        Whether the host's work on one eager call counts, as on an idle device.

    Returns
    -------
    dict
        ``"seconds"``, and for a step of a network ``"bytes"`` and ``"reserved"``, the peaks of its memory.

    Raises
    ------
    Uninterpretable
        Where the device has no room for it.
    """
    if isinstance(workload, Step):
        return run(workload, profile)
    seconds = _seconds(workload, profiles.load(profile))
    return {"seconds": seconds + (eager_overhead(profiles.load(profile)) if host else 0.0)}


def _seconds(workload: Calls | Copy | Collective, profile: Profile) -> float:
    if isinstance(workload, Calls):
        seconds = sum(cost.seconds(work, profile) for work in works_of(workload))
        if workload.launched_in_a_row:
            return max(seconds, launch_period(profile))
        return seconds
    if isinstance(workload, Copy):
        clock = Clock(0, profile, HostClock())
        return clock.copy_seconds(workload.direction, workload.bytes, workload.pinned)
    return _collective(workload, profile)


def _collective(what: Collective, profile: Profile) -> float:
    """As `simgpu.cluster` has it: around a ring, in steps that each take a latency and their bytes."""
    if what.name == "send_recv":
        return profile.copy_latency + what.bytes / profile.peer
    if what.name == "all_reduce":
        steps = 2 * (what.ranks - 1)
        return steps * (profile.copy_latency + what.bytes / what.ranks / profile.peer)
    raise Uninterpretable("the collective is not known")


def hold(row: Row) -> Found | LeftOut:
    """Model one row, or say why not."""
    try:
        meaning = interpret(row)
        profile = profile_of(row.hardware)
        quantity, real = measured(row, meaning.amount)
        found = modelled(meaning.workload, profile, meaning.host)
    except Uninterpretable as reason:
        return LeftOut(row, str(reason))
    figure = found.get(meaning.meter if quantity == "bytes" else quantity)
    if figure is None:
        return LeftOut(row, "its memory is not modelled")
    return Found(row, meaning, profile, quantity, real, figure)
