"""What sharding saves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from course_utils.exercises import Exercise, Judge


def sharded_bytes(shapes, ranks):
    whole = sum(math.prod(shape) for shape in shapes)
    part = sum(math.ceil(shape[0] / ranks) * math.prod(shape[1:]) for shape in shapes)
    return 16 * whole, 16 * part


_SHAPES: tuple[tuple[list[tuple[int, ...]], int], ...] = (
    ([(64, 32), (64,)], 2),
    ([(64, 32), (64,)], 1),
    ([(10, 20), (10,), (3, 10), (3,)], 4),
    ([(2, 5, 3, 3), (2,), (9,)], 7),
    ([(7, 4, 2)], 3),
    ([(1000, 64), (64, 1000), (1, 128)], 8),
    ([(5,)], 2),
)


def _check_sharded_bytes(answer: Callable[..., Any], judge: Judge) -> None:
    for shapes, ranks in _SHAPES:
        pair = judge.is_a(answer(shapes, ranks), (tuple, list), "a pair of numbers of bytes")
        if len(pair) != 2:
            judge.no("not-a-pair", seen=pair, expected="bytes under DDP, bytes under FSDP")
        got = [judge.number(value) for value in pair]
        right = sharded_bytes(shapes, ranks)
        if got != [*right]:
            like = [name for name, twin in _BYTES_TWINS.items() if got == [*twin(shapes, ranks)]]
            judge.no(
                like[0] if like else "wrong-value",
                seen=f"{got[0]:,.6g} and {got[1]:,.6g} for {_listed(shapes)} on {ranks} ranks",
                expected=f"{right[0]:,} and {right[1]:,}",
            )


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(str(shape) for shape in shapes)


def bytes_divided(shapes, ranks):
    whole = 16 * sum(math.prod(shape) for shape in shapes)
    return whole, whole / ranks


def bytes_flat(shapes, ranks):
    whole = sum(math.prod(shape) for shape in shapes)
    return 16 * whole, 16 * math.ceil(whole / ranks)


def bytes_flat_each(shapes, ranks):
    sizes = [math.prod(shape) for shape in shapes]
    return 16 * sum(sizes), 16 * sum(math.ceil(size / ranks) for size in sizes)


def bytes_vectors_whole(shapes, ranks):
    vectors = [shape for shape in shapes if len(shape) == 1]
    matrices = [shape for shape in shapes if len(shape) > 1]
    whole, part = sharded_bytes(matrices, ranks)
    rest = sharded_bytes(vectors, ranks)[0]
    return whole + rest, part + rest


def bytes_floor(shapes, ranks):
    part = sum(shape[0] // ranks * math.prod(shape[1:]) for shape in shapes)
    return sharded_bytes(shapes, ranks)[0], 16 * part


def bytes_of_parameters(shapes, ranks):
    return tuple(value // 4 for value in sharded_bytes(shapes, ranks))


def bytes_without_gradients(shapes, ranks):
    return tuple(value // 4 * 3 for value in sharded_bytes(shapes, ranks))


def bytes_without_adam(shapes, ranks):
    return tuple(value // 2 for value in sharded_bytes(shapes, ranks))


def bytes_parameters_sharded(shapes, ranks):
    whole, part = sharded_bytes(shapes, ranks)
    return whole, part // 4 + whole // 4 * 3


def bytes_states_sharded(shapes, ranks):
    whole, part = sharded_bytes(shapes, ranks)
    return whole, whole // 2 + part // 2


def bytes_ddp_divided(shapes, ranks):
    part = sharded_bytes(shapes, ranks)[1]
    return part, part


_BYTES_TWINS: Mapping[str, Callable[..., Sequence[float]]] = {
    "divided": bytes_divided,
    "flat": bytes_flat,
    "flat-each": bytes_flat_each,
    "vectors-whole": bytes_vectors_whole,
    "floor": bytes_floor,
    "only-parameters": bytes_of_parameters,
    "three-numbers": bytes_without_gradients,
    "no-optimiser": bytes_without_adam,
    "states-only": bytes_states_sharded,
    "parameters-only": bytes_parameters_sharded,
    "ddp-divided": bytes_ddp_divided,
}


EXERCISE = Exercise(
    id="05.sharded_bytes",
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
    check_answer=_check_sharded_bytes,
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
