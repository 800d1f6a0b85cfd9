"""A hand-in: a learner's name and recorded attempts, as JSON for the instructor.

It has one entry for each attempt: when, which exercise, and the check's outcome. It contains no code, and
nothing about the machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone

from . import progress_file
from .course import load_course
from .exercises import Exercise, lesson
from .exercises.judge import COMMON
from .progress_file import Attempt

FORMAT = "gpu-training-with-pytorch hand-in 1"
MOST = 10_000
"""The most attempts in a hand-in, and read from one: the newest."""
_ERROR_NAME = re.compile(r"[A-Za-z_]\w{0,80}")


def exercises_by_id() -> dict[str, Exercise]:
    """Return all exercises of the course by id, in the course's order."""
    return {exercise.id: exercise for entry in load_course().lessons for exercise in lesson(entry.id)}


def is_valid_name(name: str) -> bool:
    """Return whether a learner's name is safe in a file name and a table: 1 to 40 plain characters."""
    return bool(re.fullmatch(r"[\w][\w .@+-]{0,39}", name)) and not name.endswith((" ", "."))


def is_possible(attempt: Attempt, exercises: Mapping[str, Exercise]) -> bool:
    """Return whether this version of the course can have recorded an attempt: it has such an exercise,
    and such a diagnosis for the outcome.
    """
    exercise = exercises.get(attempt.exercise)
    if exercise is None:
        return False
    if attempt.outcome == "right":
        return attempt.diagnosis == ""
    if attempt.outcome == "not_yet":
        return attempt.diagnosis in exercise.diagnoses or attempt.diagnosis in COMMON
    return attempt.outcome == "raised" and bool(_ERROR_NAME.fullmatch(attempt.diagnosis))


def hand_in_json(name: str) -> tuple[str, int, int]:
    """Return the learner's recorded attempts as the JSON text of a hand-in; write no file.

    Parameters
    ----------
    name
        The learner's name, or seat, as the instructor knows it.

    Returns
    -------
    tuple of str, int, int
        The JSON text; how many attempts it contains (right or not); how many were skipped: those this
        version of the course cannot have recorded (see `is_possible`), and all but the newest `MOST`.
    """
    exercises = exercises_by_id()
    attempts = list(progress_file.attempts())
    kept = [asdict(attempt) for attempt in attempts if is_possible(attempt, exercises)][-MOST:]
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    body = {"format": FORMAT, "name": name, "made": created, "numbering": progress_file.NUMBERING}
    body["attempts"] = kept
    return json.dumps(body, indent=1) + "\n", len(kept), len(attempts) - len(kept)
