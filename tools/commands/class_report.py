"""`class-report`: from the files handed in, who is stuck where, as a page and a table."""

from __future__ import annotations

import argparse
import html
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_language import _, chosen, ngettext
from tools.commands import fail

if TYPE_CHECKING:
    from course_utils.exercises import Exercise
    from tools.classroom.class_progress import Classroom, Learner, Standing

NEEDS = ("torch", "yaml")
MOST_STUCK = 10
"""The maximum number of lines in the list of unsolved exercises."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to the parser."""
    parser.add_argument(
        "folder",
        type=Path,
        help=_("hand-in files, or a folder a learner with their progress.jsonl"),
    )
    parser.add_argument(
        "--names",
        type=Path,
        metavar="FILE",
        help=_("your list: `seat-07,Ada` a line, or one name a line; files of others are left out"),
    )
    parser.add_argument("--lesson", action="append", metavar="NN", help=_("only this; may be repeated"))
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help=_("where class_report.html goes (default: this folder)"),
        default=Path(),
    )


def main(args: argparse.Namespace) -> int:
    """Read the hand-ins, print the report and write it as ``class_report.html``.

    Returns
    -------
    int
        0 if a report was written, also if files were left out; 1 if no file can be used or the report
        cannot be written; 2 for a folder, a list or a lesson that does not exist.
    """
    from course_utils import files
    from course_utils.course import load_course
    from tools.classroom import class_progress

    if not args.folder.is_dir():
        return fail(_("There is no folder {folder}.").format(folder=args.folder), 2)
    try:
        load_course().chosen(args.lesson or ())
        names = class_progress.read_names(args.names) if args.names else None
    except (LookupError, files.FileError) as error:
        return fail(error, 2)
    room = class_progress.collect(args.folder, names)
    if room.left_out:
        print("\n".join(_left_out(room)), file=sys.stderr)
    if not room.learners:
        return fail(_("{folder} holds no file that can be used.").format(folder=args.folder), 1)
    if args.lesson:
        room = room.only(args.lesson)
    exercises = room.exercises()
    if not exercises:
        return fail(_("Nobody has tried an exercise of it yet."), 1)
    print("\n".join(text(room, exercises)))
    path = args.output / "class_report.html"
    try:
        files.write(path, page(room, exercises))
    except OSError as error:
        return fail(
            _("{output} cannot be written ({strerror}).").format(output=args.output, strerror=error.strerror),
            1,
        )
    print(_("The same as a page: {path}").format(path=path))
    return 0


def text(room: Classroom, exercises: Sequence[Exercise]) -> list[str]:
    """Return the report as lines for a terminal."""
    from course_utils.show import table

    rows = [[exercise.id, *_marks(room.learners, exercise)] for exercise in exercises]
    lines = [table(["", *(one.name for one in room.learners)], rows)[0], ""]
    lines += [_("✓ right at once, ✓3 right at the third try, 4? four tries and not yet,")]
    lines += [_("2! two tries and the last stopped with an error, · no answer checked")]
    lines += ["", _("The commonest misconceptions:"), *_misconceptions(room)]
    lines += ["", _("Not solved yet, most tries first:"), *_stuck(room), ""]
    return [*lines, *_missing(room)]


def page(room: Classroom, exercises: Sequence[Exercise]) -> str:
    """Return the report as an HTML page: a table of exercises by learners, and the lists below it."""
    heads = "".join(f"<th>{html.escape(one.name)}</th>" for one in room.learners)
    rows = [f"<tr><th></th>{heads}</tr>"]
    for exercise in exercises:
        cells = "".join(_cell(one.on(exercise.id)) for one in room.learners)
        title = html.escape(f"{exercise.title}  {exercise.id}")
        rows.append(f"<tr><th class='row'>{title}</th>{cells}</tr>")
    expected = len(room.learners) + len(room.missing)
    parts = [
        _("<h1>{n_learners} of {expected} learners, {n_exercises} exercises</h1>").format(
            n_learners=len(room.learners), expected=expected, n_exercises=len(exercises)
        ),
        f"<div class='wide'><table>{''.join(rows)}</table></div>",
        *_list(_("The commonest misconceptions"), _misconceptions(room)),
        *_list(_("Not solved yet, most tries first"), _stuck(room)),
        *_list(_("About the files"), [*_left_out(room), *_missing(room)]),
    ]
    head = f'<!DOCTYPE html>\n<html lang="{chosen()}"><head><meta charset="utf-8">'
    return f"{head}<title>{_('Class report')}</title>{_STYLE}{''.join(parts)}</body></html>\n"


