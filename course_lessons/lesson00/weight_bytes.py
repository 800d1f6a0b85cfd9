"""Bytes for the weights."""

from __future__ import annotations

import operator
from random import Random

from course_lessons.shared.edited import variants
from course_utils.exercises import Exercise
from course_utils.exercises.forms import OverCases


def weight_bytes(parameters, bits):
    return parameters * bits / 8


_CASES = ((1000, 32), (1_000_000, 16), (6, 4), (10, 4), (7_000_000_000, 16))


def _draw(random: Random) -> tuple[int, int]:
    """Return a network whose weights take a whole number of bytes."""
    return 2 * random.randrange(1, 10 ** random.randrange(2, 6)), random.choice((4, 8, 12, 16, 64))


_of = variants(weight_bytes, "return parameters * bits / 8", "p, b = parameters, bits\nreturn {}")
_TWINS = {
    "bits": _of("p * b"),
    "larger-unit": _of(*(f"p * b / 8 / {u}" for u in (1e3, 1024, 1e6, 2**20, 1e9, 2**30))),
    "whole-bytes": _of(
        *("p * (b // 8)", "p * max(1, b // 8)", "p * -(-b // 8)"),
        *("p // 8 * b", "-(-p // 8) * b", "p // 8 * (b // 8)"),
    ),
    "inverse": _of("p / b", "p * 8 / b", "p / (8 * b)", "p * 4 / b", "p * 32 / b"),
}


EXERCISE = Exercise(
    id="00.weight_bytes",
    title="Bytes for the weights",
    task="A network has `parameters` numbers, and each is stored in `bits` bits. Return how many "
    "**bytes** its weights take.",
    level=1,
    minutes=3,
    hints=(
        "How many bits make one byte?",
        "A million parameters of 32 bits take four million bytes. Which two numbers, multiplied "
        "and then divided by what, give that?",
    ),
    reference=weight_bytes,
    check_answer=OverCases(
        weight_bytes,
        _CASES,
        _TWINS,
        draw=_draw,
        alike=operator.eq,
        situation=lambda parameters, bits: f"{parameters:,} parameters of {bits} bits",
        shown=lambda number: f"{number:,.11g} bytes",
    ),
    why="You will do this sum often: a 7-billion-parameter network in 16 bits takes 14 GB before "
    "it has computed anything, and a free T4 has 16.",
    diagnoses={
        "bits": "That is the number of bits. Memory is counted in bytes.",
        "larger-unit": "The task asks for bytes. Your number is in a larger unit.",
        "whole-bytes": "You round before all bits are counted. Two numbers of 4 bits share one byte.",
        "inverse": "Your answer grows when the numbers get smaller.",
    },
)
