"""Make the sample of measurements that the tests read: ``python make_sample.py OPERATORS POINTS…``.

``OPERATORS`` is a table of single operators, the others are tables of workloads, in the columns that
``tools.fidelity`` reads. Of the operators a seeded part of the rows is kept on which nothing is fitted;
of the workloads every row that names what it did and a card there is a profile of, and whose licence
lets figures be passed on.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
import sys
from pathlib import Path

from tools.fidelity.compare import interpret
from tools.fidelity.table import SEED, Unsupported, held_out, profile_of, read

OPERATORS = 3000
HERE = Path(__file__).parent


def lines_of(path: Path) -> list[dict[str, str]]:
    """Return a table's lines."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def write(name: str, lines: list[dict[str, str]]) -> None:
    """Write a table, packed, the same bytes for the same lines."""
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(lines)
    (HERE / name).write_bytes(gzip.compress(text.getvalue().encode(), 9, mtime=0))


def understood(path: Path) -> list[dict[str, str]]:
    """Return the lines that can be modelled and passed on."""
    kept = []
    for row, line in zip(read(path), lines_of(path), strict=True):
        if line["licence"] == "none stated":
            continue
        try:
            interpret(row)
            profile_of(row.hardware)
        except Unsupported:
            continue
        kept.append(line)
    return kept


def main(operators: str, *points: str) -> None:
    """Write both tables."""
    pairs = zip(read(operators), lines_of(Path(operators)), strict=True)
    apart = [line for row, line in pairs if held_out(row)]
    chosen = random.Random(SEED).sample(range(len(apart)), OPERATORS)
    names = ("op", "device", "dims", "latency_ms")
    write("operators.csv.gz", [{n: apart[i][n] for n in names} for i in sorted(chosen)])
    known: dict[tuple[str, ...], dict[str, str]] = {}
    for path in points:
        for line in understood(Path(path)):
            known[tuple(line.values())] = line
    write("points.csv.gz", list(known.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
