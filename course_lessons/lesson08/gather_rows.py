"""Collect what differs in length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lessons.shared.checking import on_ranks
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases
from course_utils.exercises.values import same


def gather_rows(rows, dist):
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    counts = [count.item() for count in counts]
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[: counts[rank]] for rank, part in enumerate(parts)])


_CASES = (
    ((2, 2), (3,), torch.float32),
    ((3, 1, 4), (2,), torch.float64),
    ((1, 0, 2, 5), (), torch.int64),
    ((4,), (2, 2), torch.float32),
    ((0, 0), (3,), torch.float32),
    ((3, 5, 2), (3,), torch.float32),
    ((0, 2, 4), (2,), torch.float64),
    ((5, 3), (2,), torch.float16),
)


def _held(
    sizes: tuple[int, ...], shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the rows of each rank, some of them all zeros, and the same with padding."""
    held = []
    for rank, size in enumerate(sizes):
        values = torch.arange(1, 1 + size * torch.Size(shape).numel()) + 50 * rank
        rows = values.view(size, *shape).to(dtype)
        rows[1:2] *= 0
        held.append(rows)
    most = max(sizes)
    return held, [torch.cat([rows, rows.new_zeros(most - len(rows), *shape)]) for rows in held]


def _gathered(*case: Any) -> list[Tensor]:
    """Return what each rank is to have."""
    held, _ = _held(*case)
    return [torch.cat(held)] * len(held)


def _whole(rows: Tensor) -> Tensor:
    return rows[rows.flatten(1).any(1) if rows.dim() > 1 else rows != 0]


def _alike(make: Callable[[list[Tensor], list[Tensor]], Any]) -> Callable[..., Any]:
    """Return a wrong twin: what all ranks have, or, in a list, each."""

    def twin(*case: Any) -> list[Tensor]:
        made = make(*_held(*case))
        return made if isinstance(made, list) else [made] * len(case[0])

    return twin


TWINS = {
    "own-count": _alike(
        lambda held, padded: [torch.cat([part[: len(own)] for part in padded]) for own in held]
    ),
    "zeros-lost": _alike(lambda held, padded: _whole(torch.cat(padded))),
    "one-rank": _alike(lambda held, padded: [torch.cat(held), *held[1:]]),
    "own-alone": _alike(lambda held, padded: held),
}


GATHERED = OverCases(
    _gathered,
    _CASES,
    TWINS,
    alike=same,
    look=lambda got, *case: {f"rank {rank}": rows for rank, rows in enumerate(got)},
    situation=lambda sizes, *_: f"ranks with {list(sizes)} rows",
)


def _check_gather_rows(answer: Callable[..., Any], judge: Judge) -> None:
    def on_all(*case: Any) -> list[Any]:
        held, _ = _held(*case)
        run = on_ranks(
            lambda dist, call: call(held[dist.get_rank()], dist),
            answer,
            len(held),
            judge,
            "hang",
            "unequal",
        )
        for rank, got in enumerate(run.results):
            if got is None and rank:
                judge.no("one-rank", seen=f"None on rank {rank}", expected="all rows on all ranks")
            judge.is_a(got, Tensor, "a tensor")
        return run.results

    GATHERED(on_all, judge)


EXERCISE = Exercise(
    id="08.gather_rows",
    title="Collect what differs in length",
    level=3,
    minutes=12,
    task="""
A metric needs all predictions at once. Write `gather_rows(rows, dist)`: on every rank, the rows of rank 0, then those
of rank 1, and so on, in one tensor of the same dtype. Ranks may hold unequally many rows, or none; the other
dimensions are alike. But `dist.all_gather(list, tensor)` wants the same shape on every rank.
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
        "own-count": "Each part was cut to the count of the rank that gathers. Its own rank's count is needed.",
        "zeros-lost": "Rows of zeros are gone. A row that a rank holds can be all zeros: only the count tells it from padding.",
        "one-rank": "Every rank is to have all rows, not rank 0 alone.",
        "own-alone": "Each rank has only its own rows.",
    },
)
