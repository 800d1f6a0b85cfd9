"""What sharding saves."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases, near
from course_utils.exercises.values import brief, nearly


def sharded_bytes(shapes, ranks):
    whole = sum(math.prod(shape) for shape in shapes)
    part = sum(math.ceil(shape[0] / ranks) * math.prod(shape[1:]) for shape in shapes)
    return 16 * whole, 16 * part


_SHAPES: tuple[list[tuple[int, ...]], ...] = (
    [(64, 32), (64,)],
    [(10, 20), (10,), (3, 10), (3,)],
    [(2, 5, 3, 3), (2,), (9,)],
    [(7, 4, 2)],
    [(1000, 64), (64, 1000), (1, 128)],
    [(5,)],
    [],
)


def _draw(source: random.Random) -> tuple[list[tuple[int, ...]], int]:
    shapes = [
        tuple(source.randint(1, 12) for _ in range(source.randint(1, 4)))
        for _ in range(source.randint(1, 3))
    ]
    return shapes, source.randint(2, 8)


def _bytes(kept: int) -> Any:
    return edited(sharded_bytes, {_BOTH: f"{kept} * whole, {kept} * part"})


def _pair(pair: str) -> Any:
    return edited(sharded_bytes, {_BOTH: pair})


def _cut(piece: str) -> Any:
    return edited(sharded_bytes, {_PIECE: piece})


_PIECE, _SUM = "math.ceil(shape[0] / ranks) * math.prod(shape[1:])", "sum(math.prod(shape) "
_BOTH = "16 * whole, 16 * part"
_MISTAKES = {  # seen on one rank, where nothing is cut
    "numbers": _bytes(1),
    "quarter": _bytes(4),
    "half": _bytes(8),
    "three-numbers": _bytes(12),
    "double": _bytes(32),
    "one-more": _cut("(shape[0] // ranks + 1) * math.prod(shape[1:])"),
    "gathered": _pair("16 * whole, 4 * whole + 16 * part"),
    "larger-unit": tuple(
        _pair(f"16 * whole / {of}, 16 * part / {of}")
        for of in ("1e6", "1e9", "2**20", "2**30", "1024")
    ),
    "sums": ({_SUM: "sum(sum(shape) ", _PIECE: "sum(shape)"}, {_SUM: "sum(sum(shape) "}),
    "first-shape": {"whole =": "shapes = shapes[:1]\nwhole ="},
    "two-dimensions": {"whole =": "shapes = [shape[:2] for shape in shapes]\nwhole ="},
}
WHOLE = twins_of(sharded_bytes, _MISTAKES)
CUT = {
    "swapped": _pair("16 * part, 16 * whole"),
    "divided": (
        _cut("math.prod(shape) / ranks"),
        _cut("math.prod(shape) // ranks"),
        _pair("16 * whole, 16 * whole // ranks"),
        _pair("16 * whole, -(-16 * whole // ranks)"),
    ),
    "flat": edited(sharded_bytes, {f"sum({_PIECE} for shape in shapes)": "-(-whole // ranks)"}),
    "flat-each": _cut("math.ceil(math.prod(shape) / ranks)"),
    "vectors-whole": _cut(
        "math.ceil(shape[0] / (ranks if shape[1:] else 1)) * math.prod(shape[1:])"
    ),
    "floor": _cut("(shape[0] // ranks) * math.prod(shape[1:])"),
    "nearest": _cut("round(shape[0] / ranks) * math.prod(shape[1:])"),
    "last-dimension": _cut("math.prod(shape[:-1]) * math.ceil(shape[-1] / ranks)"),
    "each-dimension": _cut("math.prod(math.ceil(size / ranks) for size in shape)"),
    "states-only": _pair("16 * whole, 8 * whole + 8 * part"),
    "gradients-whole": _pair("16 * whole, 4 * whole + 12 * part"),
    "parameters-only": _pair("16 * whole, 12 * whole + 4 * part"),
    "ddp-divided": (_pair("16 * part, 16 * part"), _pair("8 * whole + 8 * part, 16 * part")),
    "ddp-together": _pair("16 * whole * ranks, 16 * part"),
    "fsdp-together": _pair("16 * whole, 16 * part * ranks"),
}


def _read(judge: Judge, pair: Any) -> tuple[float, ...]:
    judge.is_a(pair, (tuple, list), "a pair of numbers of bytes")
    if len(pair) != 2:
        judge.no("not-a-pair", seen=pair, expected="bytes under DDP, bytes under FSDP")
    return tuple(judge.number(value) for value in pair)


def _over(cases: Any, twins: Mapping[str, Any], draw: Any, otherwise: Any) -> OverCases:
    return OverCases(
        sharded_bytes,
        cases,
        twins,
        read=_read,
        draw=draw,
        alike=nearly(1e-9, 0),
        otherwise=otherwise,
        situation=lambda shapes, ranks: f"the shapes {brief(shapes)}, ranks={ranks}",
        shown=lambda pair: f"DDP {pair[0]:,.10g}, FSDP {pair[1]:,.10g}",
    )


def _other(got: Sequence[float], right: Sequence[float], *_: Any) -> str:
    if got[0] < got[1] and (near(got[1], right[0]) or near(got[0], right[1])):
        return "swapped"
    return "fsdp-other" if near(got[0], right[0]) else "ddp-other"


def _check(answer: Callable[..., Any], judge: Judge) -> None:
    one_rank = [(shapes, 1) for shapes in _SHAPES]
    _over(one_rank, WHOLE, lambda source: (_draw(source)[0], 1), "one-rank")(answer, judge)
    several = [
        (shapes, ranks) for shapes, ranks in zip(_SHAPES, (2, 4, 7, 3, 8, 2, 3), strict=True)
    ]
    _over(several, CUT, _draw, _other)(answer, judge)


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
    check_answer=_check,
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
        "nearest": "That rounds to the nearest number of rows. Rank 0 gets a full piece: rounded up.",
        "one-more": "That is one row more where the ranks divide the rows evenly.",
        "last-dimension": "That cuts along the last dimension. `fully_shard` cuts along the first.",
        "each-dimension": "That cuts each dimension. `fully_shard` cuts the first only.",
        "numbers": "That is the number of parameters. Asked for are bytes, of four numbers for each parameter.",
        "quarter": "That is a quarter, 4 bytes for each parameter. There are four numbers of 4 bytes: itself, its gradient, "
        "Adam's two moments.",
        "half": "That is half of it, 8 bytes for each parameter. There are four numbers of 4 bytes: itself, its gradient, "
        "Adam's two moments.",
        "three-numbers": "That is 12 bytes for each parameter. There are four numbers of 4 bytes: itself, its gradient, "
        "Adam's two moments.",
        "double": "That is twice as much. There are four numbers for each parameter, and a number in float32 has 4 bytes.",
        "larger-unit": "Asked for are bytes, and that is in a larger unit.",
        "sums": "The sizes of a shape were added. A tensor has as many numbers as their product.",
        "first-shape": "Only the first parameter was counted.",
        "two-dimensions": "Only the first two dimensions of a shape were counted.",
        "one-rank": "On one rank nothing is cut: both figures are the bytes of all four numbers of every parameter.",
        "swapped": "The two are exchanged: first DDP, then FSDP.",
        "states-only": "That divides two of the four numbers of each parameter. FSDP divides all.",
        "gradients-whole": "One of the four numbers of each parameter is still whole. FSDP divides all.",
        "parameters-only": "That divides one of the four numbers of each parameter. FSDP divides all.",
        "gathered": "A whole copy of the parameters came on top. What FSDP gathers for a layer is left out here.",
        "ddp-together": "That is what all ranks have together under DDP. Asked for is rank 0.",
        "fsdp-together": "Under FSDP that is rank 0's piece times the ranks. Asked for is rank 0's alone.",
        "ddp-other": "Under DDP rank 0 holds as much as one rank alone, however many there are. Yours changes.",
        "fsdp-other": "Under FSDP rank 0 holds another number of rows of some parameter.",
        "ddp-divided": "Under DDP each rank holds everything: it divides the batch, not the model.",
    },
)
