"""A hand-in: a learner's name and checked answers, in a file that shows damage.

It holds one entry an answer that was checked: when, which exercise, what the check said. Never code, and
nothing of the machine.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from typing import Any

from . import progress_file
from .course import load_course
from .exercises import Exercise, lesson
from .exercises.judge import COMMON
from .files import FileError
from .progress_file import Attempt

FORMAT = "gpu-training-with-pytorch hand-in 1"

AHEAD = timedelta(hours=1)
"""How far a seat's clock may be ahead of the instructor's."""

OUTCOMES = ("right", "not_yet", "raised")
MOST = 10_000
"""So many answers are handed in, and read: the newest."""
_ERROR_NAME = re.compile(r"[A-Za-z_]\w{0,80}")


def known() -> dict[str, Exercise]:
    """Return every exercise of the course by its id, in order."""
    return {
        exercise.id: exercise for entry in load_course().lessons for exercise in lesson(entry.id)
    }


def good_name(name: str) -> bool:
    """Return whether a name can stand in a file's name and a table: 1 to 40 plain characters."""
    return bool(re.fullmatch(r"[\w][\w .@+-]{0,39}", name)) and not name.endswith((" ", "."))


def hand_in(name: str, now: datetime | None = None) -> tuple[str, int, int]:
    """Write the learner's progress as a hand-in.

    Parameters
    ----------
    name
        What the instructor calls this learner: a name, or a seat.
    now
        When; by default the present.

    Returns
    -------
    tuple of str, int, int
        The text; how many answers it holds; how many were passed over, because this copy of the course
        has no such exercise.
    """
    exercises = known()
    kept, other = [], 0
    for attempt in progress_file.attempts():
        try:
            judge(attempt, exercises)
        except FileError:
            other += 1
        else:
            kept.append(asdict(attempt))
    made = (now or datetime.now(timezone.utc)).isoformat(timespec="seconds")
    other += max(len(kept) - MOST, 0)
    body = {"format": FORMAT, "name": name, "made": made, "attempts": kept[-MOST:]}
    text = json.dumps({**body, "checksum": checksum(body)}, indent=1) + "\n"
    return text, len(kept[-MOST:]), other


def checksum(body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a hand-in without its checksum: it shows damage, and edits by hand."""
    plain = {key: value for key, value in body.items() if key != "checksum"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def judge(attempt: Attempt, exercises: Mapping[str, Exercise], now: datetime | None = None) -> None:
    """Accept an entry that the course could have written.

    Raises
    ------
    FileError
        Where it could not: the exercise or the diagnosis does not exist, a right answer has a
        diagnosis, or the time is none or lies ahead.
    """
    what = exercises.get(attempt.exercise)
    if what is None:
        raise FileError(f"there is no exercise {attempt.exercise[:60]!r}")
    if attempt.outcome not in OUTCOMES:
        raise FileError(f"no check says {attempt.outcome[:60]!r}")
    possible = {
        "right": attempt.diagnosis == "",
        "not_yet": attempt.diagnosis in what.diagnoses or attempt.diagnosis in COMMON,
        "raised": bool(_ERROR_NAME.fullmatch(attempt.diagnosis)),
    }[attempt.outcome]
    if not possible:
        raise FileError(
            f"{attempt.exercise} never says {attempt.outcome} with {attempt.diagnosis[:60]!r}"
        )
    if moment(attempt.time) > (now or datetime.now(timezone.utc)) + AHEAD:
        raise FileError(f"an answer is dated {attempt.time}, which lies ahead of now")


def moment(text: object) -> datetime:
    """Read a time; FileError where it is none, or has no time zone."""
    try:
        when = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        raise FileError(f"{str(text)[:60]!r} is no date and time") from None
    if when.tzinfo is None:
        raise FileError(f"{text!r} has no time zone")
    return when
