"""Lesson 05: its checks judge what answers do, and the references hold with PyTorch's own parts."""

from __future__ import annotations

import inspect
import math
import random
import re
import subprocess
import sys
import textwrap
from collections import OrderedDict
from contextlib import nullcontext
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
import torch.distributed as torch_dist
from answers.lesson05.ring_all_reduce import (
    _ring_averaging,
    _ring_by_rank_0,
    _ring_half_way,
    _ring_sends_first,
)
from answers.lesson05.shard import _shard_cut_first
from answers.lesson05.unhang import _unhang_given
from support import skip
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DistributedSampler

from course_lessons.lesson05 import drawings as in_drawings
from course_lessons.lesson05 import unhang as in_unhang
from course_lessons.lesson05.accumulate import accumulate
from course_lessons.lesson05.learning_rate import learning_rate
from course_lessons.lesson05.rescue import rescue
from course_lessons.lesson05.ring_all_reduce import ring_all_reduce
from course_lessons.lesson05.shard import shard
from course_lessons.lesson05.sharded_bytes import sharded_bytes
from course_lessons.lesson05.unhang import unhang
from course_utils.exercises import lesson, todo
from simgpu import cluster

EX = lesson("05")


def reference(name):
    return getattr(EX, name).reference


ROOT = Path(__file__).parents[1]


def judged(name, answer):
    result = getattr(EX, name).result(answer)
    return result.outcome, result.diagnosis


# --- right answers of other kinds are right


def averages_by_avg(model, dist):
    for p in (p for p in model.parameters() if p.requires_grad):
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)


def averages_by_bucket(model, dist):
    trained = [p for p in model.parameters() if p.requires_grad]
    flat = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trained]
    )
    dist.all_reduce(flat)
    for p, values in zip(trained, flat.split([p.numel() for p in trained]), strict=True):
        p.grad = values.view_as(p).to(p.dtype) / dist.get_world_size()


def averages_by_gathering(model, dist):
    n = dist.get_world_size()
    for p in model.parameters():
        if p.requires_grad:
            own = torch.zeros_like(p) if p.grad is None else p.grad
            each = [torch.empty_like(own) for _ in range(n)]
            dist.all_gather(each, own)
            p.grad = torch.stack(each).mean(0)


def averages_divided_first(model, dist):
    for p in reversed(list(model.parameters())):
        if p.requires_grad:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad.div_(dist.get_world_size())
            dist.all_reduce(p.grad)


