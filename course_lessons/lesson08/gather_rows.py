"""Collect what differs in length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lessons.shared.checking import on_ranks
from course_utils.exercises import Exercise, Judge

from ..shared.checking import values_of


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

        run = on_ranks(program, answer, len(sizes), judge, "hang", "unequal")
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
                judge.no("other-rows", seen=values_of(got), expected=values_of(right))


EXERCISE = Exercise(
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
)
