"""Bytes for the weights."""

from __future__ import annotations

from typing import Any

from course_utils.exercises import Exercise, Judge


def weight_bytes(parameters, bits):
    return parameters * bits / 8


def _check_weight_bytes(answer: Any, judge: Judge) -> None:
    for parameters, bits in ((1000, 32), (1_000_000, 16), (6, 4), (7_000_000_000, 16)):
        got = judge.number(answer(parameters, bits))
        right = parameters * bits / 8
        if got == right:
            continue
        seen = f"{got:,g}, for {parameters:,} parameters of {bits} bits"
        for diagnosis, other in (
            ("whole-bytes", parameters * (bits // 8)),
            ("whole-bytes", parameters * -(-bits // 8)),
            ("bits", parameters * bits),
            ("always-32", parameters * 4),
            ("inverse", parameters * 32 / bits / 8),
            ("eight", parameters * 8),
            ("larger-unit", right / 1e9),
            ("larger-unit", right / 1024),
        ):
            if got == other:
                judge.no(diagnosis, seen=seen, expected=f"{right:,g} bytes")
        judge.no("other", seen=seen, expected=f"{right:,g} bytes")


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
    check_answer=_check_weight_bytes,
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
