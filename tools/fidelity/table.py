"""Reads measurements of real GPUs from files: one `Row` for each value.

Two forms are known, plain or gzipped: tables of workloads with their parameters (``points.csv``), and
tables of single operators with their sizes (``neusight_train.csv.gz``).
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from simgpu import profiles

POINTS = ("workload", "params", "hardware", "dtype", "metric", "value", "unit")
"""The required columns of a table of workloads; ``source_repo`` is optional."""

OPERATORS = ("op", "device", "dims", "latency_ms")
"""The columns of a table of single operators: float32, without TF32, one eager call."""


class Row(NamedTuple):
    """One measured value as its file states it: workload, parameters, hardware, dtype, metric and unit."""

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
    """A file is no such table; the message is one sentence for the user."""


class Unsupported(Exception):
    """A row cannot be modelled; the message ends the sentence "not modelled, because …"."""


def read(path: str | Path) -> list[Row]:
    """Return the rows of a CSV file, plain or gzipped.

    Raises
    ------
    Unreadable
        If it cannot be read, has other columns, or has no rows.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
        table = csv.DictReader(io.StringIO(text, newline=""))
        columns, lines = set(table.fieldnames or ()), list(table)
    except UnicodeDecodeError:
        raise Unreadable(f"{path} is no table: it is not text.") from None
    except (OSError, EOFError, csv.Error) as error:
        raise Unreadable(f"{path} cannot be read: {error}.") from None
    if not (set(POINTS) <= columns or set(OPERATORS) <= columns):
        wanted = f"{', '.join(POINTS)}, nor {', '.join(OPERATORS)}"
        raise Unreadable(f"{path} has not the columns {wanted}.")
    if not lines:
        raise Unreadable(f"{path} has columns and no rows.")
    return [_row(path.name, number, line) for number, line in enumerate(lines, 2)]


def _row(file: str, number: int, line: dict[str, str | None]) -> Row:
    """Return a line of either form of table as a Row: its texts unchanged, missing ones empty.

    A line without a column "workload" is a single operator in float32 of NeuSight's table. ``number`` is the
    line's number in ``file``.
    """
    if "workload" in line:
        named = (line[name] or "" for name in POINTS)
        return Row(file, number, *named, source=line.get("source_repo") or "")
    op, device, dims, latency = (line[name] or "" for name in OPERATORS)
    measured = ("fp32", "latency", latency, "ms", "sitar-lab/NeuSight")
    return Row(file, number, f"op:{op}", dims, device, *measured)


SEED = 16
"""Seed of the split into rows for fitting the model and rows for judging it."""


def is_held_out(row: Row, share: float = 0.4) -> bool:
    """Return whether a row is kept for judging the model and not used for fitting.

    That depends on a hash of hardware, workload and parameters, so repeated measurements go together;
    ``share`` is the expected fraction.
    """
    what = f"{SEED} {row.hardware} {row.workload} {row.params.partition(';')[0]}"
    return int.from_bytes(hashlib.sha256(what.encode()).digest()[:8], "big") < share * 2**64


def without_repeats(files: Sequence[Sequence[Row]]) -> tuple[list[Row], list[Row]]:
    """Return the rows of several files, and those left out because an earlier file has the same.

    Files and line numbers are not compared.
    Rows repeated within one file are kept.
    """
    kept: list[Row] = []
    again: list[Row] = []
    for rows in files:
        known = {row[2:] for row in kept}
        again += [row for row in rows if row[2:] in known]
        kept += [row for row in rows if row[2:] not in known]
    return kept, again


# --- What a row says in numbers


SAMPLE_RATES = ("img/s", "imgs/s", "image/s", "images/s", "samples/s", "seq/s", "sequences/s")
TOKEN_RATES = ("tokens/s", "tokens/s/GPU")
_COUNTS = dict.fromkeys((*SAMPLE_RATES, *TOKEN_RATES, "samples or tokens/s"), 1.0)
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0}
_FLOPS = {"PFLOP/s": 1e15, "TFLOP/s": 1e12, "GFLOP/s": 1e9}
RATES = {**_FLOPS, "TB/s": 1e12, "GB/s": 1e9, "G elements/s": 1e9, **_COUNTS}
BYTES = {"GB": 1e9, "MB": 1e6, "GiB": 2.0**30, "MiB": 2.0**20}
_DTYPES = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "bf16": "bfloat16"}
_DTYPES |= {"fp16": "float16", "fp16 in, fp32 accumulate": "float16"}


