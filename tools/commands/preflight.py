"""`preflight`: is this seat, or this server, ready; and, for the instructor, is the room."""

from __future__ import annotations

import argparse
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tools.commands import refuse

if TYPE_CHECKING:
    from tools.classroom.preflight import Check

NEEDS = ("torch",)
PAGE = "preflight.html"
SIGNS = {"ok": "✓", "look": "o", "fail": "✗"}
ORDER = ("fail", "look", "ok")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="the whole report, for --collect")
    parser.add_argument("--name", default="", help="what you call this seat, such as seat-07")
    parser.add_argument(
        "--seats", type=int, default=1, metavar="N", help="how many learners share this machine"
    )
    parser.add_argument(
        "--collect",
        type=Path,
        metavar="FOLDER",
        help="read the reports in this folder instead, and write one page on the room",
    )


def main(args: argparse.Namespace) -> int:
    """Check, and say what is to be done.

    Returns
    -------
    int
        0 where the course can run, also if there is something to look at; 1 where something fails; 2
        for a folder or a number of seats that makes no sense.
    """
    if args.collect:
        return _room(args.collect)
    if args.seats < 1:
        return refuse("--seats is a number from 1.", 2)
    from tools.classroom import preflight

    found = []
    for check in preflight.checks(args.seats):
        found.append(check)
        if not args.json:
            print(_line(check), flush=True)
    if args.json:
        print(json.dumps(preflight.as_json(found, args.name, args.seats), indent=1))
    else:
        print(f"\n{_verdict(found)}")
    return 1 if preflight.worst(found) == "fail" else 0


def _line(check: Check) -> str:
    remedy = f"\n{'':15}→ {check.remedy}" if check.remedy else ""
    return f"{SIGNS[check.state]} {check.name:<12} {check.seen}{remedy}"


def _verdict(found: Sequence[Check]) -> str:
    failed = [check.name for check in found if check.state == "fail"]
    if failed:
        return f"Not ready: mend {', '.join(failed)} (the arrows say how), and call this again."
    look = [check.name for check in found if check.state == "look"]
    return f"Ready{f', but look at: {chr(44).join(look)}' if look else ''}."


def _room(folder: Path) -> int:
    """Write one page from the reports of many seats."""
    from course_utils.files import clean, write
    from course_utils.show import table
    from tools.classroom.preflight import read_seat, worst

    paths = sorted(folder.glob("*.json"))
    if not paths:
        return refuse(f"There is no report in {folder}: write them with  preflight --json.", 2)
    seats: dict[str, list[Check]] = {}
    unread = []
    for path in paths:
        try:
            name, found = read_seat(path)
        except ValueError as error:
            unread.append(str(error))
            continue
        if name in seats:
            unread.append(f"{clean(path.name)} says it is {name}, as another file does")
        seats.setdefault(name, found)
    columns = list(dict.fromkeys(check.name for found in seats.values() for check in found))
    rows = [
        (name, worst(found), *(_sign(found, column) for column in columns))
        for name, found in sorted(
            seats.items(), key=lambda item: (ORDER.index(worst(item[1])), item[0])
        )
    ]
    ready = sum(worst(found) != "fail" for found in seats.values())
    head = f"{ready} of {len(seats)} seats are ready."
    text, grid = table(("seat", "state", *columns), rows)
    todo = [*_todo(seats), *(f"{sentence}: it was left out." for sentence in unread)]
    print("\n".join([head, "", text, "", *todo]).rstrip())
    body = "".join(f"<li>{html.escape(line)}</li>" for line in todo)
    page = folder / PAGE
    write(
        page,
        f"{_HEAD}<h1>{head}</h1><div class='wide'>{grid}</div>"
        f"<p>✓ works, o works and is worth a look, ✗ must be mended, · was not reached</p>"
        f"<ul>{body}</ul></body></html>\n",
    )
    print(f"\nThe same as a page: {page}")
    return 0 if ready == len(seats) and not unread else 1


_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Preflight</title>
<meta name="viewport" content="width=device-width"><style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70em; margin: 1.5em auto; padding: 0 1em; }
.wide { overflow-x: auto; } td, th { padding: .1em .6em; } li { margin: .3em 0; }
</style></head><body>
"""


def _sign(found: Sequence[Check], name: str) -> str:
    return next((SIGNS[check.state] for check in found if check.name == name), "·")


def _todo(seats: dict[str, list[Check]]) -> list[str]:
    """Gather what is to be done: one line a remedy, with the seats that need it; failures first."""
    groups: dict[tuple[int, str, str], dict[str, list[str]]] = {}
    for name, found in seats.items():
        for check in found:
            if check.state != "ok":
                group = groups.setdefault((ORDER.index(check.state), check.name, check.remedy), {})
                group.setdefault(check.seen, []).append(name)
    return [
        f"{'Look at' if rank else 'Mend'} {name}: {remedy}. "
        + "; ".join(f"{', '.join(names)}: {seen}" for seen, names in by_seen.items())
        for (rank, name, remedy), by_seen in sorted(groups.items())
    ]
