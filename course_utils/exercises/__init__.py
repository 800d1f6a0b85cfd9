"""Exercises: the checker in ``core``, and one module for each lesson."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from .core import Exercise, Judge, Result, todo

__all__ = ["Exercise", "Judge", "LessonExercises", "Result", "lesson", "todo"]


class LessonExercises:
    """The exercises of one lesson, by name: ``ex.speedup``; in order when iterated."""

    def __init__(self, lesson_id: str, exercises: tuple[Exercise, ...]) -> None:
        self.lesson_id = lesson_id
        self._by_slug = {exercise.slug: exercise for exercise in exercises}

    def __getattr__(self, slug: str) -> Exercise:
        if slug in self.__dict__.get("_by_slug", {}):
            return self._by_slug[slug]
        known = ", ".join(self._by_slug) or "none yet"
        raise AttributeError(f"lesson {self.lesson_id} has no exercise {slug!r}; it has {known}")

    def __iter__(self) -> Iterator[Exercise]:
        return iter(self._by_slug.values())

    def __len__(self) -> int:
        return len(self._by_slug)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._by_slug]

    def __repr__(self) -> str:
        return f"lesson {self.lesson_id}: exercises {', '.join(self._by_slug) or 'none yet'}"


def lesson(lesson_id: str) -> LessonExercises:
    """Return the exercises of a lesson.

    Parameters
    ----------
    lesson_id
        The lesson's number, such as ``"01"``. A lesson without exercises gives an empty set.
    """
    name = f"{__name__}.lesson{lesson_id}"
    if importlib.util.find_spec(name) is None:
        return LessonExercises(lesson_id, ())
    return LessonExercises(lesson_id, importlib.import_module(name).EXERCISES)
