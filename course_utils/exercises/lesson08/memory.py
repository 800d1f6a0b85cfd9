"""Exercises of lesson 08 on memory.

What a check must know of memory it finds by asking which tensors are still alive, by arithmetic, or on a
simulated device of its own. The learner's devices and tensors are left alone.
"""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import memory, simgpu
from ..core import Exercise, Judge
from ..lesson06 import _Alive, _off, _one_thread

# memory_ledger -----------------------------------------------------------------------------------


def memory_ledger():
    return [4, 4, 4, 8, 10, 10, 6, 6, 22]


LEDGER = (
    "a = torch.zeros(1024, 1024, device=device)",
    "b = a[:512]",
    "a += 1",
    "a = a + 1",
    "c = a.half()",
    "e = c.expand(8, 1024, 1024)",
    "del b",
    "del c",
    "f = e + 1",
)
"""The lines of the ledger, one after another."""

_LEDGER_WHY = (
    "first",
    "view",
    "in-place",
    "still-held",
    "half",
    "expand",
    "let-go",
    "view-holds",
    "expanded",
)


@functools.cache
def ledger(device: str = "meta") -> tuple[float, ...]:
    """Return what is allocated after each line of `LEDGER`, in MiB.

    Parameters
    ----------
    device
        Where the tensors are; on ``"meta"`` they have sizes and take no memory.
    """
    names: dict[str, Any] = {"torch": torch, "device": device}
    found = []
    for line in LEDGER:
        exec(line, names)
        storages = [t.untyped_storage() for t in names.values() if isinstance(t, Tensor)]
        sizes = {storage._cdata: storage.nbytes() for storage in storages}
        found.append(sum(sizes.values()) / 2**20)
    return tuple(found)


def _check_memory_ledger(answer: Any, judge: Judge) -> None:
    given = judge.is_a(answer, (list, tuple), "a list of nine numbers")
    if len(given) != len(LEDGER):
        judge.no("other-length", seen=f"{len(given)} numbers", expected=f"{len(LEDGER)} numbers")
    for line, guess, right, why in zip(LEDGER, given, ledger(), _LEDGER_WHY, strict=True):
        if judge.number(guess) != right:
            judge.no(why, seen=f"{guess} MiB after `{line}`", expected="another number there")


# steady_loop -------------------------------------------------------------------------------------


def steady_loop(model, batches, optimizer, device):
    hits = 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probabilities = logits.detach().softmax(1)
        hits += (probabilities.argmax(1) == y).sum()
        del probabilities
    return hits.item()


def _careful_loop(model, batches, optimizer, device):
    """The loop as it is shipped."""
    hits = 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probabilities = logits.detach().softmax(1)
        hits += (probabilities.argmax(1) == y).sum()
        del x, y, logits, loss, probabilities
        gc.collect()
        torch.get_device_module(device).empty_cache()
    return hits.item()


@contextmanager
def _collections() -> Iterator[list[int]]:
    """Count the calls of ``gc.collect`` within the block, and leave out what they do: it takes long."""
    calls: list[int] = []
    collect = gc.collect

    def counted(*args: Any) -> int:
        calls.append(1)
        return 0

    gc.collect = counted
    try:
        yield calls
    finally:
        gc.collect = collect


_STEPS = 5


