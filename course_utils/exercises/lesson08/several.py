"""Exercises of lesson 08 on several processes.

What an answer does with other ranks is judged on the simulated cluster: it is deterministic, and ranks that
would wait for ever are found at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ... import cluster
from ..core import Exercise, Judge, _Raised
from ..lesson05 import _on_ranks

# rank_of -----------------------------------------------------------------------------------------


def rank_of(environment):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    missing = [name for name in names if name not in environment]
    if len(missing) == len(names):
        return 0, 0, 1
    if missing:
        raise ValueError(f"{', '.join(missing)} not set: start with torchrun --nproc-per-node=2")
    return tuple(int(environment[name]) for name in names)


_STARTED = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1"}
_ALONE = {"PATH": "/usr/bin", "MASTER_PORT": "29500"}


def _check_rank_of(answer: Callable[..., Any], judge: Judge) -> None:
    for environment in ({}, _ALONE):
        try:
            got = answer(dict(environment))
        except _Raised as raised:
            if not isinstance(raised.error, (KeyError, ValueError, TypeError)):
                raise
            seen = f"{_said(raised.error)}, started by python"
            judge.no("not-alone", seen=seen, expected=(0, 0, 1))
        if isinstance(got, (tuple, list)) and tuple(got) != (0, 0, 1):
            judge.no("not-alone", seen=f"{got}, started by python", expected=(0, 0, 1))
        judge.is_a(got, tuple, "three numbers")
    one = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    for environment, right in ((_STARTED, (5, 1, 8)), (one, (0, 0, 1))):
        got = judge.is_a(answer(dict(environment)), tuple, "three numbers")
        if any(isinstance(number, str) for number in got):
            judge.no("strings", seen=got, expected=right)
        if got != right:
            why = "other-order" if sorted(got) == sorted(right) else "wrong-value"
            judge.no(why, seen=f"{got} for {environment}", expected=right)
    for gone in (("RANK",), ("LOCAL_RANK",), ("WORLD_SIZE",), ("RANK", "WORLD_SIZE")):
        half = {name: value for name, value in _STARTED.items() if name not in gone}
        try:
            got = answer(half)
        except _Raised as raised:
            error = raised.error
            if isinstance(error, ValueError) and all(name in str(error) for name in gone):
                continue
            if not isinstance(error, (KeyError, ValueError, TypeError)):
                raise
            expected = f"a ValueError with {' and '.join(gone)} in its text"
            judge.no("unnamed", seen=_said(error), expected=expected)
        judge.no("half-set", seen=f"{got} without {' and '.join(gone)}", expected="a ValueError")


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _rank_bare(environment):
    return tuple(int(environment[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))


def _rank_with_defaults(environment):
    defaults = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1}
    return tuple(int(environment.get(name, value)) for name, value in defaults.items())


def _rank_as_text(environment):
    if "RANK" not in environment:
        return 0, 0, 1
    return environment["RANK"], environment["LOCAL_RANK"], environment["WORLD_SIZE"]


def _rank_by_key(environment):
    if not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & set(environment):
        return 0, 0, 1
    return _rank_bare(environment)


def _rank_swapped(environment):
    rank, local, size = rank_of(environment)
    return (local, rank, size) if size > 1 else (rank, local, size)


# save_on_one -------------------------------------------------------------------------------------


def save_on_one(model, dist, save):
    if dist.get_rank() == 0:
        save(model.module.state_dict())
    dist.barrier()


class _Net(nn.Module):
    """A network with buffers, and with a child that is called ``module``."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)


