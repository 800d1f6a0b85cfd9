"""`class-report`: from the files handed in, who is stuck where, as a page, a picture and a table."""

from __future__ import annotations

import argparse
import base64
import html
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_language import chosen, word
from tools.commands import refuse

if TYPE_CHECKING:
    from course_utils.exercises import Exercise
    from tools.classroom.class_progress import Classroom

NEEDS = ("torch", "matplotlib", "yaml")
MOST_STUCK = 10
"""How many of the most stuck are listed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "folder", type=Path, help="hand-in files, or a folder a learner with their progress.jsonl"
    )
    parser.add_argument(
        "--names",
        type=Path,
        metavar="FILE",
        help="your list: `seat-07,Ada` a line, or one name a line; files of others are left out",
    )
    parser.add_argument(
        "--lesson", action="append", metavar="NN", help="only this; may be repeated"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where class_report.html and .png go (default: this folder)",
        default=Path(),
    )


def main(args: argparse.Namespace) -> int:
    """Read, draw and write.

    Returns
    -------
    int
        0 where a report was written, also if files were left out; 1 where no file can be used or the
        report cannot be written; 2 for a folder, a list or a lesson that does not exist.
    """
    from course_utils.course import load_course
    from course_utils.files import FileError
    from tools.classroom import class_progress

    if not args.folder.is_dir():
        return refuse(f"There is no folder {args.folder}.", 2)
    try:
        load_course().chosen(args.lesson or ())
        names = class_progress.read_names(args.names) if args.names else None
    except (LookupError, FileError) as error:
        return refuse(error, 2)
    room = class_progress.collect(args.folder, names)
    if room.left_out:
        print("\n".join(_left_out(room)), file=sys.stderr)
    if not room.learners:
        return refuse(f"{args.folder} holds no file that can be used.", 1)
    if args.lesson:
        room = room.only(args.lesson)
    exercises = room.exercises()
    if not exercises:
        return refuse("Nobody has tried an exercise of it yet.", 1)
    print("\n".join(text(room, exercises)))
    try:
        places = _write(args.output, room, exercises)
    except OSError as error:
        return refuse(f"{args.output} cannot be written ({error.strerror}).", 1)
    print(f"The same as a page and as a picture: {word(', ').join(map(str, places))}")
    return 0


def text(room: Classroom, exercises: Sequence[Exercise]) -> list[str]:
    """Return the report as lines for a terminal."""
    from course_utils.show import table
    from tools.classroom.class_progress import grid

    head = ["", *(learner.name for learner in room.learners)]
    lines = [table(head, [[name, *marks] for name, marks in grid(room, exercises)])[0], ""]
    lines += ["✓ right at once, ✓3 right at the third try, 4? four tries and not yet,"]
    lines += ["2! two tries and the last stopped with an error, · not tried"]
    lines += ["", "The commonest misconceptions:", *_misconceptions(room)]
    lines += ["", "Not solved yet, most tries first:", *_stuck(room), ""]
    return [*lines, *_remarks(room)]


def page(room: Classroom, exercises: Sequence[Exercise], png: bytes, alt: str) -> str:
    """Return the report as one HTML page, with the picture in it."""
    from course_utils.show import table
    from tools.classroom.class_progress import grid

    head = ["exercise", *(learner.name for learner in room.learners)]
    picture = base64.b64encode(png).decode("ascii")
    parts = [
        f"<h1>{len(room.learners)} learners, {len(exercises)} exercises</h1>",
        f'<img src="data:image/png;base64,{picture}" alt="{html.escape(alt)}">',
        *_list("The commonest misconceptions", _misconceptions(room)),
        *_list("Not solved yet, most tries first", _stuck(room)),
        *_list("About the files", [*_left_out(room), *_remarks(room)]),
        "<details><summary>The picture as a table</summary><div class='wide'>",
        table(head, [[name, *marks] for name, marks in grid(room, exercises)])[1],
        "</div></details>",
    ]
    head = f'<!DOCTYPE html>\n<html lang="{chosen()}"><head><meta charset="utf-8">'
    return f"{head}<title>{word('Class report')}</title>{_STYLE}{''.join(parts)}</body></html>\n"


_STYLE = """
<meta name="viewport" content="width=device-width"><style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70em; margin: 1.5em auto; padding: 0 1em; }
img { max-width: 100%; height: auto; } .wide { overflow-x: auto; } td, th { padding: .1em .6em; }
li { margin: .3em 0; } h1 { font-size: 1.4em; } h2 { font-size: 1.1em; }
</style></head><body>
"""


def _list(title: str, lines: Sequence[str]) -> list[str]:
    items = "".join(f"<li>{_marked(line.lstrip('- '))}</li>" for line in lines)
    return [f"<h2>{title}</h2><ul>{items}</ul>"] if lines else []


def _marked(line: str) -> str:
    """Escape a line and turn its `code` into HTML."""
    parts = html.escape(line).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _misconceptions(room: Classroom) -> list[str]:
    found = [
        f"- {one.exercise}, {one.diagnosis}: {len(one.learners)} of {len(room.learners)} learners, "
        f"{one.times} times. {one.text}"
        for one in room.misconceptions()
    ]
    return found or ["- none yet"]


def _stuck(room: Classroom) -> list[str]:
    found = [
        f"- {learner.name}: {exercise}, {standing.tries} "
        f"{'try' if standing.tries == 1 else 'tries'}, the last: {standing.diagnosis}"
        for learner, exercise, standing in room.stuck()
    ]
    more = len(found) - MOST_STUCK
    shown = found[:MOST_STUCK] + ([f"- and {more} more"] if more > 0 else [])
    return shown or ["- nobody"]


def _left_out(room: Classroom) -> list[str]:
    return [f"- Left out: {file}: {reason}." for file, reason in room.left_out]


def _remarks(room: Classroom) -> list[str]:
    missing = [f"No file from: {word(', ').join(room.missing)}"] if room.missing else []
    believed = word(", ").join(f"{name} by {file}" for name, file in room.believed.items())
    remarks = [*room.remarks, *missing, f"Believed: {believed}"]
    return [f"- {remark}{word('. ').rstrip()}" for remark in remarks]


def _write(folder: Path, room: Classroom, exercises: Sequence[Exercise]) -> list[Path]:
    from course_utils import files
    from tools.classroom.drawing import class_picture

    png, alt = class_picture(room, exercises)
    places = [folder / "class_report.html", folder / "class_report.png"]
    files.write(places[0], page(room, exercises, png, alt))
    files.write(places[1], png)
    return places
