"""Known wrong answers to 06.batch_that_fits, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson06.batch_that_fits import (
    fit_fraction,
    fit_in_proportion,
    fit_on_top,
    fit_rounded,
    fit_rounded_up,
    fit_whole_slope,
)


def _fit_below_zero(small, large, capacity):
    (few, low), (many, high) = small, large
    return few + (capacity - low) * (many - few) // (high - low)


WRONG = {
    "no-fixed-part": fit_in_proportion,
    "rounded": fit_rounded,
    "rounded-up": fit_rounded_up,
    "on-top": fit_on_top,
    "fraction": fit_fraction,
    "whole-slope": fit_whole_slope,
    "negative": _fit_below_zero,
}
