"""The learner's progress: a local JSON Lines file with an attempt or a prediction on each line.

Lines are only appended, so two notebooks can write at once, and a damaged line does not affect others.
Nothing is sent anywhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from course_language import _

from . import files

NUMBERING = 2
"""Written into each line: with 2 the lessons have their present numbers. Lines without it are older."""

_MOVED = {
    "03.index_batches": "04.index_batches",
    "03.full_state": "04.full_state",
    "03.save_atomic": "04.save_atomic",
    "03.shuffles": "04.shuffles",
    "03.resumed": "04.resumed",
    "05.sharded_bytes": "11.sharded_bytes",
}
_FORMER_NUMBERS = {"04": "05", "05": "06", "06": "07", "07": "08", "08": "09", "09": "10", "10": "11"}
"""Lesson 03 was divided into 03 and 04, so the lessons after it moved up by one."""


def present_id(line: Mapping[str, Any], key: str) -> str:
    """Return the present id of a line's exercise or prediction; ``key`` is where the line holds its id.

    Raises
    ------
    KeyError
        If the line has no such key.
    """
    written = str(line[key])
    if line.get("numbering") == NUMBERING:
        return written
    lesson, dot, name = written.partition(".")
    return _MOVED.get(written) or _FORMER_NUMBERS.get(lesson, lesson) + dot + name


@dataclass(frozen=True)
class Attempt:
    """One checked answer: ISO 8601 time, the exercise's id, and the outcome and diagnosis of its `Result`."""

    time: str
    exercise: str
    outcome: str
    diagnosis: str = ""


def progress_file() -> Path:
    """Return the progress file's path: ``COURSE_PROGRESS``, or ~/.pytorch-gpu-course/progress.jsonl."""
    configured = os.environ.get("COURSE_PROGRESS")
    return Path(configured) if configured else Path.home() / ".pytorch-gpu-course" / "progress.jsonl"


def move_to(new: Path) -> None:
    """Use ``new`` as the progress file from now on, with the old file's lines appended, without duplicates.

    Sets ``COURSE_PROGRESS``; the old file stays.

    Raises
    ------
    OSError
        If ``new`` cannot be read or written; then the old progress file remains in use.
    """
    old = progress_file()
    new.parent.mkdir(parents=True, exist_ok=True)
    with new.open("a+b") as file:
        file.seek(0)
        existing = file.read()
        if old.is_file() and not old.samefile(new):
            existing_lines = set(existing.splitlines())
            new_lines = [
                line for line in old.read_bytes().splitlines() if line and line not in existing_lines
            ]
            is_torn = existing[-1:] not in (b"", b"\n")
            file.write(b"\n" * is_torn + b"".join(line + b"\n" for line in new_lines))
    os.environ["COURSE_PROGRESS"] = str(new)


def record_attempt(exercise: str, outcome: str, diagnosis: str = "") -> None:
    """Append an attempt to the progress file; if that fails, print why."""
    _append({"exercise": exercise, "outcome": outcome, "diagnosis": diagnosis})


def record_prediction(
    prediction: str, verdict: str, guess: float | str, found: list[float] | str, unit: str = ""
) -> None:
    """Append a scored prediction, with the guess and the result: ``[low, high]``, or a choice."""
    _append({"prediction": prediction, "verdict": verdict, "guess": guess, "found": found, "unit": unit})


def _append(entry: dict[str, Any]) -> None:
    """Append an entry with the current time as a line of JSON; if that fails, print why."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    line = {"time": now, "numbering": NUMBERING, **entry}
    path = progress_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 1, 0))
            is_torn = file.read(1) not in (b"", b"\n")  # the last line was cut off: begin a new one
            file.write(("\n" * is_torn + json.dumps(line) + "\n").encode())
    except OSError as error:
        print(
            _("(your progress could not be kept in {path}: {strerror})").format(
                path=path, strerror=error.strerror or error
            )
        )


def attempts() -> Iterator[Attempt]:
    """Yield all attempts in the progress file, oldest first; damaged and other lines are skipped."""
    for raw in _read_lines():
        with suppress(KeyError, TypeError, IndexError):
            time, exercise, *outcome_and_diagnosis = (
                raw[k] for k in ("time", "exercise", "outcome", "diagnosis")
            )
            if all(isinstance(part, str) for part in (time, exercise, *outcome_and_diagnosis)):
                yield Attempt(time, present_id(raw, "exercise"), *outcome_and_diagnosis)


def predictions() -> dict[str, str]:
    """Return the verdict on the first prediction of each id; for later ones the answer was known."""
    first: dict[str, str] = {}
    for raw in _read_lines():
        with suppress(KeyError, TypeError):
            first.setdefault(present_id(raw, "prediction"), str(raw["verdict"]))
    return first


def first_guess(prediction: str, unit: str = "") -> Any:
    """Return the guess of the first scored prediction of an id; None if there is none, or in another unit."""
    for raw in _read_lines():
        with suppress(KeyError, TypeError):
            if present_id(raw, "prediction") == prediction:
                return raw["guess"] if raw["unit"] == unit else None
    return None


def _read_lines() -> Iterator[Any]:
    """Yield the parsed lines of the progress file; skip invalid ones. Print why if it cannot be read."""
    path = progress_file()
    try:
        # 20 MB: more than one attempt per minute for four months.
        lines = files.read_text(path, max_bytes=20_000_000, errors="replace").splitlines()
    except files.FileError as error:
        if path.exists():
            print(_("(your progress in {path} is not read: {error})").format(path=path, error=error))
        return
    for line in lines:
        with suppress(files.FileError):  # damaged, or nested too deeply
            yield files.parse(line)


def solved() -> set[str]:
    """Return the ids of the exercises with at least one right attempt."""
    return {attempt.exercise for attempt in attempts() if attempt.outcome == "right"}
