"""Lesson 08, part A: the four take-home problems."""

from __future__ import annotations

import copy
import math
import statistics
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ..core import Exercise, Judge
from .common import other_device

# race --------------------------------------------------------------------------------------------


def race(sizes, devices, measure):
    rows = []
    for n in sizes:
        times = []
        for device in devices:
            a, b = torch.rand(2, n, n, device=device)
            times.append(measure(lambda a=a, b=b: a @ b, device=device).median)
        rows.append((n, *times, times[0] / times[1]))
    return rows


_PRODUCTS = {"mm", "bmm", "matmul", "addmm", "baddbmm"}


class _Operations(TorchDispatchMode):
    """Notes the operations that run within it: name, device, and the shape and dtype of the result."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Tensor]] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = op(*args, **(kwargs or {}))
        first = out[0] if isinstance(out, (tuple, list)) else out
        if isinstance(first, Tensor):
            self.seen.append((op.overloadpacket.__name__, first))
        return out


class _Timer:
    """Stands in for ``measure``: looks at what the work does, and gives a time that the check chose."""

    def __init__(self, times: dict[tuple[str, int], float]) -> None:
        self.times = times
        self.timed: list[tuple[str, int]] = []
        self.fault: tuple[str, str, str] | None = None

    def __call__(self, fn: Any, label: str = "", *, device: Any = None, **_: Any) -> Any:
        self.fault = self.fault or self._look(fn, device)
        t = self.times.get(self.timed[-1], 1.0) if self.timed else 1.0
        return SimpleNamespace(median=t, q1=0.9 * t, q3=1.2 * t, n=5, label=label, kind="measured")

    def _look(self, fn: Any, device: Any) -> tuple[str, str, str] | None:
        """Run the work once; return diagnosis, what was seen and what is expected, if it is wrong."""
        if not callable(fn):
            return "not-a-function-timed", f"a {type(fn).__name__}", "a function"
        with _Operations() as ops:
            fn()
        products = [out for name, out in ops.seen if name in _PRODUCTS]
        if not products:
            names = ", ".join(name for name, _ in ops.seen) or "nothing"
            return "no-product", f"the timed work did: {names}", "a @ b"
        for name, _ in ops.seen:
            if name in ("_to_copy", "copy_"):
                return "times-copy", "a copy inside the timed work", "the product alone"
            if name.startswith(("rand", "empty", "uniform", "normal", "ones", "zeros")):
                return "times-creation", f"{name} inside the timed work", "the product alone"
        out = products[0]
        if out.dtype != torch.float32:
            return "other-dtype", f"a product in {out.dtype}", "torch.float32"
        if device is not None and torch.device(device).type != out.device.type:
            waits = f"work on {out.device}, and measure(…, device={str(device)!r})"
            return "other-device", waits, "one and the same device"
        place = out.device.type, out.shape[-1]
        if place not in self.times or out.dim() != 2 or out.shape[0] != out.shape[1]:
            return "other-product", f"a result of {tuple(out.shape)} on {place[0]}", "n × n"
        self.timed.append(place)
        return None


def _check_race(answer: Callable[..., Any], judge: Judge) -> None:
    with other_device() as other:
        for sizes, devices in (([8, 32], ("cpu", other)), ([5, 3, 24], (other, "cpu"))):
            _judge_race(answer, sizes, devices, judge)


def _judge_race(
    answer: Callable[..., Any], sizes: list[int], devices: tuple[Any, Any], judge: Judge
) -> None:
    first, second = (torch.device(device).type for device in devices)
    times = {(first, n): 1e-9 * n**3 for n in sizes} | {
        (second, n): 2e-6 + 1e-10 * n**3 for n in sizes
    }
    timer = _Timer(times)
    got = judge.is_a(answer(sizes, devices, timer), (list, tuple), "a list of rows")
    if timer.fault:
        diagnosis, seen, expected = timer.fault
        judge.no(diagnosis, seen=seen, expected=expected)
    for place in [(device, n) for n in sizes for device in (first, second)]:
        if place not in timer.timed:
            seen = f"never timed: {place[1]} × {place[1]} on {place[0]}"
            judge.no("not-measured", seen=seen, expected="each size on both devices")
    if len(got) != len(sizes):
        judge.no("rows", seen=f"{len(got)} rows", expected=f"{len(sizes)}, one a size")
    for n, row in zip(sizes, got, strict=True):
        _judge_row(row, n, times[first, n], times[second, n], judge)


def _judge_row(row: Any, n: int, first: float, second: float, judge: Judge) -> None:
    judge.is_a(row, (tuple, list), "a row: size, two times, speed-up")
    expected = (n, first, second, first / second)
    if len(row) != 4 or row[0] != n:
        judge.no("rows", seen=row, expected=expected)
    if any(hasattr(value, "median") for value in row):
        judge.no("whole-measurement", seen="a Measurement in a row", expected="its median")
    numbers = tuple(judge.number(value) for value in row)
    for name, wrong in (
        ("upside-down", (n, first, second, second / first)),
        ("swapped", (n, second, first, second / first)),
        ("difference", (n, first, second, first - second)),
    ):
        if np.allclose(numbers, wrong, rtol=1e-6, atol=0):
            judge.no(name, seen=numbers, expected=expected)
    if not np.allclose(numbers, expected, rtol=1e-6, atol=0):
        judge.no("wrong-row", seen=numbers, expected=expected)


def _race_of(work: Callable[..., Any], row: Callable[..., Any]) -> Callable[..., Any]:
    """A race with another way to make and time the product, and another row."""

    def race(sizes, devices, measure):
        rows = []
        for n in sizes:
            first, second = (work(n, device, measure) for device in devices)
            rows.append(row(n, first, second))
        return rows

    return race


def _timed_right(n, device, measure):
    a, b = torch.rand(2, n, n, device=device)
    return measure(lambda: a @ b, device=device).median


def _right_row(n, first, second):
    return n, first, second, first / second


def _timed_with_creation(n, device, measure):
    return measure(
        lambda: torch.rand(n, n, device=device) @ torch.rand(n, n, device=device), device=device
    ).median


def _timed_with_copy(n, device, measure):
    a, b = torch.rand(2, n, n)
    return measure(lambda: a.to(device).double().float() @ b.to(device), device=device).median


def _timed_elementwise(n, device, measure):
    a, b = torch.rand(2, n, n, device=device)
    return measure(lambda: a * b, device=device).median


def _timed_on_cpu(n, device, measure):
    a, b = torch.rand(2, n, n)
    return measure(lambda: a @ b, device=device).median


def _timed_result(n, device, measure):
    a, b = torch.rand(2, n, n, device=device)
    return measure(a @ b, device=device).median


def _timed_whole(n, device, measure):
    a, b = torch.rand(2, n, n, device=device)
    return measure(lambda: a @ b, device=device)


# crossover ---------------------------------------------------------------------------------------


def crossover(rows):
    first = None
    for size, *_, speedup in sorted(rows, reverse=True):
        if speedup <= 1:
            break
        first = size
    return first


def _rows(speedups: dict[int, float]) -> list[tuple[int, float, float, float]]:
    return [(n, s * 1e-6 * n, 1e-6 * n, s) for n, s in speedups.items()]


_TWINS_CROSSOVER: dict[str, Callable[[Any], Any]] = {
    "first-win": lambda rows: next((row[0] for row in sorted(rows) if row[3] > 1), None),
    "unsorted": lambda rows: _crossover_in_order(rows),
    "largest-ratio": lambda rows: max(rows, key=lambda row: row[3])[0],
    "a-tie-wins": lambda rows: _crossover_with(rows, lambda s: s >= 1),
    "last-loss": lambda rows: max((row[0] for row in rows if row[3] <= 1), default=None),
    "first-size": lambda rows: crossover(rows) or min(rows)[0],
}


def _crossover_in_order(rows):
    first = None
    for row in reversed(rows):
        if row[3] <= 1:
            break
        first = row[0]
    return first


def _crossover_with(rows, wins):
    first = None
    for row in sorted(rows, reverse=True):
        if not wins(row[3]):
            break
        first = row[0]
    return first


def _check_crossover(answer: Callable[..., Any], judge: Judge) -> None:
    for speedups in (
        {32: 0.2, 64: 0.7, 128: 3.0, 256: 9.0},
        {32: 0.2, 64: 1.1, 128: 0.9, 256: 4.0, 512: 5.0},  # 64 won once, by chance
        {128: 1.2, 512: 5.0, 32: 0.2, 64: 0.7, 256: 1.5},
        {16: 1.2, 32: 1.4},
        {32: 0.3, 64: 0.5},
        {32: 2.0, 64: 0.5},
        {32: 0.5, 64: 1.0, 128: 2.0},
        {64: 0.5, 128: 6.0, 256: 2.0},
    ):
        rows = _rows(speedups)
        got, right = answer(rows), crossover(rows)
        if got is None and right is None:
            continue
        if got is None or right is None or judge.number(got) != right:
            like = [name for name, f in _TWINS_CROSSOVER.items() if f(rows) == got]
            judge.no(
                like[0] if like else "wrong-value",
                seen=f"{got} for speed-ups " + ", ".join(f"{n}: {s}" for n, s in speedups.items()),
                expected=str(right),
            )


# compare -----------------------------------------------------------------------------------------


def compare(formats, seeds, train, accuracy, machine):
    table = {}
    for name, dtype in formats.items():
        train(dtype, seeds[0])
        scores, times, peaks = [], [], []
        for seed in seeds:
            machine.reset_peak()
            machine.synchronize()
            start = machine.clock()
            model = train(dtype, seed)
            machine.synchronize()
            times.append(machine.clock() - start)
            peaks.append(machine.peak())
            scores.append(accuracy(model))
        table[name] = scores, statistics.median(times), max(peaks)
    return table


class _Machine:
    """A machine with a queue, a clock and a meter, and the training that runs on it.

    ``clock()`` reads the host's time; a training only queues its work. Training and evaluation have
    their own peaks. The first training in each format takes longer.
    """

    launch = 0.25

    def __init__(self) -> None:
        self.now = self.queue = 0.0
        self.top = 900
        self.runs: list[tuple[Any, Any]] = []

    def clock(self) -> float:
        """Return the host's time."""
        return self.now

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self.now = max(self.now, self.queue)

    def reset_peak(self) -> None:
        """Forget the peak."""
        self.top = 100

    def peak(self) -> int:
        """Return the most bytes since the last reset."""
        return self.top

    def seconds(self, dtype: Any, seed: Any) -> float:
        """How long a training takes once its kernels are loaded."""
        return (3.0 if dtype is torch.float32 else 2.0) + {1: 0.5, 2: 0.0, 3: 1.0}.get(seed, 0.75)

    def bytes(self, dtype: Any, seed: Any) -> int:
        """The peak of a training."""
        return (400 if dtype is torch.float32 else 300) + 10 * seed

    def train(self, dtype: Any, seed: Any) -> tuple[str, Any, Any]:
        """Queue a training; return its model."""
        cold = 0 if any(done is dtype for done, _ in self.runs) else 8
        self.runs.append((dtype, seed))
        self.queue = max(self.queue, self.now) + self.seconds(dtype, seed) + cold
        self.now += self.launch
        self.top = max(self.top, self.bytes(dtype, seed))
        return "model", dtype, seed

    def accuracy(self, model: Any) -> float:
        """Evaluate a model, and wait for the result."""
        self.queue = max(self.queue, self.now) + 5
        self.synchronize()
        self.top = max(self.top, 700)
        return self.score(*model[1:])

    @staticmethod
    def score(dtype: Any, seed: Any) -> float:
        """The accuracy of a model."""
        return 90 + seed / 10 + (0.05 if dtype is torch.float32 else 0)


