"""Time a piece of work honestly, on any device.

`measure` is a thin layer over ``torch.utils.benchmark.Timer``: it warms up, waits for the device
before it reads the clock, uses all threads that PyTorch uses, repeats, and keeps every repetition.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from time import perf_counter
from typing import Any

import torch

import simgpu
from course_language import _
from course_language.punctuation import punctuated
from simgpu import profiles

from .devices import abilities, synchronize
from .number_format import amount, seconds

_log = logging.getLogger("torch.utils.cpp_extension")  # Timer brings it: it warns of a toolkit
_level = _log.level  # without a driver, which is no news to a learner
_log.setLevel(logging.ERROR)
from torch.utils.benchmark import Timer  # noqa: E402

_log.setLevel(_level)

__all__ = ["Measurement", "host_clock", "kind_of", "measure", "seconds", "take_turns"]

LEAST = 5
"""The least number of repetitions that a median and its quartiles rest on."""

SIM_CALLS_PER_REPEAT = 10
"""How many calls of something very short make one repetition on the simulated device."""

BLOCKS = 20
"""How many repetitions to aim at. A repetition of something short is the mean over a block of calls."""


ONE_CALL = ("matmul", "add", "copy", "launch", "host_to_device")
"""Recorded experiments that ask the device for one kernel or one copy."""


class _Kind(str):
    def __format__(self, spec: str) -> str:  # in an f-string, the lesson's word for it
        return format(_(str(self)), spec)


def kind_of(device: torch.device | str) -> str:
    """Return the kind of what is timed on a device: *measured*, or on the simulated one *modelled*."""
    return _Kind("modelled" if torch.device(device).type == "sim" else "measured")


@dataclass(frozen=True)
class Measurement:
    """A number and where it is from: the median and the quartiles of ``n`` repetitions.

    Attributes
    ----------
    label
        What was measured, in a few words.
    median, q1, q3, n
        The figures, in ``unit``. A published number may come without quartiles: then they are None,
        and so may ``n`` be.
    device, machine, torch, threads, date
        Where and when. A published number has the hardware's name for both device and machine.
    kind
        ``"measured"``, ``"recorded"``, ``"modelled"`` or ``"published"``.
    unit, quantity
        ``"s"`` and ``"time"``, ``"B"`` and ``"peak memory"``, ``"1"`` and ``"test accuracy"``, …
    source
        Where a published number is printed.
    experiment, parameters
        The experiment of ``tools.records`` that gave it, and with what, for a record.
    single
        Whether the device was asked for one kernel or one copy alone, which is modelled better.
    """

    label: str
    median: float
    q1: float | None
    q3: float | None
    n: int | None
    device: str
    machine: str
    torch: str
    threads: int | None
    date: str
    kind: str = "measured"
    unit: str = "s"
    quantity: str = "time"
    source: str = ""
    experiment: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    single: bool = False

    @classmethod
    def of(cls, values: Sequence[float], label: str, device: torch.device | str, **more: Any) -> Measurement:
        """Return the median and the quartiles of values taken on a device, here and today.

        Parameters
        ----------
        values
            One for each repetition; a single one is its own quartiles.
        label, device
            What was measured, and where. On the simulated device it is *modelled*.
        more
            Other fields, such as ``unit`` and ``quantity``; times in seconds need none.
        """
        values = [float(value) for value in values]
        alone = len(values) == 1
        q1, median, q3 = values * 3 if alone else statistics.quantiles(values, n=4, method="inclusive")
        return cls(
            label=label,
            median=median,
            q1=q1,
            q3=q3,
            n=len(values),
            device=str(device),
            machine=abilities(device).name,
            torch=torch.__version__,
            threads=torch.get_num_threads(),
            date=date.today().isoformat(),
            kind=kind_of(device),
            **more,
        )

    def __str__(self) -> str:
        low, high = (amount(end or 0, self.unit, self.quantity) for end in self.interval)
        span = (
            _("likely {low} to {high}").format(low=low, high=high)
            if self.likely
            else _("{low} to {high}").format(low=low, high=high)
        )
        spread = f" ({span}), n = {self.n}" if self.q1 is not None else ""
        what = f"{self.label}{_(': ')}{self.written()}{spread}, "
        if self.kind == "published":
            return punctuated(what + _("{kind} in {source}").format(kind=_(self.kind), source=self.source))
        return punctuated(what + _("{kind} on {device}").format(kind=_(self.kind), device=self.device))

    @property
    def likely(self) -> profiles.Spread | None:
        """How far real cards are from it, where it is a modelled time or rate; else None."""
        known = self.kind == "modelled" and (self.unit == "s" or self.unit.endswith("/s"))
        single = self.single or self.experiment in ONE_CALL
        return profiles.spread(self.machine, single) if known else None

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """From where to where: the quartiles, or where a real card would be in eight of ten cases."""
        likely = self.likely
        if likely is None or self.q1 is None or self.q3 is None:
            return self.q1, self.q3
        if self.unit == "s":
            return self.q1 * likely.low, self.q3 * likely.high
        return self.q1 / likely.high, self.q3 / likely.low

    def written(self, figure: str = "median") -> str:
        """Return ``median``, ``q1`` or ``q3`` with its unit: ``"1.23 ms"``; nothing where there is none."""
        value = getattr(self, figure)
        return "" if value is None else amount(value, self.unit, self.quantity)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, ready for JSON; times in seconds."""
        return asdict(self)


