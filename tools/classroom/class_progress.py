"""A class's progress: what the hand-in files say of who is stuck where."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from course_language import _
from course_utils.exercises import Exercise
from course_utils.exercises.judge import COMMON
from course_utils.files import FileError, clean, parse, read_text
from course_utils.hand_in import FORMAT, MOST, exercises_by_id, is_possible, is_valid_name
from course_utils.progress_file import Attempt

RAW = "progress.jsonl"


@dataclass(frozen=True)
class Standing:
    """How far a learner is with one exercise.

    ``outcome`` is ``"right"`` where it ever was, else the last one; ``tries`` counts up to the first
    right answer; ``diagnosis`` is what the last check suggested.
    """

    outcome: str
    tries: int
    diagnosis: str

    @property
    def mark(self) -> str:
        """``✓`` right at once, ``✓3`` at the third try, ``4?`` four tries and not yet, ``2!`` an error."""
        if self.outcome == "right":
            return "✓" if self.tries == 1 else f"✓{self.tries}"
        return f"{self.tries}{'?' if self.outcome == 'not_yet' else '!'}"


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
        for count, attempt in enumerate(tries, 1):
            if attempt.outcome == "right":
                return Standing("right", count, "")
        return Standing(tries[-1].outcome, len(tries), tries[-1].diagnosis)


@dataclass(frozen=True)
class Misconception:
    """A diagnosis of one exercise: which learners met it, how often, and what they were told."""

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
    missing
        Names on the instructor's list without a file.
    """

    learners: list[Learner] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def exercises(self) -> list[Exercise]:
        """Return the exercises of every lesson that somebody tried, in the course's order."""
        begun = {a.exercise.split(".")[0] for one in self.learners for a in one.attempts}
        return [exercise for exercise in exercises_by_id().values() if exercise.id.split(".")[0] in begun]

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
        """Return the commonest diagnoses: the exercises' own first, then by learners, then by times."""
        met: dict[tuple[str, str], list[str]] = {}
        for learner in self.learners:
            for attempt in learner.attempts:
                if attempt.outcome == "not_yet":
                    met.setdefault((attempt.exercise, attempt.diagnosis), []).append(learner.name)
        diagnoses = [
            Misconception(*key, tuple(dict.fromkeys(names)), len(names), _text_of(*key))
            for key, names in met.items()
        ]

        def order(one: Misconception) -> tuple[bool, int, int, str]:
            of_form = one.diagnosis not in exercises_by_id()[one.exercise].diagnoses
            return of_form, -len(one.learners), -one.times, one.exercise

        return sorted(diagnoses, key=order)[:most]


def _text_of(exercise: str, diagnosis: str) -> str:
    """Return what a learner reads who meets this diagnosis. An older course may have had others."""
    return exercises_by_id()[exercise].diagnoses.get(diagnosis) or COMMON.get(diagnosis, "")


def collect(folder: Path, names: Mapping[str, str] | None = None) -> Classroom:
    """Read a folder of hand-ins and of progress files.

    Parameters
    ----------
    folder
        Hand-in files ``*.json``, also in folders; or a folder a learner with a ``progress.jsonl`` in it, as
        home folders on a server are. Of several files of one name the newest counts.
    names
        From the name in a file to the name to show. Where it is given, it is also the list of who
        should be there: a file of anybody else is left out.
    """
    room = Classroom()
    newest: dict[str, tuple[datetime, tuple[Attempt, ...]]] = {}
    for path in _files(folder):
        try:
            name, time, entries = _read(path, folder)
            if names is not None and name not in names:
                raise FileError(_("{name} is not on the list of names").format(name=name))
            attempts = _attempts(entries)
        except FileError as reason:
            room.left_out.append((clean(path.relative_to(folder).as_posix()), str(reason)))
            continue
        if name not in newest or time > newest[name][0]:
            newest[name] = time, attempts
    shown = names or {name: name for name in newest}
    for name in sorted(newest, key=shown.get):
        room.learners.append(Learner(shown[name], newest[name][1]))
    room.missing = [shown[name] for name in shown if name not in newest]
    return room


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
        raise FileError(
            _("{path} cannot be read as a list of names ({error}).").format(path=path, error=error)
        ) from None
    names = {row[0].strip(): row[-1].strip() for row in rows}
    if len(set(names.values())) < len(rows):
        raise FileError(_("{path} names somebody twice.").format(path=path))
    return names


def _files(folder: Path) -> list[Path]:
    """Find hand-ins and progress files, here and in one folder a learner; links are not followed."""
    forms = ("*.json", "*/*.json", f"*/{RAW}", f"*/.pytorch-gpu-course/{RAW}")
    paths = sorted({path for form in forms for path in folder.glob(form)})
    return [path for path in paths if not path.is_symlink()]


def _read(path: Path, folder: Path) -> tuple[str, datetime, list[object]]:
    """Return whose file it is, when it was made, and its entries.

    Raises
    ------
    FileError
        Where it is no hand-in, or no progress file in a learner's folder.
    """
    text = read_text(path, below=folder)
    if path.suffix == ".jsonl":  # a torn last line, and predictions, are passed over
        entries = [_entry(line) for line in text.splitlines()]
        name = path.relative_to(folder).parts[0]
        if not is_valid_name(name):
            raise FileError(_("the name of its folder cannot be a learner's"))
        return (
            name,
            datetime.fromtimestamp(path.stat().st_mtime, timezone.utc),
            [e for e in entries if e],
        )
    raw = parse(text)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise FileError(_("it is not a hand-in of this version of the course"))
    name, entries = raw.get("name"), raw.get("attempts")
    if not isinstance(name, str) or not is_valid_name(name) or not isinstance(entries, list):
        raise FileError(_("its name or its list of answers is missing"))
    try:
        time = datetime.fromisoformat(str(raw.get("made")))
    except ValueError:
        raise FileError(_("it has no date")) from None
    return name, time if time.tzinfo else time.replace(tzinfo=timezone.utc), entries


def _entry(line: str) -> object:
    try:
        entry = parse(line)
    except FileError:
        return None
    return None if not isinstance(entry, dict) or "prediction" in entry else entry


def _attempts(entries: Sequence[object]) -> tuple[Attempt, ...]:
    """Return the entries that the course can have written; FileError where there are some and none is."""
    exercises, kept = exercises_by_id(), []
    for entry in entries[-MOST:]:
        try:
            attempt = Attempt(**entry)
            if is_possible(attempt, exercises):
                kept.append(attempt)
        except (TypeError, AttributeError):  # other fields, or no text in one
            continue
    if entries and not kept:
        raise FileError(_("no answer in it is one that this version of the course writes"))
    return tuple(sorted(kept, key=lambda attempt: str(attempt.time)))
