"""A hand-in: a learner's name and checked answers, in a file for the instructor.

It holds one entry an answer that was checked: when, which exercise, what the check said. Never code, and
nothing of the machine.
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
"""So many answers are handed in, and read: the newest."""
_ERROR_NAME = re.compile(r"[A-Za-z_]\w{0,80}")


def known() -> dict[str, Exercise]:
    """Return every exercise of the course by its id, in order."""
    return {exercise.id: exercise for entry in load_course().lessons for exercise in lesson(entry.id)}


def good_name(name: str) -> bool:
    """Return whether a name can stand in a file's name and a table: 1 to 40 plain characters."""
    return bool(re.fullmatch(r"[\w][\w .@+-]{0,39}", name)) and not name.endswith((" ", "."))


def is_possible(attempt: Attempt, exercises: Mapping[str, Exercise]) -> bool:
    """Return whether this version of the course can have written an entry."""
    what = exercises.get(attempt.exercise)
    if what is None:
        return False
    if attempt.outcome == "right":
        return attempt.diagnosis == ""
    if attempt.outcome == "not_yet":
        return attempt.diagnosis in what.diagnoses or attempt.diagnosis in COMMON
    return attempt.outcome == "raised" and bool(_ERROR_NAME.fullmatch(attempt.diagnosis))


def hand_in(name: str) -> tuple[str, int, int]:
    """Write the learner's progress as a hand-in.

    Parameters
    ----------
    name
        What the instructor calls this learner: a name, or a seat.

    Returns
    -------
    tuple of str, int, int
        The text; how many answers it holds; how many were passed over, because this copy of the course
        has no such exercise.
    """
    exercises = known()
    attempts = list(progress_file.attempts())
    kept = [asdict(one) for one in attempts if is_possible(one, exercises)][-MOST:]
    made = datetime.now(timezone.utc).isoformat(timespec="seconds")
    body = {"format": FORMAT, "name": name, "made": made, "attempts": kept}
    return json.dumps(body, indent=1) + "\n", len(kept), len(attempts) - len(kept)
