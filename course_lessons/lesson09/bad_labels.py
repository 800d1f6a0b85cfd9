"""Before the device asserts."""

import operator

import torch
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference

from .checking import plain


def bad_labels(labels, classes, ignore_index=-100):
    outside = (labels < 0) | (labels >= classes)
    bad = outside & (labels != ignore_index)
    return bad.nonzero().flatten().tolist()


def _refused(labels, classes, ignore_index=-100):
    """Return the rows whose label ``F.cross_entropy`` refuses: the reference of the check."""
    refused = []
    for row, label in enumerate(labels[:, None]):
        try:
            F.cross_entropy(torch.zeros(1, classes), label, ignore_index=ignore_index)
        except (IndexError, RuntimeError):
            refused.append(row)
    return refused


def _random_case(rng):
    """Return a random ``(labels, classes, ignore_index)``, with labels inside and outside the range."""
    classes = rng.randint(2, 6)
    ignore = rng.choice((-100, -100, -1, 0, 255, classes))
    some = [*range(-2, classes + 3), -100, ignore, ignore]
    labels = [rng.choice(some) for _ in range(rng.randint(1, 6))]
    return torch.tensor(labels), classes, ignore


_BAD = "outside & (labels != ignore_index)"
_MISTAKES = {
    "top-forgotten": {"labels >= classes": "labels > classes"},
    "negative-forgotten": ({"(labels < 0) | ": ""}, {"(labels < 0) | ": "", _BAD: "outside"}),
    "ignored-is-bad": {_BAD: "outside"},
    "fixed-ignore": ({"!= ignore_index": "!= -100"}, {_BAD: f"{_BAD} & (labels != -100)"}),
}


def _validated_result(judge, got):
    """Return the rows as a list of Python numbers; refuse a tensor or a mask."""
    rows = [plain(row) for row in judge.listed(got, _("a list of row numbers"))]
    if isinstance(got, torch.Tensor) or bool in map(type, rows):
        mask = bool in map(type, rows) and "mask"
        judge.no(mask or "wrong-value", seen=got, expected=_("a list of row numbers"))
    return rows


def _describe_case(labels, classes, ignore_index=-100):
    """Return the case in words."""
    return _("labels {labels}, {classes} classes, ignore_index {ignore_index}").format(
        labels=labels.tolist(), classes=classes, ignore_index=ignore_index
    )


EXERCISE = Exercise(
    id="09.bad_labels",
    title="Before the device asserts",
    level=1,
    minutes=5,
    task="""
A label out of range stops a GPU with `device-side assert triggered`, at a later and innocent line. Write
`bad_labels(labels, classes, ignore_index=-100)`: the ascending list of the row numbers whose label
`F.cross_entropy` would refuse. `labels` is a tensor of integers of one dimension. Allowed are 0 to `classes`
- 1, and `ignore_index`.
""",
    hints=(
        "Ask three questions about a label. Is it too small? Is it too large? Is it the one value that's "
        "allowed anyway? Labels start at 0, so think about the largest one that `classes` classes have.",
        "If you compare a tensor with a number, you get a mask of True and False. Join masks with `|` for "
        "*or* and `&` for *and*, and put each comparison in parentheses, because Python works out `|` and "
        "`&` before `<`. `nonzero()` turns the finished mask into row numbers, one in each row of a matrix.",
        """Here you look for the pupils who passed, but don't have full marks.

```python
scores = torch.tensor([0.2, 0.9, 0.7, 1.0])
passed = torch.tensor([True, True, False, True])
found = passed & (scores < 1)
print(found)  # True, True, False, False
print(found.nonzero())  # a matrix with the rows [0] and [1]
print(found.nonzero().flatten().tolist())  # [0, 1]
```""",
    ),
    reference=bad_labels,
    check_answer=ComparesToReference(
        _refused,
        [
            (torch.tensor([1, 2, 3, 10, 4, 10]), 10),  # counted from 1
            (torch.tensor([0, 9, 5]), 10),
            (torch.tensor([3, -1, 0, -100, 7]), 5),
            (torch.tensor([20, 255, 3, 21, -100, -1]), 21, 255),
            (torch.tensor([], dtype=torch.int64), 3),
        ],
        known_mistakes_of(bad_labels, _MISTAKES),
        draw=_random_case,
        read=_validated_result,
        alike=operator.eq,
        situation=_describe_case,
    ),
    why="Run it once over a new data set before you train: labels that count from 1, and a 255 for “no "
    "label” in segmentation masks, are the two usual finds. After an assert, restart and run one batch on "
    "the CPU, because the error there names the line and the label.",
    diagnoses={
        "top-forgotten": "With `classes` classes the labels go from 0 to `classes` - 1. The number `classes` "
        "itself is out of range.",
        "negative-forgotten": "A negative label is out of range too, unless it is `ignore_index`.",
        "ignored-is-bad": "A label equal to `ignore_index` is left out of the loss and breaks nothing.",
        "fixed-ignore": "The value to ignore is an argument. -100 is only its default.",
        "mask": "This is a mask. The row numbers are asked for.",
    },
)
