"""``translate``: bring the catalogues up to date with the English, and make notebooks, pages and messages of
them."""

from __future__ import annotations

import argparse
import sys

import course_language
from course_utils import files
from course_utils.cli.bootstrap import ROOT
from tools.commands import fail

NEEDS = ("babel", "nbformat", "yaml")
SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to the parser."""
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; say what is missing or wrong, text by text",
    )
    parser.add_argument("language", nargs="?", default="zh", help="default: zh")


def main(args: argparse.Namespace) -> int:
    """Update the catalogues and write the translated files, or only check; return 1 if problems are left."""
    if sys.version_info < (3, 12):
        return fail(
            "translate needs Python 3.12 or newer, which says where in an f-string a value stands.",
            1,
        )
    from tools.authoring.translation import catalogues, editions, progress

    named = args.language.replace("_", "").isalpha()
    if not named or not (catalogues.LANGUAGES / args.language).is_dir():
        known = ", ".join(course_language.languages()[1:])
        return fail(f"There is no folder course_language/{args.language}: there is {known}.", 1)
    if not args.check:
        catalogues.update_all(args.language)
    problems = progress.problems(args.language)
    print("\n".join(progress.progress_lines(args.language)))
    if not args.check:
        for path, text in editions.stale_texts(args.language).items():
            files.write(ROOT / path, text)
            print(f"{path}: written")
    else:
        problems += [f"{path}: not as the catalogues make it" for path in editions.stale_texts(args.language)]
    print(*problems[:SHOWN], sep="\n")
    if len(problems) > SHOWN:
        print(f"and {len(problems) - SHOWN} more")
    return 1 if problems else 0