def _check_compare(answer: Callable[..., Any], judge: Judge) -> None:
    half, bf16 = torch.float16, torch.bfloat16
    for formats, seeds in (
        ({"float32": torch.float32, "float16": half}, (1, 2, 3)),
        ({"bfloat16": bf16, "float32": torch.float32}, (5, 3, 1, 2, 4)),
    ):
        machine = _Machine()
        got = answer(formats, seeds, machine.train, machine.accuracy, machine)
        judge.is_a(got, dict, "a dict: for each format its scores, seconds and bytes")
        if list(got) != list(formats):
            judge.no("other-keys", seen=list(got), expected=list(formats))
        for name, dtype in formats.items():
            row = judge.is_a(got[name], (tuple, list), "a tuple: scores, seconds, bytes")
            if len(row) != 3:
                judge.no("other-row", seen=row, expected="(scores, seconds, bytes)")
            _judge_runs(machine, dtype, seeds, name, judge)
            _judge_scores(row[0], machine, dtype, seeds, judge)
            _judge_seconds(judge.number(row[1]), machine, dtype, seeds, judge)
            _judge_peak(judge.number(row[2]), machine, dtype, seeds, judge)


def _judge_runs(
    machine: _Machine, dtype: Any, seeds: Sequence[int], name: str, judge: Judge
) -> None:
    trained = [seed for done, seed in machine.runs if done is dtype]
    ran = f"{name}: trained with seeds {trained}"
    if sorted(trained) == sorted(seeds):
        judge.no("no-warm-up", seen=ran, expected="one training more, before those that count")
    if set(seeds) - set(trained):
        judge.no("other-seeds", seen=ran, expected=f"each of the seeds {list(seeds)}")
    if len(trained) > len(seeds) + 1:
        judge.no("too-many-runs", seen=ran, expected=f"{len(seeds) + 1} trainings")


