"""Defines experiments, and runs them point by point, smallest first.

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
"""A call of more seconds than this is timed by itself, with few repetitions."""

FIRST = 3
"""The factor on the limit for the first call, which loads kernels and allocates memory."""


@dataclass(frozen=True)
class Samples:
    """Values that an experiment measured by itself, in ``unit``."""

    values: Sequence[float]
    unit: str = "s"


class Unsuitable(Exception):
    """Raised by an experiment that cannot or need not run on a device; the message is the reason."""


@dataclass(frozen=True)
class Experiment:
    """A function that prepares the work to time, and the parameters it is run with.

    Attributes
    ----------
    prepare
        The function; see `experiment`.
    sweep
        The parameters, smallest first: after a point that takes too long or does not fit, those with no
        smaller number and otherwise equal parameters are skipped.
    quick
        The part of the sweep that ``--quick`` runs; by default the first.
    seconds
        The approximate duration of a point on a CPU with two cores.
    longest
        The maximum duration of one call, in seconds.
    needs
        Optional packages that it imports.
    flops, bytes
        Functions from the parameters to the floating-point operations of one call and the bytes it must
        move, if known: a record faster than any chip is then refused.
    matrix_units
        False if neither tensor cores nor TF32 can be used.
    modelled
        False if it is meaningless on the simulated device, because it times the host.
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
        """The function's name, which stands in records, such as ``"matmul"``."""
        return self.prepare.__name__

    @property
    def about(self) -> str:
        """The first line of the function's docstring: what is measured."""
        return inspect.getdoc(self.prepare).splitlines()[0].replace("``", "")

    @property
    def missing(self) -> tuple[str, ...]:
        """The optional packages that it needs and that are not installed."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)

    def takes(self, parameters: Parameters) -> bool:
        """Return whether its function accepts these parameters."""
        try:
            inspect.signature(self.prepare).bind("device", **parameters)
        except TypeError:
            return False
        return True


REGISTRY: dict[str, Experiment] = {}
"""Every experiment by its name, in the order of definition."""


def grid(**values: Iterable[Value]) -> list[Parameters]:
    """Return every combination of the values as parameters; the last name varies fastest."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def experiment(**how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that registers a function in `REGISTRY` as an experiment, and returns it unchanged.

    The function takes ``device`` and the parameters. It returns a function without arguments, which is timed;
    or it measures by itself, with ``host_clock(device)``, and returns `Samples` by quantity. ``how`` are
    fields of `Experiment`. A second function of the same name is a ValueError.
    """

    def register(prepare: Callable[..., Any]) -> Callable[..., Any]:
        """Register the function."""
        name = prepare.__name__
        if name in REGISTRY:
            raise ValueError(f"There are two experiments named {name}.")
        REGISTRY[name] = Experiment(prepare, **how)
        return prepare

    return register


@dataclass(frozen=True)
class Point:
    """One thing to measure: an experiment with parameters on a device."""

    experiment: Experiment
    parameters: Parameters
    device: torch.device

    def __str__(self) -> str:
        return f"{self.label} on {self.device}"

    @property
    def label(self) -> str:
        """The experiment's name and parameters, such as ``"matmul size 32"``."""
        return label(self.experiment.name, self.parameters)

    @property
    def key(self) -> tuple[object, ...]:
        """What identifies this point in a file of records."""
        return key(self.experiment.name, self.parameters, str(self.device))

    def is_as_large_as(self, other: Point) -> bool:
        """Return whether this is a point of the same sweep with no smaller number than another's."""
        if (self.experiment.name, self.device) != (other.experiment.name, other.device):
            return False
        return self.parameters.keys() == other.parameters.keys() and all(
            value == other.parameters[name]
            or (type(value) in (int, float) and value > other.parameters[name])
            for name, value in self.parameters.items()
        )


def key(experiment: str, parameters: Parameters, device: str) -> tuple[object, ...]:
    """Return what identifies a point in a file of records; hashable."""
    return (experiment, tuple(sorted(parameters.items())), device)


def points(chosen: Sequence[Experiment], devices: Sequence[torch.device], quick: bool = False) -> list[Point]:
    """Return the points to measure, device by device, each sweep from small to large.

    Experiments that are not modelled are left out for the simulated device. With ``quick``, only the
    experiments' `Experiment.quick` points are returned.
    """
    return [
        Point(experiment, parameters, device)
        for device in devices
        for experiment in chosen
        if experiment.modelled or device.type != "sim"
        for parameters in (experiment.quick if quick else experiment.sweep)
    ]


