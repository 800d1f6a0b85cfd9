"""The ranks that wait for ever."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import on_ranks
from course_utils.exercises import Exercise, Judge

from .checking import words


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
        run = on_ranks(program, answer, len(sizes), judge, hang)
        for rank, (got, logged, graph) in enumerate(run.results):
            where = f"rank {rank} of {len(sizes)}, with {words(sizes[rank])} rows in its batches"
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


EXERCISE = Exercise(
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
    "question: which collective has one rank called, and another not? The Flight Recorder answers it, with gloo and with NCCL. "
    "`py-spy dump` shows the line in which a process stands: with gloo that is the collective, with NCCL often a later line.",
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
)
