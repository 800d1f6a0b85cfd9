"""Arithmetic intensity of a product."""

from __future__ import annotations

from typing import Any

from course_utils.exercises import Exercise, Judge

from .checking import near


def intensity(n, k, m, bytes_per_number):
    flops = 2 * n * k * m
    moved = (n * k + k * m + n * m) * bytes_per_number
    return flops / moved


def _check_intensity(answer: Any, judge: Judge) -> None:
    for n, k, m, size in (
        (1024, 1024, 1024, 4),
        (64, 1000, 10, 4),
        (1, 4096, 4096, 1),
        (96, 32, 48, 2),
        (7, 3, 5, 8),
        (300, 1, 20, 2),
    ):
        got = judge.number(answer(n, k, m, size))
        inputs, output = n * k + k * m, n * m
        right = 2 * n * k * m / ((inputs + output) * size)
        shape = f"({n} × {k}) @ ({k} × {m}), {size} bytes a number"
        given = {"seen": f"{got:g} for {shape}", "expected": f"{right:g}"}
        for diagnosis, value in (
            ("one-flop", right / 2),
            ("no-output", 2 * n * k * m / (inputs * size)),
            ("numbers-not-bytes", right * size),
            ("always-4-bytes", right * size / 4),
            ("every-use-fetched", 1 / size),
            ("upside-down", 1 / right),
            ("only-flops", 2 * n * k * m),
            ("one-addition-less", n * m * (2 * k - 1) / ((inputs + output) * size)),
            ("only-square", 2 * n / (3 * size)),
            ("bits", right / 8),
        ):
            if near(got, value) and not near(value, right):
                judge.no(diagnosis, **given)
        if not near(got, right):
            judge.no("other-count", **given)


EXERCISE = Exercise(
    id="01.intensity",
    title="Arithmetic intensity of a product",
    task="An (n × k) matrix times a (k × m) matrix. Every number takes `bytes_per_number` bytes. "
    "Both inputs are read once, the result is written once. Return the arithmetic intensity, in "
    "FLOPs for each byte.",
    level=2,
    minutes=8,
    hints=(
        "How many numbers has the result, and what does each of them cost?",
        "Each of the n·m results needs k multiplications and about k additions: 2·n·k·m FLOPs. Now the "
        "bytes: three matrices, three shapes.",
    ),
    reference=intensity,
    check_answer=_check_intensity,
    why="For square matrices of float32 it is n/6: it grows with the size, which is why a matrix "
    "product is what a GPU likes best. A batch of 1 makes it tiny.",
    diagnoses={
        "one-flop": "Half of the FLOPs: you counted the multiplications only, or each multiplication "
        "with its addition as one. They are two FLOPs.",
        "no-output": "You count the bytes of the two inputs only. The n × m result is written to memory, "
        "and that moves bytes as well.",
        "numbers-not-bytes": "These are FLOPs for each number moved. The bus and the memory carry bytes: "
        "how many is one number?",
        "always-4-bytes": "You count 4 bytes a number, as for float32. The same product in 16 bits moves "
        "half the bytes: use `bytes_per_number`.",
        "every-use-fetched": "You fetch both numbers anew for each multiplication; then the size would "
        "play no part. A number is fetched once and used in many products: that is why large ones are "
        "cheap to feed.",
        "upside-down": "These are bytes for each FLOP. The more work is done with each byte, the larger "
        "the intensity should be.",
        "only-flops": "These are the FLOPs, and work alone is no intensity. Divide by the bytes moved.",
        "one-addition-less": "You count k − 1 additions for each result, which is exact. The convention "
        "counts k, the first one being added to zero: 2·k FLOPs for each result.",
        "only-square": "This is right for square matrices only. The three matrices here have three "
        "shapes: n × k, k × m and n × m.",
        "bits": "You count bits. `bytes_per_number` is in bytes already.",
        "other-count": "Count the two parts separately on paper, for a (2 × 3) times a (3 × 5) matrix: "
        "60 FLOPs, and 31 numbers moved.",
    },
)