def _check_save_on_one(answer: Callable[..., Any], judge: Judge) -> None:
    for ranks in (2, 1, 4):
        saved: list[tuple[int, Any]] = []

        def program(
            dist: Any, call: Callable[..., Any], saved: list[tuple[int, Any]] = saved
        ) -> dict[str, Tensor]:
            model = cluster.DistributedDataParallel(_Net(), dist)
            dist.barrier()

            def save(values: Any) -> None:
                cluster.compute(dist, 1.0, "save")
                saved.append((dist.get_rank(), values))

            call(model, dist, save)
            cluster.compute(dist, 0.1, "go on")
            return model.module.state_dict()

        run = _on_ranks(program, answer, ranks, judge, "hang")
        writers = [rank for rank, _ in saved]
        if writers != [0]:
            judge.no(
                "every-rank" if len(writers) > 1 else "other-rank",
                seen=f"saved by ranks {writers} of {ranks}",
                expected="saved by rank 0, once",
            )
        state, right = saved[0][1], run.results[0]
        judge.is_a(state, Mapping, "a state_dict")
        if list(state) != list(right):
            judge.no("wrapped-keys", seen=list(state), expected=list(right))
        if any(not torch.equal(state[key], right[key]) for key in right):
            judge.no("other-values", seen="other values", expected="those of the model")
        done = max(span.end for span in run.spans if span.name == "save")
        early = [s.rank for s in run.spans if s.name == "go on" and s.start < done - 1e-6]
        if early:
            judge.no(
                "no-wait",
                seen=f"ranks {early} of {ranks} went on before the file was there",
                expected="all ranks wait for it",
            )


def _save_as_it_comes(model, dist, save):
    save(model.state_dict())


def _save_wrapped(model, dist, save):
    if dist.get_rank() == 0:
        save(model.state_dict())
    dist.barrier()


def _save_without_waiting(model, dist, save):
    if dist.get_rank() == 0:
        save(model.module.state_dict())


def _save_one_barrier(model, dist, save):
    if dist.get_rank() == 0:
        save(model.module.state_dict())
        dist.barrier()


# batch_statistics --------------------------------------------------------------------------------


def batch_statistics(x, dist):
    sums = torch.stack([torch.ones_like(x), x]).sum(1)
    dist.all_reduce(sums)
    count, total = sums
    mean = total / count
    squares = (x - mean).square().sum(0)
    dist.all_reduce(squares)
    return mean, squares / count


def _own_rows(rank: int, sizes: Sequence[int], dtype: torch.dtype, shift: float) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    rows = torch.randn(sizes[rank], 3, dtype=dtype, generator=generator)
    return rows * (rank + 1) + torch.tensor([0.5, -1.0, 2.0], dtype=dtype) * rank + shift


def _check_batch_statistics(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes, dtype, shift in (
        ((4, 4), torch.float32, 0.0),
        ((5, 2, 9), torch.float64, 0.0),
        ((6,), torch.float32, 0.0),
        ((1, 7, 3, 3), torch.float32, 0.0),
        ((3, 5), torch.float32, 5000.0),
    ):

        def program(
            dist: Any,
            call: Callable[..., Any],
            sizes: Sequence[int] = sizes,
            dtype: torch.dtype = dtype,
            shift: float = shift,
        ) -> Any:
            return call(_own_rows(dist.get_rank(), sizes, dtype, shift), dist)

        run = _on_ranks(program, answer, len(sizes), judge, "hang")
        parts = [_own_rows(rank, sizes, dtype, shift) for rank in range(len(sizes))]
        x = torch.cat(parts)
        mean, variance = x.mean(0), x.var(0, correction=0)
        for rank, got in enumerate(run.results):
            pair = judge.is_a(got, (tuple, list), "two tensors")
            if len(pair) != 2 or not all(isinstance(t, Tensor) for t in pair):
                judge.no("wrong-type", seen=pair, expected="two tensors")
            where = f"on rank {rank}, rows by rank {list(sizes)}"
            if not _near(pair[0], mean):
                means = torch.stack([part.mean(0) for part in parts])
                twins = {"own": means[rank], "mean-of-means": means.mean(0)}
                like = [name for name, value in twins.items() if _near(pair[0], value)]
                judge.no(
                    like[0] if like else "wrong-mean",
                    seen=f"mean {_values(pair[0])} {where}",
                    expected=_values(mean),
                )
            if not _near(pair[1], variance):
                each = torch.stack([part.var(0, correction=0) for part in parts])
                weights = torch.tensor(sizes, dtype=dtype)[:, None] / sum(sizes)
                twins = {
                    "unbiased": x.var(0),
                    "mean-of-variances": (each * weights).sum(0),
                    "own": each[rank],
                }
                like = [name for name, value in twins.items() if _near(pair[1], value)]
                other = "loses-digits" if shift else "wrong-variance"
                judge.no(
                    like[0] if like else other,
                    seen=f"variance {_values(pair[1])} {where}",
                    expected=_values(variance),
                )


def _near(got: Tensor, right: Tensor) -> bool:
    return got.shape == right.shape and torch.allclose(got.to(right), right, rtol=1e-3, atol=1e-5)


def _values(tensor: Tensor) -> str:
    return f"[{', '.join(f'{value:.4g}' for value in tensor.flatten()[:6].tolist())}]"


def _statistics_by(
    weighted: bool = True, correction: int = 0, between: bool = True
) -> Callable[..., Any]:
    """Make an answer that takes the mean over the ranks' own means and variances, with a fault."""

    def batch_statistics(x, dist):
        share = x.new_full((1,), len(x))
        dist.all_reduce(share)
        rows = share.clone()
        share = len(x) / share if weighted else torch.full_like(share, 1 / dist.get_world_size())
        mean = x.mean(0) * share
        dist.all_reduce(mean)
        distance = (x - mean) if between else (x - x.mean(0))
        variance = distance.square().mean(0) * share
        dist.all_reduce(variance)
        return mean, variance * rows / (rows - correction)

    return batch_statistics


def _statistics_in_one_round(x, dist):
    sums = torch.stack([torch.ones_like(x), x, x * x]).sum(1)
    dist.all_reduce(sums)
    count, total, squares = sums
    mean = total / count
    return mean, squares / count - mean**2


def _statistics_of_one(x, dist):
    return x.mean(0), x.var(0, correction=0)


# gather_rows -------------------------------------------------------------------------------------


def gather_rows(rows, dist):
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    counts = [count.item() for count in counts]
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[: counts[rank]] for rank, part in enumerate(parts)])


