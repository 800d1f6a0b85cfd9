"""What an experiment is, and how it is run: point by point, smallest first.

An experiment is a function that prepares work on a device; see ``lesson01.py`` for four of them.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import inspect
import itertools
import math
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from course_utils.devices import synchronize
from course_utils.evidence import label
from course_utils.timing import MIN_REPETITIONS, Measurement, host_clock, measure

Value = int | float | str | bool
Parameters = Mapping[str, Value]
Work = Callable[[], object]

SLOW = 1.0
"""A call that takes longer, in seconds, is timed by itself, with few repetitions."""

FIRST = 3
"""A first call may take so many times as long: it loads kernels and takes memory."""


@dataclass(frozen=True)
class Samples:
    """Values that an experiment took by itself, in ``unit``."""

    values: Sequence[float]
    unit: str = "s"


class Unsuitable(Exception):
    """Raised by an experiment that has nothing to say of a device; the message is the reason."""


@dataclass(frozen=True)
class Experiment:
    """A function that prepares the work, and the parameters it is run with.

    Attributes
    ----------
    prepare
        The function; see `experiment`.
    sweep
        The parameters it is run with, smallest first: after a point that takes too long or does not fit,
        those that are no smaller in any number and equal in all else are left out.
    quick
        The part of them that ``--quick`` runs; by default the first.
    seconds
        About how long a point takes on a CPU with two cores.
    longest
        How long one call may take, in seconds.
    needs
        Packages that are not the course's own.
    flops, bytes
        From the parameters to the floating-point operations of one call and the bytes it must move, where
        that can be said: a record faster than any chip is then refused.
    matrix_units
        False where neither tensor cores nor TF32 can be at work.
    modelled
        False where it says nothing on the simulated device: where it times what the host does.
    """

    prepare: Callable[..., Work | Mapping[str, Samples]]
    sweep: Sequence[Parameters] = ({},)
    quick: Sequence[Parameters] = ()
    seconds: float = 1.0
    longest: float = 2.0
    needs: Sequence[str] = ()
    flops: Callable[[Parameters], float] | None = None
    bytes: Callable[[Parameters], float] | None = None
    matrix_units: bool = True
    modelled: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "quick", self.quick or self.sweep[:1])

    @property
    def name(self) -> str:
        """Its name in records: ``"matmul"``."""
        return self.prepare.__name__

    @property
    def about(self) -> str:
        """What is measured, in one sentence."""
        return inspect.getdoc(self.prepare).splitlines()[0].replace("``", "")

    @property
    def missing(self) -> tuple[str, ...]:
        """The optional packages it needs and this Python lacks."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)

    def takes(self, parameters: Parameters) -> bool:
        """Return whether its function can be called with these parameters."""
        try:
            inspect.signature(self.prepare).bind("device", **parameters)
        except TypeError:
            return False
        return True


REGISTRY: dict[str, Experiment] = {}
"""Every experiment by its name, in the order of definition."""


def grid(**values: Iterable[Value]) -> list[Parameters]:
    """Return every combination of some values, as parameters; the last name changes fastest."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def experiment(**how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as an experiment, which it stays able to call.

    The function takes ``device`` and the parameters, and returns work to time, a function without
    arguments; or it measures by itself and returns `Samples` by quantity, for which it takes the time
    with ``host_clock(device)``. ``how`` are the fields of `Experiment`.
    """

    def register(prepare: Callable[..., Any]) -> Callable[..., Any]:
        name = prepare.__name__
        if name in REGISTRY:
            raise ValueError(f"There are two experiments named {name}.")
        REGISTRY[name] = Experiment(prepare, **how)
        return prepare

    return register


@dataclass(frozen=True)
class Point:
    """One thing to measure: an experiment, its parameters and a device."""

    experiment: Experiment
    parameters: Parameters
    device: torch.device

    def __str__(self) -> str:
        return f"{self.label} on {self.device}"

    @property
    def label(self) -> str:
        """Its name without the device: ``"matmul size 32"``."""
        return label(self.experiment.name, self.parameters)

    @property
    def key(self) -> tuple[object, ...]:
        """What tells this point from others in one file."""
        return key(self.experiment.name, self.parameters, str(self.device))

    def beyond(self, other: Point) -> bool:
        """Return whether this is at least as large as another point of the same sweep."""
        if (self.experiment.name, self.device) != (other.experiment.name, other.device):
            return False
        return self.parameters.keys() == other.parameters.keys() and all(
            value == other.parameters[name]
            or (type(value) in (int, float) and value > other.parameters[name])
            for name, value in self.parameters.items()
        )


def key(experiment: str, parameters: Parameters, device: str) -> tuple[object, ...]:
    """Return what tells the point of a result from others in one file."""
    return (experiment, tuple(sorted(parameters.items())), device)


