"""Known wrong answers to 04.lost, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson04.lost import (
    lost_below_smallest,
    lost_below_tiny,
    lost_changed,
    lost_in_half,
    lost_of_all,
    lost_per_cent,
    lost_zeros,
)


def _lost_without_care(gradients, dtype):
    nonzero = gradients[gradients != 0]
    return (nonzero.to(dtype) == 0).float().mean()


WRONG = {
    "all-entries": lost_of_all,
    "zero-before": lost_zeros,
    "subnormals": lost_below_tiny,
    "threshold": lost_below_smallest,
    "rounded": lost_changed,
    "dtype-ignored": lost_in_half,
    "per-cent": lost_per_cent,
    "nothing-to-lose": _lost_without_care,
}
