"""`explain`: print what an error message means, from the handbook; needs only the standard library."""

from __future__ import annotations

import argparse
import sys

from course_language import _
from course_utils.error_index import NOTHING, find, plain_text_link, render


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `explain`."""
    parser.add_argument(
        "message", nargs="*", help=_("the message, or a part of it; without it, what is piped in")
    )


def main(args: argparse.Namespace) -> int:
    """Print the entries found; return 0, 1 if there are none, 2 if no message was given."""
    text = " ".join(args.message)
    if not text and not sys.stdin.isatty():
        text = sys.stdin.read()
    if not text.strip():
        print(_('Give a message in quotes, as in  explain "CUDA out of memory", or pipe one in.'))
        return 2
    entries = find(text)
    print(render(entries, plain_text_link) if entries else NOTHING)
    return 0 if entries else 1
