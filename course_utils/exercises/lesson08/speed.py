"""Exercises of lesson 08 on profiling and speed.

Waits are counted and times modelled on a simulated device of the check's own; the learner's devices and
tensors are left alone.
"""

from __future__ import annotations

import functools
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import memory, simgpu
from ..core import Exercise, Judge, _Raised
from ..lesson06 import _one_thread

# What several checks use -------------------------------------------------------------------------


def _without_this_frame(error: Exception) -> Exception:
    """Leave the check's own line out of an error's traceback, so that the learner's is shown."""
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


# hottest -----------------------------------------------------------------------------------------


def hottest(events, n):
    on_device = any(event.self_device_time_total for event in events)
    own = "self_device_time_total" if on_device else "self_cpu_time_total"
    ordered = sorted(events, key=lambda event: getattr(event, own), reverse=True)
    return [event.key for event in ordered[:n]]


@dataclass
class _Row:
    """A row of ``profile.key_averages()``: microseconds, with and without what was called inside."""

    key: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0
    old_names: list[str] = field(default_factory=list, repr=False)

    @property
    def cuda_time_total(self) -> float:
        """The deprecated name of ``device_time_total``."""
        self.old_names.append("cuda_time_total")
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        """The deprecated name of ``self_device_time_total``."""
        self.old_names.append("self_cuda_time_total")
        return self.self_device_time_total


def _device_rows() -> list[_Row]:
    return [
        _Row("train_step", 10, 9800, 310, 8420, 0),
        _Row("forward", 10, 4100, 150, 2890, 0),
        _Row("aten::linear", 30, 1500, 90, 1710, 0),
        _Row("aten::addmm", 30, 1210, 640, 1710, 1710),
        _Row("aten::mm", 50, 930, 900, 3100, 3100),
        _Row("aten::gelu", 20, 250, 250, 410, 410),
        _Row("aten::layer_norm", 20, 700, 60, 770, 0),
        _Row("aten::native_layer_norm", 20, 640, 500, 770, 770),
        _Row("Optimizer.step", 10, 2600, 900, 1500, 0),
        _Row("aten::_foreach_addcdiv_", 1, 400, 350, 1480, 1480),
        _Row("aten::copy_", 400, 3000, 2900, 520, 520),
        _Row("aten::sum", 4, 30, 25, 430, 430),
    ]


def _host_rows() -> list[_Row]:
    return [
        _Row("train_step", 5, 4000, 100),
        _Row("aten::linear", 15, 2100, 40),
        _Row("aten::addmm", 15, 2060, 1990),
        _Row("aten::relu", 10, 300, 290),
        _Row("aten::sum", 1, 610, 605),
    ]


_ROW_TWINS: Mapping[str, Callable[[_Row, str], float]] = {
    "children-too": lambda row, where: getattr(row, f"{where}_time_total"),
    "host-time": lambda row, where: row.self_cpu_time_total,
    "host-total": lambda row, where: row.cpu_time_total,
    "per-call": lambda row, where: getattr(row, f"self_{where}_time_total") / row.count,
    "ascending": lambda row, where: -getattr(row, f"self_{where}_time_total"),
}


def _check_hottest(answer: Callable[..., Any], judge: Judge) -> None:
    for make, n in ((_device_rows, 5), (_device_rows, 1), (_host_rows, 3), (_host_rows, 9)):
        rows = make()
        right = hottest(make(), n)
        got = judge.is_a(answer(rows, n), list, "a list of names")
        if got != right:
            where = "device" if any(row.self_device_time_total for row in rows) else "cpu"
            twins = {
                name: [r.key for r in sorted(make(), key=lambda r: -by(r, where))][:n]
                for name, by in _ROW_TWINS.items()
            }
            twins["row-by-row"] = _row_by_row(make(), n)
            like = [name for name, keys in twins.items() if keys == got]
            why = "wrong-count" if len(got) != len(right) else "wrong-value"
            judge.no(
                like[0] if like else why,
                seen=f"{got} of a run on a {'GPU' if where == 'device' else 'CPU'}, n = {n}",
                expected=right,
            )
        if old := [name for row in rows for name in row.old_names]:
            judge.no("old-name", seen=f".{old[0]}", expected="a name for any device")


def _hottest_with_children(events, n):
    ordered = sorted(events, key=lambda event: event.cuda_time_total, reverse=True)
    return [event.key for event in ordered[:n]]


def _row_by_row(events, n):
    def own(event):
        return event.self_device_time_total or event.self_cpu_time_total

    return [event.key for event in sorted(events, key=own, reverse=True)[:n]]


def _hottest_on_host(events, n):
    ordered = sorted(events, key=lambda event: event.self_cpu_time_total, reverse=True)
    return [event.key for event in ordered[:n]]


