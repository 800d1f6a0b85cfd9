"""Exercises: their class, how an answer is checked, and those of a lesson (from ``course_lessons``)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from course_language import _

from .. import content, progress_file
from .exercise import Exercise
from .judge import Judge, todo
from .result import Result

__all__ = ["Exercise", "Judge", "LessonExercises", "Result", "lesson", "todo"]


class LessonExercises:
    """The exercises of one lesson, as attributes (``ex.speedup``); iterates over them in order."""

    def __init__(self, lesson_id: str, exercises: tuple[Exercise, ...]) -> None:
        self.lesson_id = lesson_id
        self._by_slug = {exercise.slug: exercise for exercise in exercises}

    def __getattr__(self, slug: str) -> Exercise:
        if slug in self.__dict__.get("_by_slug", {}):
            return self._by_slug[slug]
        if found := _moved_exercise(self.__dict__.get("lesson_id", ""), slug):
            return found
        known = ", ".join(self._by_slug) or _("none yet")
        raise AttributeError(
            _("lesson {lesson_id} has no exercise {slug!r}; it has {known}").format(
                lesson_id=self.lesson_id, slug=slug, known=known
            )
        )

    def __iter__(self) -> Iterator[Exercise]:
        return iter(self._by_slug.values())

    def __len__(self) -> int:
        return len(self._by_slug)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._by_slug]

    def __repr__(self) -> str:
        return _("lesson {lesson_id}: exercises {by_slug}").format(
            lesson_id=self.lesson_id, by_slug=", ".join(self._by_slug) or _("none yet")
        )


def _moved_exercise(lesson_id: str, slug: str) -> Exercise | None:
    """Return the exercise that had this name in a lesson of this number before lessons were renumbered."""
    present = progress_file.present_id({"exercise": f"{lesson_id}.{slug}"}, "exercise").partition(".")[0]
    if present == lesson_id:
        return None
    return next((exercise for exercise in lesson(present) if exercise.slug == slug), None)


def lesson(lesson_id: str) -> LessonExercises:
    """Return the exercises of a lesson, such as ``"01"``; an empty `LessonExercises` if it has none."""
    if not (content.folder() / f"lesson{lesson_id}" / "exercises.py").is_file():
        return LessonExercises(lesson_id, ())
    listed = importlib.import_module(f"course_lessons.lesson{lesson_id}.exercises")
    return LessonExercises(lesson_id, listed.EXERCISES)
