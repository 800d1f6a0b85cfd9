"""The command line: ``python -m tools.fidelity FILE…``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from .compare import Comparison, LeftOut, compare_row
from .report import as_json, as_text
from .table import Unreadable, is_held_out, read, without_repeats


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the rows of the files with the model and print the report; return 2 if a file fails, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fidelity",
        description="The simulated device beside real ones: what was measured, and what it makes of it.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a table of measurements")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row and the groups")
    parser.add_argument("--worst", type=int, default=3, metavar="N", help="rows to name for each kind")
    part = "only the rows that the model may be fitted on, or only the others"
    parser.add_argument("--part", choices=("fit", "held-out"), help=part)
    args = parser.parse_args(argv)
    try:
        rows, again = without_repeats([read(path) for path in args.files])
        if args.json and not args.json.absolute().parent.is_dir():
            raise Unreadable(f"There is no folder {args.json.parent} to write to.")
    except Unreadable as problem:
        print(problem, file=sys.stderr)
        return 2
    if args.part:
        rows = [row for row in rows if is_held_out(row) == (args.part == "held-out")]
    outcomes = [compare_row(row) for row in tqdm(rows, disable=None)]  # no bar where stderr is a file
    compared = [each for each in outcomes if isinstance(each, Comparison)]
    left_out = [each for each in outcomes if isinstance(each, LeftOut)]
    print(as_text(compared, left_out, len(again), args.worst))
    if args.json:
        text = json.dumps(as_json(compared, left_out, len(again)), indent=1)
        args.json.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