def unit_of(row: Row) -> str:
    """Return a row's unit without a remark in parentheses or "per GPU"."""
    return re.sub(r" *\(.*\)$| per GPU$", "", row.unit.strip())


def measured(row: Row, amount: float) -> tuple[str, float]:
    """Return the measured value in SI units as ``("seconds", value)`` or ``("bytes", value)``.

    Parameters
    ----------
    amount
        For a rate, how much is done in the time that is modelled: FLOP, bytes, samples, tokens. For a time,
        how many times the work was done in it. For bytes, a factor on the unit.

    Raises
    ------
    Unsupported
        If the value is no positive number, or the unit is unknown.
    """
    unit = unit_of(row)
    try:
        value = float(row.value)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise Unsupported(f"its value {row.value!r} is no positive number")
    if unit in _SECONDS:
        return "seconds", value * _SECONDS[unit] / amount
    if unit in RATES:
        return "seconds", amount / (value * RATES[unit])
    if unit in BYTES:
        return "bytes", value * BYTES[unit] * amount
    raise Unsupported(f"the unit {row.unit!r} says neither a time nor a rate nor bytes")


def dtype_of(row: Row) -> str:
    """Return a row's dtype by its name in PyTorch, such as "float16"; Unsupported if it is not modelled."""
    if name := _DTYPES.get(row.dtype.strip().lower()):
        return name
    raise Unsupported(f"the dtype {row.dtype!r} is not modelled")


def field(row: Row, names: str) -> list[int]:
    """Return the integers for these names in a row's parameters, as in ``m=1024 n=768`` or ``B1 K(out)5607``.

    Raises
    ------
    Unsupported
        If one of the names, separated by spaces, is missing.
    """
    pairs = re.findall(r"([A-Za-z_]+)(?:\([a-z]+\))?=?(\d+)(?![\d.A-Za-z])", row.params)
    known = {name: int(number) for name, number in pairs}
    missing = [name for name in names.split() if name not in known]
    if missing:
        raise Unsupported(f"its parameters do not say {', '.join(missing)}")
    return [known[name] for name in names.split()]


def match(row: Row, pattern: str, what: str) -> re.Match[str]:
    """Return a pattern's match in a row's parameters; Unsupported, with ``what``, if there is none."""
    if fit := re.search(pattern, row.params):
        return fit
    raise Unsupported(f"its parameters do not say {what}")


_CARDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # Not real GPUs, or variants of a card that differ from its profile.
    (r"GH200|GB200|B300|MI-?\d|Simulated|RTX \d+ \S|H100.*(PCIe|96GB)", ()),
    (r"A100.*40 ?GB", ("A100-40GB", "A100")),
    *((name, (name,)) for name in ("H200", "H100", "B200", "A100", "V100")),
    *((rf"(rtx ?|^|1x ){n}", (f"RTX {n}",)) for n in (3090, 4090, 5090)),
    *((rf"\b{name}\b", (name,)) for name in ("T4", "L4")),
)


def profile_of(hardware: str) -> str:
    """Return the name of the profile that models a card; Unsupported if there is none.

    The first matching pattern of `_CARDS` is used, else a profile whose name stands in ``hardware``.
    """
    for pattern, candidates in _CARDS:
        if re.search(pattern, hardware, re.IGNORECASE):
            existing = [name for name in candidates if name in profiles.names()]
            if existing:
                return existing[0]
            if candidates:
                raise Unsupported(f"there is no profile {candidates[0]!r} yet")
            break
    else:  # a card that has a profile, and no variants
        for name in profiles.names():
            if re.search(rf"\b{re.escape(name)}\b", hardware, re.IGNORECASE):
                return name
    raise Unsupported(f"no profile stands for the card {hardware!r}")
