"""Known wrong answers to 08.leaving, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson08.leaving import LEAVING


def _leaving_with(place: int) -> tuple[str, ...]:
    other = {"float16": "float32", "float32": "float16"}
    return tuple(other[d] if i == place else d for i, d in enumerate(LEAVING))


WRONG = {
    "all-equal": ("float16",) * 6,
    "product": _leaving_with(0),
    "residual": _leaving_with(1),
    "activation": _leaving_with(2),
    "mean": _leaving_with(3),
    "sum": _leaving_with(4),
    "in-place": _leaving_with(5),
}
