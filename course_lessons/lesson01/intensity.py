"""Arithmetic intensity of a product."""

from __future__ import annotations

from course_utils.exercises import Exercise
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases


def intensity(n, k, m, bytes_per_number):
    flops = 2 * n * k * m
    moved = (n * k + k * m + n * m) * bytes_per_number
    return flops / moved


_CASES = (
    (1024, 1024, 1024, 4),
    (64, 1000, 10, 4),
    (1, 4096, 4096, 1),
    (96, 32, 48, 2),
    (7, 3, 5, 8),
    (300, 1, 20, 2),
)

_TWINS = {
    "one-flop": lambda n, k, m, size: intensity(n, k, m, size) / 2,
    "no-output": edited(intensity, {" + n * m": ""}),
    "numbers-not-bytes": edited(intensity, {" * bytes_per_number": ""}),
    "always-4-bytes": edited(intensity, {"* bytes_per_number": "* 4"}),
    "every-use-fetched": lambda n, k, m, size: 1 / size,
    "upside-down": edited(intensity, {"flops / moved": "moved / flops"}),
    "only-flops": edited(intensity, {"flops / moved": "flops"}),
    "one-addition-less": edited(intensity, {"2 * n * k * m": "n * m * (2 * k - 1)"}),
    "only-square": lambda n, k, m, size: intensity(n, n, n, size),
    "bits": lambda n, k, m, size: intensity(n, k, m, 8 * size),
}


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
    check_answer=OverCases(intensity, _CASES, _TWINS, otherwise="other-count"),
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