def measure(
    fn: Callable[[], object],
    label: str = "",
    *,
    device: torch.device | str | None = None,
    min_seconds: float = 0.2,
) -> Measurement:
    """Time ``fn()``: warm up, synchronise, repeat.

    Parameters
    ----------
    fn
        What to time. It takes no argument; its result is thrown away.
    label
        What it is, in a few words.
    device
        The device the work runs on, which is waited for before the clock is read. By default the
        current accelerator, or the CPU where there is none, or where it is the simulated one and the
        work asks nothing of it.
    min_seconds
        How long to go on repeating, in seconds. At least five repetitions are made in any case.

    Returns
    -------
    Measurement
        Median and quartiles, in seconds for one call.

    Raises
    ------
    TypeError
        Where ``fn`` cannot be called.

    Notes
    -----
    On the simulated device the time is that of its virtual clock, and ``kind`` says *modelled*; it is
    the same at every repetition, so five are enough, however long they take.

    Elsewhere it is built on ``torch.utils.benchmark.Timer``, whose default of one thread is replaced by the
    number PyTorch uses. A slow call is a repetition of its own; a fast one is repeated in blocks, so that
    reading the clock and waiting for the device cost next to nothing.
    """
    if not callable(fn):
        raise TypeError(
            _("measure() wants a function it can call, such as lambda: a @ b; got {fn!r}").format(fn=fn)
        )
    device = _place(fn) if device is None else torch.device(device)

    host = host_clock(device)

    def clock() -> float:
        synchronize(device)
        return host()

    simulated = device.type == "sim"
    with simgpu.count() as asked:
        once = _warm_up(fn, clock, 0 if simulated else min_seconds)
    if simulated:
        times = [_block(fn, clock, SIM_CALLS_PER_REPEAT if once < 1e-4 else 1) for _ in range(LEAST)]
    else:
        timer = Timer("fn()", globals={"fn": fn}, timer=clock, num_threads=torch.get_num_threads())
        times = _repeat(timer, once, min_seconds)
    single = simulated and asked.launches + len(asked.copies) == 2  # called twice to warm up
    return Measurement.of(times, label or getattr(fn, "__name__", "work"), device, single=single)


def take_turns(
    first: Callable[[], float], second: Callable[[], float], rounds: Iterable[object]
) -> tuple[list[float], list[float]]:
    """Call two functions in turns, so that whatever else the machine does disturbs both alike.

    Parameters
    ----------
    first, second
        What to call; each begins every second round.
    rounds
        As many as it has items, such as ``range(9)``.

    Returns
    -------
    tuple
        What the calls returned, of the first and of the second, round by round.
    """
    turns = (first, second)
    returned: tuple[list[float], list[float]] = ([], [])
    for number, _ in enumerate(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            returned[which].append(turns[which]())
    return returned


def _place(fn: Callable[[], object]) -> torch.device:
    """Return the device that ``fn`` works on, as far as that can be known; it may be called once."""
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    device = torch.accelerator.current_accelerator()
    if device.type != "sim":
        return device
    with simgpu.count() as asked:
        fn()
    on_it = asked.launches or asked.copies
    return torch.device("sim", torch.sim.current_device()) if on_it else torch.device("cpu")


def host_clock(device: torch.device | str) -> Callable[[], float]:
    """Return the function that reads the host's time in seconds, for work on a device.

    It is ``time.perf_counter``; for the simulated device it is the virtual clock's host time. Like any
    clock it does not wait for the device: synchronise first.
    """
    if torch.device(device).type != "sim":
        return perf_counter
    clock = simgpu.clock(device)
    return lambda: clock.host


def _repeat(timer: Timer, once: float, min_seconds: float) -> list[float]:
    """Return the times of repetitions: of single calls, or of blocks where a call is short."""
    block = max(1, round(min_seconds / BLOCKS / once))
    times: list[float] = []
    if block == 1:
        times += timer.blocked_autorange(min_run_time=max(min_seconds, LEAST * once)).times
    while len(times) < LEAST or sum(times) * block < min_seconds:
        times += timer.timeit(block).times
    return times


def _block(fn: Callable[[], object], clock: Callable[[], float], calls: int) -> float:
    """Return the time of one call, as the mean over a block of them."""
    begin = clock()
    for _ in range(calls):
        fn()
    return (clock() - begin) / calls


def _warm_up(fn: Callable[[], object], clock: Callable[[], float], min_seconds: float) -> float:
    """Call ``fn`` for a tenth of the time, at least twice; return the least time of a call."""
    least, calls, begin = math.inf, 0, clock()
    latest = begin
    while calls < 2 or latest - begin < 0.1 * min_seconds:
        fn()
        now = clock()
        least, latest, calls = min(least, now - latest), now, calls + 1
    return max(least, 1e-9)
