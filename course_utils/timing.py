"""Measure execution times on any device.

`measure` is a thin layer over ``torch.utils.benchmark.Timer``: it warms up, synchronizes the device before
each reading of the clock, uses PyTorch's number of threads, and times several repetitions.
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

MIN_REPETITIONS = 5
"""The minimum number of repetitions for a median and its quartiles."""

SIM_CALLS_PER_REPEAT = 10
"""How many calls make one repetition on the simulated device, if a call takes less than 0.1 ms."""

BLOCKS = 20
"""The number of repetitions to aim at. If a call is short, a repetition is the mean over a block of calls."""


ONE_CALL = ("matmul", "add", "copy", "launch", "host_to_device")
"""Recorded experiments that launch a single kernel or a single copy."""


class _Kind(str):
    """A kind of number, which an f-string formats in the chosen language."""

    def __format__(self, spec: str) -> str:
        return format(_(str(self)), spec)


def kind_of(device: torch.device | str) -> str:
    """Return the kind of times on a device: ``"modelled"`` on the simulated one, else ``"measured"``."""
    return _Kind("modelled" if torch.device(device).type == "sim" else "measured")


@dataclass(frozen=True)
class Measurement:
    """A result and its origin: the median and the quartiles of ``n`` repetitions.

    Attributes
    ----------
    label
        What was measured, in a few words.
    median, q1, q3, n
        The figures, in ``unit``. For published numbers, the quartiles and ``n`` may be None.
    device, machine, torch, threads, date
        Where and when it was measured. For published numbers, device and machine are the hardware's name.
    kind
        ``"measured"``, ``"recorded"``, ``"modelled"`` or ``"published"``.
    unit, quantity
        ``"s"`` and ``"time"``, ``"B"`` and ``"peak memory"``, ``"1"`` and ``"test accuracy"``, …
    source
        The citation of a published number.
    experiment, parameters
        The experiment of ``tools.records``, and its parameters, for a record.
    single
        Whether it is the time of a single kernel or copy, for which the model is more accurate.
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
        """Return the `Measurement` of values measured on a device of this machine, now.

        Parameters
        ----------
        values
            One for each repetition; of a single one, both quartiles are equal to it.
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
        """How far real cards are from a modelled time or rate; None for other kinds and quantities."""
        is_modelled_time = self.kind == "modelled" and (self.unit == "s" or self.unit.endswith("/s"))
        single = self.single or self.experiment in ONE_CALL
        return profiles.spread(self.machine, single) if is_modelled_time else None

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The range ``(low, high)``: the quartiles; if modelled, where 80 % of real cards would be."""
        likely = self.likely
        if likely is None or self.q1 is None or self.q3 is None:
            return self.q1, self.q3
        if self.unit == "s":
            return self.q1 * likely.low, self.q3 * likely.high
        return self.q1 / likely.high, self.q3 / likely.low

    def written(self, figure: str = "median") -> str:
        """Return ``"median"``, ``"q1"`` or ``"q3"`` with its unit: ``"1.23 ms"``; "" if it is None."""
        value = getattr(self, figure)
        return "" if value is None else amount(value, self.unit, self.quantity)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-serialisable dict; times are in seconds."""
        return asdict(self)


def measure(
    fn: Callable[[], object],
    label: str = "",
    *,
    device: torch.device | str | None = None,
    min_seconds: float = 0.2,
) -> Measurement:
    """Measure the time of ``fn()``, with warm-up, synchronization and repetitions.

    Parameters
    ----------
    fn
        The function to time, without arguments; its result is discarded.
    label
        A short description; by default the function's name.
    device
        The device that ``fn`` uses, which is synchronized before the clock is read. By default the current
        accelerator; the CPU if there is none, or if it is the simulated one and ``fn`` does not use it.
    min_seconds
        The minimum total time of the repetitions, in seconds. There are at least five.

    Returns
    -------
    Measurement
        Median and quartiles, in seconds for one call.

    Raises
    ------
    TypeError
        If ``fn`` is not callable.

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
    device = _device_used_by(fn) if device is None else torch.device(device)

    host = host_clock(device)

    def clock() -> float:
        """Return the host's time in seconds, after the device has finished its work."""
        synchronize(device)
        return host()

    simulated = device.type == "sim"
    with simgpu.count() as counted:
        once = _warm_up_and_time(fn, clock, 0 if simulated else min_seconds)
    if simulated:
        times = [
            _mean_call_seconds(fn, clock, SIM_CALLS_PER_REPEAT if once < 1e-4 else 1)
            for _ in range(MIN_REPETITIONS)
        ]
    else:
        timer = Timer("fn()", globals={"fn": fn}, timer=clock, num_threads=torch.get_num_threads())
        times = _time_repetitions(timer, once, min_seconds)
    single = simulated and counted.launches + len(counted.copies) == 2  # the warm-up calls it twice
    return Measurement.of(times, label or getattr(fn, "__name__", "work"), device, single=single)


