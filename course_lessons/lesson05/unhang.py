"""The ranks that wait for ever."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import on_ranks
from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several
from course_utils.exercises.values import agree, apart, nearly
from simgpu import cluster

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


def _program(sizes: Sequence[Sequence[int]]) -> Callable[..., tuple[Any, list[Any]]]:
    """Return what each rank runs: it gives the mean, and what was logged."""

    def program(dist: Any, call: Callable[..., Any]) -> tuple[Any, list[Any]]:
        logged: list[Any] = []
        rank = dist.get_rank()
        return call(_classifier(), _labelled(sizes[rank], rank), dist, logged.append), logged

    return program


def _check_unhang(answer: Callable[..., Any], judge: Judge) -> None:
    got, logs = [], []
    for sizes in _BATCHES:
        uneven = len({len(rank_sizes) for rank_sizes in sizes}) > 1
        hang = "unequal-loops" if uneven else "one-rank"
        results = on_ranks(_program(sizes), answer, len(sizes), judge, hang).results
        where = f"with batches of {' / '.join(map(words, sizes))} rows"
        if results[0][0] is not None and any(mean is None for mean, _ in results):
            rank = next(rank for rank, (mean, _) in enumerate(results) if mean is None)
            judge.no("only-rank-0", seen=f"None on rank {rank}", expected="the mean on each rank")
        got.append([judge.is_a(mean, (int, float), "a Python number") for mean, _ in results])
        logs.append(([logged for _, logged in results], where))
    right = _outcomes(unhang)

    def say(at: int) -> tuple[str, str]:
        rank = next(r for r, mean in enumerate(got[at]) if not _ALIKE(mean, right[at][r]))
        seen, expected = apart(got[at][rank], right[at][rank], _ALIKE)
        return f"{seen} on rank {rank} of {len(right[at])}, {logs[at][1]}", expected

    if not _ALIKE(got, right):
        twins = {name: [_outcomes(one) for one in several(twin)] for name, twin in TWINS.items()}
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


@functools.cache
def _outcomes(function: Callable[..., Any]) -> list[list[float]]:
    """Return the mean that a function gives on each rank, for each case."""
    runs = (cluster.run(_program(sizes), len(sizes), arguments=(function,)) for sizes in _BATCHES)
    return [[mean for mean, _ in run.results] for run in runs]


_SEND, _MEAN = "dist.all_reduce(total)", "mean = (total[0] / total[1]).item()"
_NO_ROWS = {"total[1])": "total[1].clamp(min=1))"}
"""Gives 0 in the place of nan for a rank without rows."""
_OF_BATCHES = {', reduction="sum"': "", "float(len(x))": "1.0"}


def _of_ranks(mean: str, count: str) -> dict[str, str]:
    """Average the ranks' means, each of which counts as often as is said."""
    return {_SEND: f"total = torch.stack([{mean}, {count}])\n{_SEND}"}


_OR_0, _EACH, _USERS = "total[0] / total[1].clamp(min=1)", "torch.tensor(1.0)", "total[1].sign()"
_MISTAKES = {
    "own-rows": ({_SEND: "", **_NO_ROWS}, {_SEND: ""}),
    "of-rank-0": {_SEND: "dist.broadcast(total, 0)"},
    "mean-of-means": (
        _of_ranks(_OR_0, _EACH),
        _of_ranks(_OR_0, _USERS),
        _of_ranks("total[0] / total[1]", _EACH),
    ),
    "mean-of-batches": _OF_BATCHES,
    "mean-of-both": (
        {**_of_ranks(_OR_0, _EACH), **_OF_BATCHES},
        {**_of_ranks(_OR_0, _USERS), **_OF_BATCHES},
    ),
    "rows-left-out": {
        "total = torch.zeros(2)": "fewest = torch.tensor(len(batches))\n"
        "dist.all_reduce(fewest, dist.ReduceOp.MIN)\n"
        "batches = batches[: fewest.item()]\n"
        "total = torch.zeros(2)"
    },
    "last-batch": {"in batches": "in batches[-1:]"},
    "first-batch": {"in batches": "in batches[:1]"},
    "sum": {"total[0] / total[1]": "total[0]"},
    "sum-of-means": {**_of_ranks(_OR_0, _EACH), _MEAN: "mean = total[0].item()"},
    "by-batches": {"float(len(x))": "1.0"},
    "own-count": tuple({_SEND: "dist.all_reduce(total[0])", **more} for more in (_NO_ROWS, {})),
    "own-sum": {_SEND: "dist.all_reduce(total[1])"},
    "rank-0-alone": tuple({_SEND: "dist.reduce(total, 0)", **more} for more in (_NO_ROWS, {})),
    "values": {"float(len(x))": "float(x.numel())"},
    "by-ranks": {_MEAN: f"{_MEAN} / dist.get_world_size()"},
    "sum-by-ranks": {"total[0] / total[1]": "total[0] / dist.get_world_size()"},
    "unweighted": {', reduction="sum"': ""},
}
TWINS: dict[str, Any] = twins_of(unhang, _MISTAKES)


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