def _judge_scores(
    scores: Any, machine: _Machine, dtype: Any, seeds: Sequence[int], judge: Judge
) -> None:
    right = [machine.score(dtype, seed) for seed in seeds]
    if isinstance(scores, (int, float)):
        judge.no("mean-score", seen=scores, expected=right)
    got = [judge.number(value) for value in judge.is_a(scores, (list, tuple), "a list of scores")]
    if got != right:
        judge.no("other-scores", seen=got, expected=right)


def _judge_seconds(
    got: float, machine: _Machine, dtype: Any, seeds: Sequence[int], judge: Judge
) -> None:
    times = [machine.seconds(dtype, seed) for seed in seeds]
    right = statistics.median(times)
    if math.isclose(got, right):
        return
    cold = [times[0] + 8, *times[1:]]
    known = {
        "only-launches": machine.launch,
        "times-evaluation": right + 5,
        "mean-time": statistics.fmean(times),
        "best-time": min(times),
        "mean-with-warm-up": statistics.median(cold),
    }
    like = [name for name, value in known.items() if math.isclose(got, value)]
    judge.no(
        like[0] if like else "wrong-seconds",
        seen=f"{got:g} s; the {len(seeds)} trainings took {', '.join(f'{t:g}' for t in times)} s",
        expected=f"{right:g} s",
    )


