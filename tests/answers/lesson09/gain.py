"""Known wrong answers to 09.gain, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson09.gain import (
    gain_exclusive,
    gain_extremes,
    gain_first_over_second,
    gain_of_medians,
    gain_upside_down,
    quartiles,
    timed_rounds,
)


def _gain_in_one_order(old, new, rounds, clock):
    return quartiles([a / b for a, b in timed_rounds(old, new, rounds, clock, swap=False)])


def _gain_cold(old, new, rounds, clock):
    return quartiles([a / b for a, b in timed_rounds(old, new, rounds, clock, warm=False)])


def _gain_in_blocks(old, new, rounds, clock):
    old()
    new()
    times = []
    for work in (old, new):
        for _ in range(rounds):
            begin = clock()
            work()
            times.append(clock() - begin)
    return quartiles([a / b for a, b in zip(times[:rounds], times[rounds:], strict=True)])


WRONG = {
    "no-warm-up": _gain_cold,
    "in-blocks": _gain_in_blocks,
    "same-order": _gain_in_one_order,
    "upside-down": gain_upside_down,
    "first-over-second": gain_first_over_second,
    "ratio-of-medians": gain_of_medians,
    "exclusive": gain_exclusive,
    "extremes": gain_extremes,
}
