"""What a figure says in seconds or in bytes, whatever its unit."""

from __future__ import annotations

import math
import re

from .rows import Row
from .workload import Uninterpretable

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0}
BYTES = {"GB": 1e9, "MB": 1e6, "GiB": 2.0**30, "MiB": 2.0**20}
SAMPLE_RATES = ("img/s", "imgs/s", "image/s", "images/s", "samples/s", "seq/s", "sequences/s")
TOKEN_RATES = ("tokens/s", "tokens/s/GPU")
RATES = {
    "PFLOP/s": 1e15,
    "TFLOP/s": 1e12,
    "GFLOP/s": 1e9,
    "TB/s": 1e12,
    "GB/s": 1e9,
    "G elements/s": 1e9,
    **dict.fromkeys((*SAMPLE_RATES, *TOKEN_RATES, "samples or tokens/s"), 1.0),
}


def number(row: Row) -> float:
    """Return a row's value.

    Raises
    ------
    Uninterpretable
        Where it is no positive number.
    """
    try:
        value = float(row.value)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise Uninterpretable(f"its value {row.value!r} is no positive number")
    return value


def unit_of(row: Row) -> str:
    """Return a row's unit without the remarks that some files put behind it."""
    return re.sub(r" *\(.*\)$| per GPU$", "", row.unit.strip())


def measured(row: Row, amount: float) -> tuple[str, float]:
    """Return what was measured as ``("seconds", ...)`` or ``("bytes", ...)``.

    Parameters
    ----------
    row
        The row.
    amount
        For a rate, how much is done in the time that is modelled: FLOP, bytes, samples, tokens. For a
        time, how many times in a row the work was done. For bytes, by how much the unit is larger than
        its name says, where GB stands for GiB.

    Raises
    ------
    Uninterpretable
        Where the value is no positive number or the unit is none of these.
    """
    value, unit = number(row), unit_of(row)
    if unit in _SECONDS:
        return "seconds", value * _SECONDS[unit] / amount
    if unit in RATES:
        return "seconds", amount / (value * RATES[unit])
    if unit in BYTES:
        return "bytes", value * BYTES[unit] * amount
    raise Uninterpretable(f"the unit {row.unit!r} says neither a time nor a rate nor bytes")
