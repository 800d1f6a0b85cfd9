"""Known wrong answers to 08.crossover, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson08.crossover import TWINS_CROSSOVER, crossover_in_order

WRONG = {
    "first-win": TWINS_CROSSOVER["first-win"],
    "unsorted": crossover_in_order,
    "largest-ratio": TWINS_CROSSOVER["largest-ratio"],
    "last-loss": TWINS_CROSSOVER["last-loss"],
    "a-tie-wins": TWINS_CROSSOVER["a-tie-wins"],
    "first-size": TWINS_CROSSOVER["first-size"],
}
