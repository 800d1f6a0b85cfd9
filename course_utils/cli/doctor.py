"""`doctor`: print what stands in the way of a GPU, the machine, and one sentence of advice."""

from __future__ import annotations

import argparse
import json

from course_language import _

NEEDS = ("torch",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `doctor`."""
    parser.add_argument("--json", action="store_true", help=_("the whole report, for programs"))


def main(args: argparse.Namespace) -> int:
    """Print the report; return 0 if the course can run here (a CPU is enough), else 1."""
    from course_utils.doctor import examine

    report = examine()
    print(json.dumps(report.to_dict(), indent=1) if args.json else report)
    return 0 if report.can_run else 1
