"""One batch on four ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lessons.shared.checking import on_ranks
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases


def batch_statistics(x, dist):
    sums = torch.stack([torch.ones_like(x), x]).sum(1)
    dist.all_reduce(sums)
    count, total = sums
    mean = total / count
    squares = (x - mean).square().sum(0)
    dist.all_reduce(squares)
    return mean, squares / count


_Case = tuple[tuple[int, ...], torch.dtype, float]
_Table = dict[str, dict[str, Tensor]]

_CASES: tuple[_Case, ...] = (
    ((4, 4), torch.float32, 0.0),
    ((5, 2, 9), torch.float64, 0.0),
    ((6,), torch.float32, 0.0),
    ((1, 7, 3, 3), torch.float32, 0.0),
    ((3, 5), torch.float32, 5000.0),
    ((2, 6, 1), torch.float32, -4000.0),
)


def _own_rows(rank: int, sizes: Sequence[int], dtype: torch.dtype, shift: float) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    rows = torch.randn(sizes[rank], 3, dtype=dtype, generator=generator)
    return rows * (rank + 1) + torch.tensor([0.5, -1.0, 2.0], dtype=dtype) * rank + shift


def _from_all(of: Callable[[list[Tensor], Tensor, int], Any]) -> Callable[..., _Table]:
    """Return what each rank has where ``of(parts, all rows, rank)`` gives mean and variance; None is left out."""

    def table(sizes: Sequence[int], dtype: torch.dtype, shift: float) -> _Table:
        parts = [_own_rows(rank, sizes, dtype, shift) for rank in range(len(sizes))]
        ranks = range(len(sizes))
        return _table([of(parts, torch.cat(parts), rank) for rank in ranks])

    return table


def _table(pairs: Sequence[Sequence[Any]]) -> _Table:
    names = "mean", "variance"
    rows = ({n: t for n, t in zip(names, pair, strict=True) if t is not None} for pair in pairs)
    return {f"rank {rank}": row for rank, row in enumerate(rows)}


def _each(parts: list[Tensor]) -> Tensor:
    return torch.stack([part.var(0, correction=0) for part in parts])


def _squares(x: Tensor, mean: Tensor) -> Tensor:
    return (x - mean).square().sum(0)


_TWINS: dict[str, tuple[Callable[[list[Tensor], Tensor, int], Any], ...]] = {
    "own": (
        lambda parts, x, rank: (parts[rank].mean(0), None),
        lambda parts, x, rank: (None, parts[rank].var(0, correction=0)),
    ),
    "mean-of-means": (
        lambda parts, x, rank: (torch.stack([p.mean(0) for p in parts]).mean(0), None),
    ),
    "equal-shares": (
        lambda parts, x, rank: (x.sum(0) / len(parts) / len(parts[rank]), None),
        lambda parts, x, rank: (None, _squares(x, x.mean(0)) / len(parts) / len(parts[rank])),
    ),
    "not-divided": (
        lambda parts, x, rank: (x.sum(0), None),
        lambda parts, x, rank: (None, _squares(x, x.mean(0))),
        lambda parts, x, rank: (None, _squares(x, x.sum(0)) / len(x)),
    ),
    "by-own-rows": (
        lambda parts, x, rank: (x.sum(0) / len(parts[rank]), None),
        lambda parts, x, rank: (None, _squares(x, x.mean(0)) / len(parts[rank])),
    ),
    "by-ranks": (
        lambda parts, x, rank: (x.sum(0) / len(parts), None),
        lambda parts, x, rank: (None, _squares(x, x.mean(0)) / len(parts)),
    ),
    "exchanged": (lambda parts, x, rank: (x.var(0, correction=0), x.mean(0)),),
    "unbiased": (lambda parts, x, rank: (None, x.var(0)),),
    "mean-of-variances": (
        lambda parts, x, rank: (None, _each(parts).mean(0)),
        lambda parts, x, rank: (
            None,
            sum(((p - p.mean(0)) ** 2).sum(0) / (len(p) - 1) * len(p) for p in parts) / len(x),
        ),
        lambda parts, x, rank: (
            None,
            sum(v * len(p) for v, p in zip(_each(parts), parts, strict=True)) / len(x),
        ),
    ),
    "sum-of-variances": (lambda parts, x, rank: (None, _each(parts).sum(0)),),
    "own-squares": (
        lambda parts, x, rank: (None, _squares(parts[rank], x.mean(0)) / len(x)),
        lambda parts, x, rank: (None, _squares(parts[rank], x.mean(0)) / len(parts[rank])),
    ),
    "root": (lambda parts, x, rank: (None, x.std(0, correction=0)),),
    "no-mean": (lambda parts, x, rank: (None, x.square().mean(0)),),
}


def _alike(got: Any, right: Any) -> bool:
    if isinstance(right, dict):  # a twin may have the mean alone, another the variance
        both = got.keys() & right.keys()
        return bool(both) and all(_alike(got[name], right[name]) for name in both)
    got, right = got.double(), right.double()
    return got.shape == right.shape and torch.allclose(got, right, rtol=1e-3, atol=1e-5)


def _otherwise(got: _Table, right: _Table, sizes: Sequence[int], dtype: Any, shift: float) -> str:
    for name in ("mean", "variance"):
        ok = [_alike(got[rank][name], right[rank][name]) for rank in right]
        if all(ok):
            continue
        if any(got[rank][name].shape != right[rank][name].shape for rank in right):
            return "other-shape"
        if any(ok):
            return "some-ranks"
        return "loses-digits" if shift and name == "variance" else f"wrong-{name}"
    return "wrong-value"


_STATISTICS = OverCases(
    _from_all(lambda parts, x, rank: (x.mean(0), x.var(0, correction=0))),
    _CASES,
    {name: tuple(map(_from_all, twins)) for name, twins in _TWINS.items()},
    read=lambda judge, got: got,
    alike=_alike,
    otherwise=_otherwise,
    situation=lambda sizes, dtype, shift: (
        f"{list(sizes)} rows on the ranks" + (f", means near {shift:g}" if shift else "")
    ),
)


def _check_batch_statistics(answer: Callable[..., Any], judge: Judge) -> None:
    def on_all(*case: Any) -> _Table:
        def program(dist: Any, call: Callable[..., Any]) -> Any:
            return call(_own_rows(dist.get_rank(), *case), dist)

        run = on_ranks(program, answer, len(case[0]), judge, "hang", "mismatch")
        for pair in run.results:
            judge.is_a(pair, (tuple, list), "two tensors")
            if len(pair) != 2 or not all(isinstance(t, Tensor) for t in pair):
                judge.no("wrong-type", seen=pair, expected="two tensors")
        return _table(run.results)

    _STATISTICS(on_all, judge)


EXERCISE = Exercise(
    id="08.batch_statistics",
    title="One batch on four ranks",
    level=2,
    minutes=8,
    task="""
