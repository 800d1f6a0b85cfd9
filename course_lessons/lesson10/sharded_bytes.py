"""What sharding saves."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases


def sharded_bytes(shapes, ranks):
    whole = sum(math.prod(shape) for shape in shapes)
    part = sum(math.ceil(shape[0] / ranks) * math.prod(shape[1:]) for shape in shapes)
    return 16 * whole, 16 * part


_CASES: tuple[tuple[list[tuple[int, ...]], int], ...] = (
    ([(64, 32), (64,)], 2),
    ([(64, 32), (64,)], 1),
    ([(10, 20), (10,), (3, 10), (3,)], 4),
    ([(2, 5, 3, 3), (2,), (9,)], 7),
    ([(7, 4, 2)], 3),
    ([(1000, 64), (64, 1000), (1, 128)], 8),
    ([(5,)], 2),
)

_ROWS = "math.ceil(shape[0] / ranks)"
_PIECE = f"{_ROWS} * math.prod(shape[1:])"
_BOTH = "16 * whole, 16 * part"
_TWINS = {
    "divided": edited(sharded_bytes, {f"sum({_PIECE} for shape in shapes)": "whole / ranks"}),
    "flat": edited(sharded_bytes, {f"sum({_PIECE} for shape in shapes)": "-(-whole // ranks)"}),
    "flat-each": edited(sharded_bytes, {_PIECE: "math.ceil(math.prod(shape) / ranks)"}),
    "vectors-whole": edited(
        sharded_bytes, {_ROWS: "math.ceil(shape[0] / (ranks if shape[1:] else 1))"}
    ),
    "floor": edited(sharded_bytes, {_ROWS: "shape[0] // ranks"}),
    "only-parameters": edited(sharded_bytes, {_BOTH: "4 * whole, 4 * part"}),
    "three-numbers": edited(sharded_bytes, {_BOTH: "12 * whole, 12 * part"}),
    "no-optimiser": edited(sharded_bytes, {_BOTH: "8 * whole, 8 * part"}),
    "states-only": edited(sharded_bytes, {_BOTH: "16 * whole, 8 * whole + 8 * part"}),
    "parameters-only": edited(sharded_bytes, {_BOTH: "16 * whole, 12 * whole + 4 * part"}),
    "ddp-divided": edited(sharded_bytes, {_BOTH: "16 * part, 16 * part"}),
}


def _read(judge: Judge, pair: Any) -> tuple[float, ...]:
    judge.is_a(pair, (tuple, list), "a pair of numbers of bytes")
    if len(pair) != 2:
        judge.no("not-a-pair", seen=pair, expected="bytes under DDP, bytes under FSDP")
    return tuple(judge.number(value) for value in pair)


def _situation(shapes: Sequence[tuple[int, ...]], ranks: int) -> str:
    return f"{', '.join(str(shape) for shape in shapes)} on {ranks} ranks"


def _shown(pair: Sequence[float]) -> str:
    return " and ".join(f"{value:,.10g}" for value in pair)


EXERCISE = Exercise(
    id="10.sharded_bytes",
    title="What sharding saves",
    level=2,
    minutes=10,
    task="""
Adam trains a model in float32; `shapes` lists the shapes of its parameters. Write `sharded_bytes(shapes, ranks)`: the pair of the
bytes that parameters, gradients and Adam's two moments take on rank 0, under DDP and under FSDP. `fully_shard` cuts each of these
tensors along its first dimension into pieces of equally many rows, rounded up; rank 0 gets a full piece, and the last ranks may get less or
nothing. Leave out DDP's buckets, Adam's step counters, and what comes and goes, such as the layer that FSDP has gathered.
""",
    hints=(
        "How many numbers of 4 bytes belong to each parameter? Which of them does DDP divide between the ranks?",
        "Each parameter is cut by itself, along its first dimension. A bias of 10 numbers on 4 ranks: how many has rank 0?",
        "A piece has `math.ceil(shape[0] / ranks)` rows of `math.prod(shape[1:])` numbers.",
    ),
    reference=sharded_bytes,
    check_answer=OverCases(
        sharded_bytes,
        _CASES,
        _TWINS,
        read=_read,
        alike=operator.eq,
        situation=_situation,
        shown=_shown,
    ),
    why="With even shapes, n ranks need an n-th of the memory each, and that is how a model is trained that fits on none of them. "
    "What FSDP gathers for the layer at work, and the activations, come on top.",
    diagnoses={
        "not-a-pair": "The task asks for two numbers: first DDP, then FSDP.",
        "divided": "That is the whole divided by the ranks. No rank holds a part of a row, so the pieces are "
        "rounded up.",
        "flat": "That cuts all parameters as one long row of numbers. `fully_shard` cuts each parameter by itself, along its first "
        "dimension.",
        "flat-each": "That cuts each parameter as a row of numbers. `fully_shard` cuts along the first dimension, and no row is "
        "divided.",
        "vectors-whole": "That leaves parameters of one dimension whole. `fully_shard` cuts biases too.",
        "floor": "That rounds down, and some rows belong to no rank.",
        "only-parameters": "That is a quarter: the parameters' bytes alone, without gradients and both moments, or four numbers each "
        "without their 4 bytes.",
        "three-numbers": "There are four numbers for each parameter: itself, its gradient, and Adam's two moments.",
        "no-optimiser": "That is parameters and gradients. Adam keeps two more numbers for each parameter.",
        "states-only": "That divides only what Adam keeps. FSDP divides parameters and gradients too.",
        "parameters-only": "That divides only the parameters. FSDP divides their gradients and what Adam keeps too.",
        "ddp-divided": "Under DDP each rank holds everything: it divides the batch, not the model.",
    },
)