def _judge_peak(
    got: float, machine: _Machine, dtype: Any, seeds: Sequence[int], judge: Judge
) -> None:
    each = [machine.bytes(dtype, seed) for seed in seeds]
    if got == max(each):
        return
    diagnosis = {900: "never-reset", 700: "peak-of-evaluation", 100: "reset-late"}.get(
        int(got), "wrong-peak"
    )
    seen = f"{got:g} bytes; the trainings needed {', '.join(map(str, each))}"
    judge.no(diagnosis, seen=seen, expected=f"{max(each)} bytes")


def _compare_with(
    *,
    warm: bool = True,
    wait: bool = True,
    late: bool = False,
    reset: bool = True,
    middle: Callable[..., float] = statistics.median,
    seeds_of: Callable[[Any], Any] = lambda seeds: seeds,
    score: Callable[[list[float]], Any] = lambda scores: scores,
    peak_late: bool = False,
) -> Callable[..., Any]:
    """A comparison with one thing done otherwise."""

    def compare(formats, seeds, train, accuracy, machine):
        table = {}
        for name, dtype in formats.items():
            if warm:
                train(dtype, seeds[0])
            scores, times, peaks = [], [], []
            for seed in seeds_of(seeds):
                if reset:
                    machine.reset_peak()
                machine.synchronize()
                start = machine.clock()
                model = train(dtype, seed)
                if wait:
                    machine.synchronize()
                stop = machine.clock()
                before = machine.peak()
                scores.append(accuracy(model))
                times.append((machine.clock() if late else stop) - start)
                peaks.append(machine.peak() if peak_late else before)
            table[name] = score(scores), middle(times), max(peaks)
        return table

    return compare


# memory_line -------------------------------------------------------------------------------------


def memory_line(make_step, batches, meter):
    peaks = []
    for batch in batches:
        step = make_step(batch)
        step()
        meter.reset_peak_memory_stats()
        step()
        peaks.append(meter.max_memory_allocated())
    per_sample, fixed = np.polyfit(batches, peaks, 1)
    return fixed, per_sample


class _Meter:
    """A device's memory: what is allocated now, and the most since the last reset. It rounds up, as an allocator does."""

    grain = 128

    def __init__(self, fixed: int, per_sample: int) -> None:
        self.fixed, self.per_sample = fixed, per_sample
        self.now = self.top = self.alive = 0
        self.crowded = False

    def take(self, size: int) -> None:
        """Allocate; a negative size frees."""
        self.now += size
        self.top = max(self.top, self.now)

    def free(self, held: list[int]) -> None:
        """Free what a step that is gone had."""
        self.alive -= 1
        self.now -= sum(held)

    def memory_allocated(self, *_: Any) -> int:
        """Return what is allocated now."""
        return self.now

    def max_memory_allocated(self, *_: Any) -> int:
        """Return the most since the last reset."""
        return self.top

    def reset_peak_memory_stats(self, *_: Any) -> None:
        """Begin a new peak at what is allocated now."""
        self.top = self.now

    def make_step(self, batch: int) -> Callable[[], None]:
        """Return a training step: a third of the fixed part now, the rest with its first call."""
        return _Step(self, batch)


