"""Known answers to every exercise, in a file of the exercise's name.

``WRONG`` has, for each diagnosis, an answer that must get it, or several; ``RIGHT``, by name, answers
written otherwise than the reference that must be accepted. A dict in the place of a function is what the
answer changes of the reference, text by text (``course_lessons.shared.edited``). The known mistakes of a
check over cases are known wrong answers too: a file adds what no known mistake is, and an exercise for which
there is nothing to add has none.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lessons.shared.edited import edited
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference, as_tuple


def _listed(exercise: Exercise, name: str) -> Mapping[str, Any]:
    """Return the dict ``name`` (WRONG or RIGHT) of an exercise's file of answers; empty if there is none."""
    lesson, slug = exercise.id.split(".")
    if not (Path(__file__).parent / f"lesson{lesson}" / f"{slug}.py").exists():
        return {}
    return getattr(importlib.import_module(f"answers.lesson{lesson}.{slug}"), name, {})


def every_wrong(exercise: Exercise) -> list[tuple[str, Any]]:
    """Return pairs of a diagnosis and a known wrong answer that must get it."""
    form = exercise.check_answer
    both = [form.known_mistakes] if isinstance(form, ComparesToReference) else []
    return [
        (diagnosis, _answer(exercise, answer))
        for known in (*both, _listed(exercise, "WRONG"))
        for diagnosis, answers in known.items()
        for answer in (as_tuple(answers) if not exercise.wants_value else (answers,))
    ]


def wrong(exercise: Exercise) -> Mapping[str, Any]:
    """Return one known wrong answer for each diagnosis that has any."""
    return dict(reversed(every_wrong(exercise)))


def right(exercise: Exercise) -> Mapping[str, Any]:
    """Return right answers that are written differently from the reference, by name."""
    return {name: _answer(exercise, one) for name, one in _listed(exercise, "RIGHT").items()}


def _answer(exercise: Exercise, known: Any) -> Any:
    """Return a known answer, with a dict of edits applied to the reference."""
    is_edits = isinstance(known, dict) and not exercise.wants_value
    return edited(exercise.reference, known) if is_edits else known