def _hottest_per_call(events, n):
    ordered = sorted(events, key=lambda event: event.self_device_time_total / event.count)
    return [event.key for event in ordered[: -n - 1 : -1]]


def _hottest_by_old_name(events, n):
    on_device = any(event.self_cuda_time_total for event in events)
    name = "self_cuda_time_total" if on_device else "self_cpu_time_total"
    ordered = sorted(events, key=lambda event: getattr(event, name), reverse=True)
    return [event.key for event in ordered[:n]]


def _hottest_ascending(events, n):
    ordered = sorted(events, key=lambda event: event.self_device_time_total)
    return [event.key for event in ordered[:n]]


# masked_loss -------------------------------------------------------------------------------------


def masked_loss(logits, targets, mask):
    kept = targets.masked_fill(~mask, -100)
    total = F.cross_entropy(logits, kept, reduction="sum")
    return total / mask.sum().clamp(min=1)


_ROWS = 12


def _masked_case(kept: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, targets and mask; the targets of rows that do not count are no class."""
    torch.manual_seed(len(kept))
    mask = torch.zeros(_ROWS, dtype=torch.bool)
    mask[list(kept)] = True
    targets = torch.randint(5, (_ROWS,)).masked_fill(~mask, -1)
    return torch.randn(_ROWS, 5), targets, mask


def _with_gradient(loss_of: Callable[..., Any], case: tuple[Tensor, ...]) -> tuple[Any, Any]:
    logits = case[0].clone().requires_grad_()
    loss = loss_of(logits, *case[1:])
    if isinstance(loss, Tensor) and loss.requires_grad and loss.numel() == 1:
        loss.backward()
    return loss, logits.grad


@_one_thread()
def _check_masked_loss(answer: Callable[..., Any], judge: Judge) -> None:
    for kept in (range(_ROWS), (0, 3, 4, 9), (7,)):
        _judge_mean(answer, kept, judge)
    if problem := simgpu.problem():
        print(f"Judged without the simulated device, so waits are not counted. {problem}")
    else:
        _judge_mask_waits(answer, judge)
    _judge_mean(answer, (), judge)


def _judge_mean(answer: Callable[..., Any], kept: Sequence[int], judge: Judge) -> None:
    """Refuse another loss, or gradient, than that of the mean over the rows in ``kept``."""
    case = _masked_case(kept)
    right, gradient = _with_gradient(masked_loss, case)
    got, found = _with_gradient(answer, case)
    judge.is_a(got, Tensor, "a tensor with one number")
    if got.numel() != 1:
        judge.no("not-one", seen=f"a tensor of shape {tuple(got.shape)}", expected="one number")
    seen = f"{got.item():.5g} where {len(kept)} of {_ROWS} rows count"
    if not kept and got.item() != 0:
        judge.no("none-counts", seen=seen, expected="0")
    if not math.isclose(got.item(), right.item(), rel_tol=1e-4, abs_tol=1e-7):
        twins = {
            "divided-by-all": right.item() * len(kept) / _ROWS,
            "summed": right.item() * len(kept),
        }
        like = [name for name, v in twins.items() if math.isclose(got.item(), v, rel_tol=1e-4)]
        judge.no(like[0] if like else "wrong-value", seen=seen, expected=f"{right.item():.5g}")
    if found is None or not torch.allclose(found, gradient, atol=1e-6):
        judge.no("no-gradient", seen="no gradient, or another", expected="that of the mean")


def _judge_mask_waits(answer: Callable[..., Any], judge: Judge) -> None:
    with memory.spare_device("1 GB") as device:
        case = tuple(t.to(device) for t in _masked_case((0, 3, 4, 9)))
        with simgpu.count() as counters:
            try:
                answer.__wrapped__(*case)  # the guard would look at the inputs, and wait
            except Exception as error:  # noqa: BLE001  (whatever it was, it is the learner's)
                raise _Raised(_without_this_frame(error)) from None
        del case
    if counters.synchronizations or counters.copies_to_host:
        judge.no(
            "waits",
            seen=f"the host waited {counters.synchronizations} times",
            expected="no wait",
        )


def _masked_by_index(logits, targets, mask):
    if not mask.any():
        return logits.sum() * 0
    return F.cross_entropy(logits[mask], targets[mask])


def _masked_mean(logits, targets, mask):
    kept = targets.masked_fill(~mask, -100)
    return F.cross_entropy(logits, kept, reduction="none").mean()


def _masked_sum(logits, targets, mask):
    return F.cross_entropy(logits, targets.masked_fill(~mask, -100), reduction="sum")


def _masked_nan(logits, targets, mask):
    return F.cross_entropy(logits, targets.masked_fill(~mask, -100))


def _masked_detached(logits, targets, mask):
    return masked_loss(logits.detach(), targets, mask)


# train_logged ------------------------------------------------------------------------------------


def train_logged(model, batches, optimizer, every, clock, log):
    total, samples, begin = 0, 0, clock()
    for step, (x, y) in enumerate(batches, 1):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(y)
        samples += len(y)
        if step % every == 0 or step == len(batches):
            mean = total.item() / samples
            now = clock()
            log(step, mean, samples / (now - begin))
            total, samples, begin = 0, 0, now


class _Logged:
    """A training on the CPU with a clock that moves only in forward passes, and what was logged.

    Parameters
    ----------
    sizes
        The rows of each batch.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        torch.manual_seed(len(sizes))
        self.sizes = sizes
        self.now = 40.0
        self.model = nn.Linear(4, 3)
        self.model.register_forward_pre_hook(lambda _, args: self._tick(len(args[0])))
        self.batches = [(torch.randn(n, 4), torch.randint(3, (n,))) for n in sizes]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5, momentum=0.5)
        self.lines: list[tuple[Any, ...]] = []

    def _tick(self, rows: int) -> None:
        self.now += 0.25 + rows / 64

    def run(self, answer: Callable[..., Any], every: int) -> list[tuple[Any, ...]]:
        """Train, and return the lines of the log."""
        answer(
            self.model,
            self.batches,
            self.optimizer,
            every,
            lambda: self.now,
            lambda *line: self.lines.append(line),
        )
        return self.lines

    def losses(self) -> list[float]:
        """Train, and return the loss of each step."""
        found: list[float] = []
        for x, y in self.batches:
            train_logged(
                self.model,
                [(x, y)],
                self.optimizer,
                1,
                lambda: self.now,
                lambda step, loss, rate: found.append(loss),
            )
        return found


