"""`template`: print or write one of the handbook's template programs; without a name, list them."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from pathlib import Path

from course_language import _
from course_utils.cli.bootstrap import COMMAND
from course_utils.content import handbook


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `template`."""
    parser.add_argument("name", nargs="?", help=_("such as ddp (without one: a list)"))
    parser.add_argument("--output", type=Path, metavar="FILE", help=_("a new file, not the screen"))


def main(args: argparse.Namespace) -> int:
    """Write or print a template, or list them; return 0, 1 if it cannot be written, 2 for an unknown name."""
    page = (handbook() / "templates.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| `([\w.]+)` \| (\[\d\d\].*)", page)  # its table of programs and lessons
    lessons = {short(file): ", ".join(re.findall(r"\[(\d\d)\]", row)) for file, row in rows}
    paths = {short(file): handbook() / "templates" / file for file, _ in rows}
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    if args.name is None:
        for name, text in texts.items():
            print(
                _("{name:<12}{purpose} Lesson {lesson}.").format(
                    name=name, purpose=purpose(text), lesson=lessons[name]
                )
            )
        print(_("\n{command} template ddp --output train_ddp.py  writes one.").format(command=COMMAND))
        return 0
    name = short(args.name)
    if name not in texts:
        close = difflib.get_close_matches(name, texts, n=1)
        hint = (
            _("did you mean {first_close}?").format(first_close=close[0])
            if close
            else _("choose from {texts}.").format(texts=", ".join(texts))
        )
        print(
            _("There is no template {args}: {hint}").format(args=args.name, hint=hint),
            file=sys.stderr,
        )
        return 2
    if args.output is None:
        sys.stdout.write(texts[name])
        return 0
    try:
        with args.output.open("x", encoding="utf-8", newline="\n") as file:
            file.write(texts[name])
    except OSError as error:
        print(
            _("{output} is not written: {strerror}.").format(output=args.output, strerror=error.strerror),
            file=sys.stderr,
        )
        return 1
    print(f"{args.output}: {purpose(texts[name])}")
    return 0


def short(name: str) -> str:
    """Return a template's short name: ``ddp`` for ``train_ddp.py``, ``slurm`` for ``train.slurm``."""
    return re.sub(r"^train[_.]|(_step|_report)?(\.py)?$", "", name)


def purpose(text: str) -> str:
    """Return the first line of a program's docstring or comment."""
    return re.sub("^#!.*\n", "", text).partition("\n")[0].strip('"# ')
