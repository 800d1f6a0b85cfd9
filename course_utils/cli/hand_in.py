"""`hand-in`: write the learner's recorded attempts to a JSON file for the instructor."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from course_language import _

NEEDS = ("torch", "yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `hand-in`."""
    parser.add_argument("--name", required=True, help=_("what your instructor calls you: a name, or a seat"))
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="PLACE",
        help=_("a folder, or a file ending in .json (default: this folder)"),
    )


def main(args: argparse.Namespace) -> int:
    """Write the hand-in's file; return 0 if written, 1 if it cannot be, 2 for a name that cannot be used."""
    from course_utils import files, hand_in
    from course_utils.progress_file import progress_file

    if not hand_in.is_valid_name(args.name):
        print(
            _("{args!r} cannot be used as a name: take up to 40 letters, digits, spaces and . @ + -").format(
                args=args.name
            ),
            file=sys.stderr,
        )
        return 2
    path = args.output
    if path.suffix != ".json":
        path = path / f"hand_in_{args.name.replace(' ', '_')}.json"
    if path.exists() and not _is_hand_in(path, hand_in.FORMAT):
        print(
            _("{path} is another file: name a new one with --output.").format(path=path),
            file=sys.stderr,
        )
        return 1
    text, n_attempts, skipped = hand_in.hand_in_json(args.name)
    if not n_attempts:
        print(
            _(
                "There is nothing to hand in: {progress_file} holds no checked answer. Check an exercise "
                "in a lesson first."
            ).format(progress_file=progress_file()),
            file=sys.stderr,
        )
        return 1
    try:
        files.write(path, text)
    except OSError as error:
        print(
            _("{path} cannot be written ({strerror}): choose --output.").format(
                path=path, strerror=error.strerror
            ),
            file=sys.stderr,
        )
        return 1
    print(
        _("{path}: {kept} checked answers, for {args}. Give this file to your instructor.").format(
            path=path, kept=n_attempts, args=args.name
        )
    )
    print(_("It holds the name, and for each answer the time, the exercise and what the check said."))
    if skipped:
        print(
            _(
                "{other} answers to exercises of another version of the course, or older than many, "
                "were passed over."
            ).format(other=skipped)
        )
    return 0


def _is_hand_in(path: Path, form: str) -> bool:
    """Return whether a file is a hand-in, of the format named ``form``, and so may be overwritten."""
    from course_utils import files

    try:
        raw = files.parse(files.read_text(path))
    except files.FileError:
        return False
    return isinstance(raw, dict) and raw.get("format") == form