def _means(sizes: Sequence[int], losses: Sequence[float], begin: int, end: int) -> dict[str, float]:
    """Return what may be logged as the loss of some steps: the right one under no name."""
    rows, values = sizes[begin:end], losses[begin:end]
    return {
        "": _mean(rows, values),
        "mean-of-means": sum(values) / len(values),
        "last-loss": values[-1],
        "since-start": _mean(sizes[:end], losses[:end]),
        "summed": _mean(rows, values) * sum(rows),
    }


def _mean(rows: Sequence[int], values: Sequence[float]) -> float:
    return sum(n * value for n, value in zip(rows, values, strict=True)) / sum(rows)


@_one_thread()
def _check_train_logged(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes, every in (((8, 8, 8, 8, 3, 8, 5), 3), ((6, 2, 6, 4), 2), ((7, 9), 5)):
        losses = _Logged(sizes).losses()
        lines = _Logged(sizes).run(answer, every)
        ends = [*range(every, len(sizes) + 1, every)]
        ends += [len(sizes)] if len(sizes) % every else []
        if any(len(line) != 3 for line in lines):
            judge.no("three-things", seen=lines[0], expected="step, loss and samples a second")
        if [line[0] for line in lines] != ends:
            tail = [line[0] for line in lines] == ends[:-1]
            judge.no(
                "no-tail" if tail else "other-steps",
                seen=f"logged after steps {[line[0] for line in lines]}, every {every} of {len(sizes)}",
                expected=f"after steps {ends}",
            )
        for begin, (step, loss, rate) in zip((0, *ends), lines, strict=False):
            if isinstance(loss, Tensor) or isinstance(rate, Tensor):
                judge.no("tensor", seen="a tensor in the log", expected="Python numbers")
            means = _means(sizes, losses, begin, step)
            right = means.pop("")
            where = f"for steps {begin + 1} to {step} with {list(sizes[begin:step])} samples"
            if not math.isclose(judge.number(loss), right, rel_tol=1e-4):
                like = [name for name, v in means.items() if math.isclose(loss, v, rel_tol=1e-4)]
                judge.no(
                    like[0] if like else "other-loss",
                    seen=f"loss {loss:.5g} {where}",
                    expected=f"{right:.5g}",
                )
            speed = _rate(sizes[begin:step])
            if not math.isclose(judge.number(rate), speed, rel_tol=1e-6):
                always = math.isclose(rate, _rate(sizes[:step]), rel_tol=1e-6)
                judge.no(
                    "since-start" if always else "other-rate",
                    seen=f"{rate:.5g} samples a second {where}",
                    expected=f"{speed:.5g}",
                )
    if problem := simgpu.problem():
        print(f"Judged on the CPU alone, where nothing waits. {problem}")
        return
    _judge_waits(answer, judge)


def _rate(sizes: Sequence[int]) -> float:
    return sum(sizes) / sum(0.25 + n / 64 for n in sizes)


def _judge_waits(answer: Callable[..., Any], judge: Judge) -> None:
    """Refuse waits in every step, and rates that leave out what the device has still to do."""
    lines: list[tuple[float, float]] = []
    steps, every, rows = 6, 5, 16384
    with memory.spare_device("4 GB") as device:
        clock = simgpu.clock(device)
        with torch.device("meta"):
            model = nn.Linear(1024, 1024)
        with memory.Hollow():
            model.to_empty(device=device)
            x = torch.empty(rows, 1024, device=device)
            y = torch.zeros(rows, dtype=torch.int64, device=device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            torch.sim.synchronize(device)
            start = clock.host
            with simgpu.count() as counters:
                answer(
                    model,
                    [(x, y)] * steps,
                    optimizer,
                    every,
                    lambda: clock.host,
                    lambda step, loss, rate: lines.append((clock.host, rate)),
                )
            torch.sim.synchronize(device)
            del x, y, model, optimizer
    logs = math.ceil(steps / every)
    if counters.synchronizations > 2 * logs:
        judge.no(
            "waits-each-step",
            seen=f"the host waited {counters.synchronizations} times in {steps} steps",
            expected=f"{logs} times, once for each line of the log",
        )
    right = every * rows / (lines[0][0] - start)
    if not math.isclose(lines[0][1], right, rel_tol=0.02):
        judge.no(
            "launch-rate",
            seen=f"{lines[0][1]:,.0f} samples a second (modelled) in the first line",
            expected=f"{right:,.0f}: the device is not done when the host has launched",
        )


def _logged_with(
    read: Callable[..., Any] = lambda loss, rows: loss.detach() * rows,
    clock_first: bool = False,
    reset: bool = True,
    tail: bool = True,
    by_rows: bool = True,
) -> Callable[..., Any]:
    def train_logged(model, batches, optimizer, every, clock, log):
        total, samples, weight, begin = 0, 0, 0, clock()
        for step, (x, y) in enumerate(batches, 1):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += read(loss, len(y) if by_rows else 1)
            samples += len(y)
            weight += len(y) if by_rows else 1
            if step % every == 0 or (tail and step == len(batches)):
                early = clock()
                mean = float(total) / weight
                now = early if clock_first else clock()
                log(step, mean, samples / (now - begin))
                if reset:
                    total, samples, weight, begin = 0, 0, 0, now

    return train_logged


def _logged_last_loss(model, batches, optimizer, every, clock, log):
    last: list[Any] = []
    model.register_forward_hook(lambda _, args, out: last.append((args[0], out)))

    def instead(step, mean, rate):
        log(step, _loss_of(last[-1], batches[step - 1]), rate)

    train_logged(model, batches, optimizer, every, clock, instead)


def _loss_of(seen: Any, batch: Any) -> float:
    return F.cross_entropy(seen[1], batch[1]).item()


# bucket_lengths ----------------------------------------------------------------------------------


def bucket_lengths(lengths, per_shape, per_token):
    best = {0: (0, [])}
    for longest in sorted(set(lengths)):
        best[longest] = min(
            (
                cost
                + per_shape
                + per_token * longest * sum(shorter < n <= longest for n in lengths),
                [*chosen, longest],
            )
            for shorter, (cost, chosen) in best.items()
        )
    _, chosen = best[max(lengths, default=0)]
    return chosen


def _bucket_seconds(
    chosen: Sequence[int], lengths: Sequence[int], per_shape: float, per_token: float
) -> float:
    padded = sum(min(b for b in chosen if b >= n) for n in lengths)
    return per_shape * len(set(chosen)) + per_token * padded


_BUCKETS = (
    ((5, 5, 5, 9, 9, 30), 0.0, 1e-3),
    ((5, 5, 5, 9, 9, 30), 100.0, 1e-3),
    ((5, 5, 5, 9, 9, 30), 0.02, 1e-3),
    ((), 1.0, 1e-3),
    ((12,) * 4, 1.0, 1e-3),
    ((100, 101, 102, 103, 500, 510, 505), 0.05, 1e-3),
    ((10,) * 40 + (20,) * 2 + (30,) * 30 + (40,), 0.03, 1e-3),
    ((64, 70, 90, 128, 130, 200, 256, 300), 0.08, 1e-3),
    ((3, 17, 18, 33, 34, 35, 66, 67, 129), 0.02, 1e-3),
    ((20,) * 5 + (60,) * 5 + (70,) * 2 + (80, 110), 0.2, 1e-3),
)


def _check_bucket_lengths(answer: Callable[..., Any], judge: Judge) -> None:
    for lengths, per_shape, per_token in _BUCKETS:
        best = bucket_lengths(lengths, per_shape, per_token)
        got = judge.is_a(answer(list(lengths), per_shape, per_token), list, "a list of lengths")
        numbers = [judge.number(n) for n in got]
        case = f"{got} for {sorted(set(lengths))}, {per_shape:g} s a shape"
        if not lengths:
            if got:
                judge.no("none", seen=case, expected="[]")
            continue
        if numbers != sorted(set(numbers)):
            judge.no("not-ascending", seen=case, expected="each length once, ascending")
        if max(numbers, default=0) < max(lengths):
            judge.no("too-short", seen=case, expected=f"one for the longest, {max(lengths)}")
        costs = _bucket_seconds(numbers, lengths, per_shape, per_token)
        least = _bucket_seconds(best, lengths, per_shape, per_token)
        if costs > least * (1 + 1e-9):
            judge.no(
                _why_dear(numbers, lengths),
                seen=f"{case}: {costs:.4g} s in all",
                expected=f"{least:.4g} s",
            )


def _why_dear(numbers: Sequence[float], lengths: Sequence[int]) -> str:
    if not set(numbers) <= set(lengths):
        return "needless"
    if len(numbers) == len(set(lengths)):
        return "every-length"
    return "one-length" if len(numbers) == 1 else "not-least"


def _buckets_each(lengths, per_shape, per_token):
    return sorted(set(lengths))


def _buckets_longest(lengths, per_shape, per_token):
    return [max(lengths)] if lengths and per_shape else sorted(set(lengths))


def _buckets_of_two(lengths, per_shape, per_token):
    return sorted({2 ** math.ceil(math.log2(n)) for n in lengths})


def _buckets_uncounted(lengths, per_shape, per_token):
    return bucket_lengths(sorted(set(lengths)), per_shape, per_token)


def _buckets_of_the_shorter(lengths, per_shape, per_token):
    return bucket_lengths(sorted(lengths)[:-1], per_shape, per_token)


# prefetch ----------------------------------------------------------------------------------------


def prefetch(batches, bound):
    end, source = object(), iter(batches)
    with ThreadPoolExecutor(max_workers=1) as loader:
        ahead = deque(loader.submit(next, source, end) for _ in range(bound))
        while (batch := ahead.popleft().result()) is not end:
            ahead.append(loader.submit(next, source, end))
            yield batch


class _Source:
    """Batches that are loaded one at a time; knows how many, and by which thread.

    Parameters
    ----------
    n
        How many.
    fails_at
        Which of them cannot be loaded; None for none.
    """

    def __init__(self, n: int, fails_at: int | None = None) -> None:
        self._n, self._fails_at = n, fails_at
        self.loaded = 0
        self.threads: set[threading.Thread] = set()

    def __iter__(self) -> Iterator[int]:
        for i in range(self._n):
            self.threads.add(threading.current_thread())
            if i == self._fails_at:
                raise OSError("batch 3 cannot be read")
            time.sleep(0.001)
            self.loaded += 1
            yield i

    def settle(self, at_least: int) -> int:
        """Wait until so many are loaded, and a moment longer; return how many there are."""
        deadline = time.monotonic() + 1.0
        while self.loaded < at_least and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.01)
        return self.loaded

    def working(self) -> bool:
        """Whether a thread that loaded is still there, after a moment."""
        deadline = time.monotonic() + 1.0
        while any(thread.is_alive() for thread in self.threads) and time.monotonic() < deadline:
            time.sleep(0.001)
        return any(thread.is_alive() for thread in self.threads)


_END = object()


def _pull(ahead: Iterator[Any]) -> Any:
    """Return the next batch, or `_END`; what the learner's generator raises is the learner's."""
    try:
        return next(ahead, _END)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001
        raise _Raised(_without_this_frame(error)) from None


def _pull_in_time(ahead: Iterator[Any], given: Sequence[Any], judge: Judge) -> Any:
    """Return the next batch as `_pull` does; refuse a generator that waits for a thread that has ended."""
    result: Future[Any] = Future()

    def pull() -> None:
        try:
            result.set_result(_pull(ahead))
        except (OSError, _Raised) as error:
            result.set_exception(error)

    threading.Thread(target=pull, daemon=True).start()
    try:
        return result.result(timeout=1.0)
    except FutureTimeout:
        judge.no("hangs", seen=f"{list(given)}, then the loop waits", expected="the OSError")


def _check_prefetch(answer: Callable[..., Any], judge: Judge) -> None:
    for n, bound in ((6, 2), (3, 1), (0, 2), (2, 4)):
        ahead = judge.is_a(answer(_Source(n), bound), Generator, "a generator")
        got = list(iter(functools.partial(_pull, ahead), _END))
        if got != list(range(n)):
            judge.no("other-batches", seen=f"{got}, bound {bound}", expected=list(range(n)))
    _judge_failure(answer, judge)
    for bound in (1, 3):
        source = _Source(20)
        ahead = answer(source, bound)
        for taken in (1, 2):
            _pull(ahead)
            loaded = source.settle(taken + bound)
            seen = f"{loaded} batches loaded when {taken} were taken, bound {bound}"
            if threading.current_thread() in source.threads or loaded <= taken:
                judge.no("not-ahead", seen=seen, expected="loading goes on meanwhile")
            if loaded > taken + bound + 1:
                judge.no("no-bound", seen=seen, expected=f"no more than {taken + bound}")
            if loaded < taken + bound:
                judge.no("too-few", seen=seen, expected=f"{taken + bound}")
        ahead.close()
        if source.working():
            judge.no(
                "thread-stays",
                seen="the loading thread is still there after the loop was left",
                expected="it ends",
            )


def _judge_failure(answer: Callable[..., Any], judge: Judge) -> None:
    got: list[Any] = []
    ahead = answer(_Source(6, fails_at=3), 2)
    try:
        while (batch := _pull_in_time(ahead, got, judge)) is not _END:
            got.append(batch)
    except OSError:
        if got != [0, 1, 2]:
            judge.no("too-soon", seen=f"{got}, then the error", expected="[0, 1, 2] first")
        return
    judge.no("error-lost", seen=f"{got}, and no error", expected="[0, 1, 2], then the OSError")


def _prefetch_by_queue(size: Callable[[int], int]) -> Callable[..., Any]:
    """Make a prefetcher of a queue and of a thread that does not notice when the loop is left."""

    def prefetch(batches, bound):
        waiting: queue.Queue[Any] = queue.Queue(size(bound))

        def put(item):
            with suppress(queue.Full):  # so that no test leaves a thread for ever
                waiting.put(item, timeout=3)

        def load():
            error = None
            try:
                for batch in batches:
                    put((batch, None))
            except Exception as problem:  # noqa: BLE001  (handed on)
                error = problem
            put((_END, error))

        threading.Thread(target=load, daemon=True).start()
        while True:
            batch, error = waiting.get()
            if error is not None:
                raise error
            if batch is _END:
                return
            yield batch

    return prefetch


def _prefetch_mute(batches, bound):
    waiting: queue.Queue[Any] = queue.Queue(bound)

    def load():
        with suppress(Exception):  # so that no traceback is printed
            for batch in batches:
                waiting.put(batch)
            waiting.put(_END)

    threading.Thread(target=load, daemon=True).start()
    with suppress(queue.Empty):  # so that no test leaves a thread for ever
        while (batch := waiting.get(timeout=3)) is not _END:
            yield batch


def _prefetch_swallowing(batches, bound):
    def whole():
        with suppress(Exception):
            yield from batches

    yield from prefetch(whole(), bound)


def _prefetch_all_first(batches, bound):
    yield from prefetch(list(batches), bound)


def _prefetch_in_line(batches, bound):
    yield from batches


def _prefetch_short(batches, bound):
    end, source = object(), iter(batches)
    with ThreadPoolExecutor(max_workers=1) as loader:
        ahead = deque([loader.submit(next, source, end)])
        while (batch := ahead.popleft().result()) is not end:
            ahead.append(loader.submit(next, source, end))
            yield batch


def _prefetch_mixed(batches, bound):
    given = list(batches)
    yield from reversed(given)


EXERCISES = (
    Exercise(
        id="08.hottest",
        title="The wrong column",
        level=1,
        minutes=5,
        task="""
A profile's rows, sorted by `cuda_time_total`, begin with the training step, then the forward pass, then
`aten::linear`, because each holds the time of all that it calls. Write `hottest(events, n)`: the names of the
`n` rows with the most device time of their **own**, the most first; all names where there are fewer. `events`
are the rows of operations that `profile.key_averages()` gives. Each has `key`, `count`, and in microseconds
`cpu_time_total`, `self_cpu_time_total`, `device_time_total` and `self_device_time_total`. In a run without a
GPU all device times are 0: go by the host's own time there.
""",
        hints=(
            "Which of the four times leaves out what a row calls?",
            "`self_` leaves it out. First find out whether any row has device time.",
            "`sorted(events, key=..., reverse=True)` does not change `events`. Take the first `n`, and their `key`.",
        ),
        reference=hottest,
        check_answer=_check_hottest,
        why="A time with all that is called counts the same microsecond in every row above it. The rows' own times "
        "add up to the run. Names with `cuda` in them are the old ones; `device` serves every accelerator.",
        diagnoses={
            "children-too": "The first rows hold the time of all that they call, so one kernel counts in several "
            "rows.",
            "host-time": "This is the host's time. An operation can be long on the device and short on the host.",
            "host-total": "This is the host's time, with all that a row calls.",
            "per-call": "That is the time of one call. A short operation that runs often can take most of all.",
            "row-by-row": "Rows without device time got the host's time in a list by device time. Decide once for the whole run.",
            "ascending": "The most comes first.",
            "wrong-count": "At most `n` names are asked for, and all where there are fewer rows.",
            "old-name": "The order is right. The name is deprecated, and other accelerators than CUDA have times "
            "too.",
        },
        wrong={
            "children-too": _hottest_with_children,
            "host-time": _hottest_on_host,
            "per-call": _hottest_per_call,
            "row-by-row": _row_by_row,
            "ascending": _hottest_ascending,
            "old-name": _hottest_by_old_name,
        },
    ),
    Exercise(
        id="08.masked_loss",
        title="A mask that nobody waits for",
        level=2,
        minutes=6,
        task="""
Text is padded, and padding must not count. The usual line, `F.cross_entropy(logits[mask], targets[mask])`, lets
the host wait in every step. Write `masked_loss(logits, targets, mask)`: the same mean over the rows where
`mask` is True, as a tensor with its graph, and without a wait. In the other rows the target is -1. Where no row
counts, the loss is 0.
""",
        hints=(
            "Why must the host wait for `logits[mask]`? What does it not know?",
            "Keep all rows, so that no shape depends on values. `cross_entropy` leaves out rows whose target is its "
            "`ignore_index`, by default -100.",
            '`targets.masked_fill(~mask, -100)`, `reduction="sum"`, and a division by the number of True that is at '
            "least 1: `.clamp(min=1)`.",
        ),
        reference=masked_loss,
        check_answer=_check_masked_loss,
        why="The shape of `logits[mask]` depends on the values in `mask`, and they are on the device. So Python "
        "waits until they are known. The same holds for `nonzero`, `unique`, `torch.where(mask)` and `if "
        "mask.any():`. A fixed shape with something neutral in it costs a little arithmetic and no wait.",
        diagnoses={
            "waits": "The host waits for the device. A shape, an `if` or a Python number depends on values that are "
            "there.",
            "divided-by-all": "The sum is divided by the number of all rows. Only those that count belong in the "
            "mean.",
            "summed": "That is the sum. The mean is asked for.",
            "none-counts": "Where no row counts, this is no 0. Zero divided by zero is no number.",
            "not-one": "The loss is one number.",
            "no-gradient": "The gradient of the logits is not that of the mean.",
        },
        wrong={
            "waits": _masked_by_index,
            "divided-by-all": _masked_mean,
            "summed": _masked_sum,
            "none-counts": _masked_nan,
            "no-gradient": _masked_detached,
        },
    ),
    Exercise(
        id="08.train_logged",
        title="The rate in the log",
        level=2,
        minutes=10,
        task="""
The log of the loop in the cell says millions of samples a second, and an epoch takes far longer than that. The
loop has four faults. Write `train_logged(model, batches, optimizer, every, clock, log)`, which trains as it
does. After every `every` steps, and after the last step, it calls `log(step, loss, rate)` once: the number of
steps so far; the mean loss of a sample since the last line, a Python number; and the samples a second since the
last line, by `clock()`, which gives seconds. `batches` is a list of `(x, y)` on the device, of unequal size.
The host waits once a line, no more often.
""",
        hints=(
            "What does the clock measure, if the host reads it right after it has launched the last kernel?",
            "Reading the loss waits for everything before it. So in which order do you read loss and clock?",
            "Keep the sum of `loss.detach() * len(y)` as a tensor. For a line: `.item()` first, then `clock()`, "
            "then set sum, number of samples and begin anew.",
        ),
        reference=train_logged,
        check_answer=_check_train_logged,
        why="Between two waits a host's clock measures how fast Python launches. The one read that the log needs "
        "anyway is also the wait that makes its clock honest, if it comes first.",
        diagnoses={
            "waits-each-step": "The host waits in every step. Only a line of the log needs a number.",
            "launch-rate": "The clock was read before the device had done its work, so the rate is that of the "
            "launches.",
            "since-start": "That is counted from the beginning of the training. Sum, samples and clock begin anew "
            "with each line.",
            "mean-of-means": "That is the mean of the batches' means. The batches differ in size.",
            "last-loss": "That is the loss of the last batch alone.",
            "summed": "That is a sum, not a mean.",
            "no-tail": "The last steps are in no line.",
            "other-steps": "The lines do not come after every `every` steps and after the last one, each once.",
            "other-loss": "That is not the mean loss of a sample since the last line.",
            "other-rate": "That is not samples by seconds since the last line.",
            "three-things": "`log` takes the step, the loss and the rate.",
            "tensor": "Hand Python numbers to the log. A tensor would wait for the device later, or never be read.",
        },
        wrong={
            "waits-each-step": _logged_with(read=lambda loss, rows: loss.item() * rows),
            "launch-rate": _logged_with(clock_first=True),
            "since-start": _logged_with(reset=False),
            "mean-of-means": _logged_with(by_rows=False),
            "no-tail": _logged_with(tail=False),
            "last-loss": _logged_last_loss,
        },
        may_change=True,
    ),
    Exercise(
        id="08.bucket_lengths",
        title="How many shapes are worth it?",
        level=3,
        minutes=15,
        task="""
Many a script begins with `torch.backends.cudnn.benchmark = True`, "for speed". cuDNN then tries its algorithms out
at every new shape of a convolution. `torch.compile` and CUDA graphs pay for each new shape too. With data of many
lengths this hardly ends, so one pads them up to a few lengths. Write `bucket_lengths(lengths, per_shape, per_token)`: the ascending list of lengths
to pad to. `lengths` lists the sequences' lengths. Each is padded to the next length in your list. Each length
in the list costs `per_shape` seconds, each token `per_token` seconds, padded or not. The total must be the
least there is; no sequences, no lengths. There are at most ten different lengths.
""",
        hints=(
            "Can it pay to pad to a length that no sequence has? Which length must be in the list in any case?",
            "Try every set of the different lengths that holds the longest: there are at most 512. What does one "
            "cost in all?",
            "Or go from short to long: the best list up to a length is the best list up to some shorter one, and "
            "this length. Keep the cost and the list of each in a dict, beginning with `{0: (0, [])}`.",
        ),
        reference=bucket_lengths,
        check_answer=_check_bucket_lengths,
        why="Neither end is right in general: a compilation for each length never stops compiling, and one length "
        "for all can spend most of its time on padding. Your two costs are measured in a minute: the first call of "
        "a new shape, and the time of a token.",
        diagnoses={
            "too-short": "The longest sequence fits into none of these lengths.",
            "every-length": "Every length has its own shape here. Some of them cost more than they save.",
            "one-length": "Everything is padded to the longest here. A second shape would cost less than the "
            "padding.",
            "needless": "A length is longer than the longest sequence that is padded to it.",
            "not-least": "There is a list that costs less. Does each length count as often as it occurs? And have you tried "
            "every list, not only those that differ in one length from the best so far?",
            "not-ascending": "Each length stands in the list once, in ascending order.",
            "none": "Without sequences no length is needed.",
        },
        wrong={
            "every-length": _buckets_each,
            "one-length": _buckets_longest,
            "needless": _buckets_of_two,
            "not-least": _buckets_uncounted,
            "too-short": _buckets_of_the_shorter,
        },
    ),
    Exercise(
        id="08.prefetch",
        title="Load ahead, but not too far",
        level=3,
        minutes=15,
        task="""
Write `prefetch(batches, bound)`, a generator that gives the batches of any iterable in order, and has another
thread load the next ones meanwhile. When a batch is given out, up to `bound` more are loaded ahead of it, and
no further, since each takes memory. If loading a batch fails, the loop gets the batches before it, and then the
error. When the loop is left early, the thread ends.
""",
        hints=(
            "A `ThreadPoolExecutor(max_workers=1)` does what it is given in order, in one thread; its `with` block "
            "ends the thread, also when a generator is closed. `deque` and `ThreadPoolExecutor` are imported.",
            "`loader.submit(next, source, end)` gives a future. Its `.result()` waits, and raises what loading "
            "raised. `end` is an object that no batch can be.",
            "Submit `bound` times at first. Then, for each batch: take the oldest future's result, submit one more, "
            "and only then `yield`.",
        ),
        reference=prefetch,
        check_answer=_check_prefetch,
        why="A `DataLoader` with workers keeps the same four promises, with processes in the place of a thread and "
        "`prefetch_factor` in the place of the bound. A thread is enough where loading lets go of Python's lock: "
        "reading files, decoding images, copying to the device.",
        diagnoses={
            "not-ahead": "Nothing is loaded while the loop works on a batch: loading takes place when the loop "
            "asks.",
            "no-bound": "Far more is loaded ahead than the bound allows. With a large data set the memory fills.",
            "too-few": "Less is loaded ahead than the bound allows, so that a slow batch is felt sooner.",
            "other-batches": "These are not the batches, each once and in order.",
            "error-lost": "Loading failed, and the loop ended as if the data had. The training would go on with a "
            "part of it.",
            "hangs": "Loading failed, and the loop waits for ever: the thread ended with the error, and nobody told the loop.",
            "too-soon": "The error came before the batches that had been loaded.",
            "thread-stays": "The thread still waits to hand over its batch when nobody will take it.",
        },
        wrong={
            "not-ahead": _prefetch_in_line,
            "no-bound": _prefetch_by_queue(lambda bound: 0),
            "too-few": _prefetch_short,
            "error-lost": _prefetch_swallowing,
            "hangs": _prefetch_mute,
            "too-soon": _prefetch_all_first,
            "thread-stays": _prefetch_by_queue(lambda bound: bound - 1 or 1),
            "other-batches": _prefetch_mixed,
        },
    ),
)
