"""Units as prose writes them, and the units that records are kept in."""

from __future__ import annotations

_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}

_BASES = {
    **{"": ("1", 1.0), "×": ("1", 1.0), "%": ("1", 1e-2)},
    **{"s": ("s", 1.0), "ms": ("s", 1e-3), "µs": ("s", 1e-6), "ns": ("s", 1e-9)},
    **{"min": ("s", 60.0), "h": ("s", 3600.0)},
    **{f"{k}iB": ("B", 1024.0**i) for i, k in enumerate(("K", "M", "G", "T"), 1)},
    **{f"{k}{u}": (u, size) for k, size in _PREFIXES.items() for u in ("B", "B/s", "FLOP/s")},
}


def in_base(unit: str) -> tuple[str, float]:
    """Return the unit that records of such a quantity have, and how many of it one ``unit`` is.

    Examples
    --------
    >>> in_base("ms"), in_base("×"), in_base("GB/s"), in_base("images/s")
    (('s', 0.001), ('1', 1.0), ('B/s', 1000000000.0), ('samples/s', 1.0))
    """
    if unit in _BASES:
        return _BASES[unit]
    return ("samples/s" if unit.endswith("/s") and unit not in ("B/s", "FLOP/s") else unit), 1.0