_STYLE = """
<meta name="viewport" content="width=device-width"><style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70em; margin: 1.5em auto; padding: 0 1em; }
.wide { overflow-x: auto; } td, th { padding: .1em .6em; text-align: center; } .row { text-align: left; }
td { color: #000; } .first { background: #5fb59a; } .later { background: #bfe3d6; }
.untried { background: #e5e5e0; }
.not_yet { background: #f0c666; } .raised { background: #e59a8a; }
li { margin: .3em 0; } h1 { font-size: 1.4em; } h2 { font-size: 1.1em; }
</style></head><body>
"""


def _marks(learners: Sequence[Learner], exercise: Exercise) -> list[str]:
    """Return each learner's mark in an exercise; ``·`` if not tried."""
    standings = [one.on(exercise.id) for one in learners]
    return [standing.mark if standing else "·" for standing in standings]


def _cell(standing: Standing | None) -> str:
    """Return a table cell of HTML with the mark, coloured by its CSS class."""
    if standing is None:
        return "<td class='untried'>·</td>"
    kind = standing.outcome
    if kind == "right":
        kind = "first" if standing.tries == 1 else "later"
    return f"<td class='{_(kind)}'>{standing.mark}</td>"


def _list(title: str, lines: Sequence[str]) -> list[str]:
    """Return a heading and a list of HTML; an empty list without lines."""
    items = "".join(f"<li>{_marked(line.lstrip('- '))}</li>" for line in lines)
    return [f"<h2>{title}</h2><ul>{items}</ul>"] if lines else []


def _marked(line: str) -> str:
    """Escape a line and turn its `code` into HTML."""
    parts = html.escape(line).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _misconceptions(room: Classroom) -> list[str]:
    """Return a line for each of the commonest misconceptions."""
    lines = [
        ngettext(
            "- {exercise}, {diagnosis}: {n_learners} of {n_room_learners} learners, "
            "seen {times} time. {text}",
            "- {exercise}, {diagnosis}: {n_learners} of {n_room_learners} learners, "
            "seen {times} times. {text}",
            one.times,
        ).format(
            exercise=one.exercise,
            diagnosis=one.diagnosis,
            n_learners=len(one.learners),
            n_room_learners=len(room.learners),
            times=one.times,
            text=one.text,
        )
        for one in room.misconceptions()
    ]
    return lines or [_("- none yet")]


def _stuck(room: Classroom) -> list[str]:
    """Return a line for each of the `MOST_STUCK` exercises with most tries that a learner has not solved."""
    lines = [
        ngettext(
            "- {learner}: {exercise}, {tries} try, the last: {diagnosis}",
            "- {learner}: {exercise}, {tries} tries, the last: {diagnosis}",
            standing.tries,
        ).format(
            learner=learner.name,
            exercise=exercise,
            tries=standing.tries,
            diagnosis=standing.diagnosis,
        )
        for learner, exercise, standing in room.stuck()
    ]
    more = len(lines) - MOST_STUCK
    shown = lines[:MOST_STUCK] + ([_("- and {more} more").format(more=more)] if more > 0 else [])
    return shown or ["- nobody"]


def _left_out(room: Classroom) -> list[str]:
    """Return a line for each file that was left out."""
    return [
        _("- Left out: {file}: {reason}.").format(file=file, reason=reason) for file, reason in room.left_out
    ]


def _missing(room: Classroom) -> list[str]:
    """Return a line with the names that have no file; an empty list if there are none."""
    return [_("- No file from: {missing}").format(missing=_(", ").join(room.missing))] if room.missing else []
