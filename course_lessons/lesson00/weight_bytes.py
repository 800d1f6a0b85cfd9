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
    "times-eight": _of("p * b * 8"),
    "larger-unit": _of(*(f"p * b / 8 / {u}" for u in (1e3, 1024, 1e6, 2**20, 1e9, 2**30))),
    "other-divisor": _of(*(f"p * b / {d}" for d in (2, 4, 7, 10, 16, 32, 64, 100, 1000, 1024))),
    "whole-bytes": _of(
        *("p * (b // 8)", "p * max(1, b // 8)", "p * -(-b // 8)"),
        *("p // 8 * b", "-(-p // 8) * b", "p // 8 * (b // 8)"),
    ),
    "no-bits": _of(*(f"p * {size}" for size in (1 / 8, 1, 2, 4, 8, 16, 32))),
    "no-parameters": _of("b / 8", "b", "b * 8", "8 / b"),
    "inverse": _of("p / b", "p * 8 / b", "p / (8 * b)", "p * 4 / b", "p * 32 / b"),
    "upside-down": _of("8 / (p * b)", "1 / (p * b)", "b / p", "b / p / 8", "8 * b / p"),
    "added": _of("p + b", "(p + b) / 8", "p + b / 8", "p + b * 8", "p / 8 + b"),
    "power": _of("p * 2**b", "p * 2**b / 8", "2**b", "2**b / 8"),
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
        otherwise="other",
        situation=lambda parameters, bits: f"{parameters:,} parameters of {bits} bits",
        shown=lambda number: f"{number:,.11g} bytes",
    ),
    why="You will do this sum often: a 7-billion-parameter network in 16 bits takes 14 GB before "
    "it has computed anything, and a free T4 has 16.",
    diagnoses={
        "bits": "That is the number of bits. Memory is counted in bytes.",
        "times-eight": "You multiply by 8. Eight bits make one byte, so there are fewer bytes than bits.",
        "larger-unit": "The task asks for bytes. Your number is in a larger unit.",
        "other-divisor": "You divide the number of bits, but not by the number of bits in a byte.",
        "whole-bytes": "You round before all bits are counted. Two numbers of 4 bits share one byte.",
        "no-bits": "The number of bits plays no part in your answer. Half the bits should take half the memory.",
        "no-parameters": "The number of parameters plays no part in your answer. Each of them takes `bits` bits.",
        "inverse": "Your answer grows when the numbers get smaller.",
        "upside-down": "Your answer gets smaller when there are more parameters.",
        "added": "You add the two numbers. Each of the parameters takes `bits` bits: how many is that in all?",
        "power": "Two to the power of `bits` is how many values a number can have, not the room that it takes.",
        "other": "Not this number. Work the case below out on paper: how many bits are there in all?",
    },
)
