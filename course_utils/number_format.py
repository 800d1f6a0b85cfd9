"""Format numbers with units for reading, and convert units to the base units of records."""

from __future__ import annotations

_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}

_BASES = {
    **{"": ("1", 1.0), "×": ("1", 1.0), "%": ("1", 1e-2)},
    **{"s": ("s", 1.0), "ms": ("s", 1e-3), "µs": ("s", 1e-6), "ns": ("s", 1e-9)},
    **{"min": ("s", 60.0), "h": ("s", 3600.0)},
    **{f"{k}iB": ("B", 1024.0**i) for i, k in enumerate(("K", "M", "G", "T"), 1)},
    **{f"{k}{u}": (u, size) for k, size in _PREFIXES.items() for u in ("B", "B/s", "FLOP/s")},
}


def to_base_unit(unit: str) -> tuple[str, float]:
    """Return the base unit, in which records have such a quantity, and the factor from ``unit`` to it.

    Examples
    --------
    >>> to_base_unit("ms"), to_base_unit("×"), to_base_unit("GB/s"), to_base_unit("images/s")
    (('s', 0.001), ('1', 1.0), ('B/s', 1000000000.0), ('samples/s', 1.0))
    """
    if unit in _BASES:
        return _BASES[unit]
    return ("samples/s" if unit.endswith("/s") and unit not in ("B/s", "FLOP/s") else unit), 1.0


def seconds(value: float) -> str:
    """Format a time in seconds with three digits and a suitable unit, s to ns: ``"1.23 ms"``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


_SIZES = {
    "B": (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1)),
    "B/s": (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1)),
    "FLOP/s": (
        ("PFLOP/s", 1e15),
        ("TFLOP/s", 1e12),
        ("GFLOP/s", 1e9),
        ("MFLOP/s", 1e6),
        ("FLOP/s", 1),
    ),
}

SHARES = ("accuracy", "fraction", "share")
"""A quantity with one of these words in its name lies between 0 and 1."""


def is_share(quantity: str) -> bool:
    """Return whether a quantity, judged by its name, is a fraction of a whole, such as a test accuracy."""
    return any(word in quantity for word in SHARES)


def amount(value: float, unit: str = "s", quantity: str = "") -> str:
    """Format a number with three digits and a suitable unit.

    Parameters
    ----------
    value
        The number, in ``unit``.
    unit
        ``"s"``, ``"B"`` (written in KiB, MiB, GiB), ``"B/s"``, ``"FLOP/s"``, ``"1"`` or another unit, such
        as ``"samples/s"``, which is kept.
    quantity
        The quantity's name. The unit ``"1"`` is written as a percentage for a share, and as ``×`` for a
        ``"speed-up"``.

    Examples
    --------
    >>> amount(0.0123), amount(3 * 2**20, "B"), amount(4.0, "1", "speed-up"), amount(0.97, "1", "accuracy")
    ('12.3 ms', '3 MiB', '4×', '97 %')
    """
    if unit == "s":
        return seconds(value) if abs(value) < 7200 else f"{_digits(value / 3600)} h"
    if unit == "1" and is_share(quantity):
        return f"{_digits(100 * value)} %"
    if unit == "1":
        return _digits(value) + ("×" if quantity == "speed-up" else "")
    sizes = _SIZES.get(unit, ((unit, 1),))
    name, size = next((pair for pair in sizes if abs(value) >= pair[1]), sizes[-1])
    return f"{_digits(value / size)} {name}"


def _digits(value: float) -> str:
    """Format a number with three digits, or from 1000 on as an integer with thousands separators."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
