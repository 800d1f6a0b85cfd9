"""Known answers to every exercise, in a file of the exercise's name.

``WRONG`` maps each diagnosis to an answer that must receive it, or to a tuple of them; ``RIGHT`` maps names
to answers that are written differently from the reference and must be accepted. In place of a function there
may be a dict of edits, old text to new, of the reference (``course_lessons.shared.edited``). The known
mistakes of a check over cases are wrong answers too: a file adds others, and an exercise that needs none has
no file.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lessons.shared.edited import edited
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference, as_tuple


def _listed_answers(exercise: Exercise, name: str) -> Mapping[str, Any]:
    """Return ``WRONG`` or ``RIGHT`` of the exercise's file; empty if there is none."""
    lesson, slug = exercise.id.split(".")
    if not (Path(__file__).parent / f"lesson{lesson}" / f"{slug}.py").exists():
        return {}
    return getattr(importlib.import_module(f"answers.lesson{lesson}.{slug}"), name, {})


def every_wrong(exercise: Exercise) -> list[tuple[str, Any]]:
    """Return ``(diagnosis, answer)`` pairs: the check's known mistakes, then the file's."""
    form = exercise.check_answer
    of_check = [form.known_mistakes] if isinstance(form, ComparesToReference) else []
    return [
        (diagnosis, _edited_or_given(exercise, answer))
        for known_answers in (*of_check, _listed_answers(exercise, "WRONG"))
        for diagnosis, answers in known_answers.items()
        for answer in (as_tuple(answers) if not exercise.wants_value else (answers,))
    ]


def wrong(exercise: Exercise) -> Mapping[str, Any]:
    """Return one wrong answer for each diagnosis that has any: the first that is listed."""
    return dict(reversed(every_wrong(exercise)))


def right(exercise: Exercise) -> Mapping[str, Any]:
    """Return the answers that must be accepted, besides the reference, by name."""
    return {
        name: _edited_or_given(exercise, known) for name, known in _listed_answers(exercise, "RIGHT").items()
    }


def _edited_or_given(exercise: Exercise, known: Any) -> Any:
    """Return a known answer; where it is a dict of edits, the reference with these edits."""
    is_edits = isinstance(known, dict) and not exercise.wants_value
    return edited(exercise.reference, known) if is_edits else known