@dataclass(frozen=True)
class LeftOut:
    """Why a point has no result.

    ``failed`` means an error in the experiment; ``final`` that larger points of the sweep are skipped, too.
    """

    reason: str
    failed: bool = False
    final: bool = False


def run_points(todo: Sequence[Point]) -> Iterator[tuple[Point, list[Measurement] | LeftOut]]:
    """Measure points; yield each with its measurements, or with the reason why there are none.

    After a point that takes too long, does not fit into memory or fails, larger ones of its sweep are
    skipped. Other experiments go on.
    """
    ends: list[tuple[Point, LeftOut]] = []
    for point in todo:
        outcome = next((why for end, why in ends if point.is_as_large_as(end)), None) or _run_point(point)
        if isinstance(outcome, LeftOut) and outcome.final:
            ends.append((point, outcome))
        yield point, outcome


def _run_point(point: Point) -> list[Measurement] | LeftOut:
    """Measure one point; return its measurements or why there are none. Exceptions are caught.

    The device's cache is emptied before.
    """
    if missing := point.experiment.missing:
        return LeftOut(f"it needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    _empty_cache(point.device)
    try:
        with _restored_settings():
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
    """Return whether an exception means that memory is exhausted."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(re.search("allocate|ALLOC_FAILED", str(error)))


class _TooLong(Exception):
    """A call took longer than the experiment's limit."""

    pass


def _measure(point: Point) -> list[Measurement]:
    """Run a point's experiment; return its measurements, the peak memory among them where it is known."""
    device, experiment = point.device, point.experiment
    prepared = experiment.prepare(device, **point.parameters)
    if not callable(prepared):
        return [
            _measurement(point, name, samples)
            for name, samples in prepared.items()
            if device.type != "sim" or samples.unit != "1"  # a real accuracy is not modelled
        ]
    clock = host_clock(device)
    _time_call(prepared, clock, device, FIRST * experiment.longest)
    memory = _memory_module(device)
    if memory:
        memory.reset_peak_memory_stats(device)
    once, took = _time_call(prepared, clock, device, experiment.longest)
    if took > SLOW:  # call by call, without another warm-up
        more = 0 if device.type == "sim" else MIN_REPETITIONS - 1  # modelled times are all the same
        times = [once, *(_time_call(prepared, clock, device)[0] for _ in range(more))]
        timed = _measurement(point, "time", Samples(times))
    else:
        timed = measure(prepared, point.label, device=device)
        timed = replace(timed, experiment=experiment.name, parameters=dict(point.parameters))
    peak = memory.max_memory_allocated(device) if memory else 0
    return [timed, *([_measurement(point, "peak memory", Samples([peak], "B"))] if peak else [])]


def _time_call(
    work: Work, clock: Callable[[], float], device: torch.device, limit: float = math.inf
) -> tuple[float, float]:
    """Call ``work`` and wait for the device; return the seconds by its ``clock`` and by the wall clock.

    Raises
    ------
    _TooLong
        If the latter exceeds ``limit``.
    """
    wall, start = perf_counter(), clock()
    work()
    synchronize(device)
    seconds, took = clock() - start, perf_counter() - wall
    if took > limit:
        raise _TooLong(f"one call takes {took:.1f} s, and {limit:g} s is the limit")
    return seconds, took


def _measurement(point: Point, quantity: str, samples: Samples) -> Measurement:
    """Return a point's samples as a Measurement of a quantity."""
    return Measurement.of(
        samples.values,
        point.label,
        point.device,
        unit=samples.unit,
        quantity=quantity,
        experiment=point.experiment.name,
        parameters=dict(point.parameters),
    )


def _memory_module(device: torch.device) -> Any:
    """Return the module that reports a device's peak memory, such as torch.cuda; None if none does."""
    module = torch.get_device_module(device)
    names = ("reset_peak_memory_stats", "max_memory_allocated")
    return module if all(hasattr(module, name) for name in names) else None


def _empty_cache(device: torch.device) -> None:
    """Collect garbage and release the device's cached memory."""
    gc.collect()
    module = torch.get_device_module(device)
    if hasattr(module, "empty_cache"):
        module.empty_cache()


@contextlib.contextmanager
def _restored_settings() -> Iterator[None]:
    """Within the context, start with seed 0; afterwards restore the global settings that may change.

    The random state is not restored.
    """
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
