"""Arithmetic intensity of a product."""

from course_lessons.shared.edited import variants
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def intensity(n, k, m, bytes_per_number):
    flops = 2 * n * k * m
    moved = (n * k + k * m + n * m) * bytes_per_number
    return flops / moved


_CASES = ((1024, 1024, 1024, 4), (64, 1000, 10, 4), (1, 4096, 4096, 1), (96, 32, 48, 2))


def _random_case(rng):
    """Return a random ``(n, k, m, bytes_per_number)``."""
    n, k, m = (rng.choice((3, 10, 50, 128, 700)) + rng.randrange(20) for _ in range(3))
    return n, k, m, rng.choice((1, 2, 4, 8))


_returning = variants(intensity, "return flops / moved", "b = bytes_per_number\nreturn {}")
_MISTAKES = {
    "one-flop": _returning("n*k*m / moved"),
    "no-output": _returning("flops / (b*(n*k + k*m))", "n*k*m / (b*(n*k + k*m))"),
    "numbers-not-bytes": _returning("flops * b / moved", "n*k*m * b / moved"),
    "every-use-fetched": _returning("flops / (b*(flops + n*m))", "flops / (b*flops)"),
    "upside-down": _returning("moved / flops", "2 * moved / flops"),
}


EXERCISE = Exercise(
    id="01.intensity",
    title="Arithmetic intensity of a product",
    task="An (n × k) matrix times a (k × m) matrix. Every number takes `bytes_per_number` bytes. "
    "Both inputs are read once, the result is written once. Return the arithmetic intensity, in "
    "FLOPs per byte.",
    level=2,
    minutes=8,
    hints=(
        "Arithmetic intensity is the work divided by the traffic. Start with the work. How many "
        "numbers does the result have, and what does each of them cost?",
        "Each of the n·m results needs k multiplications and about k additions, and every one of these "
        "is a FLOP. Then comes the traffic. Three matrices travel between memory and chip, and each of "
        "them has its own shape. Count the numbers in all three, and remember that you want bytes.",
        "Here is the same sum for `2 * a + b`, where `a` and `b` are vectors in float16.\n\n"
        """```python
count, size = 1000, 2  # numbers in a vector, bytes of each
work = 2 * count  # one multiplication and one addition each
traffic = 3 * count * size  # read a, read b, write the result
print(work / traffic)  # 0.333 FLOPs per byte
```""",
    ),
    reference=intensity,
    check_answer=ComparesToReference(intensity, _CASES, _MISTAKES, draw=_random_case),
    why="For square float32 matrices the intensity is n/6, so it grows with the size, and that's why a "
    "GPU likes large matrix products best. A batch of 1 makes it tiny, and then memory sets the "
    "pace.",
    diagnoses={
        "one-flop": "Half of the FLOPs: each multiplication comes with an addition, and they are two FLOPs.",
        "no-output": "You count the bytes of the two inputs only. The n × m result is written to memory, "
        "and that moves bytes as well.",
        "numbers-not-bytes": "These are FLOPs for each number moved. The bus and the memory carry bytes: "
        "how many is one number?",
        "every-use-fetched": "You fetch both numbers again for each multiplication, and then the size "
        "would play no part. But a number is fetched once and used many times. That's why a large "
        "product gets so much out of each byte.",
        "upside-down": "These are bytes per FLOP. The more work is done with each byte, the larger "
        "the intensity should be.",
    },
)
