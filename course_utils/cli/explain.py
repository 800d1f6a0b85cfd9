"""`explain`: what an error message means, from the handbook; it needs nothing but Python."""

from __future__ import annotations

import argparse
import sys

from course_language import _
from course_utils.error_index import NOTHING, find, in_terminal, render


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "message", nargs="*", help=_("the message, or a part of it; without it, what is piped in")
    )


def main(args: argparse.Namespace) -> int:
    """Print what is known; 0 where something is near, 1 where nothing is, 2 where nothing was asked."""
    text = " ".join(args.message)
    if not text and not sys.stdin.isatty():
        text = sys.stdin.read()
    if not text.strip():
        print(_('Give a message in quotes, as in  explain "CUDA out of memory", or pipe one in.'))
        return 2
    found = find(text)
    print(render(found, in_terminal) if found else NOTHING)
    return 0 if found else 1