def _held(rank: int, sizes: Sequence[int], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    values = torch.arange(1, 1 + sizes[rank] * torch.Size(shape).numel()) + 100 * rank
    return values.view(sizes[rank], *shape).to(dtype)


def _check_gather_rows(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes, shape, dtype in (
        ((2, 2), (3,), torch.float32),
        ((3, 1, 4), (2,), torch.float64),
        ((1, 0, 2, 5), (), torch.int64),
        ((4,), (2, 2), torch.float32),
        ((0, 0), (3,), torch.float32),
    ):

        def program(
            dist: Any,
            call: Callable[..., Any],
            sizes: Sequence[int] = sizes,
            shape: Sequence[int] = shape,
            dtype: torch.dtype = dtype,
        ) -> Any:
            return call(_held(dist.get_rank(), sizes, shape, dtype), dist)

        run = _on_ranks(program, answer, len(sizes), judge, "hang", "unequal")
        parts = [_held(rank, sizes, shape, dtype) for rank in range(len(sizes))]
        right = torch.cat(parts)
        for rank, got in enumerate(run.results):
            if got is None and rank:
                judge.no("one-rank", seen=f"None on rank {rank}", expected="all rows on all ranks")
            judge.is_a(got, Tensor, "a tensor")
            where = f"rows by rank {list(sizes)}: {len(got)} on rank {rank}"
            if len(got) > len(right):
                judge.no("padding-left", seen=where, expected=f"{len(right)}")
            if len(got) < len(right):
                judge.no("rows-lost", seen=where, expected=f"{len(right)}")
            if got.dtype != dtype or got.shape != right.shape:
                judge.no(
                    "other-form",
                    seen=f"{tuple(got.shape)}, {got.dtype}",
                    expected=f"{tuple(right.shape)}, {dtype}",
                )
            if not torch.equal(got, right):
                judge.no("other-rows", seen=_values(got), expected=_values(right))


def _gather_as_is(rows, dist):
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows)
    return torch.cat(parts)


def _longest(rows, dist):
    longest = torch.tensor([len(rows)])
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    padded = rows.new_zeros(int(longest), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, padded)
    return parts


def _gather_with_padding(rows, dist):
    return torch.cat(_longest(rows, dist))


def _gather_shortest(rows, dist):
    shortest = torch.tensor([len(rows)])
    dist.all_reduce(shortest, dist.ReduceOp.MIN)
    return _gather_as_is(rows[: int(shortest)], dist)


def _gather_on_rank_0(rows, dist):
    parts = _longest(rows, dist)
    counts = [torch.zeros(1, dtype=torch.int64) for _ in parts]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    if dist.get_rank():
        return None
    return torch.cat([part[: int(n)] for part, n in zip(parts, counts, strict=True)])


def _gather_if_any(rows, dist):
    return gather_rows(rows, dist) if len(rows) else rows


def _gather_reversed(rows, dist):
    return gather_rows(rows, dist).flip(0)


EXERCISES = (
    Exercise(
        id="08.rank_of",
        title="Who started me?",
        level=1,
        minutes=5,
        task="""
In a script that was started by `python`, `init_process_group()` ends with *environment variable RANK expected,
but not set*. Write `rank_of(environment)`: the tuple `(rank, local_rank, world_size)` of whole numbers.
`environment` is a dict of texts, such as `os.environ`, in which torchrun sets `RANK`, `LOCAL_RANK` and
`WORLD_SIZE`. Where none of the three is set, the process is alone: rank 0 of 1. Where only some are, raise a
`ValueError` that names the missing ones and says how to start the script.
""",
        hints=(
            "There are three cases: none is set, all are set, or something in between. Which of them must not pass "
            "in silence?",
            "Collect the names that are not in `environment` in a list, and look at its length.",
            "`if len(missing) == 3:` alone; `if missing:` raise, with the names in the text; else "
            "`int(environment[name])` for each.",
        ),
        reference=rank_of,
        check_answer=_check_rank_of,
        why="One script now serves a laptop and a cluster. `environment.get(name, 0)` would serve them too, until a "
        "variable is lost: then every process takes itself for rank 0 of 1, trains the whole data alone, and writes "
        "over the others' checkpoints. No error says so.",
        diagnoses={
            "not-alone": "A script that was started without torchrun must go on, as rank 0 of 1.",
            "half-set": "Some variables are missing, and a number was made up for them. Processes would not know of "
            "each other.",
            "unnamed": "The error must be a `ValueError` that names every missing variable.",
            "strings": "The environment holds texts. Ranks are whole numbers.",
            "other-order": "The order is rank, local rank, world size. The local rank counts on one machine, the "
            "rank over all.",
        },
        wrong={
            "not-alone": _rank_bare,
            "half-set": _rank_with_defaults,
            "strings": _rank_as_text,
            "unnamed": _rank_by_key,
            "other-order": _rank_swapped,
        },
    ),
    Exercise(
        id="08.save_on_one",
        title="Four ranks, one file",
        level=2,
        minutes=6,
        task="""
In the cell, every rank writes the same file at the same time, with keys that the plain model does not know.
Write `save_on_one(model, dist, save)`. `model` is wrapped by `DistributedDataParallel`; `save(state)` writes
the file, which takes a while. Rank 0 saves once, with the keys of the model inside. All ranks call the
function, and when it returns on any rank, the file is there. (`dist` stands for `torch.distributed`.)
""",
        hints=(
            "Which of the ranks need the file, which must write it, and what do the others do meanwhile?",
            "The wrapper keeps the model in `model.module`. Take its `state_dict()`, and no text has to be cut from "
            "any key.",
            "`dist.barrier()` lets everybody wait until everybody is there. So every rank must come to it, and rank "
            "0 after it has saved.",
        ),
        reference=save_on_one,
        check_answer=_check_save_on_one,
        why="All replicas are alike, so one copy is enough. The barrier is for what comes next: a rank that loads "
        "the file at once, or that ends the job, must not be faster than the disk. With FSDP no rank has all of the "
        "model, and then `torch.distributed.checkpoint` lets each save its part.",
        diagnoses={
            "every-rank": "Several ranks write the same file at the same time.",
            "other-rank": "Rank 0 is to save, once.",
            "wrapped-keys": "The keys are not those of the model inside. (Its own child may be called `module` too, "
            "so do not cut texts.)",
            "other-values": "The values are not those of the model.",
            "no-wait": "Some ranks go on while rank 0 still writes.",
            "hang": "Ranks wait for ever. A barrier counts only where every rank comes to it.",
        },
        wrong={
            "every-rank": _save_as_it_comes,
            "wrapped-keys": _save_wrapped,
            "no-wait": _save_without_waiting,
            "hang": _save_one_barrier,
        },
        may_change=True,
    ),
    Exercise(
        id="08.batch_statistics",
        title="One batch on four ranks",
        level=2,
        minutes=8,
        task="""
`BatchNorm` under DDP takes mean and variance of its own rank's rows. `SyncBatchNorm` takes those of all. Write
`batch_statistics(x, dist)`: on every rank, the mean and the variance of each column over the rows of all ranks
together, a pair of tensors. `x` has this rank's rows, at least one, and the ranks may have unequally many. The
variance divides by the number of rows. A column's mean may be some thousand times its spread. `x` stays as it is.
""",
        hints=(
            "What must you know of the other ranks' rows? Can you add it up?",
            "The variance of all is not the mean of the variances: the ranks' means differ too.",
            "Two rounds: add up the number of rows and the sum of `x`, and with the mean of all that every rank has then, "
            "add up the squares of `x - mean`.",
        ),
        reference=batch_statistics,
        check_answer=_check_batch_statistics,
        why="Metrics combine in this way too: sums and counts travel, and the division comes last. That DDP does "
        "not do it is why four ranks of 8 rows are not one batch of 32 for BatchNorm. (One round would do with the sum of "
        "`x * x` as well, and its difference of two large numbers loses the digits that you want. `SyncBatchNorm` sends "
        "each rank's count, mean and variance, once.)",
        diagnoses={
            "own": "These are the figures of the rank's own rows.",
            "mean-of-means": "The mean of the ranks' means counts few rows as much as many.",
            "mean-of-variances": "That is the mean of the ranks' variances. It leaves out that their means differ.",
            "unbiased": "This variance divides by one less than the number of rows.",
            "loses-digits": "The variance is a small difference of two large numbers here, and float32 has only seven digits. Add up "
            "squares of distances from the mean.",
            "wrong-mean": "That is not the mean over all rows.",
            "wrong-variance": "The mean is right, and this is not the variance over all rows.",
            "hang": "Ranks wait for ever, or call different things. Every rank must make the same calls.",
        },
        wrong={
            "own": _statistics_of_one,
            "mean-of-means": _statistics_by(weighted=False),
            "mean-of-variances": _statistics_by(between=False),
            "unbiased": _statistics_by(correction=1),
            "loses-digits": _statistics_in_one_round,
        },
    ),
    Exercise(
        id="08.gather_rows",
        title="Collect what differs in length",
        level=3,
        minutes=12,
        task="""
For a metric that needs all predictions at once, every rank needs the rows of all. Write `gather_rows(rows,
dist)`: on every rank, the rows of rank 0, then those of rank 1, and so on, in one tensor of the same dtype.
Ranks may hold unequally many rows, or none; the other dimensions are alike. But `dist.all_gather(list, tensor)`
wants the same shape on every rank.
""",
        hints=(
            "Which number must every rank know of the others before the rows can travel?",
            "First gather the counts, as tensors of one whole number. Then every rank knows the longest, and can "
            "pad to it.",
            "After the second `all_gather`, cut each part to its own rank's count, and `torch.cat`. A rank without "
            "rows makes the same calls.",
        ),
        reference=gather_rows,
        check_answer=_check_gather_rows,
        why="Shapes must agree because a collective does not negotiate: each rank writes into memory of a size that "
        "it knew before. On GPUs a mismatch often hangs in place of raising. Where a sum is enough, send the sum: "
        "it is smaller, and nobody has to pad.",
        diagnoses={
            "unequal": "The ranks hand tensors of unequal shape to the same collective.",
            "hang": "A rank waits for ever: another one has left out a call.",
            "padding-left": "Rows are there that nobody had: padding, or rows twice.",
            "rows-lost": "Rows are missing.",
            "other-form": "The dtype or the other dimensions have changed.",
            "other-rows": "These are not the rows in the order of the ranks.",
            "one-rank": "Every rank is to have all rows, not rank 0 alone.",
        },
        wrong={
            "unequal": _gather_as_is,
            "padding-left": _gather_with_padding,
            "rows-lost": _gather_shortest,
            "hang": _gather_if_any,
            "one-rank": _gather_on_rank_0,
            "other-rows": _gather_reversed,
        },
    ),
)