def points(chosen: Sequence[Experiment], devices: Sequence[torch.device], quick: bool = False) -> list[Point]:
    """List what is to be measured, device by device, each sweep from small to large."""
    return [
        Point(experiment, parameters, device)
        for device in devices
        for experiment in chosen
        if experiment.modelled or device.type != "sim"
        for parameters in (experiment.quick if quick else experiment.sweep)
    ]


@dataclass(frozen=True)
class LeftOut:
    """Why a point has no result; ``failed`` where that is a mistake, ``final`` where it ends the sweep."""

    reason: str
    failed: bool = False
    final: bool = False


def run_points(todo: Sequence[Point]) -> Iterator[tuple[Point, list[Measurement] | LeftOut]]:
    """Measure point by point; yield each with its measurements, or with why there are none.

    After a point that took too long or did not fit into memory, the larger ones of its sweep are left out.
    An experiment that fails does not stop the others.
    """
    ends: list[tuple[Point, LeftOut]] = []
    for point in todo:
        outcome = next((why for end, why in ends if point.beyond(end)), None) or _run(point)
        if isinstance(outcome, LeftOut) and outcome.final:
            ends.append((point, outcome))
        yield point, outcome


def _run(point: Point) -> list[Measurement] | LeftOut:
    if missing := point.experiment.missing:
        return LeftOut(f"it needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    _empty(point.device)
    try:
        with _switches():
            return _measure(point)
    except Unsuitable as error:
        return LeftOut(str(error))
    except _TooLong as error:
        return LeftOut(str(error), final=True)
    except Exception as error:  # noqa: BLE001 - one broken experiment must not lose the others
        if _is_out_of_memory(error):
            return LeftOut("it does not fit into the memory", final=True)
        first = (str(error).strip().splitlines() or ["no message"])[0]
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}, line {frame.lineno}"
        return LeftOut(f"{type(error).__name__}: {first} ({where})", failed=True, final=True)


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(re.search("allocate|ALLOC_FAILED", str(error)))


class _TooLong(Exception):
    pass


def _measure(point: Point) -> list[Measurement]:
    device, experiment = point.device, point.experiment
    prepared = experiment.prepare(device, **point.parameters)
    if not callable(prepared):
        return [
            _summary(point, name, samples)
            for name, samples in prepared.items()
            if device.type != "sim" or samples.unit != "1"  # a real accuracy is not modelled
        ]
    clock = host_clock(device)
    _call(prepared, clock, device, FIRST * experiment.longest)
    meter = _meter(device)
    if meter:
        meter.reset_peak_memory_stats(device)
    once, took = _call(prepared, clock, device, experiment.longest)
    if took > SLOW:  # no block of calls, no second warming up
        more = 0 if device.type == "sim" else MIN_REPETITIONS - 1  # modelled times are all the same
        times = [once, *(_call(prepared, clock, device)[0] for _ in range(more))]
        timed = _summary(point, "time", Samples(times))
    else:
        timed = measure(prepared, point.label, device=device)
        timed = replace(timed, experiment=experiment.name, parameters=dict(point.parameters))
    peak = meter.max_memory_allocated(device) if meter else 0
    return [timed, *([_summary(point, "peak memory", Samples([peak], "B"))] if peak else [])]


def _call(
    work: Work, clock: Callable[[], float], device: torch.device, limit: float = math.inf
) -> tuple[float, float]:
    """Return how long a call took by the device's clock, and by the wall's, which has the limit."""
    wall, start = perf_counter(), clock()
    work()
    synchronize(device)
    seconds, took = clock() - start, perf_counter() - wall
    if took > limit:
        raise _TooLong(f"one call takes {took:.1f} s, and {limit:g} s is the limit")
    return seconds, took


def _summary(point: Point, quantity: str, samples: Samples) -> Measurement:
    return Measurement.of(
        samples.values,
        point.label,
        point.device,
        unit=samples.unit,
        quantity=quantity,
        experiment=point.experiment.name,
        parameters=dict(point.parameters),
    )


def _meter(device: torch.device) -> Any:
    """Return the module that counts a device's memory, or None where there is none."""
    module = torch.get_device_module(device)
    names = ("reset_peak_memory_stats", "max_memory_allocated")
    return module if all(hasattr(module, name) for name in names) else None


def _empty(device: torch.device) -> None:
    gc.collect()
    module = torch.get_device_module(device)
    if hasattr(module, "empty_cache"):
        module.empty_cache()


@contextlib.contextmanager
def _switches() -> Iterator[None]:
    """Start from the same seed; put back the switches an experiment may set."""
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    cudnn = torch.backends.cudnn
    benchmark, tf32, dtype = cudnn.benchmark, cudnn.allow_tf32, torch.get_default_dtype()
    torch.manual_seed(0)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        cudnn.benchmark, cudnn.allow_tf32 = benchmark, tf32
