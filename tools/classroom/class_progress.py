"""A class's progress: hand-in files, read with suspicion, and what they say of who is stuck where.

A learner's file holds a name, which the instructor gave, and one entry an answer that was checked:
when, which exercise, what the check said. Never code, and nothing of the machine.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from course_utils.exercises import Exercise
from course_utils.exercises.judge import COMMON
from course_utils.files import FileError, clean, parse, read_text
from course_utils.hand_in import AHEAD, FORMAT, MOST, checksum, good_name, judge, known, moment
from course_utils.progress_file import Attempt

RAW = "progress.jsonl"
MOST_FILES = 2_000
"""So many files of a folder are looked at."""


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
    believed
        The file that counts, by the name shown.
    """

    learners: list[Learner] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    believed: dict[str, str] = field(default_factory=dict)

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
            Misconception(*key, tuple(dict.fromkeys(names)), len(names), told(*key))
            for key, names in met.items()
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
    folder: str
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
    now = now or datetime.now(timezone.utc)
    files: list[_File] = []
    for path in _files(folder, room):
        try:
            found = _read(path, folder, room, now)
            if names is not None and found.name not in names:
                raise FileError(f"{found.name} is not on the list of names")
        except FileError as reason:
            room.left_out.append((_where(path, folder), str(reason)))
        else:
            files.append(found)
    counted = _one_each(files, names, room)
    _copies(counted, room)
    shown = names or {}
    for one in sorted(counted, key=lambda one: shown.get(one.name, one.name)):
        room.learners.append(Learner(shown.get(one.name, one.name), one.attempts))
        room.believed[shown.get(one.name, one.name)] = one.path
    room.missing = [shown[name] for name in shown if name not in {one.name for one in counted}]
    return room


def _one_each(
    files: Sequence[_File], names: Mapping[str, str] | None, room: Classroom
) -> list[_File]:
    """Return the file that counts for each name: a seat is its folder, and nobody speaks for another's.

    In a folder of home folders each is a seat; elsewhere those that bear a learner's name are.
    """
    homes = any(one.folder and one.path.endswith(RAW) for one in files)
    seats = {*(names or ()), *(one.name for one in files)}
    claims: dict[str, list[_File]] = {}
    for one in files:
        if one.folder not in ("", one.name) and (homes or one.folder in seats):
            reason = f"it lies in the folder of {one.folder} and says it is {one.name}: a conflict"
            room.left_out.append((one.path, f"{reason}, and it counts for nobody"))
        else:
            claims.setdefault(one.name, []).append(one)
    counted = []
    for name, several in claims.items():
        own = [one for one in several if one.folder == name] or several
        if len({one.folder for one in own}) > 1:
            reason = f"files in several folders say they are {name}: a conflict"
            room.left_out += [(one.path, f"{reason}, and none counts") for one in own]
            continue
        newest = max(own, key=lambda one: one.made)
        counted.append(newest)
        if len(several) > 1:
            room.remarks.append(f"{name} has more than one file; the newest counts: {newest.path}")
    return counted


def read_names(path: Path) -> dict[str, str]:
    """Read the instructor's list: ``name in the file,name to show`` a line, or one name a line.

    Raises
    ------
    FileError
        Where the file cannot be read or names somebody twice.
    """
    try:
        rows = [row for row in csv.reader(read_text(path).splitlines()) if any(row)]
    except (FileError, csv.Error) as error:
        raise FileError(f"{path} cannot be read as a list of names ({error}).") from None
    pairs = [(row[0].strip(), row[-1].strip()) for row in rows]
    names = dict(pairs)
    if len(names) < len(pairs) or len(set(names.values())) < len(pairs):
        raise FileError(f"{path} names somebody twice.")
    return names


def _files(folder: Path, room: Classroom) -> list[Path]:
    """Find hand-ins and progress files, here and in one folder a learner; links are not followed."""
    forms = ("*.json", "*.jsonl", "*/*.json", f"*/{RAW}", f"*/.pytorch-gpu-course/{RAW}")
    found = sorted({path for form in forms for path in folder.glob(form)})
    if len(found) > MOST_FILES:
        room.remarks.append(f"{len(found)} files are too many: the first {MOST_FILES} were read")
    return [path for path in found[:MOST_FILES] if not path.is_symlink()]


def _where(path: Path, folder: Path) -> str:
    return clean(path.relative_to(folder).as_posix())


def _read(path: Path, folder: Path, room: Classroom, now: datetime) -> _File:
    text = read_text(path, below=folder)
    where, parts = _where(path, folder), path.relative_to(folder).parts
    above = clean(parts[0], 60) if len(parts) > 1 else ""
    if path.suffix == ".json":
        name, made, entries = _hand_in(text)
        made = min(made, now)
    else:
        name = above or path.stem
        if not good_name(name):
            raise FileError("the name of its file or folder cannot be a learner's")
        made = min(datetime.fromtimestamp(path.lstat().st_mtime, timezone.utc), now)
        entries, torn = _lines(text)
        if torn:
            room.remarks.append(f"{where}: {torn} damaged lines were passed over")
    attempts, why = _judged(entries, made if path.suffix == ".json" else now, now)
    if why and not attempts:
        raise FileError(f"nothing in it can be used: {why[0]}")
    if why:
        room.remarks.append(f"{where}: {len(why)} answers were passed over ({why[0]})")
    return _File(where, above, name, made, attempts)


def _hand_in(text: str) -> tuple[str, datetime, list[object]]:
    raw = parse(text)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise FileError("it is not a hand-in of this course")
    if raw.get("checksum") != checksum(raw):
        raise FileError("its checksum is wrong: it was damaged, or edited by hand")
    name, entries = raw.get("name"), raw.get("attempts")
    if not isinstance(name, str) or not good_name(name) or not isinstance(entries, list):
        raise FileError("its name or its list of answers is missing")
    return name, moment(raw.get("made")), entries


def _lines(text: str) -> tuple[list[object], int]:
    """Read a progress file: its answers, and how many lines are damaged; predictions are passed over."""
    entries, torn = [], 0
    for line in filter(str.strip, text.splitlines()):
        try:
            entry = parse(line)
        except FileError:
            torn += 1
            continue
        if not (isinstance(entry, dict) and "prediction" in entry):
            entries.append(entry)
    return entries, torn


def _attempt(entry: object) -> Attempt:
    fields = ("time", "exercise", "outcome", "diagnosis")
    if not isinstance(entry, dict) or set(entry) != set(fields):
        raise FileError("an answer in it has other fields than the course writes")
    if not all(isinstance(entry[name], str) for name in fields):
        raise FileError("an answer in it has a field that is no text")
    return Attempt(**entry)


def _judged(
    entries: Sequence[object], made: datetime, now: datetime
) -> tuple[tuple[Attempt, ...], list[str]]:
    """Return the answers that the course can have written, oldest first, and why others are none."""
    exercises, kept, why = known(), [], []
    for entry in entries[-MOST:]:
        try:
            attempt = _attempt(entry)
            judge(attempt, exercises, now)
            if moment(attempt.time) > made + AHEAD:
                raise FileError("an answer is newer than the file")
        except FileError as reason:
            why.append(clean(str(reason)))
        else:
            kept.append(attempt)
    why += ["more answers than anybody gives"] * (len(entries) - MOST)
    return tuple(sorted(kept, key=lambda attempt: moment(attempt.time))), why


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