def shards_by_sampler(n, rank, world_size, epoch, seed):
    sampler = DistributedSampler(range(n), world_size, rank, shuffle=True, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def averages_in_the_background(model, dist):
    works = []
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad / dist.get_world_size()
            works.append(dist.all_reduce(p.grad, async_op=True))
    for work in works:
        work.wait()


def shards_by_numpy(n, rank, world_size, epoch, seed):
    order = np.random.default_rng([seed, epoch]).permutation(n)
    return list(np.resize(order, math.ceil(n / world_size) * world_size)[rank::world_size])


def shards_as_an_array(n, rank, world_size, epoch, seed):
    return np.array(shards_by_numpy(n, rank, world_size, epoch, seed))


def shards_in_blocks(n, rank, world_size, epoch, seed):
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    order = torch.randperm(n, generator=generator)
    length = math.ceil(n / world_size)
    return order[torch.arange(rank * length, (rank + 1) * length) % n]


def shards_by_random(n, rank, world_size, epoch, seed):
    order = list(range(n))
    random.Random(f"{seed} {epoch}").shuffle(order)
    while len(order) % world_size:
        order.append(order[len(order) % n])
    return tuple(order[rank::world_size])


def accumulates_in_one_loop(model, parts, loss_fn, optimizer):
    optimizer.zero_grad()
    rows = sum(y.numel() for _, y in parts)
    for i, (x, y) in enumerate(parts, 1):
        with model.no_sync() if i < len(parts) else nullcontext():
            loss = loss_fn(model(x), y)
            (loss * (y.numel() / rows)).backward()
    optimizer.step()


def accumulates_by_the_attribute(model, parts, loss_fn, optimizer):
    optimizer.zero_grad()
    rows = sum(len(x) for x, _ in parts)
    for i, (x, y) in enumerate(parts, 1):
        model.require_backward_grad_sync = i == len(parts)
        (loss_fn(model(x), y) * len(x) / rows).backward()
    optimizer.step()


def accumulates_then_divides(model, parts, loss_fn, optimizer):
    model.zero_grad()
    with model.no_sync():
        for x, y in parts[:-1]:
            (loss_fn(model(x), y) * len(x)).backward()
    x, y = parts[-1]
    (loss_fn(model(x), y) * len(x)).backward()
    for p in model.parameters():
        p.grad /= sum(len(x) for x, _ in parts)
    optimizer.step()


def rates_by_min(step, base, base_batch, batch_per_rank, ranks, warmup):
    factor = batch_per_rank * ranks / base_batch
    done = min(step / warmup, 1) if warmup else 1
    return torch.tensor(base * (1 - done + done * factor), dtype=torch.float64)


def rescues_by_the_first_key(state, model):
    wanted = model.state_dict().keys()
    for key in wanted:
        for first in state:
            prefix = first.removesuffix(key)
            known = ("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.")
            if prefix in known and {prefix + each for each in wanted} == set(state):
                return OrderedDict((each.removeprefix(prefix), state[each]) for each in state)
    raise ValueError("another model")


def unhangs_by_two_calls(model, batches, dist, log):
    model.eval()
    loss, rows = torch.zeros(()), torch.tensor(0)
    with torch.inference_mode():
        for x, y in batches:
            loss = loss + F.cross_entropy(model(x), y) * len(x)
            rows = rows + len(x)
    loss, rows = loss.clone(), rows.clone()
    dist.all_reduce(loss)
    dist.all_reduce(rows)
    dist.barrier()
    mean = loss.item() / rows.item()
    if not dist.get_rank():
        log(mean)
    return mean


def unhangs_by_most_batches(model, batches, dist, log):
    most = torch.tensor(len(batches))
    dist.all_reduce(most, dist.ReduceOp.MAX)
    total = torch.zeros(2)
    for i in range(most):
        part = torch.zeros(2)
        if i < len(batches):
            x, y = batches[i]
            with torch.no_grad():
                part[0] = F.cross_entropy(model(x), y, reduction="sum")
            part[1] = len(x)
        dist.all_reduce(part)
        total += part
    if dist.get_rank() == 0:
        log(total[0] / total[1])
    return (total[0] / total[1]).item()


def bytes_by_meta(shapes, ranks):
    tensors = [torch.empty(shape, device="meta") for shape in shapes]
    part = sum(t.chunk(ranks)[0].nbytes for t in tensors)
    return [4 * sum(t.nbytes for t in tensors), 4 * part]


def ring_by_irecv(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    flat = x.flatten()
    length = math.ceil(len(flat) / n)
    padded = F.pad(flat, (0, n * length - len(flat)))
    parts = list(padded.split(length))
    for step in range(n - 1):
        parts[(rank + step + 1) % n] += swapped(parts[(rank + step) % n], dist)
    for step in range(n - 1):
        parts[(rank + step) % n].copy_(swapped(parts[(rank + step - 1) % n], dist))
    x.copy_(padded[: len(flat)].view_as(x))


def swapped(part, dist):
    """Send a piece to the left, and return what comes from the right."""
    n, rank = dist.get_world_size(), dist.get_rank()
    received = torch.empty_like(part)
    works = [dist.irecv(received, (rank + 1) % n), dist.isend(part, (rank - 1) % n)]
    for work in works:
        work.wait()
    return received


def ring_of_direct_messages(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts, received = x.view(-1).tensor_split(n), []
    for step in range(1, n):
        sending = dist.isend(parts[(rank + step) % n], (rank + step) % n)
        received.append(torch.empty_like(parts[rank]))
        dist.recv(received[-1], (rank - step) % n)
        sending.wait()
    for part in received:
        parts[rank].add_(part)
    for step in range(1, n):
        sending = dist.isend(parts[rank], (rank + step) % n)
        dist.recv(parts[(rank - step) % n], (rank - step) % n)
        sending.wait()


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("average_gradients", averages_by_avg),
        ("average_gradients", averages_by_bucket),
        ("average_gradients", averages_by_gathering),
        ("average_gradients", averages_divided_first),
        ("average_gradients", averages_in_the_background),
        ("shard", shards_by_sampler),
        ("shard", shards_in_blocks),
        ("shard", shards_by_random),
        ("shard", shards_by_numpy),
        ("shard", shards_as_an_array),
        ("accumulate", accumulates_in_one_loop),
        ("accumulate", accumulates_then_divides),
        ("accumulate", accumulates_by_the_attribute),
        ("learning_rate", rates_by_min),
        ("rescue", rescues_by_the_first_key),
        ("unhang", unhangs_by_two_calls),
        ("unhang", unhangs_by_most_batches),
        ("sharded_bytes", bytes_by_meta),
        ("ring_all_reduce", ring_by_irecv),
        ("ring_all_reduce", ring_of_direct_messages),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_another_right_answer_is_right(name, answer):
    result = getattr(EX, name).result(answer)
    assert result.outcome == "right", result.bundle().text


# --- other wrong answers, and what is said of them


def averages_sent_in_own_order(model, dist):
    parameters = [p for p in model.parameters() if p.requires_grad]
    for p in parameters if dist.get_rank() else reversed(parameters):
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def averages_of_rank_0(model, dist):
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.reduce(p.grad, 0)
            if dist.get_rank() == 0:
                p.grad /= dist.get_world_size()


def averages_of_broadcasts(model, dist):
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.broadcast(p.grad, 0)


def averages_of_divided_broadcasts(model, dist):
    averages_of_broadcasts(model, dist)
    for p in model.parameters():
        if p.requires_grad:
            p.grad /= dist.get_world_size()


def averages_of_the_largest(model, dist):
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad, dist.ReduceOp.MAX)


def shards_after_seeding_python(n, rank, world_size, epoch, seed):
    random.seed(seed + epoch)
    order = random.sample(range(n), n)
    return (order * world_size)[: math.ceil(n / world_size) * world_size][rank::world_size]


def shards_after_seeding_numpy(n, rank, world_size, epoch, seed):
    np.random.seed(seed + epoch)  # noqa: NPY002
    order = np.random.permutation(n)  # noqa: NPY002
    return np.resize(order, math.ceil(n / world_size) * world_size)[rank::world_size]


def shards_rotated(n, rank, world_size, epoch, seed):
    places = range(rank, math.ceil(n / world_size) * world_size, world_size)
    return [(place + epoch + seed) % n for place in places]


def shards_handed_round(n, rank, world_size, epoch, seed):
    return _shard_cut_first(n, (rank + epoch) % world_size, world_size, epoch, seed)


def shards_with_ranks_own_numbers(n, rank, world_size, epoch, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch + rank))
    return order.tolist()[: math.ceil(n / world_size)]


def shards_from_one(n, rank, world_size, epoch, seed):
    return [row + 1 for row in shard(n, rank, world_size, epoch, seed)]


def shards_twice(n, rank, world_size, epoch, seed):
    return 2 * shard(n, rank, world_size, epoch, seed)


def shards_without_seed(n, rank, world_size, epoch, seed):
    return shard(n, rank, world_size, epoch, 0)


def shards_without_seed_in_epoch_0(n, rank, world_size, epoch, seed):
    return shard(n, rank, world_size, epoch * seed, 0)


def accumulates_with_only_the_last_silent(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    optimizer.zero_grad()
    for i, (x, y) in enumerate(parts):
        with model.no_sync() if i == len(parts) - 1 else nullcontext():
            (loss_fn(model(x), y) * len(x) / rows).backward()
    optimizer.step()


def accumulates_all_rows_at_once(model, parts, loss_fn, optimizer):
    optimizer.zero_grad()
    xs, ys = zip(*parts, strict=True)
    loss_fn(model(torch.cat(xs)), torch.cat(ys)).backward()
    optimizer.step()


def accumulates_without_the_last(model, parts, loss_fn, optimizer):
    accumulate(model, parts[:-1] or parts, loss_fn, optimizer)


def accumulates_on_rank_0(model, parts, loss_fn, optimizer):
    if model._dist.get_rank() == 0:
        accumulate(model, parts, loss_fn, optimizer)


def rates_that_return(step, base, base_batch, batch_per_rank, ranks, warmup):
    if step > warmup:
        return base
    return learning_rate(step, base, base_batch, batch_per_rank, ranks, warmup)


def rates_by_min_alone(step, base, base_batch, batch_per_rank, ranks, warmup):
    new = base * batch_per_rank * ranks / base_batch
    return min(new, base + (new - base) * step / warmup) if warmup else new


def rescues_all_that_fits(state, model):
    for prefix in ("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."):
        if all(prefix + key in state for key in model.state_dict()):
            return {key: state[prefix + key] for key in model.state_dict()}
    raise ValueError("another model")


def rescues_by_cutting(state, model):
    wanted = model.state_dict().keys()
    found = OrderedDict(state)
    while found.keys() != wanted:
        if not found or not all(key.startswith(("module.", "_orig_mod.")) for key in found):
            raise ValueError("another model")
        found = OrderedDict((key.partition(".")[2], value) for key, value in found.items())
    return found


def rescues_key_by_key(state, model):
    for first in ("", "module.", "_orig_mod."):
        for second in ("", "module.", "_orig_mod."):
            found = {
                key.removeprefix(first).removeprefix(second): value for key, value in state.items()
            }
            if found.keys() == model.state_dict().keys():
                return found
    raise ValueError("another model")


def rescues_one_layer(state, model):
    found = rescue(state, model)
    first = next(iter(found))
    return {key: found[first] for key in found}


def unhangs_with_a_call_under_if(model, batches, dist, log):
    total = torch.zeros(2)
    with torch.no_grad():
        for x, y in batches:
            total[0] += F.cross_entropy(model(x), y, reduction="sum")
            total[1] += len(x)
    if dist.get_rank() == 0:
        dist.all_reduce(total)
        log(total[0] / total[1])
    return (total[0] / total[1]).item()


def unhangs_with_batches_means(model, batches, dist, log):
    total = torch.zeros(2)
    with torch.no_grad():
        for x, y in batches:
            total += torch.stack([F.cross_entropy(model(x), y), torch.tensor(1.0)])
    dist.all_reduce(total)
    mean = (total[0] / total[1]).item()
    if dist.get_rank() == 0:
        log(mean)
    return mean


def unhangs_with_means_of_means(model, batches, dist, log):
    with torch.no_grad():
        losses = [F.cross_entropy(model(x), y) for x, y in batches]
    mean = torch.stack(losses).mean() if losses else torch.tensor(0.0)
    dist.all_reduce(mean)
    mean = mean.item() / dist.get_world_size()
    if dist.get_rank() == 0:
        log(mean)
    return mean


def unhangs_with_a_graph(model, batches, dist, log):
    total = torch.zeros(2)
    for x, y in batches:
        total[0] += F.cross_entropy(model(x), y, reduction="sum").item()
        total[1] += len(x)
    dist.all_reduce(total)
    mean = (total[0] / total[1]).item()
    if dist.get_rank() == 0:
        log(mean)
    return mean


def unhangs_without_the_idle(model, batches, dist, log):
    if not batches:
        return 0.0
    return unhang(model, batches, dist, log)


def unhangs_with_a_tensor(model, batches, dist, log):
    return torch.tensor(unhang(model, batches, dist, log))


def ring_of_other_sizes(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    sending = dist.isend(x.view(-1)[: rank + 1], (rank + 1) % n)
    dist.recv(torch.empty_like(x), (rank - 1) % n)
    sending.wait()


def ring_to_and_from_all(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    others = [r for r in range(n) if r != rank]
    received = {r: torch.empty_like(x) for r in others}
    given = x.clone()
    works = [dist.irecv(received[r], r) for r in others] + [dist.isend(given, r) for r in others]
    for work in works:
        work.wait()
    for r in others:
        x += received[r]


def ring_all_begun_at_once(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts, works = x.view(-1).tensor_split(n), []
    others = [(rank + step) % n for step in range(1, n)]
    received = {other: torch.empty_like(parts[rank]) for other in others}
    for other in others:
        works += [dist.isend(parts[other], other), dist.irecv(received[other], other)]
    for work in works:
        work.wait()
    for part in received.values():
        parts[rank].add_(part)
    works = [dist.isend(parts[rank], other) for other in others]
    works += [dist.irecv(parts[other], other) for other in others]
    for work in works:
        work.wait()


def ring_reading_too_early(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        part = parts[(rank - step - 1) % n]
        received = torch.zeros_like(part)
        sending = dist.isend(parts[(rank - step) % n], (rank + 1) % n)
        dist.irecv(received, (rank - 1) % n)
        sending.wait()
        part.copy_(part + received if step < n - 1 else received)


@pytest.mark.parametrize(
    ("name", "answer", "diagnosis"),
    [
        ("average_gradients", averages_sent_in_own_order, "one-rank"),
        ("average_gradients", averages_of_rank_0, "one-rank"),
        ("average_gradients", averages_of_broadcasts, "own"),
        ("average_gradients", averages_of_divided_broadcasts, "own-divided"),
        ("average_gradients", averages_of_the_largest, "wrong-value"),
        ("shard", shards_with_ranks_own_numbers, "own-order"),
        ("shard", shards_from_one, "other-rows"),
        ("shard", shards_twice, "too-long"),
        ("shard", shards_after_seeding_python, "global-generator"),
        ("shard", shards_after_seeding_numpy, "global-generator"),
        ("shard", shards_rotated, "not-shuffled"),
        ("shard", shards_handed_round, "same-rows"),
        ("shard", shards_without_seed, "no-seed"),
        ("shard", shards_without_seed_in_epoch_0, "no-seed"),
        ("accumulate", accumulates_with_only_the_last_silent, "not-the-last"),
        ("accumulate", accumulates_all_rows_at_once, "all-at-once"),
        ("accumulate", accumulates_without_the_last, "other-parts"),
        ("accumulate", accumulates_on_rank_0, "ranks-wait"),
        ("learning_rate", rates_that_return, "not-scaled"),
        ("learning_rate", rates_by_min_alone, "without-end"),
        ("rescue", rescues_all_that_fits, "not-refused"),
        ("rescue", rescues_by_cutting, "not-refused"),
        ("rescue", rescues_key_by_key, "not-refused"),
        ("rescue", rescues_one_layer, "other-tensors"),
        ("unhang", unhangs_with_a_call_under_if, "one-rank"),
        ("unhang", unhangs_with_batches_means, "mean-of-batches"),
        ("unhang", unhangs_with_means_of_means, "mean-of-both"),
        ("unhang", unhangs_with_a_graph, "graph"),
        ("unhang", unhangs_without_the_idle, "unequal-loops"),
        ("unhang", unhangs_with_a_tensor, "wrong-type"),
        ("sharded_bytes", lambda shapes, ranks: (1, 2, 3), "not-a-pair"),
        ("ring_all_reduce", ring_of_other_sizes, "other-partner"),
        ("ring_all_reduce", ring_to_and_from_all, "whole-tensors"),
        ("ring_all_reduce", ring_all_begun_at_once, "too-many-steps"),
        ("ring_all_reduce", ring_reading_too_early, "no-wait"),
        ("ring_all_reduce", lambda x, dist: x.mul_(dist.get_world_size()), "too-much"),
        ("ring_all_reduce", lambda x, dist: x.zero_(), "other-sum"),
        ("ring_all_reduce", lambda x, dist: None, "not-in-place"),
    ],
)
def test_another_wrong_answer_is_refused(name, answer, diagnosis):
    assert judged(name, answer) == ("not_yet", diagnosis)


@pytest.mark.parametrize("name", ["average_gradients", "accumulate", "unhang", "ring_all_reduce"])
def test_an_answer_on_the_cluster_is_told_from_a_stub_and_from_a_fault_of_its_own(name):
    arguments = ", ".join(inspect.signature(reference(name)).parameters)
    stub, faulty = (
        eval(f"lambda {arguments}: {end}", {"todo": todo}) for end in ("todo()", "1 / 0")
    )
    assert judged(name, stub) == ("not_tried", "")
    assert judged(name, faulty) == ("raised", "ZeroDivisionError")


def test_a_hang_is_said_within_a_second_with_the_learners_lines():
    result = EX.unhang.result(_unhang_given)
    (seen,) = (value for name, value in result.details if name == "Seen")
    line = (
        Path(_unhang_given.__code__.co_filename)
        .read_text()
        .splitlines()
        .index("        dist.barrier()")
        + 1
    )
    assert f"rank 0 waits in barrier (its 3rd call, line {line})" in seen
    assert "rank 1 has finished" in seen


def test_an_endless_loop_on_one_rank_is_stopped(monkeypatch):
    def spins(model, batches, dist, log):
        while dist.get_rank() == 1:
            pass
        return unhang(model, batches, dist, log)

    monkeypatch.setattr(EX.unhang, "limit", 0.5)
    assert judged("unhang", spins) == ("not_yet", "too-slow")
    assert judged("unhang", unhang) == ("right", "")


def test_a_check_on_the_cluster_leaves_the_number_of_threads():
    before = torch.get_num_threads()
    for name in ("average_gradients", "unhang"):
        judged(name, reference(name))
        judged(name, lambda *_: 1 / 0)
    assert torch.get_num_threads() == before


def test_the_code_to_mend_in_the_notebook_has_both_faults():
    cells = nbformat.read(ROOT / "notebooks" / "05_several_gpus.ipynb", as_version=4).cells
    (source,) = (c.source for c in cells if "def unhang(" in c.source)
    lines = [line for line in source.splitlines() if "return todo()" not in line]
    names = {**vars(in_unhang), "ex": None}
    exec("\n".join(line for line in lines if not line.startswith("ex.")), names)
    assert judged("unhang", names["unhang"]) == ("not_yet", "one-rank")
    half = [line for line in lines if "barrier" not in line and not line.startswith("ex.")]
    exec("\n".join(half), names)
    assert judged("unhang", names["unhang"]) == ("not_yet", "unequal-loops")


# --- the references against PyTorch


@pytest.mark.parametrize(("n", "ranks"), [(12, 3), (10, 4), (3, 8), (1, 1), (50, 7)])
def test_shard_gives_the_rows_of_the_distributed_sampler(n, ranks):
    for rank in range(ranks):
        for epoch in (0, 5):
            assert shard(n, rank, ranks, epoch, 4) == shards_by_sampler(n, rank, ranks, epoch, 4)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 16])
def test_sharded_bytes_are_those_of_fully_shard(ranks):
    from torch.distributed import fsdp
    from torch.testing._internal.distributed import fake_pg as fake

    torch_dist.init_process_group("fake", rank=0, world_size=ranks, store=fake.FakeStore())
    try:
        model = nn.Sequential(
            nn.Linear(20, 10), nn.Linear(10, 3), nn.LayerNorm(9), nn.Conv2d(5, 2, 3)
        )
        shapes = [tuple(p.shape) for p in model.parameters()]
        whole = sum(p.nbytes for p in model.parameters())
        fsdp.fully_shard(model)
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer = torch.optim.Adam(model.parameters())
        optimizer.step()
        held = 0
        for p in model.parameters():
            state = optimizer.state[p]
            for tensor in (p, p.grad, state["exp_avg"], state["exp_avg_sq"]):
                held += tensor.to_local().nbytes
    finally:
        torch_dist.destroy_process_group()
    assert sharded_bytes(shapes, ranks) == (4 * whole, held)


@pytest.mark.slow
def test_rescue_takes_what_ddp_and_compile_really_save():
    def model():
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))

    plain = model()
    (wrapped,) = cluster.run(lambda dist: cluster.DistributedDataParallel(model(), dist), 1).results
    compiled = torch.compile(model())
    (both,) = cluster.run(lambda dist: cluster.DistributedDataParallel(compiled, dist), 1).results
    for saved in (plain, wrapped, compiled, both, torch.compile(wrapped)):
        state = saved.state_dict()
        assert plain.load_state_dict(rescue(state, plain)).missing_keys == []


def test_learning_rate_is_that_of_the_paper():
    rate = learning_rate
    assert rate(10**6, 0.1, 256, 32, 256, 5) == pytest.approx(3.2)  # 8192 samples a step
    assert [rate(s, 0.1, 256, 32, 256, 4) for s in range(5)] == pytest.approx(
        [0.1, 0.875, 1.65, 2.425, 3.2]
    )


@pytest.mark.parametrize("ranks", [2, 3, 6])
def test_the_ring_reaches_the_target_and_costs_what_all_reduce_does(ranks):
    def by(function):
        return cluster.run(lambda dist: function(torch.ones(12 * ranks), dist), ranks=ranks)

    ring, whole = by(ring_all_reduce), by(lambda x, dist: dist.all_reduce(x))
    assert ring.steps == 2 * (ranks - 1)
    assert set(ring.sent) == {2 * (ranks - 1) * 12 * 4}
    assert ring.seconds == pytest.approx(whole.seconds)


PROGRAM = """
import gc
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from course_lessons.lesson05 import accumulate, average_gradients, ring_all_reduce, unhang

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()

for shape in ((12,), (7, 5), (2,)):
    x, right = (torch.arange(float(torch.Size(shape).numel())).view(shape) * 10**rank for _ in range(2))
    ring_all_reduce.ring_all_reduce(x, dist)
    dist.all_reduce(right)
    assert torch.equal(x, right), (x, right)

model = average_gradients._with_gradients(rank, unused=True)
average_gradients.average_gradients(model, dist)
before = [average_gradients._with_gradients(r, unused=True) for r in range(ranks)]
average_gradients._judge_averages(model, before, rank, None)

logged = []
batches = unhang._labelled(((3,), (2, 2), ())[rank], rank)
mean = unhang.unhang(unhang._classifier(), batches, dist, logged.append)
assert logged == ([mean] if rank == 0 else [])

torch.manual_seed(0)
sizes = ((5, 3, 2), (4, 6), (10,))
model = nn.parallel.DistributedDataParallel(nn.Linear(3, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accumulate.accumulate(model, accumulate._parts(sizes[rank], rank), F.cross_entropy, optimizer)
accumulate._judge_weights(model, sizes, None)

print(f"rank {rank} is through", flush=True)
del model
gc.collect()  # without it gloo at times aborts in the process's last moments
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_the_references_run_in_real_processes(tmp_path):
    if not (torch_dist.is_available() and torch_dist.is_gloo_available()):
        skip("this PyTorch comes without gloo", until="2027-11-30")
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",
    ]
    done = subprocess.run(
        [*command, "--nproc-per-node=3", str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    through = re.findall(r"rank \d is through", done.stdout)  # lines of two ranks may run together
    assert sorted(through) == [f"rank {rank} is through" for rank in range(3)]


# --- the puzzle's drawing


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (ring_all_reduce, "At the end 32 of 32 places hold the sum"),
        (_ring_half_way, "At the end 8 of 32 places hold the sum"),
        (_ring_by_rank_0, "after each of 6 steps"),
        (_ring_averaging, "At the end 0 of 32"),
        (_ring_sends_first, "Nothing to draw: No rank can go on: rank 0 waits in send"),
        (lambda x, dist: todo(), "no rank has sent anything yet"),
        (lambda x, dist: 1 / 0, "Nothing to draw: division by zero"),
        (todo(), "Nothing to draw"),
    ],
)
def test_the_puzzle_is_drawn_or_it_is_said_why_not(answer, says, monkeypatch, capsys):
    monkeypatch.setattr(
        sys.modules["course_lessons.lesson05.drawings"], "present", lambda figure, alt: print(alt)
    )
    in_drawings.ring(answer)
    assert says in capsys.readouterr().out
