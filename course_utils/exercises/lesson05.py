"""Exercises of lesson 05, several GPUs.

What an answer does with other ranks is judged on the simulated cluster, where ranks are threads on a
virtual clock: it is deterministic, and a hang shows at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .. import cluster
from .core import Exercise, Judge, _NotTried, _NotYet, _Raised

# What several checks use -------------------------------------------------------------------------


def _on_ranks(
    program: Callable[..., Any],
    answer: Callable[..., Any],
    ranks: int,
    judge: Judge,
    hang: str,
    mismatch: str = "",
) -> cluster.Run:
    """Run ``program(dist, answer)`` on each rank.

    Ranks that wait for ever are refused as ``hang``, calls that do not fit together as ``mismatch``, or
    as ``hang`` too.
    """

    def call(*arguments: Any) -> Any:
        try:
            return answer(*arguments)
        except _Raised as raised:  # the cluster must see what it was, and tells its own from it
            raise raised.error from None

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several would only wait for each other, the tensors are tiny
    try:
        return cluster.run(lambda dist: program(dist, call), ranks=ranks)
    except cluster.Deadlock as error:
        judge.no(hang, seen=str(error), expected="no rank that waits for ever")
    except cluster.Mismatch as error:
        judge.no(mismatch or hang, seen=str(error), expected="the same calls on every rank")
    except (_NotTried, _NotYet):
        raise
    except Exception as error:  # noqa: BLE001  (whatever it was, it is the learner's)
        raise _Raised(error) from None
    finally:
        torch.set_num_threads(threads)


# average_gradients -------------------------------------------------------------------------------


def average_gradients(model, dist):
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class _Branches(nn.Module):
    """Four layers; rank 1 did not use the second, and the third is frozen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 2)
        self.second = nn.Linear(2, 2, bias=False)
        self.third = nn.Linear(2, 2).requires_grad_(False)
        self.last = nn.Linear(2, 1).double()


def _with_gradients(rank: int, unused: bool) -> _Branches:
    """Return the model with the gradients of a rank, as if after a backward pass."""
    model = _Branches()
    for number, parameter in enumerate(model.parameters()):
        if parameter.requires_grad:
            values = torch.arange(1.0, parameter.numel() + 1) + 10 * number
            own = (rank + 1) ** 2 * values.roll(rank)  # no rank's is a multiple of another's
            parameter.grad = own.view_as(parameter).to(parameter.dtype)
    if unused and rank == 1:
        model.second.weight.grad = None
    return model


def _check_average_gradients(answer: Callable[..., Any], judge: Judge) -> None:
    for ranks, unused in ((2, False), (3, False), (3, True), (2, True), (1, False)):

        def program(dist: Any, call: Callable[..., Any], unused: bool = unused) -> _Branches:
            model = _with_gradients(dist.get_rank(), unused)
            call(model, dist)
            return model

        hang = "none-skipped" if unused else "one-rank"
        models = _on_ranks(program, answer, ranks, judge, hang).results
        before = [_with_gradients(rank, unused) for rank in range(ranks)]
        for rank, model in enumerate(models):
            _judge_averages(model, before, rank, judge)


def _judge_averages(model: _Branches, before: Sequence[_Branches], rank: int, judge: Judge) -> None:
    """Compare the gradients on a rank with the mean over all ranks."""
    ranks = len(before)
    start = dict(before[0].named_parameters())
    for name, parameter in model.named_parameters():
        if not torch.equal(parameter, start[name]):
            judge.no("parameters", seen=f"{name} has changed", expected="only its gradient changed")
        where = f"the gradient of {name} on rank {rank} of {ranks}"
        if not parameter.requires_grad:
            if parameter.grad is not None:
                judge.no("frozen", seen=where, expected=f"none: {name} is frozen")
            continue
        each = [dict(other.named_parameters())[name] for other in before]
        given = [torch.zeros_like(p) if p.grad is None else p.grad for p in each]
        total = torch.stack(given).sum(0)
        users = sum(p.grad is not None for p in each)
        if parameter.grad is None:
            judge.no("not-kept", seen=f"{where} is None", expected=_values(total / ranks))
        if not torch.allclose(parameter.grad, total / ranks, rtol=1e-5):
            known = {
                "not-divided": total,
                "own": given[rank],
                "own-divided": given[rank] / ranks,
                "users-only": total / users,
                "other-count": (parameter.grad / total).mean() * total,
            }
            like = [key for key, value in known.items() if torch.allclose(parameter.grad, value)]
            why = like[0] if like else "wrong-value"
            judge.no(
                "one-rank" if why == "own" and rank else why,
                seen=f"{where}: {_values(parameter.grad)}",
                expected=_values(total / ranks),
            )


def _values(tensor: Tensor) -> str:
    values = tensor.detach().flatten().tolist()
    return f"[{', '.join(f'{v:.4g}' for v in values[:6])}{', …' if len(values) > 6 else ''}]"


def _average_skipping_none(model, dist):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def _average_not_kept(model, dist):
    for parameter in model.parameters():
        if parameter.requires_grad:
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(grad)
            grad /= dist.get_world_size()


def _average_summed(model, dist):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)


def _average_by_two(model, dist):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2


def _average_of_users(model, dist):
    for parameter in model.parameters():
        if parameter.requires_grad:
            users = torch.tensor(float(parameter.grad is not None))
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            dist.all_reduce(users)
            parameter.grad /= users


def _average_called_by_one(model, dist):
    if dist.get_rank() == 0:
        average_gradients(model, dist)


def _average_copies(model, dist):
    for parameter in model.parameters():
        if parameter.grad is not None:
            mean = parameter.grad.clone()
            dist.all_reduce(mean)
            mean /= dist.get_world_size()


def _average_dividing_only(model, dist):
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad.clone())
            parameter.grad /= dist.get_world_size()


def _average_parameters(model, dist):
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size() + 1


def _average_all(model, dist):
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


# shard -------------------------------------------------------------------------------------------


