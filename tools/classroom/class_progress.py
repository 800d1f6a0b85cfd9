"""A class's progress: hand-in files, read with suspicion, and what they say of who is stuck where.

A learner's file holds a name, which the instructor gave, and one entry an answer that was checked:
when, which exercise, what the check said. Never code, and nothing of the machine.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from course_utils.exercises import Exercise
from course_utils.exercises.judge import COMMON
from course_utils.hand_in import (
    AHEAD,
    FORMAT,
    HandInError,
    checksum,
    good_name,
    judge,
    known,
    moment,
)
from course_utils.progress_file import Attempt

RAW = "progress.jsonl"
LARGEST = 5_000_000
"""A larger file is no hand-in, in bytes; a thousand answers take a tenth of it."""


@dataclass(frozen=True)
class Learner:
    """One learner: the name the instructor gave, and the answers that were checked, oldest first."""

    name: str
    attempts: tuple[Attempt, ...]

    def on(self, exercise: str) -> Standing | None:
        """Return how far the learner is with an exercise; None where it was not tried."""
        tries = [attempt for attempt in self.attempts if attempt.exercise == exercise]
        if not tries:
            return None
        first = next((i for i, attempt in enumerate(tries) if attempt.outcome == "right"), None)
        if first is not None:
            return Standing("right", first + 1, "")
        return Standing(tries[-1].outcome, len(tries), tries[-1].diagnosis)


@dataclass(frozen=True)
class Standing:
    """How far a learner is with one exercise.

    ``outcome`` is ``"right"`` where it ever was, else the last one; ``tries`` counts up to the first
    right answer; ``diagnosis`` is what the last check suggested.
    """

    outcome: str
    tries: int
    diagnosis: str


@dataclass(frozen=True)
class Misconception:
    """A diagnosis of one exercise: how many learners met it, how often, and what they were told."""

    exercise: str
    diagnosis: str
    learners: tuple[str, ...]
    times: int
    text: str


@dataclass
class Classroom:
    """What a folder of files says.

    Attributes
    ----------
    learners
        By name.
    left_out
        File and reason, for each file that was not used.
    remarks
        What was used and is still worth a look.
    missing
        Names on the instructor's list without a file.
    """

    learners: list[Learner] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def exercises(self) -> list[Exercise]:
        """Return the exercises of every lesson that somebody tried, in the course's order."""
        begun = {a.exercise.split(".")[0] for one in self.learners for a in one.attempts}
        return [exercise for exercise in known().values() if exercise.id.split(".")[0] in begun]

    def only(self, lessons: Sequence[str]) -> Classroom:
        """Return the same class with nothing but the answers of these lessons."""
        kept = [
            Learner(one.name, tuple(a for a in one.attempts if a.exercise.split(".")[0] in lessons))
            for one in self.learners
        ]
        return replace(self, learners=kept)

    def stuck(self) -> list[tuple[Learner, str, Standing]]:
        """Return who has tried an exercise and not solved it, most tries first."""
        pairs = [
            (learner, exercise.id, standing)
            for learner in self.learners
            for exercise in self.exercises()
            if (standing := learner.on(exercise.id)) and standing.outcome != "right"
        ]
        return sorted(pairs, key=lambda pair: -pair[2].tries)

    def misconceptions(self, most: int = 3) -> list[Misconception]:
        """Return the commonest diagnoses: by how many learners met them, then by how often."""
        met: dict[tuple[str, str], list[str]] = {}
        for learner in self.learners:
            for attempt in learner.attempts:
                if attempt.outcome == "not_yet":
                    met.setdefault((attempt.exercise, attempt.diagnosis), []).append(learner.name)
        found = [
            Misconception(
                exercise,
                diagnosis,
                tuple(dict.fromkeys(names)),
                len(names),
                told(exercise, diagnosis),
            )
            for (exercise, diagnosis), names in met.items()
        ]
        return sorted(found, key=lambda one: (-len(one.learners), -one.times, one.exercise))[:most]


def told(exercise: str, diagnosis: str) -> str:
    """Return what a learner reads who meets this diagnosis; KeyError where there is no such one."""
    own = known()[exercise].diagnoses
    return own[diagnosis] if diagnosis in own else COMMON[diagnosis]


# ---------------------------------------------------------------------------------------------------
# Handing in


@dataclass(frozen=True)
class _File:
    """One readable file: whose, when it was made, its answers."""

    path: str
    name: str
    made: datetime
    attempts: tuple[Attempt, ...]


def collect(
    folder: Path, names: Mapping[str, str] | None = None, now: datetime | None = None
) -> Classroom:
    """Read a folder of hand-ins and of progress files.

    Parameters
    ----------
    folder
        Hand-in files ``*.json``; ``NAME.jsonl``, a copied progress file; or a folder a learner with a
        ``progress.jsonl`` in it, as home folders on a server are.
    names
        From the name in a file to the name to show. Where it is given, it is also the list of who
        should be there: a file of anybody else is left out.
    now
        When; by default the present.
    """
    room = Classroom()
    newest: dict[str, _File] = {}
    for path in _files(folder):
        where = path.relative_to(folder).as_posix()
        try:
            found = _read(path, folder, room, now)
            if names is not None and found.name not in names:
                raise HandInError(f"{found.name} is not on the list of names")
        except HandInError as reason:
            room.left_out.append((where, str(reason)))
            continue
        before = newest.get(found.name)
        newest[found.name] = max(before or found, found, key=lambda one: one.made)
        if before:
            kept = newest[found.name].path
            room.remarks.append(f"{found.name} has more than one file; the newest counts: {kept}")
    _copies(newest.values(), room)
    shown = names or {}
    room.learners = sorted(
        (Learner(shown.get(one.name, one.name), one.attempts) for one in newest.values()),
        key=lambda learner: learner.name,
    )
    room.missing = [shown[name] for name in shown if name not in newest]
    return room


