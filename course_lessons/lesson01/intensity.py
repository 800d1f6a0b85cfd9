"""Arithmetic intensity of a product."""

from __future__ import annotations

from random import Random

from course_lessons.shared.edited import variants
from course_utils.exercises import Exercise
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


def _draw(random: Random) -> tuple[int, int, int, int]:
    n, k, m = (random.choice((3, 10, 50, 128, 700)) + random.randrange(20) for _ in range(3))
    return n, k, m, random.choice((1, 2, 4, 8))


_of = variants(intensity, "return flops / moved", "b = bytes_per_number\nreturn {}")
_MOVED = "b*(n*k + k*m + n*m)"
_WORK = {
    "one-flop": "n*k*m",
    "one-addition-less": "n*m*(2*k - 1)",
    "flops-without-k": "2*n*m",
    "flops-added": "n*m*(k + 1)",
}
_BYTES = {
    "no-output": ("b*(n*k + k*m)",),
    "an-input-missing": ("b*(k*m + n*m)", "b*(n*k + n*m)"),
    "one-matrix": ("b*n*m",),
    "output-twice": ("b*(n*k + k*m + 2*n*m)",),
    "inputs-twice": ("b*(2*n*k + 2*k*m + n*m)", "b*(n*k + 2*k*m + n*m)", "b*(2*n*k + k*m + n*m)"),
    "numbers-not-bytes": ("n*k + k*m + n*m",),
    "always-4-bytes": ("4*(n*k + k*m + n*m)",),
    "bits": ("8*b*(n*k + k*m + n*m)",),
    "some-bytes": ("b*n*k + k*m + n*m", "n*k + k*m + b*n*m", "b*(n*k + k*m) + n*m"),
    "only-square": ("b*3*n*m", "b*3*n*k", "b*3*k*m"),
    "other-shape": ("b*(n*k + n*m + n*m)", "b*(n*k + k*m + k*k)", "b*(n*n + k*k + m*m)"),
    "sides-added": ("b*(n + k + m)",),
    "sides-multiplied": ("b*n*k*m", "b*n*k*k*m*n*m"),
    "every-use-fetched": ("b*(2*n*k*m + n*m)", "b*2*n*k*m"),
}
_PAIRED = ("no-output", "an-input-missing", "one-matrix", "numbers-not-bytes", "always-4-bytes")
_TWINS = {
    "upside-down": _of("moved / flops", "2 * moved / flops"),
    "only-flops": _of("flops", "flops / 2"),
    "only-bytes": _of("moved", "moved / b"),
    "multiplied": _of("flops * moved"),
    "brackets": _of(
        *("flops / b * (n*k + k*m + n*m)", "flops / (n*k + k*m + n*m) * b"),
        *("flops / b * n*k + k*m + n*m", "flops / n*k + k*m + n*m * b"),
    ),
    "other-flops": _of(
        *(f"2*{f} / moved" for f in ("n*n*m", "n*n*n", "n*n*k", "n*m*m", "k*k*m", "k*k*k"))
    ),
    "rounded": _of(
        *("flops / 2 // moved", "flops // moved"),
        *("round(flops / moved)", "round(flops / moved, 2)"),
    ),
    **{fault: _of(f"{flops} / ({_MOVED})") for fault, flops in _WORK.items()},
    **{
        fault: _of(
            *(f"flops / ({size})" for size in sizes),
            *(f"n*k*m / ({size})" for size in sizes if fault in _PAIRED),
        )
        for fault, sizes in _BYTES.items()
    },
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
    check_answer=OverCases(intensity, _CASES, _TWINS, draw=_draw, otherwise="other-count"),
    why="For square matrices of float32 it is n/6: it grows with the size, which is why a matrix "
    "product is what a GPU likes best. A batch of 1 makes it tiny.",
    diagnoses={
        "one-flop": "Half of the FLOPs: each multiplication comes with an addition, and they are two FLOPs.",
        "one-addition-less": "You count k − 1 additions for each result, which is exact. The convention "
        "counts k, the first one being added to zero: 2·k FLOPs for each result.",
        "flops-without-k": "Your FLOPs do not grow with k. Each of the n·m results is a sum of k products.",
        "flops-added": "For each result you count k FLOPs and one more. It needs k multiplications and k additions.",
        "no-output": "You count the bytes of the two inputs only. The n × m result is written to memory, "
        "and that moves bytes as well.",
        "an-input-missing": "One of the two inputs is not among your bytes. Both are read.",
        "one-matrix": "The bytes of one matrix only: three cross, two to be read, one to be written.",
        "inputs-twice": "An input is among your bytes twice. Each is read once.",
        "other-flops": "A product takes 2·n·k·m FLOPs: not all three of the sides are in yours, once each.",
        "output-twice": "You count the result twice. It is written once, and not read.",
        "numbers-not-bytes": "These are FLOPs for each number moved. The bus and the memory carry bytes: "
        "how many is one number?",
        "always-4-bytes": "You count 4 bytes a number, as for float32. The same product in 16 bits moves "
        "half the bytes: use `bytes_per_number`.",
        "bits": "You count bits. `bytes_per_number` is in bytes already.",
        "some-bytes": "Not all three matrices are multiplied by `bytes_per_number`. Put brackets around their sum.",
        "other-shape": "You count three matrices, but one has not its shape: n × k, k × m and n × m.",
        "sides-added": "You add the sides. A matrix has as many numbers as its sides give when multiplied.",
        "sides-multiplied": "You multiply where the matrices are to be added: n·k numbers, and k·m, and n·m.",
        "every-use-fetched": "You fetch both numbers anew for each multiplication; then the size would "
        "play no part. A number is fetched once and used in many products: that is why large ones are "
        "cheap to feed.",
        "upside-down": "These are bytes for each FLOP. The more work is done with each byte, the larger "
        "the intensity should be.",
        "only-flops": "These are the FLOPs, and work alone is no intensity. Divide by the bytes moved.",
        "only-bytes": "This is what is moved, and no work is in it. Intensity is FLOPs divided by bytes.",
        "multiplied": "You multiply the FLOPs by the bytes. For each byte means: divided by the bytes.",
        "brackets": "Something that belongs below the line multiplies instead: a / b * c is a / b, times c. Put "
        "brackets around all that you divide by.",
        "rounded": "You round the quotient. An intensity can be 0.25.",
        "only-square": "This is right for square matrices only. The three matrices here have three "
        "shapes: n × k, k × m and n × m.",
        "other-count": "Count the two parts separately on paper, for a (2 × 3) times a (3 × 5) matrix: "
        "60 FLOPs, and 31 numbers moved.",
    },
)
