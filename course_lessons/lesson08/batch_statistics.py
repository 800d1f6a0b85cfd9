"""One batch on four ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lessons.shared.checking import on_ranks
from course_utils.exercises import Exercise, Judge

from ..shared.checking import values_of


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

        run = on_ranks(program, answer, len(sizes), judge, "hang")
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
                    seen=f"mean {values_of(pair[0])} {where}",
                    expected=values_of(mean),
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
                    seen=f"variance {values_of(pair[1])} {where}",
                    expected=values_of(variance),
                )


def _near(got: Tensor, right: Tensor) -> bool:
    return got.shape == right.shape and torch.allclose(got.to(right), right, rtol=1e-3, atol=1e-5)


EXERCISE = Exercise(
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
)
