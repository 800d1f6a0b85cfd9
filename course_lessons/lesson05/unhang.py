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
from course_utils.exercises.forms import several
from course_utils.exercises.values import agree, apart, nearly

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


def _labelled(sizes: Sequence[int], rank: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(11 + rank)
    return [
        (3 * torch.randn(n, 3, generator=generator), torch.arange(n) % (2 + rank % 2))
        for n in sizes
    ]


def _classifier() -> nn.Module:
    torch.manual_seed(5)
    return nn.Linear(3, 3)


def _check_unhang(answer: Callable[..., Any], judge: Judge) -> None:
    got, logs = [], []
    for sizes in _BATCHES:
        shards = [_labelled(rank_sizes, rank) for rank, rank_sizes in enumerate(sizes)]

        def program(dist: Any, call: Callable[..., Any], shards: Any = shards) -> tuple[Any, ...]:
            logged: list[Any] = []
            return call(_classifier(), shards[dist.get_rank()], dist, logged.append), logged

        uneven = len({len(rank_sizes) for rank_sizes in sizes}) > 1
        results = on_ranks(
            program, answer, len(sizes), judge, "unequal-loops" if uneven else "one-rank"
        ).results
        where = f"with batches of {' / '.join(words(rows) for rows in sizes)} rows"
        if results[0][0] is not None and any(mean is None for mean, _ in results):
            rank = next(rank for rank, (mean, _) in enumerate(results) if mean is None)
            judge.no("only-rank-0", seen=f"None on rank {rank}", expected="the mean on each rank")
        got.append([judge.is_a(mean, (int, float), "a Python number") for mean, _ in results])
        logs.append(([logged for _, logged in results], where))
    data = [_sums(sizes) for sizes in _BATCHES]
    right, *_ = _made(_mean, data)

    def say(at: int) -> tuple[str, str]:
        rank = next(r for r, mean in enumerate(got[at]) if not _ALIKE(mean, right[at][r]))
        seen, expected = apart(got[at][rank], right[at][rank], _ALIKE)
        return f"{seen} on rank {rank} of {len(right[at])}, {logs[at][1]}", expected

    if not _ALIKE(got, right):
        twins = {
            name: [made for one in several(f) for made in _made(one, data)]
            for name, f in _TWINS.items()
        }
        judge.closest(
            got,
            right,
            twins,
            alike=_ALIKE,
            otherwise=lambda at: "nan" if any(map(math.isnan, got[at])) else "wrong-value",
            say=say,
        )
    for (logged, where), means in zip(logs, right, strict=True):
        _judge_log(logged, means[0], where, judge)


_ALIKE = nearly(1e-5)
_Batches = list[list[tuple[float, int]]]
"""For each rank and batch, the mean loss and the number of rows."""


def _sums(sizes: Sequence[Sequence[int]]) -> _Batches:
    model = _classifier()
    return [
        [(F.cross_entropy(model(x), y).item(), len(x)) for x, y in _labelled(rows, rank)]
        for rank, rows in enumerate(sizes)
    ]


def _made(
    twin: Callable[[_Batches, int], float], data: Sequence[_Batches]
) -> list[list[list[float]]]:
    """Return what a twin gives on each rank, in a list of the cases; and with nan where it gives 0."""
    made = [[twin(ranks, rank) for rank in range(len(ranks))] for ranks in data]
    return [made, [[mean or math.nan for mean in means] for means in made]]


def _of(batches: Sequence[tuple[float, int]]) -> float:
    """Return the mean loss of the rows of batches, 0 where there are none."""
    return sum(loss * rows for loss, rows in batches) / max(sum(rows for _, rows in batches), 1)


def _all(ranks: _Batches) -> list[tuple[float, int]]:
    return [batch for batches in ranks for batch in batches]


def _mean(ranks: _Batches, rank: int) -> float:
    return _of(_all(ranks))


def _average(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)


def _rows(batches: Sequence[tuple[float, int]]) -> int:
    return sum(rows for _, rows in batches)


_TWINS: dict[str, Any] = {
    "own-rows": lambda ranks, rank: _of(ranks[rank]),
    "of-rank-0": lambda ranks, rank: _of(ranks[0]),
    "mean-of-means": (
        lambda ranks, rank: _average([_of(batches) for batches in ranks]),
        lambda ranks, rank: _average([_of(batches) for batches in ranks if batches]),
        lambda ranks, rank: _average([_of(batches) or math.nan for batches in ranks]),
    ),
    "mean-of-batches": lambda ranks, rank: _average([loss for loss, _ in _all(ranks)]),
    "mean-of-both": (
        lambda ranks, rank: _average([_average([loss for loss, _ in each]) for each in ranks]),
        lambda ranks, rank: _average(
            [_average([loss for loss, _ in each]) for each in ranks if each]
        ),
    ),
    "rows-left-out": lambda ranks, rank: _of(
        _all([batches[: min(map(len, ranks))] for batches in ranks])
    ),
    "last-batch": lambda ranks, rank: _of(_all([batches[-1:] for batches in ranks])),
    "first-batch": lambda ranks, rank: _of(_all([batches[:1] for batches in ranks])),
    "sum": lambda ranks, rank: _mean(ranks, rank) * _rows(_all(ranks)),
    "sum-of-means": lambda ranks, rank: sum(_of(batches) for batches in ranks),
    "by-batches": lambda ranks, rank: _mean(ranks, rank) * _rows(_all(ranks)) / len(_all(ranks)),
    "own-count": (
        lambda ranks, rank: _mean(ranks, rank) * _rows(_all(ranks)) / max(_rows(ranks[rank]), 1),
        lambda ranks, rank: (
            _mean(ranks, rank) * _rows(_all(ranks)) / _rows(ranks[rank])
            if ranks[rank]
            else math.inf
        ),
    ),
    "own-sum": lambda ranks, rank: _of(ranks[rank]) * _rows(ranks[rank]) / _rows(_all(ranks)),
    "rank-0-alone": lambda ranks, rank: _of(ranks[rank]) if rank else _mean(ranks, rank),
    "rounded": tuple(
        lambda ranks, rank, digits=digits: round(_mean(ranks, rank), digits) for digits in (1, 2, 3)
    ),
    "values": lambda ranks, rank: _mean(ranks, rank) / 3,
    "by-ranks": lambda ranks, rank: _mean(ranks, rank) / len(ranks),
    "sum-by-ranks": lambda ranks, rank: _mean(ranks, rank) * _rows(_all(ranks)) / len(ranks),
    "unweighted": lambda ranks, rank: sum(loss for loss, _ in _all(ranks)) / _rows(_all(ranks)),
}


def _judge_log(logged: Sequence[Sequence[Any]], mean: float, where: str, judge: Judge) -> None:
    """Refuse a mean that is logged elsewhere than once on rank 0."""
    seen = (
        f"{', '.join(f'{len(each)} × on rank {rank}' for rank, each in enumerate(logged))}, {where}"
    )
    expected = "log called once, on rank 0"
    if not any(logged):
        judge.no("no-log", seen=seen, expected=expected)
    if not logged[0]:
        judge.no("other-rank-logs", seen=seen, expected=expected)
    if any(logged[1:]):
        judge.no("all-log", seen=seen, expected=expected)
    if len(logged[0]) > 1:
        judge.no("logged-often", seen=seen, expected=expected)
    if not agree(_ALIKE, logged[0][0], mean):
        judge.no("other-log", seen=f"log({logged[0][0]!r}) on rank 0, {where}", expected=mean)


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
    why="A real cluster does not say so at once: it waits, silently, until a timeout ends it after minutes. Ask of "
    "every hang: which collective has one rank called, and another not? The Flight Recorder answers that.",
    diagnoses={
        "one-rank": "All ranks have equally many batches here, and still they do not make the same calls. Which call does one "
        "rank alone make?",
        "unequal-loops": "The ranks have different numbers of batches here, and they do not make the same calls. Each must make "
        "every call, even where it has no batch at all.",
        "own-rows": "That is the mean over the rank's own rows.",
        "of-rank-0": "That is the mean over rank 0's rows, on every rank.",
        "mean-of-means": "That is the mean of the ranks' means. A rank with few rows counts as much as one with many.",
        "mean-of-both": "That is the mean of the ranks' means over their batches. Neither batches nor ranks have equally many rows.",
        "mean-of-batches": "That is the mean of the batches' means. A small batch counts as much as a large one.",
        "rows-left-out": "All ranks stop after the shortest loop, so rows are left out.",
        "last-batch": "Only each rank's last batch is in it.",
        "first-batch": "Only each rank's first batch is in it.",
        "sum": "That is the sum over all rows. Nothing divides it.",
        "sum-of-means": "That is the sum of the ranks' means.",
        "by-batches": "The losses of all rows are divided by the number of batches.",
        "own-count": "The losses of all ranks' rows are divided by the rows of this rank alone.",
        "own-sum": "The losses of this rank's rows alone are divided by the rows of all ranks.",
        "rank-0-alone": "Rank 0 has the mean of all rows, and each other rank that of its own.",
        "rounded": "The mean is rounded.",
        "values": "The values of `x` are counted. A row has three.",
        "by-ranks": "That is the mean, divided once more by the number of ranks.",
        "sum-by-ranks": "The losses of all rows are divided by the number of ranks.",
        "unweighted": "The batches' means are added up as if each were a sum over its rows, and divided by all rows.",
        "nan": "The result is `nan`, which is no number. 0 / 0 gives that, as for the mean of a rank without rows, and a sum with it "
        "stays `nan`.",
        "only-rank-0": "Some ranks give back nothing. The mean is to be returned on every rank.",
        "no-log": "Nothing is logged.",
        "other-rank-logs": "Rank 0 does not log, and another rank does.",
        "all-log": "Other ranks log too. On many ranks that makes as many copies of each line.",
        "logged-often": "Rank 0 logs more than once.",
        "other-log": "What is logged is not the mean that all ranks return.",
    },
)