def shard(n, rank, world_size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    length = math.ceil(n / world_size)
    padded = (order * world_size)[: length * world_size]
    return padded[rank::world_size]


_SHARDS = ((12, 3), (10, 4), (7, 2), (40, 1), (3, 8), (50, 6))


def _check_shard(answer: Callable[..., Any], judge: Judge) -> None:
    for n, ranks in _SHARDS:
        _judge_shards(answer, n, ranks, judge)
    first, later, other = (_order(answer, 50, *key, judge) for key in ((0, 3), (1, 3), (0, 8)))
    steps = Counter((after - before) % 50 for before, after in pairwise(first[:25]))
    if max(steps.values(), default=0) > 12:
        judge.no("not-shuffled", seen=f"rows {first[:8]} … in epoch 0", expected="a random order")
    if first == later:
        judge.no("same-every-epoch", seen="epochs 0 and 1 alike", expected="another order")
    for rank, rows in enumerate((later[:25], later[25:])):
        if {*rows} == {*first[:25]}:
            judge.no(
                "same-rows",
                seen=f"rank {rank} has in epoch 1 the 25 rows of 50 that rank 0 had in epoch 0",
                expected="another choice",
            )
    if first == other:
        judge.no("no-seed", seen="seeds 3 and 8 alike", expected="another order")


def _judge_shards(answer: Callable[..., Any], n: int, ranks: int, judge: Judge) -> None:
    """Refuse the rows of an epoch that are no fair division of ``n`` rows."""
    shards = [_rows(answer, n, rank, ranks, 2, 3, judge) for rank in range(ranks)]
    seen = f"{n} rows for {ranks} ranks: {_some(shards)}"
    length, sizes = math.ceil(n / ranks), sorted({len(rows) for rows in shards})
    covered = {row for rows in shards for row in rows}
    if covered - set(range(n)):
        judge.no("other-rows", seen=seen, expected=f"row numbers from 0 to {n - 1}")
    if len(sizes) > 1:
        judge.no("unequal", seen=seen, expected=f"{length} rows on each rank")
    if ranks > 1 and sizes == [n] and n > 1:
        judge.no("all-rows", seen=seen, expected=f"{length} rows on each rank")
    if sizes[0] < length:
        judge.no("drops-rows", seen=seen, expected=f"{length} rows on each rank")
    if sizes[0] > length:
        judge.no("too-long", seen=seen, expected=f"{length} rows on each rank")
    if len(covered) < n:
        judge.no("own-order", seen=seen, expected=f"all {n} rows, over all ranks")


def _rows(
    answer: Callable[..., Any],
    n: int,
    rank: int,
    ranks: int,
    epoch: int,
    seed: int,
    judge: Judge,
) -> list[int]:
    """Call the answer as a rank does, whose own random numbers are in a state of their own."""
    torch.manual_seed(1000 + rank)
    with judge.own_generator():
        got = answer(n, rank, ranks, epoch, seed)
    if isinstance(got, (Tensor, np.ndarray)):
        got = got.tolist()
    rows = judge.is_a(got, (list, tuple, range), "a list of row numbers")
    return [int(judge.is_a(row, Integral, "whole row numbers")) for row in rows]


def _order(
    answer: Callable[..., Any], n: int, epoch: int, seed: int, judge: Judge
) -> list[list[int]]:
    return [row for rank in (0, 1) for row in _rows(answer, n, rank, 2, epoch, seed, judge)]


def _some(shards: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"rank {rank} {list(rows)[:5]}" for rank, rows in enumerate(shards[:4]))


def _shard_own_order(n, rank, world_size, epoch, seed):
    return shard(n, rank, world_size, epoch, seed + 100 * rank)


def _shard_same_every_epoch(n, rank, world_size, epoch, seed):
    return shard(n, rank, world_size, 0, seed)


def _shard_unequal(n, rank, world_size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    return torch.randperm(n, generator=generator).tolist()[rank::world_size]


def _shard_drops(n, rank, world_size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    length = n // world_size
    return torch.randperm(n, generator=generator).tolist()[rank * length : (rank + 1) * length]


def _shard_global(n, rank, world_size, epoch, seed):
    torch.manual_seed(seed + epoch)
    order = torch.randperm(n).tolist()
    return (order * world_size)[: math.ceil(n / world_size) * world_size][rank::world_size]


def _shard_in_order(n, rank, world_size, epoch, seed):
    length = math.ceil(n / world_size)
    return [(rank * length + i) % n for i in range(length)]


def _shard_cut_first(n, rank, world_size, epoch, seed):
    rows = _shard_in_order(n, rank, world_size, epoch, seed)
    return [rows[i] for i in shard(len(rows), 0, 1, epoch, seed)]


def _shard_all(n, rank, world_size, epoch, seed):
    return shard(n, 0, 1, epoch, seed + rank)


# accumulate --------------------------------------------------------------------------------------


def accumulate(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)

    def add_gradient(x, y):
        (loss_fn(model(x), y) * len(x) / rows).backward()

    optimizer.zero_grad()
    with model.no_sync():
        for part in parts[:-1]:
            add_gradient(*part)
    add_gradient(*parts[-1])
    optimizer.step()


class _Noting(cluster.DistributedDataParallel):
    """A DDP model that notes its passes in order: which, and whether it ran as in ``no_sync``."""

    def __init__(self, model: nn.Module, dist: Any) -> None:
        super().__init__(model, dist)
        self.rows: list[int] = []
        self.passes: list[tuple[str, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        """Note the pass, then make it."""
        self.rows.append(len(x))
        self._note_pass("forward")
        output = super().forward(x)
        output.register_hook(lambda _: self._note_pass("backward"))
        return output

    def _note_pass(self, name: str) -> None:
        self.passes.append((name, not self.require_backward_grad_sync))


_PARTS = (
    ((5, 3, 2), (4, 4, 2)),
    ((2, 5, 3), (2, 5, 3)),
    ((6, 1, 1), (3, 5)),
    ((4, 4), (4, 4)),
    ((7,), (7,)),
)
"""For each case and rank, how many rows each part has."""


def _check_accumulate(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes in _PARTS:
        shards = [_parts(part_sizes, rank) for rank, part_sizes in enumerate(sizes)]

        def program(dist: Any, call: Callable[..., Any], shards: Any = shards) -> tuple[Any, ...]:
            model, optimizer, steps = _stale_model(dist)
            call(model, shards[dist.get_rank()], F.cross_entropy, optimizer)
            return model, len(steps)

        run = _on_ranks(program, answer, len(sizes), judge, "ranks-wait")
        for rank, (model, steps) in enumerate(run.results):
            sent = sum(s.rank == rank and s.name == "all_reduce" for s in run.spans)
            _judge_passes(model, steps, sent, sizes[rank], judge)
        _judge_weights(run.results[0][0], sizes, judge)


def _parts(sizes: Sequence[int], rank: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(7 + rank)
    return [
        (torch.randn(n, 3, generator=generator), (torch.arange(n) + i) % 3)
        for i, n in enumerate(sizes)
    ]


def _stale_model(dist: Any) -> tuple[_Noting, torch.optim.Optimizer, list[int]]:
    """Return a model with gradients left over, its optimiser, and a list that grows with its steps."""
    torch.manual_seed(0)
    model = _Noting(nn.Linear(3, 3), dist)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: steps.append(1))
    return model, optimizer, steps


def _judge_passes(
    model: _Noting, steps: int, sent: int, sizes: Sequence[int], judge: Judge
) -> None:
    """Refuse passes that do not go through the parts one by one, or send at the wrong one."""
    order = [name for name, _ in model.passes]
    inside = {name: [flag for which, flag in model.passes if which == name] for name in {*order}}
    parts = f"{len(sizes)} parts of {_words(sizes)} rows"
    if len(sizes) > 1 and (max(model.rows, default=0) > max(sizes) or order[:2] == ["forward"] * 2):
        judge.no(
            "all-at-once",
            seen=f"{parts}, and {order.count('forward')} forward passes before a backward pass",
            expected="a forward and a backward pass for each part, one part after the other",
        )
    if sorted(model.rows) != sorted(sizes) or order.count("backward") != len(sizes):
        judge.no(
            "other-parts",
            seen=f"{parts}; forward passes with {_words(model.rows)} rows, "
            f"{order.count('backward')} backward passes",
            expected="each part once",
        )
    if steps != 1:
        judge.no("steps", seen=f"{steps} steps for {parts}", expected="one step, at the end")
    seen = f"{sent} × all_reduce for {parts}"
    if not sent:
        judge.no("never-sends", seen=seen, expected="one, for the last part")
    if inside["forward"][-1]:
        judge.no("not-the-last", seen=f"{seen}, none of them for the last", expected="for the last")
    if sent > 1:
        pairs = zip(inside["forward"], inside["backward"], strict=True)
        outside = any(backward and not forward for forward, backward in pairs)
        judge.no(
            "forward-outside" if outside else "every-part",
            seen=seen,
            expected="one, for the last part",
        )
    if not all(inside["forward"][:-1]):
        judge.no("not-the-last", seen="it was not the last part that sent", expected="the last")


def _words(sizes: Sequence[int]) -> str:
    return ", ".join(str(size) for size in sizes) or "no"


def _judge_weights(model: nn.Module, sizes: Sequence[Sequence[int]], judge: Judge) -> None:
    """Compare the weights with those after one step of the whole batch of all ranks."""
    shards = [_parts(part_sizes, rank) for rank, part_sizes in enumerate(sizes)]
    right = _stepped(shards, lambda n, rows, parts: n / rows)
    got = nn.utils.parameters_to_vector(model.parameters()).detach()
    if torch.allclose(got, right, rtol=1e-4, atol=1e-6):
        return
    whole = sum(sizes[0])
    known = {
        "not-zeroed": right - 0.1 * 0.5,
        "unweighted": _stepped(shards, lambda n, rows, parts: 1 / parts),
        "not-divided": _stepped(shards, lambda n, rows, parts: 1),
        "by-rows": _stepped(shards, lambda n, rows, parts: n),
        "only-last": _stepped([parts[-1:] for parts in shards], lambda n, rows, parts: n / whole),
    }
    like = [name for name, value in known.items() if torch.allclose(got, value, atol=1e-5)]
    judge.no(
        like[0] if like else "other-gradient",
        seen=f"weights {_values(got)} after parts of {_words(sizes[0])} rows",
        expected=f"{_values(right)}, as after the large batch",
    )


def _stepped(
    shards: Sequence[Sequence[tuple[Tensor, Tensor]]], weight: Callable[[int, int, int], float]
) -> Tensor:
    """Return the weights after a step with the weighted losses of all parts, averaged over ranks."""
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    for parts in shards:
        rows = sum(len(x) for x, _ in parts)
        for x, y in parts:
            loss = F.cross_entropy(model(x), y) * weight(len(x), rows, len(parts))
            (loss / len(shards)).backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def _accumulate_syncing(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    optimizer.zero_grad()
    for x, y in parts:
        (loss_fn(model(x), y) * len(x) / rows).backward()
    optimizer.step()


def _accumulate_silent(model, parts, loss_fn, optimizer):
    with model.no_sync():
        _accumulate_syncing(model, parts, loss_fn, optimizer)


def _accumulate_forward_outside(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    optimizer.zero_grad()
    for i, (x, y) in enumerate(parts):
        loss = loss_fn(model(x), y) * len(x) / rows
        with nullcontext() if i == len(parts) - 1 else model.no_sync():
            loss.backward()
    optimizer.step()


def _accumulate_weighted(model, parts, loss_fn, optimizer, weight, sends):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(parts):
        with nullcontext() if i == sends % len(parts) else model.no_sync():
            (loss_fn(model(x), y) * weight(len(x))).backward()
    optimizer.step()


def _accumulate_first(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    _accumulate_weighted(model, parts, loss_fn, optimizer, lambda n: n / rows, 0)


def _accumulate_unweighted(model, parts, loss_fn, optimizer):
    _accumulate_weighted(model, parts, loss_fn, optimizer, lambda n: 1 / len(parts), -1)


def _accumulate_undivided(model, parts, loss_fn, optimizer):
    _accumulate_weighted(model, parts, loss_fn, optimizer, lambda n: 1, -1)


def _accumulate_by_rows(model, parts, loss_fn, optimizer):
    _accumulate_weighted(model, parts, loss_fn, optimizer, lambda n: n, -1)


def _accumulate_zeroing_each(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    model.register_forward_pre_hook(lambda *_: optimizer.zero_grad())
    _accumulate_weighted(model, parts, loss_fn, optimizer, lambda n: n / rows, -1)


def _accumulate_stale(model, parts, loss_fn, optimizer):
    zero_grad, optimizer.zero_grad = optimizer.zero_grad, lambda: None
    accumulate(model, parts, loss_fn, optimizer)
    optimizer.zero_grad = zero_grad


def _accumulate_stepping(model, parts, loss_fn, optimizer):
    for part in parts:
        accumulate(model, [part], loss_fn, optimizer)


def _accumulate_one_backward(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    optimizer.zero_grad()
    sum(loss_fn(model(x), y) * len(x) / rows for x, y in parts).backward()
    optimizer.step()


# learning_rate -----------------------------------------------------------------------------------


def learning_rate(step, base, base_batch, batch_per_rank, ranks, warmup):
    target = base * batch_per_rank * ranks / base_batch
    if step >= warmup:
        return target
    return base + (target - base) * step / warmup


_RATES = (  # base, base_batch, batch_per_rank, ranks, warmup
    (0.1, 256, 32, 64, 10),
    (0.1, 256, 32, 8, 10),
    (0.05, 64, 64, 4, 7),
    (0.4, 128, 32, 2, 5),
    (2.0, 3, 5, 7, 4),
    (0.1, 256, 32, 64, 0),
    (0.3, 20, 25, 3, 1),
)


def _check_learning_rate(answer: Callable[..., Any], judge: Judge) -> None:
    for case in _RATES:
        warmup = case[-1]
        for step in (warmup, warmup + 100, 0, warmup // 2, warmup - 1, warmup + 1, 1):
            if step < 0:
                continue
            got, right = judge.number(answer(step, *case)), learning_rate(step, *case)
            if not math.isclose(got, right, rel_tol=1e-6, abs_tol=1e-12):
                like = [
                    name
                    for name, twin in _RATE_TWINS.items()
                    if math.isclose(got, twin(step, *case), rel_tol=1e-6, abs_tol=1e-12)
                ]
                base, base_batch, batch, ranks, _ = case
                judge.no(
                    like[0] if like else "wrong-value",
                    seen=f"{got:.6g} in step {step}, warm-up {warmup} steps, {ranks} ranks × {batch} "
                    f"samples; {base:g} was good for {base_batch}",
                    expected=f"{right:.6g}",
                )


def _rate_not_scaled(step, base, base_batch, batch_per_rank, ranks, warmup):
    return base


def _rate_by_ranks(step, base, base_batch, batch_per_rank, ranks, warmup):
    return learning_rate(step, base, base_batch, base_batch, ranks, warmup)


def _rate_by_batch(step, base, base_batch, batch_per_rank, ranks, warmup):
    return learning_rate(step, base, base_batch, batch_per_rank, 1, warmup)


def _rate_by_root(step, base, base_batch, batch_per_rank, ranks, warmup):
    root = math.sqrt(batch_per_rank * ranks / base_batch)
    return learning_rate(step, base, 1, 1, root, warmup)


def _rate_from_zero(step, base, base_batch, batch_per_rank, ranks, warmup):
    target = base * batch_per_rank * ranks / base_batch
    return target * min(1, step / max(warmup, 1)) if warmup else target


def _rate_at_once(step, base, base_batch, batch_per_rank, ranks, warmup):
    return base * batch_per_rank * ranks / base_batch


def _rate_without_end(step, base, base_batch, batch_per_rank, ranks, warmup):
    target = base * batch_per_rank * ranks / base_batch
    return base + (target - base) * step / max(warmup, 1) if warmup else target


def _rate_one_late(step, base, base_batch, batch_per_rank, ranks, warmup):
    return learning_rate(max(step - 1, 0), base, base_batch, batch_per_rank, ranks, warmup)


def _rate_one_early(step, base, base_batch, batch_per_rank, ranks, warmup):
    return learning_rate(step + 1, base, base_batch, batch_per_rank, ranks, warmup)


_RATE_TWINS: Mapping[str, Callable[..., float]] = {
    "not-scaled": _rate_not_scaled,
    "by-ranks": _rate_by_ranks,
    "by-batch": _rate_by_batch,
    "by-root": _rate_by_root,
    "at-once": _rate_at_once,
    "from-zero": _rate_from_zero,
    "without-end": _rate_without_end,
    "one-off": _rate_one_late,
    "one-early": _rate_one_early,
}


# rescue ------------------------------------------------------------------------------------------


def rescue(state, model):
    wanted = model.state_dict()
    for prefix in ("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."):
        if {prefix + key for key in wanted} == set(state):
            return {key: state[prefix + key] for key in wanted}
    raise ValueError("this checkpoint is of another model")


class _Inner(nn.Module):
    """A model with a child that is really called ``module``, and others whose names hold the word."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(2, 3)
        self.submodule = nn.Linear(3, 1)
        self.scale = nn.Parameter(torch.ones(1))


class _OnlyModule(nn.Module):
    """A model of which every key begins with ``module.``, before anything wrapped it."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))


def _check_rescue(answer: Callable[..., Any], judge: Judge) -> None:
    plain = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    prefixes = ("module.", "", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.")
    for model in (plain, _Inner(), _OnlyModule()):
        for prefix in prefixes:
            saved = {prefix + key: value + 1 for key, value in model.state_dict().items()}
            _judge_rescued(answer, saved, model, prefix, judge)
    own = plain.state_dict()
    turned = {f"module.{key}": own[key] for key in reversed(own)}
    _judge_rescued(answer, turned, plain, "module.", judge)
    for strange in (
        {f"net.{key}": value for key, value in own.items()},
        dict(list(own.items())[1:]),
        {f"module.{key}": own[key] for key in list(own)[:-1]},
        {f"module.module.{key}": value for key, value in own.items()},
        {f"module.{key}" if "weight" in key else key: value for key, value in own.items()},
        {**own, "2.weight": torch.ones(1)},
        {},
    ):
        try:
            got = answer(strange, plain)
        except _Raised as raised:
            if isinstance(raised.error, ValueError):
                continue
            raise
        judge.no(
            "not-refused",
            seen=f"{_keys(got)} for a checkpoint with {_keys(strange)}",
            expected=f"ValueError: the model has {_keys(own)}",
        )


def _judge_rescued(
    answer: Callable[..., Any],
    saved: Mapping[str, Tensor],
    model: nn.Module,
    prefix: str,
    judge: Judge,
) -> None:
    wanted = model.state_dict()
    try:
        got = judge.is_a(answer(saved, model), Mapping, "a dict")
    except _Raised as raised:
        if not isinstance(raised.error, ValueError):
            raise
        judge.no("refused", seen=f"ValueError for {_keys(saved)}", expected=_keys(wanted))
    if set(got) != set(wanted):
        judge.no(
            _why_keys(set(got), set(saved), set(wanted), prefix),
            seen=f"{_keys(got)} from {_keys(saved)}",
            expected=_keys(wanted),
        )
    for key, value in got.items():
        if value is not saved[prefix + key]:
            alike = isinstance(value, Tensor) and torch.equal(value, saved[prefix + key])
            judge.no(
                "copied" if alike else "other-tensors",
                seen=f"another tensor under {key!r}",
                expected="the checkpoint's own",
            )


def _why_keys(got: set[str], saved: set[str], wanted: set[str], prefix: str) -> str:
    if got == {key.replace("module.", "").replace("_orig_mod.", "") for key in saved}:
        return "everywhere"
    if any(key.startswith("module.") for key in wanted) and got != saved:
        return "child-module"
    if not prefix:
        return "already-right"
    if "_orig_mod." not in prefix:
        return "still-there"
    return "compiled" if prefix == "_orig_mod." else "two-wrappers"


def _keys(state: Any) -> str:
    if not isinstance(state, Mapping):
        return repr(state)
    return ", ".join(list(state)[:4]) + (" …" if len(state) > 4 else "") or "no keys"


def _rescue_everywhere(state, model):
    return {key.replace("module.", "").replace("_orig_mod.", ""): v for key, v in state.items()}


def _rescue_first_part(state, model):
    return {key.split(".", 1)[-1]: value for key, value in state.items()}


def _rescue_without_the_model(state, model):
    found = {}
    for key, value in state.items():
        while key.startswith(("module.", "_orig_mod.")):
            key = key.split(".", 1)[1]
        found[key] = value
    return found


def _rescue_module_only(state, model):
    wanted = model.state_dict()
    for prefix in ("", "module."):
        if {prefix + key for key in wanted} == set(state):
            return {key: state[prefix + key] for key in wanted}
    return state


def _rescue_one_wrapper(state, model):
    wanted = model.state_dict()
    for prefix in ("", "module.", "_orig_mod."):
        if {prefix + key for key in wanted} == set(state):
            return {key: state[prefix + key] for key in wanted}
    return state


def _rescue_refusing(state, model):
    found = _rescue_without_the_model(state, model)
    if set(found) != set(model.state_dict()):
        raise ValueError("another model")
    return found


def _rescue_lenient(state, model):
    wanted = model.state_dict()
    for prefix in ("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."):
        if found := {key: state[prefix + key] for key in wanted if prefix + key in state}:
            return found
    raise ValueError("another model")


def _rescue_copied(state, model):
    return {key: value.clone() for key, value in rescue(state, model).items()}


def _rescue_in_place(state, model):
    found = rescue(state, model)
    state.clear()
    state.update(found)
    return state


def _rescue_by_position(state, model):
    wanted = model.state_dict()
    if len(state) != len(wanted):
        raise ValueError("another model")
    return dict(zip(wanted, state.values(), strict=True))


def _rescue_unrefused(state, model):
    try:
        return rescue(state, model)
    except ValueError:
        return state


# unhang ------------------------------------------------------------------------------------------


def unhang(model, batches, dist, log):
    total = torch.zeros(2)
    with torch.no_grad():
        for x, y in batches:
            loss = F.cross_entropy(model(x), y, reduction="sum")
            total += torch.stack([loss, torch.tensor(float(len(x)))])
    dist.all_reduce(total)
    mean = (total[0] / total[1]).item()
    if dist.get_rank() == 0:
        log(mean)
    return mean


_BATCHES = (
    ((4, 4), (4, 4)),
    ((4, 2, 3), (5,)),
    ((3,), (2, 2), (), (6, 1)),
    ((5, 2),),
    ((2, 2), (7, 7), (1, 9)),
)
"""For each case and rank, how many rows each batch has."""


def _check_unhang(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes in _BATCHES:
        shards = [_labelled(rank_sizes, rank) for rank, rank_sizes in enumerate(sizes)]

        def program(dist: Any, call: Callable[..., Any], shards: Any = shards) -> tuple[Any, ...]:
            logged: list[Any] = []
            graphs: list[bool] = []
            model = _classifier()
            model.register_forward_hook(lambda *args: graphs.append(args[2].requires_grad))
            got = call(model, shards[dist.get_rank()], dist, logged.append)
            return got, logged, any(graphs)

        uneven = len({len(rank_sizes) for rank_sizes in sizes}) > 1
        hang = "unequal-loops" if uneven else "one-rank"
        run = _on_ranks(program, answer, len(sizes), judge, hang)
        for rank, (got, logged, graph) in enumerate(run.results):
            where = f"rank {rank} of {len(sizes)}, with {_words(sizes[rank])} rows in its batches"
            _judge_mean(got, shards, rank, where, judge)
            _judge_log(logged, got, rank, where, judge)
            if graph:
                judge.no(
                    "graph", seen="outputs that require a gradient", expected="torch.no_grad()"
                )


def _labelled(sizes: Sequence[int], rank: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(11 + rank)
    return [
        (3 * torch.randn(n, 3, generator=generator), torch.arange(n) % (2 + rank % 2))
        for n in sizes
    ]


def _classifier() -> nn.Module:
    torch.manual_seed(5)
    return nn.Linear(3, 3)


def _judge_mean(got: Any, shards: Any, rank: int, where: str, judge: Judge) -> None:
    """Compare what a rank returned with the mean loss of all rows of all ranks."""
    model = _classifier()
    sums = [sum(F.cross_entropy(model(x), y).item() * len(x) for x, y in rows) for rows in shards]
    means = [[F.cross_entropy(model(x), y).item() for x, y in rows] for rows in shards]
    counts = [sum(len(x) for x, _ in rows) for rows in shards]
    right = sum(sums) / sum(counts)
    if got is None and rank:
        judge.no("only-rank-0", seen=f"None, on {where}", expected=f"{right:.6g}, on each rank")
    number = judge.number(judge.is_a(got, (int, float), "a Python number"))
    if math.isclose(number, right, rel_tol=1e-5):
        return
    own = [total / max(count, 1) for total, count in zip(sums, counts, strict=True)]
    short = min(len(rows) for rows in shards)
    first = [(x, y) for rows in shards for x, y in rows[:short]]
    known = {
        "own-rows": own[rank],
        "mean-of-means": sum(own) / len(own),
        "mean-of-batches": sum(map(sum, means)) / sum(map(len, means)),
        "mean-of-both": sum(sum(each) / max(len(each), 1) for each in means) / len(means),
        "rows-left-out": sum(F.cross_entropy(model(x), y, reduction="sum").item() for x, y in first)
        / max(sum(len(x) for x, _ in first), 1),
    }
    like = [name for name, value in known.items() if math.isclose(number, value, rel_tol=1e-5)]
    judge.no(
        like[0] if like else "wrong-value",
        seen=f"{number:.6g}, on {where}",
        expected=f"{right:.6g}, on each rank",
    )


def _judge_log(logged: Sequence[Any], got: Any, rank: int, where: str, judge: Judge) -> None:
    """Refuse a mean that is logged elsewhere than once on rank 0."""
    if rank and logged:
        judge.no("all-log", seen=f"log was called on {where}", expected="only on rank 0")
    if not rank and [float(value) for value in logged] != [float(got)]:
        judge.no(
            "no-log", seen=f"logged on rank 0: {list(logged)}", expected=f"the mean: {got:.6g}"
        )


def _unhang_given(model, batches, dist, log):
    total = torch.zeros(2)
    with torch.no_grad():
        for x, y in batches:
            loss = F.cross_entropy(model(x), y, reduction="sum")
            part = torch.stack([loss, torch.tensor(float(len(x)))])
            dist.all_reduce(part)
            total += part
    mean = (total[0] / total[1]).item()
    if dist.get_rank() == 0:
        log(mean)
        dist.barrier()
    return mean


def _unhang_barrier_mended(model, batches, dist, log):
    total = torch.zeros(2)
    with torch.no_grad():
        for x, y in batches:
            loss = F.cross_entropy(model(x), y, reduction="sum")
            part = torch.stack([loss, torch.tensor(float(len(x)))])
            dist.all_reduce(part)
            total += part
    mean = (total[0] / total[1]).item()
    if dist.get_rank() == 0:
        log(mean)
    dist.barrier()
    return mean


def _unhang_shortest(model, batches, dist, log):
    shortest = torch.tensor(len(batches))
    dist.all_reduce(shortest, dist.ReduceOp.MIN)
    return unhang(model, batches[: shortest.item()], dist, log)


def _unhang_own(model, batches, dist, log):
    with torch.no_grad():
        total = sum(F.cross_entropy(model(x), y).item() * len(x) for x, y in batches)
    mean = total / sum(len(x) for x, _ in batches)
    if dist.get_rank() == 0:
        log(mean)
    return mean


def _unhang_mean_of_means(model, batches, dist, log):
    with torch.no_grad():
        total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in batches)
    mean = torch.as_tensor(total / max(sum(len(x) for x, _ in batches), 1))
    dist.all_reduce(mean)
    mean = (mean / dist.get_world_size()).item()
    if dist.get_rank() == 0:
        log(mean)
    return mean


def _unhang_logging_everywhere(model, batches, dist, log):
    mean = unhang(model, batches, dist, lambda mean: None)
    log(mean)
    return mean


def _unhang_silent(model, batches, dist, log):
    return unhang(model, batches, dist, lambda mean: None)


def _unhang_for_rank_0(model, batches, dist, log):
    mean = unhang(model, batches, dist, log)
    return mean if dist.get_rank() == 0 else None


# sharded_bytes -----------------------------------------------------------------------------------


def sharded_bytes(shapes, ranks):
    whole = sum(math.prod(shape) for shape in shapes)
    part = sum(math.ceil(shape[0] / ranks) * math.prod(shape[1:]) for shape in shapes)
    return 16 * whole, 16 * part


_SHAPES: tuple[tuple[list[tuple[int, ...]], int], ...] = (
    ([(64, 32), (64,)], 2),
    ([(64, 32), (64,)], 1),
    ([(10, 20), (10,), (3, 10), (3,)], 4),
    ([(2, 5, 3, 3), (2,), (9,)], 7),
    ([(7, 4, 2)], 3),
    ([(1000, 64), (64, 1000), (1, 128)], 8),
    ([(5,)], 2),
)


def _check_sharded_bytes(answer: Callable[..., Any], judge: Judge) -> None:
    for shapes, ranks in _SHAPES:
        pair = judge.is_a(answer(shapes, ranks), (tuple, list), "a pair of numbers of bytes")
        if len(pair) != 2:
            judge.no("not-a-pair", seen=pair, expected="bytes under DDP, bytes under FSDP")
        got = [judge.number(value) for value in pair]
        right = sharded_bytes(shapes, ranks)
        if got != [*right]:
            like = [name for name, twin in _BYTES_TWINS.items() if got == [*twin(shapes, ranks)]]
            judge.no(
                like[0] if like else "wrong-value",
                seen=f"{got[0]:,.6g} and {got[1]:,.6g} for {_listed(shapes)} on {ranks} ranks",
                expected=f"{right[0]:,} and {right[1]:,}",
            )


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(str(shape) for shape in shapes)


def _bytes_divided(shapes, ranks):
    whole = 16 * sum(math.prod(shape) for shape in shapes)
    return whole, whole / ranks


def _bytes_flat(shapes, ranks):
    whole = sum(math.prod(shape) for shape in shapes)
    return 16 * whole, 16 * math.ceil(whole / ranks)


def _bytes_flat_each(shapes, ranks):
    sizes = [math.prod(shape) for shape in shapes]
    return 16 * sum(sizes), 16 * sum(math.ceil(size / ranks) for size in sizes)


def _bytes_vectors_whole(shapes, ranks):
    vectors = [shape for shape in shapes if len(shape) == 1]
    matrices = [shape for shape in shapes if len(shape) > 1]
    whole, part = sharded_bytes(matrices, ranks)
    rest = sharded_bytes(vectors, ranks)[0]
    return whole + rest, part + rest


def _bytes_floor(shapes, ranks):
    part = sum(shape[0] // ranks * math.prod(shape[1:]) for shape in shapes)
    return sharded_bytes(shapes, ranks)[0], 16 * part


def _bytes_of_parameters(shapes, ranks):
    return tuple(value // 4 for value in sharded_bytes(shapes, ranks))


def _bytes_without_gradients(shapes, ranks):
    return tuple(value // 4 * 3 for value in sharded_bytes(shapes, ranks))


def _bytes_without_adam(shapes, ranks):
    return tuple(value // 2 for value in sharded_bytes(shapes, ranks))


def _bytes_parameters_sharded(shapes, ranks):
    whole, part = sharded_bytes(shapes, ranks)
    return whole, part // 4 + whole // 4 * 3


def _bytes_states_sharded(shapes, ranks):
    whole, part = sharded_bytes(shapes, ranks)
    return whole, whole // 2 + part // 2


def _bytes_ddp_divided(shapes, ranks):
    part = sharded_bytes(shapes, ranks)[1]
    return part, part


_BYTES_TWINS: Mapping[str, Callable[..., Sequence[float]]] = {
    "divided": _bytes_divided,
    "flat": _bytes_flat,
    "flat-each": _bytes_flat_each,
    "vectors-whole": _bytes_vectors_whole,
    "floor": _bytes_floor,
    "only-parameters": _bytes_of_parameters,
    "three-numbers": _bytes_without_gradients,
    "no-optimiser": _bytes_without_adam,
    "states-only": _bytes_states_sharded,
    "parameters-only": _bytes_parameters_sharded,
    "ddp-divided": _bytes_ddp_divided,
}


# ring_all_reduce ---------------------------------------------------------------------------------


def ring_all_reduce(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        part = parts[(rank - step - 1) % n]
        received = torch.empty_like(part)
        sending = dist.isend(parts[(rank - step) % n], (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        sending.wait()
        if step < n - 1:
            part += received
        else:
            part.copy_(received)


COLLECTIVES = ("all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter")
COLLECTIVES += ("broadcast", "reduce_scatter", "reduce_scatter_tensor", "all_to_all_single")


class _Watched:
    """What a rank sees as ``dist``; notes which collectives are asked for."""

    def __init__(self, dist: Any, asked: set[str]) -> None:
        self._dist, self._asked = dist, asked

    def __getattr__(self, name: str) -> Any:
        if name in COLLECTIVES:
            self._asked.add(name)
        return getattr(self._dist, name)


_RINGS: tuple[tuple[tuple[int, ...], int, torch.dtype], ...] = (
    ((12,), 4, torch.float32),
    ((12,), 3, torch.int64),
    ((3, 5), 4, torch.float32),
    ((6,), 2, torch.float64),
    ((17,), 5, torch.float32),
    ((3,), 4, torch.float32),
    ((5,), 1, torch.float32),
)
"""The tensor's shape, how many ranks, and the dtype."""


def _check_ring_all_reduce(answer: Callable[..., Any], judge: Judge) -> None:
    for shape, ranks, dtype in _RINGS:
        asked: set[str] = set()

        def program(
            dist: Any,
            call: Callable[..., Any],
            shape: tuple[int, ...] = shape,
            dtype: torch.dtype = dtype,
            asked: set[str] = asked,
        ) -> Tensor:
            x = _addend(shape, dtype, dist.get_rank())
            call(x, _Watched(dist, asked))
            got = x.clone()
            x.zero_()  # the caller may do so, if nothing is on its way any more
            return got

        where = f"{ranks} ranks with {math.prod(shape)} numbers each"
        try:
            run = _on_ranks(program, answer, ranks, judge, "deadlock", "other-partner")
        except _Raised as raised:
            if "before wait()" not in str(raised.error):
                raise
            judge.no("no-wait", seen=f"{where}: {raised.error}", expected="wait() first")
        if asked:
            judge.no("collective", seen=", ".join(sorted(asked)), expected="only send and receive")
        if left := sum(run.unwaited):
            judge.no("no-wait", seen=f"{where}: {left} × irecv without wait()", expected="wait()")
        _judge_sums(run.results, shape, dtype, where, judge)
        _judge_messages(run, shape, dtype, where, judge)


def _addend(shape: tuple[int, ...], dtype: torch.dtype, rank: int) -> Tensor:
    return (torch.arange(math.prod(shape)) + 1).mul(10**rank).view(shape).to(dtype)


def _judge_sums(
    results: Sequence[Tensor], shape: tuple[int, ...], dtype: torch.dtype, where: str, judge: Judge
) -> None:
    """Refuse a tensor on a rank that is not the sum over all ranks."""
    given = [_addend(shape, dtype, rank) for rank in range(len(results))]
    total = torch.stack(given).sum(0)
    if all(torch.equal(each, total) for each in results):
        return
    got = torch.stack(list(results))
    rank = next(r for r, each in enumerate(results) if not torch.equal(each, total))
    why = "other-sum"
    if all(torch.equal(each, own) for each, own in zip(results, given, strict=True)):
        why = "not-in-place"
    elif all(torch.allclose(each * len(results), total) for each in results):
        why = "divided"
    elif (got > total).any():
        why = "too-much"
    elif any(torch.equal(each, total) for each in results):
        why = "some-ranks"
    elif ((got == total).sum(0) == 1).all():
        why = "half-way"
    elif (got == torch.stack(given)).all(0).any():
        why = "left-over"
    judge.no(
        why,
        seen=f"{_values(results[rank])} on rank {rank}, of {where}",
        expected=f"{_values(total)} on each rank",
    )


def _judge_messages(
    run: cluster.Run, shape: tuple[int, ...], dtype: torch.dtype, where: str, judge: Judge
) -> None:
    """Refuse more bytes from a rank, or a longer chain of messages, than the ring needs."""
    ranks = len(run.results)
    size = math.prod(shape)
    most = 2 * (ranks - 1) * math.ceil(size / ranks) * dtype.itemsize
    if max(run.sent) > most:
        whole = size * dtype.itemsize
        alone = max(run.sent) > 1.5 * sorted(run.sent)[-2]
        all_of_it = min(run.sent) >= (ranks - 1) * whole
        judge.no(
            "one-rank" if alone else "whole-tensors" if all_of_it else "too-many-bytes",
            seen=f"{where}: bytes sent by each rank: {_words(run.sent)}",
            expected=f"at most {most} from each",
        )
    if run.steps > 2 * (ranks - 1):
        judge.no(
            "too-many-steps",
            seen=f"{where}: {run.steps} messages, one after the other",
            expected=f"at most {2 * (ranks - 1)}",
        )


def _ring_sends_first(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        part = parts[(rank - step - 1) % n]
        received = torch.empty_like(part)
        dist.send(parts[(rank - step) % n], (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        part.copy_(part + received if step < n - 1 else received)


def _ring_by_rank_0(x, dist):
    others = range(1, dist.get_world_size())
    if dist.get_rank():
        dist.send(x, 0)
        dist.recv(x, 0)
        return
    received = torch.empty_like(x)
    for other in others:
        dist.recv(received, other)
        x += received
    for other in others:
        dist.send(x, other)


def _ring_of_whole_tensors(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    passed = x.clone()
    for _ in range(n - 1):
        received = torch.empty_like(x)
        sending = dist.isend(passed, (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        sending.wait()
        passed = received
        x += received


def _ring_without_wait(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        part = parts[(rank - step - 1) % n]
        received = torch.empty_like(part)
        dist.isend(parts[(rank - step) % n], (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        part.copy_(part + received if step < n - 1 else received)


def _ring_half_way(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(n - 1):
        part = parts[(rank - step - 1) % n]
        received = torch.empty_like(part)
        sending = dist.isend(parts[(rank - step) % n], (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        sending.wait()
        part += received


def _ring_only_adding(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        part = parts[(rank - step - 1) % n]
        received = torch.empty_like(part)
        sending = dist.isend(parts[(rank - step) % n], (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        sending.wait()
        part += received


def _ring_rounding_down(x, dist):
    n = dist.get_world_size()
    ring_all_reduce(x.view(-1)[: x.numel() // n * n], dist)


def _ring_by_collective(x, dist):
    dist.all_reduce(x)


def _ring_of_a_copy(x, dist):
    ring_all_reduce(x.clone(), dist)


def _ring_averaging(x, dist):
    ring_all_reduce(x, dist)
    x.copy_(x / dist.get_world_size())


def _ring_to_the_last(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    if rank:
        received = torch.empty_like(x)
        dist.recv(received, rank - 1)
        x += received
    if rank < n - 1:
        dist.send(x, rank + 1)


def _ring_taking_turns(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        part = parts[(rank - step - 1) % n]
        received = torch.empty_like(part)
        if rank % 2:
            dist.recv(received, (rank - 1) % n)
        dist.send(parts[(rank - step) % n], (rank + 1) % n)
        if not rank % 2:
            dist.recv(received, (rank - 1) % n)
        part.copy_(part + received if step < n - 1 else received)


# The exercises -----------------------------------------------------------------------------------


EXERCISES = (
    Exercise(
        id="05.average_gradients",
        title="Average the gradients",
        level=2,
        minutes=10,
        task="""
Each rank has called `backward()` on rows of its own. Write `average_gradients(model, dist)`: on every rank, each
parameter's `.grad` becomes the mean over all ranks. A frozen parameter (`requires_grad=False`) gets no gradient. For any
other, `None` counts as zero: this rank did not use the parameter, and another one may have.

`dist` is a parameter so that the same function runs on the simulated cluster, as in the check, and with
`torch.distributed` in real processes.
""",
        hints=(
            "`dist.all_reduce(tensor)` adds up over all ranks, in place. What makes a mean of a sum?",
            "Every rank must call `all_reduce` for the same tensors, in the same order. What can a rank hand in that "
            "has no gradient?",
            "Where `p.requires_grad` and `p.grad is None`, put `torch.zeros_like(p)` there. Then call "
            "`all_reduce`, and divide by `dist.get_world_size()`.",
        ),
        reference=average_gradients,
        check_answer=_check_average_gradients,
        may_change=True,
        why="This is data parallel training: equal weights, the mean gradient on every rank, so equal weights again. "
        "`DistributedDataParallel` does the same with fewer and larger messages, while backward still runs. (Where a backend has "
        "`ReduceOp.AVG`, it adds and divides in one call. gloo in older versions of PyTorch does not have it.)",
        diagnoses={
            "one-rank": "Not every rank takes part, or not every rank keeps the result. A collective is called by all "
            "ranks, and `all_reduce` gives all of them the sum.",
            "none-skipped": "A rank whose gradient is None leaves a call out. Then its next call meets another call of "
            "the other ranks, and they add up what does not belong together, or wait for ever.",
            "not-kept": "All ranks made the call, and this rank's gradient is still None. The mean belongs into its `.grad`.",
            "not-divided": "That is the sum over the ranks.",
            "other-count": "That has the sum's direction and another length. Is it divided by the number of ranks, which `dist` "
            "knows?",
            "own": "On this rank the gradient is as it was. Where did the sum go: into a copy of it?",
            "own-divided": "That is this rank's own gradient, divided by the number of ranks. The others' are not in it.",
            "users-only": "That is the mean over the ranks that used the parameter. `None` counts as zero, and its rank counts too.",
            "parameters": "The parameters themselves have changed. They are equal on all ranks already; the gradients are not.",
            "frozen": "A frozen parameter has a gradient now. An optimiser with weight decay would change it.",
        },
        wrong={
            "one-rank": _average_called_by_one,
            "none-skipped": _average_skipping_none,
            "not-kept": _average_not_kept,
            "not-divided": _average_summed,
            "other-count": _average_by_two,
            "own": _average_copies,
            "own-divided": _average_dividing_only,
            "users-only": _average_of_users,
            "parameters": _average_parameters,
            "frozen": _average_all,
        },
    ),
    Exercise(
        id="05.shard",
        title="Who takes which rows",
        level=2,
        minutes=10,
        task="""
Write `shard(n, rank, world_size, epoch, seed)`: the list of the row numbers, out of 0 to n - 1, that a rank takes in an epoch. The
ranks do not talk to each other, and together they go through all rows in a random order, another one for each epoch and
seed, so that a rank does not keep its rows. All ranks take equally many, and no more than needed: where the ranks do not divide n,
some rows come twice. n may be smaller than the number of ranks. Global random generators stay as they are.
""",
        hints=(
            "How can ranks that do not talk agree on one random order? What do all of them know?",
            "A `torch.Generator` of your own, seeded with `seed + epoch` on every rank, gives all of them the same "
            "`torch.randperm(n, generator=...)`.",
            "Repeat the order until it has `world_size * math.ceil(n / world_size)` entries. Each rank takes every "
            "`world_size`-th of them, from its own number on.",
        ),
        reference=shard,
        check_answer=_check_shard,
        why="`DistributedSampler` does this. `set_epoch` hands it the epoch; without it, every epoch has the same order. "
        "Equal lengths matter because a rank with one batch more would wait for the others for ever.",
        diagnoses={
            "own-order": "Some rows are taken by nobody, and others more than once. Each rank draws an order of its own here: the order "
            "must not depend on the rank, nor on random numbers that differ between ranks.",
            "same-every-epoch": "Each epoch has the same order. That is what happens where `set_epoch` is forgotten.",
            "same-rows": "The same rows stay together: only their order changes, or who has them. Shuffle all rows first, then share "
            "them out.",
            "no-seed": "In epoch 0 the order does not depend on the seed.",
            "not-shuffled": "The rows come in the order in which they lie in the data, or in equal steps.",
            "unequal": "Some ranks have more rows than others. They would make more steps, and wait for the others.",
            "drops-rows": "Rows are left out where the ranks do not divide n. The task wants every row at least once.",
            "too-long": "There are more rows than needed.",
            "all-rows": "Each rank takes all rows. The ranks would only repeat each other's work.",
            "other-rows": "There is a row number that the data does not have.",
            "global-generator": "Your function changed a global generator. All ranks would draw the same numbers from it "
            "from here on, as for dropout. Use a `torch.Generator` of your own.",
        },
        wrong={
            "own-order": _shard_own_order,
            "same-every-epoch": _shard_same_every_epoch,
            "same-rows": _shard_cut_first,
            "unequal": _shard_unequal,
            "drops-rows": _shard_drops,
            "global-generator": _shard_global,
            "not-shuffled": _shard_in_order,
            "all-rows": _shard_all,
        },
    ),
    Exercise(
        id="05.accumulate",
        title="One message a step",
        level=2,
        minutes=12,
        task="""
Write `accumulate(model, parts, loss_fn, optimizer)`: one training step of a DDP model whose batch comes in parts, a
list of pairs `(x, y)`. The parts differ in size, `loss_fn` gives the mean over a part, and all ranks have equally many rows in all.
Afterwards the weights are those after one step with the whole batch, and the gradients have crossed the network
once. Gradients may be left over from before. Keep the memory of one part: one forward and one backward pass for each.
""",
        hints=(
            "What must travel after the first part? When do the gradients hold the whole batch?",
            "`with model.no_sync():` keeps gradients on the rank. DDP looks at it in the **forward** pass. The next pair of passes "
            "outside it sends all that has been added up.",
            "All parts but the last go within `model.no_sync()`, forward and backward. Weigh each loss with the part's share of "
            "the rows, `len(x) / rows`.",
        ),
        reference=accumulate,
        check_answer=_check_accumulate,
        limit=30.0,  # the first optimiser of a session takes seconds to import
        may_change=True,
        why="Without `no_sync` the result is the same, and each part pays for a message as large as the model. On a slow network "
        "that is most of the step.",
        diagnoses={
            "every-part": "The gradients travel more than once. All but the last journey are for nothing.",
            "forward-outside": "The gradients still travel more than once. DDP decides in the forward pass whether the next "
            "backward pass sends: forward belongs within `no_sync` too.",
            "never-sends": "The gradients never travel, so each rank goes its own way. One part must run outside "
            "`no_sync`.",
            "not-the-last": "The gradients travel before the last part. What is added later stays on its rank.",
            "all-at-once": "More than one part is kept in memory at a time. That is what the parts were to avoid.",
            "other-parts": "Each part needs one forward and one backward pass.",
            "steps": "The optimiser must make one step for the whole batch.",
            "unweighted": "Each part counts the same here. A small part's rows then weigh more than a large one's.",
            "not-divided": "The losses of the parts are added up as they are. The gradient is as many times too large as there are parts.",
            "by-rows": "Each loss is multiplied by its rows, and nothing divides by the rows of all parts.",
            "only-last": "Only the last part is in the gradient. What cleared the others?",
            "not-zeroed": "The gradients from before are still in it.",
            "other-gradient": "The weights are not those after a step with the whole batch.",
            "ranks-wait": "The ranks do not make the same collective calls.",
        },
        wrong={
            "every-part": _accumulate_syncing,
            "forward-outside": _accumulate_forward_outside,
            "never-sends": _accumulate_silent,
            "not-the-last": _accumulate_first,
            "unweighted": _accumulate_unweighted,
            "not-divided": _accumulate_undivided,
            "by-rows": _accumulate_by_rows,
            "only-last": _accumulate_zeroing_each,
            "not-zeroed": _accumulate_stale,
            "steps": _accumulate_stepping,
            "all-at-once": _accumulate_one_backward,
        },
    ),
    Exercise(
        id="05.learning_rate",
        title="The learning rate for more ranks",
        level=1,
        minutes=8,
        task="""
With 32 digits on each of two ranks, a step is made on 64: the **effective batch**. An epoch has half as many steps then, so each should
be longer. A learning rate of `base` was good for batches of `base_batch` samples, and now each of `ranks` ranks takes `batch_per_rank`
a step. Write `learning_rate(step, base, base_batch, batch_per_rank, ranks, warmup)` by the rule of Goyal and others (2017,
arXiv 1706.02677): the rate grows as the batch does, and a warm-up leads there. It is `base` in step 0, rises by the same amount in
each step, and has reached the new rate in step `warmup`, where it stays. `warmup` may be 0.
""",
        hints=(
            "DDP averages over the ranks. How many samples are in the gradient of one step?",
            "The new rate is `base` times the new batch divided by the old one. The warm-up is a straight line from `base` to it.",
            "Return the new rate where `step >= warmup`. Before that, add `step / warmup` of the way from `base` to it.",
        ),
        reference=learning_rate,
        check_answer=_check_learning_rate,
        why="k ranks make one step where one rank makes k, so each step must go about k times as far. The rule is "
        "an approximation: it fails in the first steps, hence the warm-up, and for very large batches. For Adam a "
        "root is often used in its place. Try a few rates before you trust any rule.",
        diagnoses={
            "not-scaled": "The rate stays `base`. The batch is larger than `base_batch` here, so there are fewer steps "
            "in an epoch.",
            "by-ranks": "Only the number of ranks counts here. The batch of a rank need not be `base_batch`.",
            "by-batch": "The batch of one rank is not the batch of a step: all ranks' samples are in the gradient.",
            "by-root": "The rate grows with the root of the batch. The rule of the task is linear.",
            "at-once": "The full rate comes before the warm-up is over.",
            "from-zero": "The warm-up begins at 0. This one begins at `base`, which was good for the small batch.",
            "without-end": "After the warm-up the rate goes on along the line. (The new rate can be below `base` too: then "
            "the line falls.)",
            "one-off": "The warm-up is one step late. Step 0 has `base`, step `warmup` the new rate.",
            "one-early": "The warm-up is one step early. Step 0 has `base`, step `warmup` the new rate.",
        },
        wrong={
            "not-scaled": _rate_not_scaled,
            "by-ranks": _rate_by_ranks,
            "by-batch": _rate_by_batch,
            "by-root": _rate_by_root,
            "at-once": _rate_at_once,
            "from-zero": _rate_from_zero,
            "without-end": _rate_without_end,
            "one-off": _rate_one_late,
            "one-early": _rate_one_early,
        },
    ),
    Exercise(
        id="05.rescue",
        title="A checkpoint with strange keys",
        level=2,
        minutes=10,
        task="""
A checkpoint was saved while the model was wrapped: by DDP, which puts `module.` before each key, by `torch.compile`, which puts
`_orig_mod.` there, by both, in either order, or by neither. Write `rescue(state, model)`: a dict with the keys of
`model.state_dict()` and the tensors of `state`, not copies of them. `state` stays as it is, and `model` is not wrapped. Some models
have a child that is really called `module`. Where the keys of both differ in any other way, raise `ValueError`.
""",
        hints=(
            "Which keys do you want? Who knows them?",
            "There are only five prefixes that `state` can have, and one of them is the empty text.",
            "For each prefix, compare `set(state)` with the set of `prefix + key` for the model's keys. The one that fits "
            "tells you where each tensor is.",
        ),
        reference=rescue,
        check_answer=_check_rescue,
        why="It is better not to need it: save `model.module.state_dict()`. Checkpoints of others come as they are, though, "
        "and `strict=False` would load such a one without an error and without a single weight.",
        diagnoses={
            "everywhere": "The word is cut out wherever it stands. `submodule.weight` has become another key.",
            "child-module": "This model has a child that is called `module`, so its own keys begin like that. A prefix "
            "was put before *every* key, and before those too. Ask the model for its keys.",
            "refused": "This checkpoint is of this model: one of the five prefixes stands before every key, in whatever order they "
            "come. The model's own keys may begin with `module.` too.",
            "already-right": "These keys were right already.",
            "still-there": "The prefix `module.` is still there.",
            "compiled": "This one was saved from a compiled model.",
            "two-wrappers": "This one was wrapped twice, and one of the two prefixes is still there.",
            "copied": "The tensors are copies. A checkpoint can be as large as the memory, so do not double it.",
            "other-tensors": "The tensors are not where they belong. Their keys say where, not their order.",
            "not-refused": "None of the five prefixes, put before each key of the model, gives these keys. Refuse it.",
        },
        wrong={
            "everywhere": _rescue_everywhere,
            "already-right": _rescue_first_part,
            "child-module": _rescue_without_the_model,
            "compiled": _rescue_module_only,
            "two-wrappers": _rescue_one_wrapper,
            "copied": _rescue_copied,
            "changed-input": _rescue_in_place,
            "other-tensors": _rescue_by_position,
            "refused": _rescue_refusing,
            "not-refused": _rescue_unrefused,
        },
    ),
    Exercise(
        id="05.unhang",
        title="The ranks that wait for ever",
        level=2,
        minutes=10,
        task="""
`unhang(model, batches, dist, log)` is to return, on every rank, the mean loss of all rows of all ranks, as a Python number, and
to log it once, from rank 0. The ranks may have different numbers of batches, of different sizes, and a rank may have
none at all; no row is left out. The code in the cell hangs, for two reasons. Mend both.
""",
        hints=(
            "Go through the code as rank 0 with two batches, then as rank 1 with one. Write down each collective call. Where do the "
            "two lists differ?",
            "A collective call is safe where every rank reaches it equally often: not under `if rank == 0`, and not in a loop of "
            "which the length differs.",
            "Add up on the rank first, loss and number of rows. One `all_reduce` after the loop is enough, and `log` needs no "
            "barrier.",
        ),
        reference=unhang,
        check_answer=_check_unhang,
        why="A real cluster does not say so at once: it waits, silently, until a timeout ends it after minutes. Look at a hang with this "
        "question: which collective has one rank called, and another not? `py-spy dump` shows where each process stands.",
        diagnoses={
            "one-rank": "All ranks have equally many batches here, and still one of them waits. Which call does only one rank "
            "make?",
            "unequal-loops": "The ranks have different numbers of batches here. A rank that is through with its loop, or has "
            "none to go through, leaves a call out, and the others wait for it.",
            "own-rows": "That is the mean over the rank's own rows.",
            "mean-of-means": "That is the mean of the ranks' means. A rank with few rows counts as much as one with many.",
            "mean-of-both": "That is the mean of the ranks' means over their batches. Neither batches nor ranks have equally many rows.",
            "mean-of-batches": "That is the mean of the batches' means. A small batch counts as much as a large one.",
            "rows-left-out": "All ranks stop after the shortest loop, so rows are left out.",
            "only-rank-0": "Only rank 0 has the mean. `reduce` gives the sum to one rank, `all_reduce` to all.",
            "all-log": "Each rank logs here. On many ranks that makes as many copies of each line.",
            "no-log": "Rank 0 must log the mean, once.",
            "graph": "The model records what a backward pass would need, and none will come. The given code avoids that.",
        },
        wrong={
            "one-rank": _unhang_given,
            "unequal-loops": _unhang_barrier_mended,
            "rows-left-out": _unhang_shortest,
            "own-rows": _unhang_own,
            "mean-of-means": _unhang_mean_of_means,
            "all-log": _unhang_logging_everywhere,
            "no-log": _unhang_silent,
            "only-rank-0": _unhang_for_rank_0,
        },
    ),
    Exercise(
        id="05.sharded_bytes",
        title="What sharding saves",
        level=2,
        minutes=10,
        task="""
Adam trains a model in float32; `shapes` lists the shapes of its parameters. Write `sharded_bytes(shapes, ranks)`: the pair of the
bytes that parameters, gradients and Adam's two moments take on rank 0, under DDP and under FSDP. `fully_shard` cuts each of these
tensors along its first dimension into pieces of equally many rows, rounded up; rank 0 gets a full piece, and the last ranks may get less or
nothing. Leave out DDP's buckets, Adam's step counters, and what comes and goes, such as the layer that FSDP has gathered.
""",
        hints=(
            "How many numbers of 4 bytes belong to each parameter? Which of them does DDP divide between the ranks?",
            "Each parameter is cut by itself, along its first dimension. A bias of 10 numbers on 4 ranks: how many has rank 0?",
            "A piece has `math.ceil(shape[0] / ranks)` rows of `math.prod(shape[1:])` numbers.",
        ),
        reference=sharded_bytes,
        check_answer=_check_sharded_bytes,
        why="With even shapes, n ranks need an n-th of the memory each, and that is how a model is trained that fits on none of them. "
        "What FSDP gathers for the layer at work, and the activations, come on top.",
        diagnoses={
            "not-a-pair": "The task asks for two numbers: first DDP, then FSDP.",
            "divided": "That is the whole divided by the ranks. No rank holds a part of a row, so the pieces are "
            "rounded up.",
            "flat": "That cuts all parameters as one long row of numbers. `fully_shard` cuts each parameter by itself, along its first "
            "dimension.",
            "flat-each": "That cuts each parameter as a row of numbers. `fully_shard` cuts along the first dimension, and no row is "
            "divided.",
            "vectors-whole": "That leaves parameters of one dimension whole. `fully_shard` cuts biases too.",
            "floor": "That rounds down, and some rows belong to no rank.",
            "only-parameters": "That is a quarter: the parameters' bytes alone, without gradients and both moments, or four numbers each "
            "without their 4 bytes.",
            "three-numbers": "There are four numbers for each parameter: itself, its gradient, and Adam's two moments.",
            "no-optimiser": "That is parameters and gradients. Adam keeps two more numbers for each parameter.",
            "states-only": "That divides only what Adam keeps. FSDP divides parameters and gradients too.",
            "parameters-only": "That divides only the parameters. FSDP divides their gradients and what Adam keeps too.",
            "ddp-divided": "Under DDP each rank holds everything: it divides the batch, not the model.",
        },
        wrong={
            "divided": _bytes_divided,
            "flat": _bytes_flat,
            "flat-each": _bytes_flat_each,
            "vectors-whole": _bytes_vectors_whole,
            "floor": _bytes_floor,
            "only-parameters": _bytes_of_parameters,
            "three-numbers": _bytes_without_gradients,
            "no-optimiser": _bytes_without_adam,
            "states-only": _bytes_states_sharded,
            "parameters-only": _bytes_parameters_sharded,
            "ddp-divided": _bytes_ddp_divided,
        },
    ),
    Exercise(
        id="05.ring_all_reduce",
        title="Puzzle: all_reduce on a ring",
        level=3,
        minutes=25,
        task="""
Through rank 0 one link carries everything while the others are idle. There is a way in which every link carries *less than two*
gradients, however many ranks there are. Find it.

Write `ring_all_reduce(x, dist)`. Afterwards `x` holds, on each of the n ranks, the sum over all of them, in place. It is contiguous and
has any shape; n may be 1, and need not divide its size. You may use `dist.send`, `recv`, `isend` and `irecv`, and no collective.

The target, however many ranks there are: at most **2 (n - 1) messages** in a chain where each waits for the one before, and from each rank
at most **2 (n - 1) pieces** of `math.ceil(x.numel() / n)` numbers. Messages on one link wait for each other, so
go in rounds. `send` waits until its message is received; `isend` and `irecv` return at once, and are done when `wait()` of what they
returned has returned. The cell below your answer draws it.
""",
        hints=(
            "Cut `x` into n pieces, with `x.view(-1).tensor_split(n)`: they are views. In each step every rank sends one "
            "piece to its right neighbour and receives one from its left, so that all links are busy.",
            "In the first n - 1 steps, add what comes. In step s, rank r sends piece r - s and receives piece r - s - 1, both modulo n. "
            "Then each rank has one complete piece.",
            "In the next n - 1 steps, go on with the same numbering, and copy what comes in the place of adding it. In each step: "
            "`isend` to the right, `recv` from the left, then `wait()`.",
        ),
        reference=ring_all_reduce,
        check_answer=_check_ring_all_reduce,
        may_change=True,
        why="What a rank sends hardly depends on the number of ranks: less than twice the tensor, be they 4 or 4000. "
        "That is why large clusters can train at all. NCCL and gloo use rings, and trees where the tensors are small and the number of "
        "steps counts for more than the bytes.",
        diagnoses={
            "deadlock": "The ranks wait for each other in a circle. If every rank sends first, nobody receives: begin sending "
            "with `isend`, receive, and then wait.",
            "other-partner": "What one rank sends is not what the other one receives. Compare sizes and dtypes.",
            "no-wait": "A message may still be on its way. What `isend` or `irecv` has begun is done when its `wait()` has returned: "
            "change or read its tensor after that.",
            "collective": "That is a collective. Build it from sending and receiving.",
            "not-in-place": "`x` is as it was. The sum belongs into `x` itself.",
            "divided": "That is the mean. The task asks for the sum.",
            "half-way": "Each rank has one complete piece, and the others are not. The first half of the way is done: now "
            "the complete pieces go round.",
            "some-ranks": "Some ranks have the sum, and others do not.",
            "too-much": "Some places hold more than the sum: something complete was added, or something twice.",
            "left-over": "Some places never took part: they are as before on every rank. n need not divide the size.",
            "other-sum": "That is not the sum. Which pieces has it, and which not?",
            "one-rank": "One rank sends far more than the others. Its link is the bottleneck, and the more so the more ranks there are.",
            "whole-tensors": "Each rank sends the whole tensor several times. Send pieces.",
            "too-many-bytes": "The ranks send more than the target allows.",
            "too-many-steps": "The bytes are right, and too many messages wait for one another. Those on one link do too: in each round, can "
            "every rank send one and receive one?",
        },
        wrong={
            "deadlock": _ring_sends_first,
            "one-rank": _ring_by_rank_0,
            "whole-tensors": _ring_of_whole_tensors,
            "too-many-steps": _ring_taking_turns,
            "half-way": _ring_half_way,
            "too-much": _ring_only_adding,
            "left-over": _ring_rounding_down,
            "no-wait": _ring_without_wait,
            "collective": _ring_by_collective,
            "not-in-place": _ring_of_a_copy,
            "divided": _ring_averaging,
            "some-ranks": _ring_to_the_last,
        },
    ),
)
