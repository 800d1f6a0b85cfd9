"""Measurements of real GPUs, read from files: one `Row` a measured figure.

Two forms are known, plain or gzipped: tables with a column for the workload and one for its parameters
(``points.csv``, ``memory_points.csv``), and tables of single operators with their sizes
(``neusight_train.csv.gz``).
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

POINTS = ("workload", "params", "hardware", "dtype", "metric", "value", "unit")
"""The columns that a table of workloads must have; ``source_repo`` is read where it is there."""

OPERATORS = ("op", "device", "dims", "latency_ms")
"""The columns that a table of single operators must have: float32, without TF32, one eager call."""


class Row(NamedTuple):
    """One figure that someone measured.

    Attributes
    ----------
    file, line
        Where it stands.
    workload, params
        What was done, and with which sizes, as the file says it.
    hardware, dtype
        On what, and in what, as the file says it.
    metric, value, unit
        What was measured; ``value`` is the text of the file.
    source
        Whose figure it is.
    """

    file: str
    line: int
    workload: str
    params: str
    hardware: str
    dtype: str
    metric: str
    value: str
    unit: str
    source: str = ""


class Unreadable(ValueError):
    """A file that holds no such table; its text is one sentence for whoever named the file."""


def read(path: str | Path) -> list[Row]:
    """Return the rows of a file.

    Raises
    ------
    Unreadable
        Where there is no such file, or it is no table with these columns, or an empty one.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except FileNotFoundError:
        raise Unreadable(f"There is no file {path}.") from None
    except (OSError, EOFError) as error:
        raise Unreadable(f"{path} cannot be read: {error}.") from None
    except UnicodeDecodeError:
        raise Unreadable(f"{path} is no table: it is not text.") from None
    table = csv.DictReader(io.StringIO(text, newline=""))
    try:
        columns, lines = tuple(table.fieldnames or ()), list(table)
    except csv.Error as error:
        raise Unreadable(f"{path} is no table: {error}.") from None
    if set(POINTS) <= set(columns):
        rows = [_point(path.name, number, line) for number, line in enumerate(lines, 2)]
    elif set(OPERATORS) <= set(columns):
        rows = [_operator(path.name, number, line) for number, line in enumerate(lines, 2)]
    else:
        raise Unreadable(
            f"{path} has not the columns {', '.join(POINTS)}, nor {', '.join(OPERATORS)}."
        )
    if not rows:
        raise Unreadable(f"{path} has columns and no rows.")
    return rows


def _point(file: str, number: int, line: dict[str, str | None]) -> Row:
    named = (line[name] or "" for name in POINTS)
    return Row(file, number, *named, source=line.get("source_repo") or "")


def _operator(file: str, number: int, line: dict[str, str | None]) -> Row:
    op, device, dims, latency = (line[name] or "" for name in OPERATORS)
    source = "sitar-lab/NeuSight"
    return Row(file, number, f"op:{op}", dims, device, "fp32", "latency", latency, "ms", source)


SEED = 16
"""Of the split between the rows that the model may be fitted on and those that it is judged by."""


def held_out(row: Row, share: float = 0.4) -> bool:
    """Return whether a row belongs to the part that nothing is fitted on.

    It depends on what was measured and on which card alone, not on the file or the order, so the same
    work is on the same side wherever it stands.
    """
    what = f"{SEED} {row.hardware} {row.workload} {row.params.partition(';')[0]}"
    drawn = hashlib.sha256(what.encode()).digest()
    return int.from_bytes(drawn[:8], "big") < share * 2**64


def without_repeats(files: Sequence[Sequence[Row]]) -> tuple[list[Row], list[Row]]:
    """Return the rows of several files, and apart from them those that an earlier file had already.

    A row that stands twice in one file is kept: it was measured twice.
    """
    kept: list[Row] = []
    again: list[Row] = []
    known: set[tuple[str, ...]] = set()
    for rows in files:
        fresh = [row for row in rows if row[2:] not in known]
        again += [row for row in rows if row[2:] in known]
        known |= {row[2:] for row in fresh}
        kept += fresh
    return kept, again
