"""Bytes for the weights."""

import operator

from course_language import _
from course_lessons.shared.edited import variants
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def weight_bytes(parameters, bits):
    return parameters * bits / 8


_CASES = ((1000, 32), (1_000_000, 16), (6, 4), (10, 4), (7_000_000_000, 16))


def _random_case(rng):
    """Return a random ``(parameters, bits)`` whose weights take a whole number of bytes."""
    return 2 * rng.randrange(1, 10 ** rng.randrange(2, 6)), rng.choice((4, 8, 12, 16, 64))


_returning = variants(weight_bytes, "return parameters * bits / 8", "p, b = parameters, bits\nreturn {}")
_MISTAKES = {
    "bits": _returning("p * b"),
    "larger-unit": _returning("p * b / 8 / 1e9", "p * b / 8 / 2**30"),
    "whole-bytes": _returning("p * (b // 8)", "p * -(-b // 8)"),
    "inverse": _returning("p / b", "p * 8 / b"),
}


EXERCISE = Exercise(
    id="00.weight_bytes",
    title="Bytes for the weights",
    task="A network has `parameters` numbers, and each is stored in `bits` bits. Return how many "
    "**bytes** its weights take.",
    level=1,
    minutes=3,
    hints=(
        "Memory is counted in bytes, and the task gives you bits. How many bits make one byte? And how "
        "many bits do all the parameters take together?",
        "Try it with numbers that you know. A million parameters of 32 bits take four million bytes. "
        "Your formula must also work for 4 bits, where two numbers share one byte. So count all the "
        "bits first, and don't round anything on the way.",
        "Here is the same kind of sum with other units. A day of 45 minutes isn't a whole number of "
        "hours, so the code adds up the minutes before it divides.\n\n"
        """```python
days, minutes = 10, 45
total = days * minutes  # nothing is rounded yet
print(total, total / 60)  # 450 minutes, 7.5 hours
print(days * (minutes // 60))  # 0, because each day was rounded down
```""",
    ),
    reference=weight_bytes,
    check_answer=ComparesToReference(
        weight_bytes,
        _CASES,
        _MISTAKES,
        draw=_random_case,
        alike=operator.eq,
        situation=lambda parameters, bits: _("{parameters:,} parameters of {bits} bits").format(
            parameters=parameters, bits=bits
        ),
        shown=lambda number: _("{number:,.11g} bytes").format(number=number),
    ),
    why="You'll do this sum often, because it tells you at once whether a network fits on a GPU. Seven "
    "billion parameters in 16 bits take 14 GB before anything is computed, and a free T4 has 16 GB.",
    diagnoses={
        "bits": "That is the number of bits. Memory is counted in bytes.",
        "larger-unit": "The task asks for bytes. Your number is in a larger unit.",
        "whole-bytes": "You round before all bits are counted. Two numbers of 4 bits share one byte.",
        "inverse": "Your answer grows when the numbers get smaller.",
    },
)
