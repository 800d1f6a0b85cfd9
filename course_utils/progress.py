"""The learner's progress: one local file, one line an attempt, never sent anywhere.

Lines are only ever appended, so two notebooks can write at once and a damaged line costs no other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path


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


def note(exercise: str, outcome: str, diagnosis: str = "") -> None:
    """Append an attempt; say so, and go on, where the file cannot be written."""
    attempt = {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "exercise": exercise,
        "outcome": outcome,
        "diagnosis": diagnosis,
    }
    path = progress_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 1, 0))
            torn = file.read(1) not in (b"", b"\n")  # the last line was cut off: begin a new one
            file.write(("\n" * torn + json.dumps(attempt) + "\n").encode())
    except OSError as error:
        print(f"(your progress could not be kept in {path}: {error.strerror or error})")


def attempts() -> Iterator[Attempt]:
    """Read all attempts, oldest first; lines that are damaged or foreign are passed over."""
    try:
        lines = progress_file().read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            raw = json.loads(line)
            yield Attempt(
                str(raw["time"]), str(raw["exercise"]), str(raw["outcome"]), str(raw["diagnosis"])
            )
        except (ValueError, KeyError, TypeError):
            continue


def solved() -> set[str]:
    """Return the ids of the exercises that were right at least once."""
    return {attempt.exercise for attempt in attempts() if attempt.outcome == "right"}