def _steady_figures(loop: Callable[..., Any]) -> tuple[int, int]:
    """Return a loop's peak in bytes, and how often it asks the driver for memory after two steps."""
    asked: list[int] = []
    with memory.spare_device("2 GB") as device:
        stats = functools.partial(torch.sim.memory_stats, device)
        with torch.device("meta"):
            model = nn.Linear(64, 4096)
        with memory.Hollow():
            model.to_empty(device=device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.register_step_post_hook(lambda *_: asked.append(stats()["num_device_alloc"]))
            batch = torch.zeros(1024, 64), torch.zeros(1024, dtype=torch.int64)
            loop(model, [batch] * _STEPS, optimizer, device)
        return stats()["allocated_bytes.all.peak"], (asked[-1] - asked[1] if len(asked) > 1 else 0)


@functools.cache
def _careful_peak() -> int:
    with _collections():
        return _steady_figures(_careful_loop)[0]


def _small_training(loop: Callable[..., Any]) -> tuple[Any, list[Tensor], int]:
    """Train a small network; return what the loop returned, the change of the weights, and how often the host waited."""
    torch.manual_seed(3)
    own = memory.spare_device("1 GB") if not simgpu.problem() else nullcontext(torch.device("cpu"))
    with own as device, _collections():
        model = nn.Linear(5, 4).to(device)
        before = [p.detach().clone() for p in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        batches = [(torch.randn(n, 5), torch.randint(4, (n,))) for n in (60, 60, 20)]
        with simgpu.count() as counters:
            got = loop(model, batches, optimizer, device)
        moved = zip(model.parameters(), before, strict=True)
        moves = [(after.detach() - start).cpu() for after, start in moved]
        return got, moves, counters.synchronizations


@_one_thread()
def _check_steady_loop(answer: Callable[..., Any], judge: Judge) -> None:
    got, moved, waits = _small_training(answer)
    right, usual, least = _small_training(steady_loop)
    if judge.number(got) != right:
        judge.no("other-hits", seen=got, expected=right)
    if _off(moved, usual) > 1e-4:
        judge.no("other-weights", seen="other weights at the end", expected="those of the loop")
    if problem := simgpu.problem():
        print(f"Judged without the simulated device, so not by its memory. {problem}")
        return
    with _collections() as calls:
        peak, asked = _steady_figures(answer)
    if asked:
        judge.no(
            "emptied",
            seen=f"{asked} requests to the driver after the second of {_STEPS} steps",
            expected="none: the cache serves them",
        )
    if len(calls) > 1:
        judge.no("collects", seen=f"{len(calls)} calls of gc.collect()", expected="none")
    if waits > least:
        judge.no("waits", seen=f"the host waited {waits} times", expected=f"{least} times")
    if peak > _careful_peak() + 2**20:
        judge.no(
            "higher-peak",
            seen=f"{peak:,} bytes at the peak",
            expected=f"{_careful_peak():,}, as before",
        )


def _steady_bare(model, batches, optimizer, device):
    hits = 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probabilities = logits.detach().softmax(1)
        hits += (probabilities.argmax(1) == y).sum()
    return hits.item()


def _steady_with(after: Callable[[], Any]) -> Callable[..., Any]:
    """The loop with a read in each step, and something after it."""

    def one_by_one(model, batches, optimizer, device):
        hits = 0
        for batch in batches:
            hits += steady_loop(model, [batch], optimizer, device)
            after()
        return hits

    return one_by_one


def _steady_after_the_step(model, batches, optimizer, device):
    hits = 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        hits += (model(x).argmax(1) == y).sum()
    return hits.item()


def _steady_untrained(model, batches, optimizer, device):
    with torch.no_grad():
        pairs = [(x.to(device), y.to(device)) for x, y in batches]
        return sum((model(x).argmax(1) == y).sum().item() for x, y in pairs)


# first_tokens ------------------------------------------------------------------------------------


def first_tokens(encoder, batches):
    tokens = []
    with torch.inference_mode():
        for x in batches:
            tokens.append(encoder(x)[:, 0].clone())
    return torch.cat(tokens)


class _Encoding:
    """An encoder, and batches given out one at a time; notes what is alive when the next is asked for.

    Parameters
    ----------
    sizes
        For each batch its rows and its tokens.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], dtype: torch.dtype) -> None:
        torch.manual_seed(len(sizes))
        self.encoder = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 8)).to(dtype).eval()
        self.encoder.register_forward_hook(lambda _, args, out: self._note(out))
        self.given, self.outputs = _Alive(), _Alive()
        self.held: list[tuple[int, int]] = []
        self.graphs = 0
        self._batches = [torch.randn(*size, 3, dtype=dtype) for size in sizes]

    def _note(self, output: Tensor) -> None:
        self.outputs.add(output)
        self.graphs += output.requires_grad

    def batches(self) -> Iterator[Tensor]:
        """Give out copies of the batches, one at a time."""
        for x in self._batches:
            self.held.append((self.given.bytes, self.outputs.bytes))
            copy = x.clone()
            self.given.add(copy)
            yield copy
            del copy
        self.held.append((self.given.bytes, self.outputs.bytes))

    def expected(self) -> Tensor:
        """Return the first tokens of all rows."""
        with torch.no_grad():
            return torch.cat([self.encoder(x)[:, 0] for x in self._batches])


@_one_thread()
def _check_first_tokens(answer: Callable[..., Any], judge: Judge) -> None:
    cases = (
        ([(4, 9)] * 6, torch.float32),
        ([(5, 7), (2, 12), (3, 6), (1, 10), (4, 8), (1, 10)], torch.float64),
    )
    for sizes, dtype in cases:
        run = _Encoding(sizes, dtype)
        got = judge.is_a(answer(run.encoder, run.batches()), Tensor, "a tensor")
        if run.graphs:
            judge.no("graph", seen="outputs with a graph", expected="no graph is built")
        for which, why, what in ((1, "views", "encoder outputs"), (0, "keeps-batches", "batches")):
            early, late = run.held[2][which], run.held[-1][which]
            if late > 1.9 * early:
                sometimes = why == "views" and not early
                judge.no(
                    "some-views" if sometimes else why,
                    seen=f"{what} in memory: {early:,} bytes at the third batch, {late:,} at the end",
                    expected="no more at the end",
                )
        right = run.expected()
        if got.shape != right.shape:
            judge.no("other-shape", seen=tuple(got.shape), expected=tuple(right.shape))
        if got.dtype != dtype or not torch.allclose(got, right):
            judge.no("other-tokens", seen=got[0], expected=right[0])


def _tokens_as_views(encoder, batches):
    with torch.no_grad():
        return torch.cat([encoder(x)[:, 0] for x in batches])


def _tokens_contiguous(encoder, batches):
    with torch.no_grad():
        return torch.cat([encoder(x)[:, 0].contiguous() for x in batches])


def _tokens_detached(encoder, batches):
    return torch.cat([encoder(x).detach()[:, 0].clone() for x in batches])


def _tokens_of_one_row(encoder, batches):
    with torch.no_grad():
        return torch.cat([encoder(x)[0].clone() for x in batches])


def _tokens_at_the_end(encoder, batches):
    with torch.no_grad():
        return torch.cat([encoder(x)[:, -1].clone() for x in batches])


def _tokens_of_a_list(encoder, batches):
    return first_tokens(encoder, list(batches))


# fit_the_card ------------------------------------------------------------------------------------


def fit_the_card(capacity, batch, formats):
    plans = []
    for name, (fixed, per_sample, per_part, seconds) in formats.items():
        for parts in range(1, batch + 1):
            rows = batch // parts
            if rows * parts == batch and fixed + per_sample * rows <= 0.9 * capacity:
                plans.append((parts * per_part + batch * seconds, name, rows, parts))
    return min(plans)[1:] if plans else None


_Format = tuple[float, float, float, float]


@dataclass(frozen=True)
class _Card:
    """A card, the batch that a recipe asks for, and what each format needs on this card."""

    capacity: float
    batch: int
    formats: Mapping[str, _Format]

    def used(self, name: str, rows: int) -> float:
        """Return the bytes of a step in parts of so many rows."""
        fixed, per_sample, _, _ = self.formats[name]
        return fixed + per_sample * rows

    def seconds(self, name: str, parts: int) -> float:
        """Return the time of a step in so many parts."""
        _, _, per_part, per_sample = self.formats[name]
        return parts * per_part + self.batch * per_sample

    def __str__(self) -> str:
        return f"{self.batch} samples a step on {self.capacity / 1e9:g} GB"


_NET: dict[str, _Format] = {
    "float32": (400e6, 90e6, 0.020, 0.0040),
    "bfloat16": (450e6, 50e6, 0.022, 0.0016),
    "float16": (450e6, 50e6, 0.024, 0.0017),
}
_OLD: dict[str, _Format] = {
    "bfloat16": (450e6, 50e6, 0.022, 0.0250),  # no units for it: emulated
    "float32": (400e6, 90e6, 0.020, 0.0100),
}
_DEEP: dict[str, _Format] = {
    "fast": (200e6, 400e6, 0.050, 0.0010),
    "lean": (200e6, 40e6, 0.050, 0.0020),
}
_HEAVY: dict[str, _Format] = {
    "float16": (1100e6, 5e6, 0.010, 0.0010),
    "float32": (850e6, 10e6, 0.010, 0.0030),
}
_CARDS = (
    _Card(80e9, 256, _NET),
    _Card(8e9, 192, _NET),
    _Card(2.6e9, 96, _NET),
    _Card(6e9, 128, _OLD),
    _Card(4e9, 64, _DEEP),
    _Card(1e9, 20, _HEAVY),
    _Card(0.8e9, 7, _NET),
    _Card(1000.0, 8, {"float32": (100.0, 100.0, 0.1, 0.1)}),
    _Card(0.4e9, 32, _NET),
)


def _check_fit_the_card(answer: Callable[..., Any], judge: Judge) -> None:
    for card in _CARDS:
        got = answer(card.capacity, card.batch, dict(card.formats))
        right = fit_the_card(card.capacity, card.batch, card.formats)
        seen = f"{got} for {card}"
        if got is None or right is None:
            if got is not right:
                why = "gives-up" if got is None else "impossible"
                judge.no(why, seen=seen, expected=str(right))
            continue
        plan = judge.is_a(got, (tuple, list), "a tuple: name, rows, parts")
        if len(plan) != 3 or plan[0] not in card.formats:
            judge.no("three-things", seen=seen, expected=str(right))
        name, rows, parts = plan
        rows, parts = judge.is_a(rows, int, "whole rows"), judge.is_a(parts, int, "whole parts")
        if rows * parts != card.batch:
            judge.no("other-batch", seen=f"{seen}: {rows * parts}", expected=f"{card.batch}")
        used = card.used(name, rows) / card.capacity
        if used > 0.9:
            judge.no(
                "does-not-fit" if used > 1 else "no-margin",
                seen=f"{seen}: {used:.0%} of the card",
                expected="at most 90%",
            )
        least, needs = card.seconds(right[0], right[2]), card.seconds(name, parts)
        if needs > least:
            judge.no(
                "more-parts" if name == right[0] else "other-format",
                seen=f"{seen}: {needs:.3g} s a step",
                expected=f"{least:.3g} s",
            )


def _fit_with(
    share: float = 0.9,
    count_fixed: bool = True,
    sizes: Callable[[int], Sequence[int]] = lambda batch: [
        n for n in range(batch, 0, -1) if batch % n == 0
    ],
    by: Callable[[float, _Format], float] = lambda seconds, format: seconds,
    otherwise: Callable[[Mapping[str, _Format], int], Any] = lambda formats, batch: None,
) -> Callable[..., Any]:
    """A plan with one thing left out, or weighed otherwise."""

    def fit_the_card(capacity, batch, formats):
        found = []
        for name, format in formats.items():
            fixed, per_sample, per_part, seconds = format
            for rows in sizes(batch):
                if fixed * count_fixed + per_sample * rows <= share * capacity:
                    parts = math.ceil(batch / rows)
                    step = parts * per_part + batch * seconds
                    found.append((by(step, format), step, name, rows, parts))
        return min(found)[2:] if found else otherwise(formats, batch)

    return fit_the_card


def _halves(batch: int) -> list[int]:
    rows = [batch]
    while rows[-1] % 2 == 0:
        rows.append(rows[-1] // 2)
    return [*rows, 1]


# step_in_backward --------------------------------------------------------------------------------


def step_in_backward(model, make_optimizer):
    optimizers = {p: make_optimizer([p]) for p in model.parameters() if p.requires_grad}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(update)


class _Tower(nn.Module):
    """A network with a frozen layer, and one that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.middle = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return three numbers a row."""
        x = torch.tanh(self.frozen(torch.tanh(self.first(x))))
        for layer in (*self.middle, self.middle[0]):
            x = torch.tanh(layer(x))
        return self.last(x)


class _Training:
    """Trains the network for some steps; knows how many gradient bytes were alive at most.

    Parameters
    ----------
    make_optimizer
        Makes an optimizer of parameters.
    fuse
        What puts the step into backward; None for the plain loop.
    """

    def __init__(
        self, make_optimizer: Callable[..., Any], fuse: Callable[..., Any] | None = None
    ) -> None:
        torch.manual_seed(5)
        self.model = _Tower()
        before = [p.detach().clone() for p in self.model.parameters()]
        self.gradients = _Alive()
        for p in self.model.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(lambda p: self.gradients.add(p.grad))
        self.left, self.first = 0, []
        if fuse:
            fuse(self.model, make_optimizer)
        optimizer = None if fuse else make_optimizer(self.model.parameters())
        for rows in (4, 7, 3):
            x, y = torch.randn(rows, 6), torch.randint(3, (rows,))
            F.cross_entropy(self.model(x), y).backward()
            if optimizer:
                optimizer.step()
                optimizer.zero_grad()
            self.left += sum(p.grad is not None for p in self.model.parameters())
            parameters = zip(self.model.parameters(), before, strict=True)
            self.moved = [p.detach() - b for p, b in parameters]
            self.first = self.first or self.moved


_MAKERS = (
    functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    functools.partial(torch.optim.Adam, lr=0.01),
)


@_one_thread()
def _check_step_in_backward(answer: Callable[..., Any], judge: Judge) -> None:
    for make_optimizer in _MAKERS:
        usual = _Training(make_optimizer)
        got = _Training(make_optimizer, answer)
        trained = [p.requires_grad for p in got.model.parameters()]
        still = sum(bool(t and not m.any()) for t, m in zip(trained, got.first, strict=True))
        if still:
            judge.no(
                "none-moved" if still == sum(trained) else "some-moved",
                seen=f"{still} of {sum(trained)} parameters are as before the first backward()",
                expected="all of them trained",
            )
        if got.left:
            judge.no("gradients-stay", seen="gradients after backward()", expected="none is left")
        most = max(p.nbytes for p in got.model.parameters())
        if got.gradients.peak > 2 * most:
            judge.no(
                "all-at-once",
                seen=f"{got.gradients.peak:,} bytes of gradients at once",
                expected=f"about {most:,}, the largest one; all together are "
                f"{usual.gradients.peak:,}",
            )
        off = _off(got.moved, usual.moved)
        if off > 1e-4:
            judge.no(
                "other-weights",
                seen=f"weights whose change is {off:.0%} off after three steps",
                expected="those of backward(), step() and zero_grad()",
            )


def _fused_late_binding(model, make_optimizer):
    for parameter in model.parameters():
        if parameter.requires_grad:
            optimizer = make_optimizer([parameter])

            def update(parameter):
                optimizer.step()  # noqa: B023  (this is the fault)
                optimizer.zero_grad()  # noqa: B023

            parameter.register_post_accumulate_grad_hook(update)


def _fused_too_early(model, make_optimizer):
    for parameter in model.parameters():
        if parameter.requires_grad:
            optimizer = make_optimizer([parameter])
            parameter.register_hook(lambda gradient, optimizer=optimizer: optimizer.step())


def _fused_without_clearing(model, make_optimizer):
    optimizers = {p: make_optimizer([p]) for p in model.parameters() if p.requires_grad}
    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())


def _fused_at_the_last(model, make_optimizer):
    optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])

    def update(parameter):
        optimizer.step()
        optimizer.zero_grad()

    model.first.weight.register_post_accumulate_grad_hook(update)
    model.first.bias.register_post_accumulate_grad_hook(update)


def _fused_new_each_time(model, make_optimizer):
    def update(parameter):
        make_optimizer([parameter]).step()
        parameter.grad = None

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(update)


# choose_checkpoints ------------------------------------------------------------------------------


def choose_checkpoints(blocks, budget):
    def peak(chosen):
        kept = most = 0
        for number, (entry, inside, _) in enumerate(blocks):
            kept += entry
            most = max(most, kept + inside)
            if number not in chosen:
                kept += inside
        return most

    def seconds(chosen):
        return sum(blocks[number][2] for number in chosen)

    numbers = range(len(blocks))
    choices = [{n for n in numbers if bits >> n & 1} for bits in range(2 ** len(blocks))]
    return min((c for c in choices if peak(c) <= budget), key=seconds, default=None)


def _peak_of(blocks: Sequence[tuple[int, int, float]], chosen: set[int]) -> int:
    kept = [entry + (0 if n in chosen else inside) for n, (entry, inside, _) in enumerate(blocks)]
    return max(sum(kept[:n]) + entry + inside for n, (entry, inside, _) in enumerate(blocks))


def _seconds_of(blocks: Sequence[tuple[int, int, float]], chosen: set[int]) -> float:
    return sum(blocks[n][2] for n in chosen)


_EQUAL = tuple((10, 40, 1.0) for _ in range(6))
_MIXED = ((8, 60, 6.0), (8, 30, 1.0), (8, 60, 6.0), (8, 30, 1.0), (16, 20, 3.0), (8, 80, 2.0))
_PLANS = (
    (_EQUAL, 1000),
    (_EQUAL, 300),
    (_EQUAL, 299),
    (_EQUAL, 180),
    (_MIXED, 290),
    (_MIXED, 250),
    (_MIXED, 200),
    (_EQUAL, 100),
    (_EQUAL, 99),
    (((4, 9, 5.0), (4, 5, 2.0), (4, 5, 2.0), (4, 1, 1.0)), 26),
    (((4, 90, 1.0), (4, 10, 1.0), (4, 10, 9.0)), 94),
    (((5, 7, 2.0),), 12),
    (((5, 7, 2.0),), 11),
)


def _check_choose_checkpoints(answer: Callable[..., Any], judge: Judge) -> None:
    for plan, budget in _PLANS:
        blocks = list(plan)
        best = choose_checkpoints(blocks, budget)
        case = f"for {len(blocks)} blocks in {budget} MB"
        got = answer(blocks, budget)
        if got is None or best is None:
            if got is not best:
                why = "gives-up" if got is None else "impossible"
                judge.no(why, seen=f"{got} {case}", expected=best if got is None else "None")
            continue
        judge.is_a(got, (set, frozenset, list, tuple), "a set of block numbers")
        chosen = {judge.is_a(number, int, "whole block numbers") for number in got}
        if not chosen <= set(range(len(blocks))):
            judge.no("no-block", seen=f"{got} {case}", expected="numbers from 0 on")
        peak, extra = _peak_of(blocks, chosen), _seconds_of(blocks, chosen)
        if peak > budget:
            judge.no(
                "does-not-fit",
                seen=f"{sorted(chosen)} {case}: {peak} MB at the peak",
                expected=f"at most {budget} MB",
            )
        least = _seconds_of(blocks, best)
        if extra > least + 1e-9:
            without = _seconds_of(blocks, chosen - {len(blocks) - 1})
            judge.no(
                "last-block" if without <= least + 1e-9 else "too-dear",
                seen=f"{sorted(chosen)} {case}: {extra:g} s more",
                expected=f"{least:g} s more is enough",
            )


def _plan_by_size(blocks, budget):
    chosen = set()
    for number in sorted(range(len(blocks)), key=lambda n: -blocks[n][1]):
        if _peak_of(blocks, chosen) > budget:
            chosen.add(number)
    return chosen if _peak_of(blocks, chosen) <= budget else None


def _plan_without_turn(blocks, budget):
    numbers = range(len(blocks))
    choices = [{n for n in numbers if bits >> n & 1} for bits in range(2 ** len(blocks))]

    def kept(chosen):
        return sum(e + (0 if n in chosen else i) for n, (e, i, _) in enumerate(blocks))

    fitting = [c for c in choices if kept(c) <= budget]
    return min(fitting, key=lambda c: _seconds_of(blocks, c), default=None)


def _plan_with_last(blocks, budget):
    right = choose_checkpoints(blocks, budget)
    return right | {len(blocks) - 1} if right else right


def _plan_none_fits(blocks, budget):
    return set() if _peak_of(blocks, set()) <= budget else None


def _plan_hopeful(blocks, budget):
    right = choose_checkpoints(blocks, budget)
    return set(range(len(blocks))) if right is None else right


EXERCISES = (
    Exercise(
        # 4 MiB: arithmetic 4 * 1024 * 1024 / 2**20
        id="08.memory_ledger",
        title="Nine lines of a ledger",
        level=1,
        minutes=5,
        task="""
A float32 tensor of 1024 × 1024 takes 4 MiB. Nothing is on the device at first. How many MiB do tensors take
there after each of these lines?

```python
a = torch.zeros(1024, 1024, device=device)
b = a[:512]
a += 1
a = a + 1
c = a.half()
e = c.expand(8, 1024, 1024)
del b
del c
f = e + 1
```

Answer with a list of nine numbers.
""",
        hints=(
            "For each line ask two questions. Does it make new memory, or a new name or view of memory that is "
            "there? And has any memory lost its last owner?",
            "Slicing and `expand` make views, `+=` works in place, and `a + 1` makes a new tensor. `b` looks into "
            "the first `a`.",
            "Memory is free when nobody looks into it any more, by whatever name. The second `a` is still there at "
            "the end.",
        ),
        reference=memory_ledger,
        check_answer=_check_memory_ledger,
        why="Memory belongs to storages, and a tensor is a way to look at one. So half a tensor holds the whole, "
        "`del` frees only what has no other owner, and an expanded tensor costs nothing until an operation writes it "
        "out.",
        diagnoses={
            "other-length": "There are nine lines, so there are nine numbers.",
            "first": "1024 × 1024 numbers of 4 bytes each.",
            "view": "A slice copies nothing. It looks into the memory that is there.",
            "in-place": "`+=` writes into the memory that `a` has.",
            "still-held": "`a + 1` is a new tensor, and the name `a` goes to it. Who else looks into the old one?",
            "half": "`.half()` makes a copy of 2 bytes a number. `a` is still there.",
            "expand": "`expand` makes a view too: it says how often to read the same numbers.",
            "let-go": "With `b` goes the last view of the first tensor, and then its whole memory goes.",
            "view-holds": "`del` takes away a name. Does anybody else look into what `c` was?",
            "expanded": "The sum has 8 × 1024 × 1024 numbers of its own. In which dtype are they?",
        },
        wrong={
            "view": [4, 6, 6, 10, 12, 12, 10, 8, 24],
            "in-place": [4, 4, 8, 8, 10, 10, 6, 6, 22],
            "still-held": [4, 4, 4, 4, 6, 6, 6, 6, 22],
            "half": [4, 4, 4, 8, 6, 6, 2, 2, 18],
            "expand": [4, 4, 4, 8, 10, 26, 22, 20, 36],
            "let-go": [4, 4, 4, 8, 10, 10, 10, 10, 26],
            "view-holds": [4, 4, 4, 8, 10, 10, 6, 4, 20],
            "expanded": [4, 4, 4, 8, 10, 10, 6, 6, 38],
            "other-length": [4, 8],
        },
    ),
    Exercise(
        # 512 times: arithmetic 512 / 1
        id="08.first_tokens",
        title="A little of each batch",
        level=1,
        minutes=5,
        task="""
`encoder(x)` gives a tensor of rows × tokens × width, and of each row only the first token is wanted. Write
`first_tokens(encoder, batches)`: one tensor with the first token of every row of every batch, in order.
`batches` gives tensors one at a time, of unequal numbers of rows and tokens; the encoder is in eval mode. What
stays in memory from batch to batch must be no more than what is wanted.
""",
        hints=(
            "How large is the memory behind `encoder(x)[:, 0]`?",
            "A view holds all of the storage that it looks into. Which method makes a tensor that owns its numbers?",
            "Under `torch.inference_mode()`, append `encoder(x)[:, 0].clone()` to a list, and `torch.cat` it after "
            "the loop.",
        ),
        reference=first_tokens,
        check_answer=_check_first_tokens,
        why="With 512 tokens a row, a list of views holds 512 times what you see in it. The same trap waits in "
        "`x[0]` kept as an example, and in `.cpu()` on a machine without a GPU, where it copies nothing.",
        diagnoses={
            "views": "The whole outputs are still in memory: each slice looks into one, and holds it.",
            "some-views": "Some slices still look into a whole output. `.contiguous()` copies only where it must, and the slice of a "
            "batch with one row has no gaps.",
            "graph": "The forward passes build graphs, and a graph holds activations.",
            "keeps-batches": "All batches are in memory at the end. Something holds them: `list(batches)`, for "
            "example.",
            "other-shape": "One row of numbers for each row of each batch is asked for.",
            "other-tokens": "These are not the first tokens of all rows, in order and in the encoder's dtype.",
        },
        wrong={
            "views": _tokens_as_views,
            "some-views": _tokens_contiguous,
            "graph": _tokens_detached,
            "keeps-batches": _tokens_of_a_list,
            "other-shape": _tokens_of_one_row,
            "other-tokens": _tokens_at_the_end,
        },
    ),
    Exercise(
        id="08.steady_loop",
        title="Three lines against running out of memory",
        level=2,
        minutes=6,
        task="""
After an out-of-memory error somebody ended the body of this loop with three lines: `del`, `gc.collect()` and
`empty_cache()`. A part of one of them lowers the peak. The rest costs time, or does nothing. Write
`steady_loop(model, batches, optimizer, device)` without what does not help. It trains as before, needs no more
memory at its highest moment, lets the host wait no more often, and returns how many samples were classified
right, each by the output of its own step.
""",
        hints=(
            "The memory is fullest in the middle of a step. Which large tensor of the step before is still alive "
            "then?",
            "A name holds its tensor until it gets another one. `logits` gets another in the forward pass. And "
            "`probabilities`?",
            "`gc.collect()` finds objects that refer to each other, and there are none here. What `empty_cache()` "
            "gives back, the next step must ask for again. Of the `del`, one name is worth it.",
        ),
        reference=steady_loop,
        check_answer=_check_steady_loop,
        why="What the end of one turn makes is still alive at the highest moment of the next, because its name is "
        "only then given anew. With the logits of a large vocabulary that is gigabytes. `del` the name, do without "
        "the tensor (the largest logit is the largest probability), or put the step into a function, whose names "
        "end with it. The cache needs no help: the next step wants the same sizes.",
        diagnoses={
            "emptied": "The cache is still given back to the driver, and asked for again in each step. On a GPU "
            "both make the host wait.",
            "collects": "`gc.collect()` walks through all objects of the process, and frees no tensor here.",
            "higher-peak": "The peak is higher than before. A large tensor of one step is still alive when the next "
            "one needs most.",
            "waits": "The host waits for the count in each step. Leave the sum on the device, and read it once.",
            "other-hits": "That is not how many were right, each by the output of its own step.",
            "other-weights": "The model is not trained as before.",
        },
        wrong={
            "emptied": _careful_loop,
            "collects": _steady_with(lambda: gc.collect()),
            "higher-peak": _steady_bare,
            "waits": _steady_with(lambda: None),
            "other-hits": _steady_after_the_step,
            "other-weights": _steady_untrained,
        },
    ),
    Exercise(
        id="08.fit_the_card",
        title="Batch, parts and format for a card",
        level=2,
        minutes=10,
        task="""
A recipe asks for `batch` samples an optimiser step. On a small card they come in parts of **equal** size, whose
gradients accumulate. Write `fit_the_card(capacity, batch, formats)`: the tuple `(format, rows of a part, number of
parts)` whose step takes the least time; None where nothing fits. `capacity` is the card's bytes, of which a tenth stays
free. `formats` maps names, such as `"bfloat16"`, to four figures that were measured on this card as in A3: the fixed
bytes, the bytes that each row of a part adds, the seconds that each part costs, however small, and the seconds of each
sample.
""",
        hints=(
            "Which sizes can a part have, if all are equal and together just the batch? They are few enough to try them all.",
            "For one format and one number of parts ask two things. Does it fit? And how long is a step: `parts` times the "
            "seconds of a part, and `batch` times the seconds of a sample?",
            "Collect tuples `(seconds, name, rows, parts)` of all that fits, over all formats and all divisors of `batch`. "
            "`min` goes by the first entry.",
        ),
        reference=fit_the_card,
        check_answer=_check_fit_the_card,
        why="The batch belongs to the recipe: with another one you would need another learning rate. The card decides only "
        "in how many parts it comes, and in which format. What counts is the time of a step, neither the largest part nor the "
        "fewest bytes: on a card without units for it, a 16-bit format can be the slow one.",
        diagnoses={
            "other-batch": "The parts do not add up to the batch of the recipe.",
            "does-not-fit": "This needs more than the card has. There is a fixed part, whatever the batch.",
            "no-margin": "This leaves less than a tenth of the card free.",
            "more-parts": "The format is right, and fewer parts of equal size would fit too. Each part costs its seconds.",
            "other-format": "In another format the step takes less time, its parts counted.",
            "gives-up": "There is a plan that fits.",
            "impossible": "Nothing fits here, not even parts of one row.",
            "three-things": "Return three things: the name of a format, the rows of a part, the number of parts.",
        },
        wrong={
            "other-batch": _fit_with(sizes=lambda batch: range(batch, 0, -1)),
            "does-not-fit": _fit_with(count_fixed=False),
            "no-margin": _fit_with(share=1.0),
            "more-parts": _fit_with(sizes=_halves),
            "other-format": _fit_with(by=lambda seconds, format: format[3]),
            "gives-up": _fit_with(sizes=lambda batch: [batch]),
            "impossible": _fit_with(otherwise=lambda formats, batch: (min(formats), 1, batch)),
        },
    ),
    Exercise(
        id="08.step_in_backward",
        title="Gradients that never meet",
        level=3,
        minutes=10,
        task="""
Between `backward()` and `step()` every gradient is in memory at once, as large as the model. Write
`step_in_backward(model, make_optimizer)`: after it, each `loss.backward()` also trains. As soon as a
parameter's gradient is complete, the parameter is updated, and its gradient freed. `make_optimizer(parameters)`
makes an optimizer of a list of parameters. Some parameters are frozen; one module is used twice. The weights
must be those of `backward()`, `step()` and `zero_grad()`.
""",
        hints=(
            "Autograd must call you when a gradient is complete and in `.grad`. Look through the methods of a tensor "
            "that have `hook` in their name.",
            "`parameter.register_post_accumulate_grad_hook(f)` calls `f(parameter)` when `parameter.grad` is "
            "complete. Momentum must last from step to step, so make the optimizers once, one a parameter.",
            "Keep the optimizers in a dict with the parameters as keys. In the hook: step, then `zero_grad()`, "
            "which sets the gradient to None.",
        ),
        reference=step_in_backward,
        check_answer=_check_step_in_backward,
        why="Now there is room for one gradient in the place of all: a quarter less of what Adam in float32 needs "
        "beside the activations. The price: no clipping by the norm of all gradients, no accumulation, and no "
        "GradScaler, because each of them must see all gradients before the first step.",
        diagnoses={
            "none-moved": "No parameter changed. Was the gradient already in `.grad` when your hook ran? Before it "
            "is accumulated, `.grad` is None, and the step has nothing to do.",
            "some-moved": "Only some parameters changed. A function made in a loop looks up the loop's names when "
            "it is called, and then they hold what the last turn left.",
            "gradients-stay": "Gradients are left after `backward()`, and the next ones are added to them.",
            "all-at-once": "Most gradients were in memory at once: they were freed only at the end.",
            "other-weights": "The weights are not those of the plain loop. What an optimizer remembers must last "
            "from step to step.",
        },
        wrong={
            "none-moved": _fused_too_early,
            "some-moved": _fused_late_binding,
            "gradients-stay": _fused_without_clearing,
            "all-at-once": _fused_at_the_last,
            "other-weights": _fused_new_each_time,
        },
        may_change=True,
    ),
    Exercise(
        id="08.choose_checkpoints",
        title="Which blocks to compute twice",
        level=3,
        minutes=15,
        task="""
Checkpointing all blocks is seldom the best. Write `choose_checkpoints(blocks, budget)`. `blocks` lists, in
their order, each block's `(entry, inside, seconds)`: the MB of its input, the MB that it makes inside for
backward, and how long its forward pass takes. There are at most ten.

Until its turn in backward, a block keeps its entry and its inside; a checkpointed one keeps its entry only, and
makes the inside again when its turn comes, for `seconds` more. Backward goes from the last block to the first.
What a block kept is free after its turn.

Return the set of the numbers (from 0) of the blocks to checkpoint, so that never more than `budget` MB are in
use and the least time is added; None where no choice fits.
""",
        hints=(
            "How much is in memory at the turn of block i? All entries up to i; the inside of i, checkpointed or "
            "not; and what of the blocks before it?",
            "The fullest moment is the largest of these sums over all turns. For ten blocks there are only 1024 "
            "choices to try.",
            "Write `peak(chosen)` with one loop over the blocks from the first, which carries what is kept so far. "
            "The numbers from 0 to `2 ** n - 1` are all choices, if bit k stands for block k.",
        ),
        reference=choose_checkpoints,
        check_answer=_check_choose_checkpoints,
        why="Two things to take with you. The last block is never worth it: its turn comes at once, while all the "
        "others are still there. And blocks differ: activation functions, norms and dropout fill much memory in "
        "little time, products the other way round. PyTorch's compiler can weigh single operations in this way, given "
        "a budget of memory.",
        diagnoses={
            "does-not-fit": "At some moment this needs more than the budget. At its turn a checkpointed block has "
            "its inside in memory too.",
            "too-dear": "It fits, and another choice that fits adds less time.",
            "last-block": "The last block is computed twice for nothing: its turn comes first, when everything "
            "before it is still in memory.",
            "gives-up": "There is a choice that fits.",
            "impossible": "Nothing fits here, so there is nothing to choose.",
            "no-block": "There is no such block.",
        },
        wrong={
            "does-not-fit": _plan_without_turn,
            "too-dear": _plan_by_size,
            "last-block": _plan_with_last,
            "gives-up": _plan_none_fits,
            "impossible": _plan_hopeful,
        },
    ),
)
