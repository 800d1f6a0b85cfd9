"""Reads a class's hand-ins, and finds unsolved exercises and common misconceptions."""

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
from course_utils.progress_file import Attempt, present_id

RAW = "progress.jsonl"


@dataclass(frozen=True)
class Standing:
    """A learner's result in one exercise.

    ``outcome`` is ``"right"`` if any attempt was, else the last attempt's (``"not_yet"``, ...); ``tries``
    counts the attempts up to the first right one; ``diagnosis`` is the last attempt's, "" if solved.
    """

    outcome: str
    tries: int
    diagnosis: str

    @property
    def mark(self) -> str:
        """``✓`` right at once, ``✓3`` at the third try, ``4?`` not yet after four, ``2!`` error after two."""
        if self.outcome == "right":
            return "✓" if self.tries == 1 else f"✓{self.tries}"
        return f"{self.tries}{'?' if self.outcome == 'not_yet' else '!'}"


@dataclass(frozen=True)
class Learner:
    """One learner: the name to show, and all recorded attempts, oldest first."""

    name: str
    attempts: tuple[Attempt, ...]

    def on(self, exercise: str) -> Standing | None:
        """Return the learner's standing in an exercise, such as ``"01.speedup"``; None without an attempt."""
        tries = [attempt for attempt in self.attempts if attempt.exercise == exercise]
        if not tries:
            return None
        for count, attempt in enumerate(tries, 1):
            if attempt.outcome == "right":
                return Standing("right", count, "")
        return Standing(tries[-1].outcome, len(tries), tries[-1].diagnosis)


@dataclass(frozen=True)
class Misconception:
    """A diagnosis of one exercise: which learners got it, how often in total, and its text."""

    exercise: str
    diagnosis: str
    learners: tuple[str, ...]
    times: int
    text: str


@dataclass
class Classroom:
    """The hand-ins of a class.

    Attributes
    ----------
    learners
        Sorted by name.
    left_out
        File and reason, for each file that was not used.
    missing
        Names on the instructor's list without a file.
    """

    learners: list[Learner] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def exercises(self) -> list[Exercise]:
        """Return all exercises of each lesson that any learner tried, in the course's order."""
        begun = {a.exercise.split(".")[0] for one in self.learners for a in one.attempts}
        return [exercise for exercise in exercises_by_id().values() if exercise.id.split(".")[0] in begun]

    def only(self, lessons: Sequence[str]) -> Classroom:
        """Return a copy that has only the attempts in these lessons, such as ``"01"``; learners all stay.

        ``left_out`` and ``missing`` are the same lists as here.
        """
        kept = [
            Learner(one.name, tuple(a for a in one.attempts if a.exercise.split(".")[0] in lessons))
            for one in self.learners
        ]
        return replace(self, learners=kept)

    def stuck(self) -> list[tuple[Learner, str, Standing]]:
        """Return learner, exercise id and standing for each unsolved attempted exercise, most tries first."""
        pairs = [
            (learner, exercise.id, standing)
            for learner in self.learners
            for exercise in self.exercises()
            if (standing := learner.on(exercise.id)) and standing.outcome != "right"
        ]
        return sorted(pairs, key=lambda pair: -pair[2].tries)

    def misconceptions(self, most: int = 3) -> list[Misconception]:
        """Return the ``most`` commonest diagnoses: exercises' own before general ones, then by learners.

        Each *not yet* counts, also of a learner who solved the exercise later.
        """
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
            """Return a sort key: exercises' own diagnoses first, then those of most learners."""
            is_common = one.diagnosis not in exercises_by_id()[one.exercise].diagnoses
            return is_common, -len(one.learners), -one.times, one.exercise

        return sorted(diagnoses, key=order)[:most]


def _text_of(exercise: str, diagnosis: str) -> str:
    """Return the text of an exercise's diagnosis; "" if this version of the course does not have it."""
    return exercises_by_id()[exercise].diagnoses.get(diagnosis) or COMMON.get(diagnosis, "")


def collect(folder: Path, names: Mapping[str, str] | None = None) -> Classroom:
    """Read a folder of hand-ins and progress files.

    Parameters
    ----------
    folder
        Contains hand-in files ``*.json``, also one folder below, or for each learner a folder of that name
        with a ``progress.jsonl``, such as the home folders on a server. Of a learner's files only the newest
        counts.
    names
        Maps a learner's name in hand-ins, or of the folder, to the name to show. If given, it is also the
        list of learners.

    Returns
    -------
    Classroom
        Files that cannot be used, or are not of a learner on the list, are in its ``left_out``.
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
    """Read the instructor's list of names, a CSV file; return names to show, by the names in hand-ins.

    A line is ``name in the hand-in,name to show``; a single name is shown as it is. Empty lines are skipped.

    Raises
    ------
    FileError
        If the file cannot be read, or two lines have the same name in the hand-in or the same name to show.
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
    """Return the paths of hand-ins and progress files, here and a folder below, without symlinks."""
    forms = ("*.json", "*/*.json", f"*/{RAW}", f"*/.pytorch-gpu-course/{RAW}")
    paths = sorted({path for form in forms for path in folder.glob(form)})
    return [path for path in paths if not path.is_symlink()]


def _read(path: Path, folder: Path) -> tuple[str, datetime, list[object]]:
    """Return the learner's name, the time and the entries of a hand-in or a progress file.

    The time, with a time zone, is when a hand-in was made, or a progress file last modified. The name for the
    latter is that of the folder below ``folder``.

    Raises
    ------
    FileError
        If it is neither a hand-in, nor a progress file in a learner's folder.
    """
    text = read_text(path, below=folder)
    if path.suffix == ".jsonl":  # incomplete lines and predictions are skipped
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
    numbering = {"numbering": raw.get("numbering")}
    entries = [entry | numbering if isinstance(entry, dict) else entry for entry in entries]
    return name, time if time.tzinfo else time.replace(tzinfo=timezone.utc), entries


def _entry(line: str) -> object:
    """Return a progress file's line as a dict; None for a prediction or what is no JSON object."""
    try:
        entry = parse(line)
    except FileError:
        return None
    return None if not isinstance(entry, dict) or "prediction" in entry else entry


def _attempts(entries: Sequence[object]) -> tuple[Attempt, ...]:
    """Return the valid attempts among the entries, sorted by time; the newest `MOST` entries are considered.

    Raises
    ------
    FileError
        If there are entries and none is valid.
    """
    exercises, kept = exercises_by_id(), []
    for entry in entries[-MOST:]:
        try:
            fields = {**entry, "exercise": present_id(entry, "exercise")}
            fields.pop("numbering", None)
            attempt = Attempt(**fields)
            if is_possible(attempt, exercises):
                kept.append(attempt)
        except (TypeError, AttributeError, KeyError):  # other fields, or a value that is no string
            continue
    if entries and not kept:
        raise FileError(_("no answer in it is one that this version of the course writes"))
    return tuple(sorted(kept, key=lambda attempt: str(attempt.time)))
