"""Bytes for the weights."""

from __future__ import annotations

import operator

from course_utils.exercises import Exercise
from course_utils.exercises.forms import OverCases


def weight_bytes(parameters, bits):
    return parameters * bits / 8


_CASES = ((1000, 32), (1_000_000, 16), (6, 4), (10, 4), (7_000_000_000, 16))

_TWINS = {
    "whole-bytes": (
        lambda parameters, bits: parameters * (bits // 8),
        lambda parameters, bits: parameters * -(-bits // 8),
    ),
    "bits": lambda parameters, bits: parameters * bits,
    "always-32": lambda parameters, bits: parameters * 4,
    "inverse": lambda parameters, bits: parameters * 32 / bits / 8,
    "eight": lambda parameters, bits: parameters * 8,
    "larger-unit": (
        lambda parameters, bits: parameters * bits / 8 / 1e9,
        lambda parameters, bits: parameters * bits / 8 / 1024,
    ),
}


EXERCISE = Exercise(
    id="00.weight_bytes",
    title="Bytes for the weights",
    task="A network has `parameters` numbers, and each is stored in `bits` bits. Return how many "
    "**bytes** its weights take. The cell calls `check` on your function: run it once as it is, "
    "then with a wrong answer, then with a right one, and read what comes back.",
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
        alike=operator.eq,
        otherwise="other",
        situation=lambda parameters, bits: f"{parameters:,} parameters of {bits} bits",
        shown=lambda number: f"{number:,g} bytes",
    ),
    why="You will do this sum often: a 7-billion-parameter network in 16 bits takes 14 GB before "
    "it has computed anything, and a free T4 has 16.",
    diagnoses={
        "bits": "That is the number of bits. Memory is counted in bytes.",
        "always-32": "The number of bits plays no part in your answer. Half the bits should take "
        "half the memory.",
        "inverse": "Your answer grows when the numbers get smaller.",
        "eight": "Your answer does not use the number of bits: 8 is how many bits make a byte.",
        "larger-unit": "The task asks for bytes, not for kilobytes or gigabytes.",
        "whole-bytes": "You round each number to whole bytes. Two numbers of 4 bits share one byte.",
        "other": "Not this number. Work the case below out on paper: how many bits are there in all?",
    },
)