class _Step:
    """A step whose memory goes when it does."""

    def __init__(self, meter: _Meter, batch: int) -> None:
        self.meter, self.batch, self.calls, self.held = meter, batch, 0, [meter.fixed // 3]
        meter.take(self.held[0])
        meter.alive += 1
        weakref.finalize(self, meter.free, self.held)

    def __call__(self) -> None:
        self.calls += 1
        self.meter.crowded |= self.meter.alive > 1
        work = -(-self.meter.per_sample * self.batch // self.meter.grain) * self.meter.grain
        self.meter.take(work)
        self.meter.take(-work)
        if self.calls == 1:  # the optimiser makes its state
            self.held.append(self.meter.fixed - self.held[0])
            self.meter.take(self.held[1])


def _check_memory_line(answer: Callable[..., Any], judge: Judge) -> None:
    for fixed, per_sample, batches in (
        (3000, 7, [64, 128, 250, 500]),
        (900_000, 3, [400, 101, 1600]),
        (6000, 50, [100, 10, 41]),
    ):
        meter = _Meter(fixed, per_sample)
        got = answer(meter.make_step, batches, meter)
        judge.is_a(got, (tuple, list), "a pair: fixed bytes, bytes a sample")
        if len(got) != 2:
            judge.no("pair", seen=got, expected="two numbers")
        a, b = (judge.number(value) for value in got)
        right = _line_of(memory_line, meter, batches)
        if not np.allclose((a, b), right, rtol=1e-6):
            _judge_line(a, b, right, meter, batches, judge)


def _line_of(way: Callable[..., Any], meter: _Meter, batches: Sequence[int]) -> tuple[float, float]:
    fresh = _Meter(meter.fixed, meter.per_sample)
    return way(fresh.make_step, batches, fresh)


def _judge_line(
    a: float,
    b: float,
    right: tuple[float, float],
    meter: _Meter,
    batches: Sequence[int],
    judge: Judge,
) -> None:
    like = [
        name
        for name, twin in _LINE_TWINS.items()
        if np.allclose((a, b), _line_of(twin, meter, batches), rtol=1e-6, atol=1e-6)
    ]
    if not like and meter.crowded:
        like = ["keeps-all"]
    judge.no(
        like[0] if like else "wrong-line",
        seen=f"{a:,.1f} + {b:,.2f} bytes a sample, from batches {batches}",
        expected=f"{right[0]:,.1f} + {right[1]:,.2f}",
    )


def _line_with(
    *, warm: bool = True, reset: bool = True, read: str = "max_memory_allocated"
) -> Callable[..., Any]:
    """The measurement with one thing left out."""

    def memory_line(make_step, batches, meter):
        peaks = []
        for batch in batches:
            step = make_step(batch)
            if warm:
                step()
            if reset:
                meter.reset_peak_memory_stats()
            step()
            peaks.append(getattr(meter, read)())
        per_sample, fixed = np.polyfit(batches, peaks, 1)
        return fixed, per_sample

    return memory_line


def _line_through_zero(make_step, batches, meter):
    fixed, per_sample = memory_line(make_step, batches, meter)
    peaks = [fixed + per_sample * n for n in batches]
    return 0.0, np.dot(batches, peaks) / np.dot(batches, batches)


def _line_through_two(make_step, batches, meter):
    ends = [min(batches), max(batches)]
    return memory_line(make_step, ends, meter)


def _line_swapped(make_step, batches, meter):
    return memory_line(make_step, batches, meter)[::-1]


def _line_all_at_once(make_step, batches, meter):
    steps = {batch: make_step(batch) for batch in batches}
    return memory_line(steps.get, batches, meter)


_LINE_TWINS: dict[str, Callable[..., Any]] = {
    "no-warm-up": _line_with(warm=False),
    "not-the-peak": _line_with(read="memory_allocated"),
    "never-reset": _line_with(reset=False),
    "through-zero": _line_through_zero,
    "two-points": _line_through_two,
    "swapped": _line_swapped,
}


# accumulation_gap --------------------------------------------------------------------------------


def accumulation_gap(model, loss_fn, x, y, size):
    def gradient(parts):
        twin = copy.deepcopy(model)
        for rows, labels in parts:
            loss = loss_fn(twin(rows), labels) * len(rows) / len(x)
            loss.backward()
        return torch.cat([p.grad.flatten() for p in twin.parameters()])

    whole = gradient([(x, y)])
    parts = gradient(zip(x.split(size), y.split(size), strict=True))
    return ((parts - whole).norm() / whole.norm()).item()


def _net(norm: Callable[[int], nn.Module] | None) -> nn.Sequential:
    torch.manual_seed(0)
    middle = [norm(8)] if norm else []
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.ReLU(), nn.Linear(8, 3)).double()


def _check_accumulation_gap(answer: Callable[..., Any], judge: Judge) -> None:
    generator = torch.Generator().manual_seed(1)
    for norm, rows, size in (
        (None, 16, 4),
        (None, 13, 4),  # a ragged tail
        (nn.LayerNorm, 11, 4),
        (nn.BatchNorm1d, 12, 4),
        (nn.BatchNorm1d, 14, 6),
        (None, 5, 8),  # one part
    ):
        x = 3 * torch.randn(rows, 6, generator=generator, dtype=torch.float64)
        y = torch.randint(0, 3, (rows,), generator=generator)
        model = _net(norm)
        for p in model.parameters():  # left over from an earlier step
            p.grad = torch.full_like(p, 0.5)
        before = [t.clone() for t in (*model.parameters(), *model.buffers())]
        got = judge.number(answer(model, F.cross_entropy, x, y, size))
        case = f"{rows} rows in parts of {size}, {norm.__name__ if norm else 'no normalisation'}"
        _judge_traces(model, before, judge)
        right = accumulation_gap(model, F.cross_entropy, x, y, size)
        if math.isclose(got, right, rel_tol=1e-3, abs_tol=1e-9):
            continue
        twins = {name: f(model, F.cross_entropy, x, y, size) for name, f in _GAP_TWINS.items()}
        like = [n for n, v in twins.items() if math.isclose(got, v, rel_tol=1e-3, abs_tol=1e-9)]
        judge.no(
            like[0] if like else "wrong-gap", seen=f"{got:.3g} for {case}", expected=f"{right:.3g}"
        )


def _judge_traces(model: nn.Module, before: list[Tensor], judge: Judge) -> None:
    after = [*model.parameters(), *model.buffers()]
    if not all(torch.equal(a, b) for a, b in zip(after, before, strict=True)):
        judge.no("changes-the-model", seen="other weights or running statistics after the call")
    if any(p.grad is None or not bool((p.grad == 0.5).all()) for p in model.parameters()):
        judge.no("changes-the-model", seen="other gradients in the model after the call")
    if not model.training:
        judge.no("changes-the-model", seen="the model in eval mode after the call")


def _gap_with(
    weigh: Callable[[int, int, int, int], float] = lambda n, size, total, parts: n / total,
    prepare: Callable[[nn.Module], nn.Module] = lambda model: model,
    drop_last: bool = False,
    relative: bool = True,
    largest: bool = False,
) -> Callable[..., Any]:
    """The gap with one thing done otherwise."""

    def accumulation_gap(model, loss_fn, x, y, size):
        def gradient(parts):
            twin = prepare(copy.deepcopy(model))
            for rows, labels in parts:
                share = weigh(len(rows), size, len(x), len(parts)) if len(parts) > 1 else 1.0
                (loss_fn(twin(rows), labels) * share).backward()
            return torch.cat([p.grad.flatten() for p in twin.parameters()])

        parts = list(zip(x.split(size), y.split(size), strict=True))
        if drop_last and len(parts) > 1 and len(parts[-1][0]) < size:
            parts = parts[:-1]
        whole, summed = gradient([(x, y)]), gradient(parts)
        gap = (summed - whole).abs().max() if largest else (summed - whole).norm()
        scale = whole.abs().max() if largest else whole.norm()
        return (gap / scale if relative else gap).item()

    return accumulation_gap


_GAP_TWINS: dict[str, Callable[..., Any]] = {
    "by-parts": _gap_with(weigh=lambda n, size, total, parts: 1 / parts),
    "sum-of-means": _gap_with(weigh=lambda n, size, total, parts: 1.0),
    "full-weight": _gap_with(weigh=lambda n, size, total, parts: size / total),
    "drops-tail": _gap_with(drop_last=True),
    "eval-mode": _gap_with(prepare=lambda model: model.eval()),
    "absolute": _gap_with(relative=False),
    "largest-entry": _gap_with(largest=True),
}


def _gap_on_the_model(model, loss_fn, x, y, size):
    def gradient(parts):
        model.zero_grad()
        for rows, labels in parts:
            (loss_fn(model(rows), labels) * len(rows) / len(x)).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    whole = gradient([(x, y)])
    parts = gradient(zip(x.split(size), y.split(size), strict=True))
    return ((parts - whole).norm() / whole.norm()).item()


EXERCISES = (
    Exercise(
        id="08.race",
        title="Write the race",
        level=2,
        minutes=10,
        task="""
Write `race(sizes, devices, measure)`. `devices` is a pair such as `("cpu", "cuda")`, and `measure` is the
course's. For each n in `sizes`, in this order, time the product of two random n × n float32 matrices on
both devices. Return a list of tuples: **n**, the median seconds on the first device, those on the second,
and the speed-up of the second over the first. Nothing but the product may be timed.
""",
        hints=(
            "What must be there before the clock starts, and on which device?",
            "`measure(fn, device=device)` wants a function without arguments, such as `lambda: a @ b`. What it "
            "returns has a `.median`.",
            "For each n and each device: `a, b = torch.rand(2, n, n, device=device)`, then measure. The "
            "speed-up is the first time over the second.",
        ),
        reference=race,
        check_answer=_check_race,
        why="A speed-up means something only with its size, its format and what was timed beside it. With the creation "
        "or the copy of the matrices inside, you would have compared random number generators, or a bus.",
        diagnoses={
            "not-a-function-timed": "`measure` got a result, not work to time: the product ran before the clock did. "
            "Hand over a function.",
            "no-product": "The timed work holds no matrix product. `*` multiplies element by element.",
            "times-copy": "A copy or a conversion ran inside the timed work. Create the matrices on the device, before "
            "the clock starts.",
            "times-creation": "The matrices are made inside the timed work, so their random numbers are timed too.",
            "other-dtype": "The product is to be in float32.",
            "other-device": "The matrices lie on one device, and `measure` was told to wait for another.",
            "other-product": "The timed product has another size, or lies on another device, than was asked for.",
            "not-measured": "Not every size was timed on both devices. Are the matrices on the device whose turn it is?",
            "rows": "There must be one row of four values for each size, in the order of `sizes`.",
            "whole-measurement": "A row holds whole measurements. Take the `.median` of each.",
            "upside-down": "The speed-up is upside down: a faster second device must give more than 1.",
            "swapped": "The two devices are swapped: the first of the pair comes first.",
            "difference": "That is a difference of times. A speed-up is a ratio.",
            "wrong-row": "The row does not hold what was measured.",
        },
        wrong={
            "not-a-function-timed": _race_of(_timed_result, _right_row),
            "no-product": _race_of(_timed_elementwise, _right_row),
            "times-copy": _race_of(_timed_with_copy, _right_row),
            "times-creation": _race_of(_timed_with_creation, _right_row),
            "other-device": _race_of(_timed_on_cpu, _right_row),
            "whole-measurement": _race_of(
                _timed_whole, lambda n, a, b: (n, a, b, a.median / b.median)
            ),
            "upside-down": _race_of(_timed_right, lambda n, a, b: (n, a, b, b / a)),
            "difference": _race_of(_timed_right, lambda n, a, b: (n, a, b, a - b)),
            "rows": _race_of(_timed_right, lambda n, a, b: (n, a / b)),
        },
    ),
    Exercise(
        id="08.crossover",
        title="From here on it wins",
        level=1,
        minutes=5,
        task="""
Write `crossover(rows)` for such a list of `(n, first, second, speed-up)`, in any order: the smallest measured
n from which on the second device is faster, at this size **and at every larger one**. Return `None` where there
is none. Times are measured, so one small size may win by chance; a speed-up of exactly 1 is no win.
""",
        hints=(
            "Begin at the largest size and go down.",
            "Stop at the first size that does not win. What you saw just before it is the answer.",
        ),
        reference=crossover,
        check_answer=_check_crossover,
        why="The first size that wins may have won by noise. Asking for all larger ones too costs nothing and makes "
        "the answer the same tomorrow.",
        diagnoses={
            "first-win": "That size wins, but a larger one loses again: it won by chance.",
            "unsorted": "The rows may come in any order. Sort them by size first.",
            "largest-ratio": "That is the size with the best speed-up, not the first that wins for good.",
            "last-loss": "That is the last size that loses. The answer is the next one, if there is one.",
            "a-tie-wins": "A speed-up of 1 is no win.",
            "first-size": "Where the largest size does not win, there is no crossover: return None.",
            "wrong-value": "Another size is the first that wins for good.",
        },
        wrong={
            "first-win": _TWINS_CROSSOVER["first-win"],
            "unsorted": _crossover_in_order,
            "largest-ratio": _TWINS_CROSSOVER["largest-ratio"],
            "last-loss": _TWINS_CROSSOVER["last-loss"],
            "a-tie-wins": _TWINS_CROSSOVER["a-tie-wins"],
            "first-size": _TWINS_CROSSOVER["first-size"],
        },
    ),
    Exercise(
        id="08.compare",
        title="A fair comparison",
        level=3,
        minutes=15,
        task="""
Write `compare(formats, seeds, train, accuracy, machine)`. `formats` maps names to dtypes.
`train(dtype, seed)` trains a network and returns it as soon as its work is queued; its first call in each format
is slower. `accuracy(model)` evaluates one. `machine` has `clock()`, which returns seconds, `synchronize()`,
`reset_peak()` and `peak()`, which returns the most bytes since the reset. Return a dict: for each name the tuple
**(list of accuracies in the order of the seeds, median seconds of a training, largest peak of a training)**.
Warm up once in each format. Only training counts, not evaluation.
""",
        hints=(
            "For one training, write down in order: what must have happened before you read the clock, and "
            "what before you read it again?",
            "Evaluation takes time and memory too. So read clock and peak before it.",
            "Per format: one training that is thrown away. Per seed: reset the peak, synchronise, clock, train, "
            "synchronise, clock, peak, and only then the accuracy.",
        ),
        reference=compare,
        check_answer=_check_compare,
        why="Four short rules, and each is broken in published comparisons: the same seeds for all, warm up, wait before "
        "each look at the clock, and keep evaluation out of what you claim about training.",
        diagnoses={
            "no-warm-up": "The first training in a format is slower, and here it was one of those that count.",
            "other-seeds": "Each format must be trained with all the seeds, or the comparison is not fair.",
            "too-many-runs": "One training to warm up and one a seed are enough.",
            "other-keys": "The dict needs one entry for each format, in their order.",
            "other-row": "Each entry must be a tuple of three: accuracies, seconds, bytes.",
            "mean-score": "Return all the accuracies: their spread says whether a difference means anything.",
            "other-scores": "The accuracies are not those of the seeds, in their order.",
            "only-launches": "The clock was read while the work was still in the queue. Wait for it first.",
            "times-evaluation": "The evaluation was timed together with the training.",
            "mean-time": "That is the mean. One interruption moves a mean, and not a median.",
            "best-time": "That is the shortest time, not the median.",
            "mean-with-warm-up": "A training that had to warm up is among those that count.",
            "wrong-seconds": "That is not the median of the trainings' times. Was the queue empty at the start?",
            "never-reset": "The peak was never reset: an older one is still there.",
            "peak-of-evaluation": "The peak was read after the evaluation, which needed more than the training.",
            "reset-late": "The peak was reset after the training that it was to measure.",
            "wrong-peak": "That is not the largest peak of the trainings in this format.",
        },
        wrong={
            "no-warm-up": _compare_with(warm=False),
            "other-seeds": _compare_with(seeds_of=lambda seeds: seeds[:1] * len(seeds)),
            "mean-score": _compare_with(score=statistics.fmean),
            "only-launches": _compare_with(wait=False),
            "times-evaluation": _compare_with(late=True),
            "mean-time": _compare_with(middle=statistics.fmean),
            "best-time": _compare_with(middle=min),
            "never-reset": _compare_with(reset=False),
            "peak-of-evaluation": _compare_with(peak_late=True),
        },
    ),
    Exercise(
        id="08.memory_line",
        title="The line of the memory",
        level=2,
        minutes=10,
        task="""
Write `memory_line(make_step, batches, meter)`: the pair (fixed bytes, bytes a sample) of the straight line
through the peaks of a training step. `make_step(batch)` builds a network, its optimiser and a batch of that size,
and returns `step()`, which trains for one step. The optimiser makes its state in the **first** step, as Adam does.
`meter` is a module such as `torch.cuda`: `reset_peak_memory_stats()`, `max_memory_allocated()`,
`memory_allocated()`. Fit the line to all points: `np.polyfit(x, y, 1)` returns slope and intercept.
""",
        hints=(
            "The step that you meter should be like all that follow it. Is the first one?",
            "A peak is the most since the last reset, so each batch needs its own reset. And a step that is still in a "
            "list still holds its network.",
            "For each batch: make the step, call it once, reset, call it again, note `max_memory_allocated()`. Then fit.",
        ),
        reference=memory_line,
        check_answer=_check_memory_line,
        why="With the first step's peak, your program would fit the card and stop in the second step. That is why an "
        "out-of-memory error so often comes in step 2.",
        diagnoses={
            "no-warm-up": "The first step was metered: the optimiser's state was not there yet, so the fixed part is "
            "too small.",
            "not-the-peak": "`memory_allocated()` says what is there after the step. The activations have gone by then.",
            "never-reset": "Without a reset a large batch's peak hides those of all smaller ones after it.",
            "through-zero": "The line was drawn through zero. A network takes memory before it has seen a sample.",
            "keeps-all": "Several steps were alive at once, each with its network and its batch. Let one go "
            "before the next is metered.",
            "two-points": "The line goes through two of the points. Each peak is rounded up a little by the allocator, so fit "
            "the line to all of them.",
            "swapped": "The pair is swapped. `np.polyfit` returns the slope first.",
            "pair": "Return a pair: fixed bytes, bytes a sample.",
            "wrong-line": "That is not the line through the peaks.",
        },
        wrong={
            **_LINE_TWINS,
            "keeps-all": _line_all_at_once,
        },
    ),
    Exercise(
        id="08.accumulation_gap",
        title="Prove that it is equal",
        level=2,
        minutes=12,
        task="""
Write `accumulation_gap(model, loss_fn, x, y, size)`: how far the gradient that is accumulated over parts of
`size` rows (the last may be smaller) is from the gradient of the whole batch `x, y`. Write all gradients as one
long vector: the answer is the norm of the difference over the norm of the whole batch's gradient, a Python number.
`loss_fn` is a mean over its rows. The model stays as it is: its mode, its gradients, and the running statistics
of a BatchNorm.
""",
        hints=(
            "A model in train mode changes when it only looks at data. How do you look without leaving traces?",
            "Take a `copy.deepcopy(model)` for each of the two gradients. A copy brings no gradients along.",
            "The loss of each part counts `len(rows) / len(x)`. Then `torch.cat` of all `p.grad.flatten()`, twice.",
        ),
        reference=accumulation_gap,
        check_answer=_check_accumulation_gap,
        why="Now it is a number, not a belief: rounding where it is equal, and a visible share where it is not. Run this test "
        "on your own model before you rely on accumulation.",
        diagnoses={
            "by-parts": "Each part got the same weight. A smaller last part must count for less.",
            "sum-of-means": "The parts' means were added up and not weighted by their share of the rows.",
            "full-weight": "The last, smaller part counts as much as a full one. Its weight is its own number of rows over all.",
            "drops-tail": "The last, smaller part was left out.",
            "eval-mode": "In eval mode BatchNorm uses its running statistics, and the very effect you look for is gone.",
            "absolute": "That is the norm of the difference itself. Divide it by the norm of the whole gradient.",
            "largest-entry": "That compares single entries. Use the norm of the whole vector.",
            "changes-the-model": "The call left traces in the model. Work on a copy of it.",
            "wrong-gap": "The gap is another.",
        },
        wrong={
            "by-parts": _GAP_TWINS["by-parts"],
            "sum-of-means": _GAP_TWINS["sum-of-means"],
            "full-weight": _GAP_TWINS["full-weight"],
            "drops-tail": _GAP_TWINS["drops-tail"],
            "eval-mode": _GAP_TWINS["eval-mode"],
            "absolute": _GAP_TWINS["absolute"],
            "changes-the-model": _gap_on_the_model,
        },
    ),
)
