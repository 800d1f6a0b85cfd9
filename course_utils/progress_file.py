"""The learner's progress: one local file, one line an attempt or a prediction, never sent anywhere.

Lines are only ever appended, so two notebooks can write at once and a damaged line costs no other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from course_language import _

from . import files

MOVED = {"05.sharded_bytes": "10.sharded_bytes"}
"""Exercises that were solved under another id, before they moved to another lesson."""


@dataclass(frozen=True)
class Attempt:
    """One checked answer: when, which exercise, and what the check said."""

    time: str
    exercise: str
    outcome: str
    diagnosis: str = ""


def progress_file() -> Path:
    """Return where progress is kept: ``COURSE_PROGRESS``, or a folder in the learner's home."""
    chosen = os.environ.get("COURSE_PROGRESS")
    return Path(chosen) if chosen else Path.home() / ".pytorch-gpu-course" / "progress.jsonl"


def move(new: Path) -> None:
    """Keep progress in ``new`` from now on; earlier lines are carried over, none twice.

    Raises
    ------
    OSError
        Where ``new`` cannot be read or written; then progress stays where it was.
    """
    old = progress_file()
    new.parent.mkdir(parents=True, exist_ok=True)
    with new.open("a+b") as file:
        file.seek(0)
        there = file.read()
        if old.is_file() and not old.samefile(new):
            known = set(there.splitlines())
            more = [line for line in old.read_bytes().splitlines() if line and line not in known]
            torn = there[-1:] not in (b"", b"\n")
            file.write(b"\n" * torn + b"".join(line + b"\n" for line in more))
    os.environ["COURSE_PROGRESS"] = str(new)


def note(exercise: str, outcome: str, diagnosis: str = "") -> None:
    """Append an attempt; say so, and go on, where the file cannot be written."""
    _append({"exercise": exercise, "outcome": outcome, "diagnosis": diagnosis})


def note_prediction(
    prediction: str, verdict: str, guess: float | str, found: list[float] | str, unit: str = ""
) -> None:
    """Append a prediction that was scored, with what was guessed and the range that was found."""
    _append({"prediction": prediction, "verdict": verdict, "guess": guess, "found": found, "unit": unit})


def _append(entry: dict[str, Any]) -> None:
    line = {"time": datetime.now(timezone.utc).isoformat(timespec="seconds"), **entry}
    path = progress_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 1, 0))
            torn = file.read(1) not in (b"", b"\n")  # the last line was cut off: begin a new one
            file.write(("\n" * torn + json.dumps(line) + "\n").encode())
    except OSError as error:
        print(
            _("(your progress could not be kept in {path}: {strerror})").format(
                path=path, strerror=error.strerror or error
            )
        )


def attempts() -> Iterator[Attempt]:
    """Read all attempts, oldest first; lines that are damaged or foreign are passed over."""
    for raw in _lines():
        with suppress(KeyError, TypeError, IndexError):
            time, asked, *said = (raw[k] for k in ("time", "exercise", "outcome", "diagnosis"))
            if all(isinstance(part, str) for part in (time, asked, *said)):
                yield Attempt(time, MOVED.get(asked, asked), *said)


def predictions() -> dict[str, str]:
    """Return the verdict on the first prediction of each id; the answer to later ones was known."""
    first: dict[str, str] = {}
    for raw in _lines():
        with suppress(KeyError, TypeError):
            first.setdefault(str(raw["prediction"]), str(raw["verdict"]))
    return first


def first_guess(prediction: str, unit: str = "") -> Any:
    """Return the guess with which a prediction was first scored, or None; it must be in this unit."""
    for raw in _lines():
        with suppress(KeyError, TypeError):
            if raw["prediction"] == prediction:
                return raw["guess"] if raw["unit"] == unit else None
    return None


def _lines() -> Iterator[Any]:
    """Read what is JSON in the file, line by line."""
    path = progress_file()
    try:
        # More than an answer a minute, day and night, writes in four months.
        lines = files.read_text(path, most=20_000_000, errors="replace").splitlines()
    except files.FileError as error:
        if path.exists():
            print(_("(your progress in {path} is not read: {error})").format(path=path, error=error))
        return
    for line in lines:
        with suppress(files.FileError):  # damaged, or nested without end
            yield files.parse(line)


def solved() -> set[str]:
    """Return the ids of the exercises that were right at least once."""
    return {attempt.exercise for attempt in attempts() if attempt.outcome == "right"}
