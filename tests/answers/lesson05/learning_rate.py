"""Known wrong answers to 05.learning_rate, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson05.learning_rate import (
    rate_at_once,
    rate_by_batch,
    rate_by_ranks,
    rate_by_root,
    rate_from_zero,
    rate_not_scaled,
    rate_one_early,
    rate_one_late,
    rate_without_end,
)

WRONG = {
    "not-scaled": rate_not_scaled,
    "by-ranks": rate_by_ranks,
    "by-batch": rate_by_batch,
    "by-root": rate_by_root,
    "at-once": rate_at_once,
    "from-zero": rate_from_zero,
    "without-end": rate_without_end,
    "one-off": rate_one_late,
    "one-early": rate_one_early,
}