def read_names(path: Path) -> dict[str, str]:
    """Read the instructor's list: ``name in the file,name to show`` a line, or one name a line.

    Raises
    ------
    HandInError
        Where the file cannot be read or names somebody twice.
    """
    try:
        rows = [row for row in csv.reader(path.read_text("utf-8-sig").splitlines()) if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise HandInError(f"{path} cannot be read as a list of names ({error}).") from None
    pairs = [(row[0].strip(), row[-1].strip()) for row in rows]
    names = dict(pairs)
    if len(names) < len(pairs) or len(set(names.values())) < len(pairs):
        raise HandInError(f"{path} names somebody twice.")
    return names


def _files(folder: Path) -> Iterator[Path]:
    """Find hand-ins and progress files, here and in one folder a learner; links are not followed."""
    found = [*folder.glob("*.json"), *folder.glob("*.jsonl"), *folder.glob("*/*.json")]
    found += [*folder.glob(f"*/{RAW}"), *folder.glob(f"*/.pytorch-gpu-course/{RAW}")]
    return iter(sorted(path for path in found if path.is_file() and not path.is_symlink()))


def _read(path: Path, folder: Path, room: Classroom, now: datetime | None) -> _File:
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8") if size <= LARGEST else ""
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not text"
        raise HandInError(f"it cannot be read: {what}") from None
    if size > LARGEST:
        raise HandInError(f"it has {size / 1e6:.0f} MB, far more than a hand-in")
    if path.suffix == ".json":
        return _hand_in(path.relative_to(folder).as_posix(), text, now)
    where = path.relative_to(folder)
    name = where.stem if len(where.parts) == 1 else where.parts[0]
    if not good_name(name):
        raise HandInError("the name of its file or folder cannot be a learner's")
    attempts, torn = _lines(text)
    if torn:
        room.remarks.append(f"{where.as_posix()}: {torn} damaged lines were passed over")
    changed = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)
    return _File(where.as_posix(), name, changed, _judged(attempts, now))


def _hand_in(where: str, text: str, now: datetime | None) -> _File:
    try:
        raw = json.loads(text)
    except ValueError:
        raise HandInError("it is damaged: not whole JSON") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise HandInError("it is not a hand-in of this course")
    if raw.get("checksum") != checksum(raw):
        raise HandInError("its checksum is wrong: it was damaged, or edited by hand")
    name, entries = raw.get("name"), raw.get("attempts")
    if not isinstance(name, str) or not good_name(name) or not isinstance(entries, list):
        raise HandInError("its name or its list of answers is missing")
    made = moment(raw.get("made"))
    attempts = _judged([_attempt(entry) for entry in entries], now)
    if any(moment(attempt.time) > made + AHEAD for attempt in attempts):
        raise HandInError("it holds an answer that is newer than the file")
    return _File(where, name, made, attempts)


def _lines(text: str) -> tuple[list[Attempt], int]:
    """Read a progress file: its answers, and how many lines are damaged; predictions are passed over."""
    attempts, torn = [], 0
    for line in filter(str.strip, text.splitlines()):
        try:
            entry = json.loads(line)
        except ValueError:
            torn += 1
            continue
        if not (isinstance(entry, dict) and "prediction" in entry):
            attempts.append(_attempt(entry))
    return attempts, torn


def _attempt(entry: object) -> Attempt:
    fields = ("time", "exercise", "outcome", "diagnosis")
    if not isinstance(entry, dict) or set(entry) != set(fields):
        raise HandInError("an answer in it has other fields than the course writes")
    if not all(isinstance(entry[name], str) for name in fields):
        raise HandInError("an answer in it has a field that is no text")
    return Attempt(**entry)


def _judged(attempts: Iterable[Attempt], now: datetime | None) -> tuple[Attempt, ...]:
    exercises = known()
    entries = sorted(attempts, key=lambda attempt: moment(attempt.time))
    for attempt in entries:
        judge(attempt, exercises, now)
    return tuple(entries)


def _copies(files: Iterable[_File], room: Classroom) -> None:
    """Remark on two learners with the same answers at the same seconds."""
    seen: dict[tuple[Attempt, ...], str] = {}
    for one in files:
        if one.attempts and (other := seen.setdefault(one.attempts, one.name)) != one.name:
            room.remarks.append(
                f"{other} and {one.name} have the same answers at the same seconds: one is a copy"
            )


def grid(room: Classroom, exercises: Sequence[Exercise]) -> list[tuple[str, list[str]]]:
    """Return the report's table: for each exercise its id, and a mark a learner.

    ``✓`` right at once, ``✓3`` right at the third try, ``4?`` four tries and not yet, ``2!`` two tries
    and the last stopped with an error, ``·`` not tried.
    """
    return [
        (exercise.id, [mark(learner.on(exercise.id)) for learner in room.learners])
        for exercise in exercises
    ]


def mark(standing: Standing | None) -> str:
    """Return the mark of one learner at one exercise."""
    if standing is None:
        return "·"
    if standing.outcome == "right":
        return "✓" if standing.tries == 1 else f"✓{standing.tries}"
    return f"{standing.tries}{'?' if standing.outcome == 'not_yet' else '!'}"
