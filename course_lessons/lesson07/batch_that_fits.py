"""Two measurements and a straight line."""

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def batch_that_fits(small, large, capacity):
    (few, low), (many, high) = small, large
    return max(0, few + (capacity - low) * (many - few) // (high - low))


_MIB = 2**20

_CASES = (
    ((8, 500 * _MIB), (16, 600 * _MIB), 1000 * _MIB),
    ((10, 1000), (20, 1500), 1520),
    ((32, 700 * _MIB), (64, 1339 * _MIB), 700 * _MIB),
    ((32, 700 * _MIB), (64, 1339 * _MIB), 699 * _MIB),
    ((10, 1000), (20, 1500), 1549),
    ((10, 1000), (20, 1500), 1550),
    ((10, 1000), (20, 1500), 550),
    ((10, 1000), (20, 1500), 549),
    ((3, 1000), (10, 1100), 2205),
    ((3, 1000), (10, 1150), 2500),
    ((3, 1000), (10, 1100), 900),
)


def _random_case(rng):
    """Return a random case in which memory grows linearly with the batch, but for rounding."""
    few, step = rng.randint(1, 64), rng.randint(1, 64)
    low, slope = rng.randint(10**6, 10**8), rng.randint(10**4, 10**6)
    high = low + slope * step + rng.randint(0, step - 1)
    return (
        (few, low),
        (few + step, high),
        low + rng.randint(-3, 90) * slope + rng.randint(1, 9999),
    )


_LINE = "few + (capacity - low) * (many - few) // (high - low)"
_MISTAKES = {
    "no-fixed-part": (
        lambda small, large, capacity: capacity * large[0] // large[1],
        {"few + (capacity - low)": "capacity"},
    ),
    "rounded-up": (
        {"few + (capacity - low)": "few - (low - capacity)"},
        {_LINE: f"round({_LINE.replace('//', '/')})"},
    ),
    "on-top": {"few + (": "("},
    "slope-of-one": (
        {_LINE: "int((capacity - low) / (high / many) + few)"},
        {_LINE: "int((capacity - high) / (low / few) + many)"},
    ),
}


EXERCISE = Exercise(
    id="07.batch_that_fits",
    title="Two measurements and a straight line",
    level=2,
    minutes=8,
    task="""
Peak memory is a straight line in the batch size: a fixed part, and so many bytes a sample. Write
`batch_that_fits(small, large, capacity)`: `small` and `large` are measured pairs of (batch, peak bytes), and
back comes the largest whole batch whose peak on that line is at most `capacity`; 0 where none is.
""",
    hints=(
        "Two points make a straight line. How many more bytes does the large batch take, and for how many "
        "more samples? That tells you what one sample costs. The rest is the fixed part, which is there "
        "without any sample.",
        "You don't have to work out the fixed part. Start from a batch that you've measured, and ask how "
        "many more samples fit into the bytes that are left. Only whole samples count, and `//` rounds "
        "down, below zero too. The bytes of one sample may not be a whole number, so multiply before you "
        "divide. What should come back if not even one sample fits?",
        """Here's the question the other way round. What's the peak for a batch of 30?

```python
(n1, peak1), (n2, peak2) = (4, 900), (12, 1300)  # batch and peak in MB
more = 30 - n1
peak = peak1 + more * (peak2 - peak1) // (n2 - n1)
print(peak)  # 2200
```""",
    ),
    reference=batch_that_fits,
    check_answer=ComparesToReference(
        batch_that_fits,
        _CASES,
        known_mistakes_of(batch_that_fits, _MISTAKES),
        draw=_random_case,
        situation=lambda *case: _("{} and {} in {:,} bytes").format(*case),
    ),
    why="Two cheap runs can replace a long search for the batch size. A plain proportion can't, because it "
    "also scales the weights and the optimizer's state, which take the same bytes with every batch.",
    diagnoses={
        "no-fixed-part": "That is a line through zero. A batch of none would still need the model.",
        "rounded-up": "That batch no longer fits: its peak on the line is above the capacity. Round down.",
        "on-top": "That is how many samples fit on top of the small batch, not how many fit in all.",
        "slope-of-one": "The bytes a sample are taken from one measurement alone: its fixed part is in them.",
    },
)