def take_turns(
    first: Callable[[], float], second: Callable[[], float], rounds: Iterable[object]
) -> tuple[list[float], list[float]]:
    """Call two functions alternately, so that other load on the machine affects both equally.

    Parameters
    ----------
    first, second
        The functions; each goes first in every other round.
    rounds
        An iterable with an item for each round, such as ``range(9)``.

    Returns
    -------
    tuple
        Two lists: the results of the first and of the second function, one for each round.
    """
    turns = (first, second)
    returned: tuple[list[float], list[float]] = ([], [])
    for number, _ in enumerate(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            returned[which].append(turns[which]())
    return returned


def _device_used_by(fn: Callable[[], object]) -> torch.device:
    """Return the current accelerator, or the CPU if there is none.

    If it is the simulated device, call ``fn`` once, and return the CPU if it does not use that device.
    """
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    device = torch.accelerator.current_accelerator()
    if device.type != "sim":
        return device
    with simgpu.count() as counted:
        fn()
    on_it = counted.launches or counted.copies
    return torch.device("sim", torch.sim.current_device()) if on_it else torch.device("cpu")


def host_clock(device: torch.device | str) -> Callable[[], float]:
    """Return a clock for work on a device: a function that returns the host's time in seconds.

    It is ``time.perf_counter``, or for the simulated device the host time of its virtual clock. It does
    not wait for the device: synchronize first.
    """
    if torch.device(device).type != "sim":
        return perf_counter
    clock = simgpu.clock(device)
    return lambda: clock.host


def _time_repetitions(timer: Timer, once: float, min_seconds: float) -> list[float]:
    """Return the seconds for one call in each repetition; a repetition of a short call is a block of calls.

    ``once`` is the time of one call, in seconds.
    """
    block = max(1, round(min_seconds / BLOCKS / once))
    times: list[float] = []
    if block == 1:
        times += timer.blocked_autorange(min_run_time=max(min_seconds, MIN_REPETITIONS * once)).times
    while len(times) < MIN_REPETITIONS or sum(times) * block < min_seconds:
        times += timer.timeit(block).times
    return times


def _mean_call_seconds(fn: Callable[[], object], clock: Callable[[], float], calls: int) -> float:
    """Return the mean time of a call, in seconds, over a block of calls."""
    begin = clock()
    for _ in range(calls):
        fn()
    return (clock() - begin) / calls


def _warm_up_and_time(fn: Callable[[], object], clock: Callable[[], float], min_seconds: float) -> float:
    """Call ``fn`` for a tenth of ``min_seconds``, at least twice; return the shortest call's seconds."""
    least, calls, begin = math.inf, 0, clock()
    latest = begin
    while calls < 2 or latest - begin < 0.1 * min_seconds:
        fn()
        now = clock()
        least, latest, calls = min(least, now - latest), now, calls + 1
    return max(least, 1e-9)
