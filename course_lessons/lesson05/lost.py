"""What a format throws away."""

import math

import torch

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference

from .checking import listed


def lost(gradients, dtype):
    nonzero = gradients[gradients != 0]
    gone = (nonzero.to(dtype) == 0).sum()
    return gone.item() / max(len(nonzero), 1)


def _make_cases():
    """Yield new ``(gradients, dtype)`` cases."""
    half, bf16 = torch.float16, torch.bfloat16
    mixed = [1e-3, 1e-6, 4e-8, 2.5e-8, -1e-9, -3e-5, 0.0, 0.0, 70000.0, 1.0]
    double = torch.tensor([[1e-50, 1e-9], [0.0, -1e-30]], dtype=torch.float64)
    yield torch.tensor([0.5, 0.1, -0.3]), half  # rounded, but not lost
    yield torch.tensor([1e-6, -1e-9, 2.0, 1e-12]), half
    yield torch.tensor([0.0, 1e-9, 1.0, 0.0]), half
    yield torch.tensor(mixed), half
    yield torch.tensor(mixed), bf16
    yield double, bf16
    yield double.clone(), torch.float32
    yield torch.tensor([0.0, 0.0]), half
    yield torch.zeros(2, 3), bf16


def _random_case(rng):
    """Return a random ``(gradients, dtype)``; some values become 0, subnormal or infinite in some dtype."""
    kinds = [0.0, 1e-9, -1e-9, 2.0**-25, 1.03 * 2.0**-25, -4e-7, 0.3, -2.0, 1e5, 1e39, 1e-60]
    rows, columns = rng.randint(1, 3), rng.randint(1, 4)
    values = [[rng.choice(kinds) for _ in range(columns)] for _ in range(rows)]
    dtype = rng.choice([torch.float16, torch.float16, torch.bfloat16, torch.float32])
    return torch.tensor(values, dtype=torch.float64), dtype


_GONE = "nonzero.to(dtype) == 0"
_MISTAKES = {
    "all-entries": {"max(len(nonzero), 1)": "gradients.numel()"},
    "subnormals": {_GONE: "nonzero.abs() < torch.finfo(dtype).tiny"},
    "positive-only": {"gradients != 0": "gradients > 0"},
    "rounded": {_GONE: "nonzero.to(dtype) != nonzero"},
    "infinite": {_GONE: "(nonzero.to(dtype) == 0) | nonzero.to(dtype).isinf()"},
}


EXERCISE = Exercise(
    id="05.lost",
    title="What a format throws away",
    level=1,
    minutes=6,
    task="""
Write `lost(gradients, dtype)`. Take the entries of the tensor `gradients` that aren't zero. Which share of
them is zero after a conversion to `dtype`? Return a number from 0 to 1. If no entry is nonzero, return 0.
A value that is only rounded, or becomes infinite, isn't lost.
""",
    hints=(
        "You don't have to know the limits of any format, because PyTorch does the conversion for you. So "
        "ask what you can compare before and after it. Which entries weren't zero before, and are zero now?",
        "`gradients[gradients != 0]` picks the entries that can get lost, and `.to(dtype)` converts them. "
        "Only these entries count in the share, so a zero that was there from the start mustn't change it. "
        "Perhaps there isn't a single entry of this kind. What would your division do then?",
        "Here's a share of another kind. A mark of -1 means that somebody was absent, and absent people "
        "can't fail:\n\n"
        """```python
marks = torch.tensor([55.0, 38.0, -1.0, 71.0])
present = marks[marks >= 0]
failed = (present < 40).sum()
print(failed.item() / max(len(present), 1))  # 1 of 3, and 0 if everybody is absent
```""",
    ),
    reference=lost,
    check_answer=ComparesToReference(
        lost,
        _make_cases,
        known_mistakes_of(lost, _MISTAKES),
        draw=_random_case,
        alike=lambda got, right: math.isclose(got, right, rel_tol=1e-5),
        situation=lambda gradients, dtype: _("{gradients} in {dtype}").format(
            gradients=listed(gradients), dtype=dtype
        ),
    ),
    why="A gradient that becomes zero no longer trains its weight, and no error or warning tells you so. In "
    "a real backward pass in float16 it's often worse than this share says, because small factors get "
    "lost on the way too.",
    diagnoses={
        "all-entries": "The share is one of the entries that were not zero: a gradient that is "
        "zero already has nothing to lose.",
        "subnormals": "`torch.finfo(dtype).tiny` is the smallest number with all its bits. Below it come "
        "smaller ones with fewer bits, the subnormals: they are coarse, but they are not zero.",
        "positive-only": "Only positive entries were looked at. A negative one can be lost too.",
        "infinite": "What becomes infinite was counted. The task asks for what becomes zero.",
        "rounded": "A value that changes is rounded, not lost. Count those that become zero.",
    },
)
