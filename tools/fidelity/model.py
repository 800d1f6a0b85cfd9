"""How long the simulated device takes for what a row measured, or how much memory: nothing is computed."""

from __future__ import annotations

from typing import NamedTuple

from simgpu import latency, profiles
from simgpu.clock import Clock, HostClock
from simgpu.cluster import collective_seconds
from simgpu.host import between_events, issued
from simgpu.profiles import Profile

from .calls import asked_by
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


HOST = 1.0
"""The host of those who timed single calls, in units of the reference host: they show it themselves."""


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
    return {"seconds": seconds_of(workload, profiles.load(profile), host)}


def seconds_of(workload: Calls | Copy | Collective, profile: Profile, host: bool = False) -> float:
    """Return how long a workload takes that is no network; the parameters are those of `modelled`."""
    if isinstance(workload, Calls):
        asked = asked_by(workload)
        seconds = sum(latency.seconds(work, profile) for work in asked.works)
        if workload.launched_in_a_row:
            period = issued(profile, asked.library, asked.views) if host else profile.launch
            return max(seconds, period)
        if not host:
            return seconds
        of_call = {"library": asked.library, "views": asked.views}
        return between_events(seconds, profile, **of_call, factor=HOST)
    if isinstance(workload, Copy):
        clock = Clock(0, profile, HostClock())
        return clock.copy_seconds(workload.direction, workload.bytes, workload.pinned)
    return collective_seconds(workload.name, workload.bytes, workload.ranks, profile)


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