`BatchNorm` under DDP takes mean and variance of its own rank's rows, `SyncBatchNorm` those of all. Write
`batch_statistics(x, dist)`: on every rank the pair of tensors (mean, variance) of each column over the rows of all
ranks. `x` has this rank's rows, at least one; ranks may have unequally many. The variance divides by the number of
rows. A column's mean may be some thousand times its spread. `x` stays as it is.
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
    "`x * x` as well, and its difference of two large numbers loses the digits that you want.)",
    diagnoses={
        "own": "These are the figures of the rank's own rows.",
        "mean-of-means": "The mean of the ranks' means counts few rows as much as many.",
        "mean-of-variances": "That is the mean of the ranks' variances. It leaves out that their means differ.",
        "equal-shares": "That counts as many rows on each rank as on this one. Add up the numbers of rows too.",
        "not-divided": "A sum was not divided by the number of all rows.",
        "by-own-rows": "A sum over all ranks was divided by this rank's number of rows.",
        "by-ranks": "A sum over all rows was divided by the number of ranks.",
        "exchanged": "The mean comes first in the pair, then the variance.",
        "sum-of-variances": "That is the sum of the ranks' variances.",
        "own-squares": "The squares are those of the rank's own rows: add them up over the ranks.",
        "root": "That is the standard deviation, the root of the variance.",
        "no-mean": "That is the mean of the squares of `x`. The variance takes the distances from the mean.",
        "unbiased": "This variance divides by one less than the number of rows.",
        "other-shape": "A number for each column is asked for.",
        "some-ranks": "The ranks do not agree: some of them have the right numbers, others have not.",
        "loses-digits": "The variance is a small difference of two large numbers here, and float32 has only seven digits. Add up "
        "squares of distances from the mean.",
        "wrong-mean": "That is not the mean over all rows.",
        "wrong-variance": "The mean is right, and this is not the variance over all rows.",
        "hang": "Some rank waits for ever: every rank must make the same calls.",
        "mismatch": "The ranks call different things: every rank must make the same calls.",
    },
)
