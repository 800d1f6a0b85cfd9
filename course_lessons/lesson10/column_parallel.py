"""A linear layer that no rank has whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lessons.shared.checking import on_ranks, values_of
from course_utils.exercises import Exercise, Judge


def column_parallel(x, weight, bias, dist):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = F.linear(x, weight.chunk(ranks)[rank], bias.chunk(ranks)[rank])
    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own)
    return torch.cat(parts, dim=-1)


_CASES = (  # ranks, rows, inputs, outputs
    (2, (3,), 5, 4),
    (4, (4,), 3, 8),
    (3, (2, 3), 2, 6),
    (2, (4, 4), 4, 4),
    (1, (2,), 3, 2),
)


def _layer(rows: tuple[int, ...], inputs: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows[0] + 10 * outputs)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    return draw(*rows, inputs), draw(outputs, inputs), draw(outputs)


def _check(answer: Callable[..., Any], judge: Judge) -> None:
    for ranks, *sizes in _CASES:

        def program(dist: Any, call: Callable[..., Any], sizes: Any = sizes) -> Any:
            x, *layer = _layer(*sizes)
            rank, ranks = dist.get_rank(), dist.get_world_size()
            for whole in layer:  # what belongs to others is of no use here
                for other in set(range(ranks)) - {rank}:
                    whole.chunk(ranks)[other].fill_(torch.inf)
            return call(x, *layer, dist)

        run = on_ranks(program, answer, ranks, judge, "one-rank")
        for rank, got in enumerate(run.results):
            _judge_values(got, sizes, rank, ranks, judge)


def _judge_values(got: Any, sizes: Any, rank: int, ranks: int, judge: Judge) -> None:
    where = f"rank {rank} of {ranks}"
    x, weight, bias = _layer(*sizes)
    right = F.linear(x, weight, bias)
    judge.is_a(got, Tensor, "a tensor")
    if not got.isfinite().all():
        _refuse(judge, "others", got, right, where)
    weights, biases = weight.chunk(ranks), bias.chunk(ranks)
    parts = [F.linear(x, w, b) for w, b in zip(weights, biases, strict=True)]
    known = {
        "not-gathered": [parts[rank]],
        "wrong-way": [torch.cat(parts)],
        "added": [torch.stack(parts).sum(0)],
        "order": [torch.cat([parts[rank], *parts[:rank], *parts[rank + 1 :]], -1)],
        "interleaved": [torch.stack(parts, -1).flatten(-2)],
        "no-bias": [F.linear(x, weight)],
        "own-bias": [
            torch.cat([F.linear(x, w, biases[rank]) for w in weights], -1),
        ],
    }
    if got.shape == right.shape and torch.allclose(got, right, rtol=1e-4, atol=1e-5):
        return
    for name, values in known.items():
        for value in values:
            if got.shape == value.shape and torch.allclose(got, value, rtol=1e-4, atol=1e-5):
                _refuse(judge, name, got, right, where)
    _refuse(judge, "wrong-value", got, right, where)


def _refuse(judge: Judge, name: str, got: Tensor, right: Tensor, where: str) -> None:
    judge.no(
        name,
        seen=f"{tuple(got.shape)}: {values_of(got)}, on {where}",
        expected=f"{tuple(right.shape)}: {values_of(right)}",
    )


EXERCISE = Exercise(
    id="10.column_parallel",
    title="A layer cut in columns",
    level=2,
    minutes=10,
    task="""
`x` (..., inputs) is the same on every rank, `weight` (outputs, inputs) and `bias` (outputs) are those of an `nn.Linear`. Write
`column_parallel(x, weight, bias, dist)`: each rank uses only its own equal share of the outputs, rank 0 the first, and returns on every rank what
the whole layer gives, with all outputs in their order. The ranks divide the outputs. What belongs to other ranks is infinite on this one.
""",
    hints=(
        "The rows of `weight` are the outputs. Which rows belong to rank 1 of 2, and which numbers of `bias`?",
        "`weight.chunk(ranks)[rank]` is a rank's share. Its outputs are some columns of the result; the others have the rest.",
        "`dist.all_gather(parts, own)` fills a list of a tensor for each rank. They are columns: `torch.cat(parts, dim=-1)`.",
    ),
    reference=column_parallel,
    check_answer=_check,
    why="Here the outputs were gathered because the task wants them all. In a network the next layer is cut the other way and takes a "
    "rank's columns as they are, so that one all_reduce serves two layers.",
    diagnoses={
        "one-rank": "Not every rank makes the same calls with the same shapes. A collective is called by all.",
        "not-gathered": "Those are this rank's outputs alone. The others' are missing.",
        "wrong-way": "The parts stand under each other, as further rows. They are columns of the same rows.",
        "added": "The parts were added up. They are different outputs and stand side by side.",
        "order": "All outputs are there, this rank's own first. The order is that of the ranks.",
        "interleaved": "The outputs of the ranks alternate. Rank 0 has the first outputs, all of them in one piece.",
        "no-bias": "The bias is missing.",
        "own-bias": "Each rank's bias belongs to its own outputs only.",
        "others": "This uses outputs that belong to another rank: their weights and biases are infinite here, as if they were not there.",
    },
)
