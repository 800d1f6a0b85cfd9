"""How well the simulated device agrees with what was measured: in groups, as text and as JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from .compare import Found, LeftOut

LONG = 1e-4
"""Seconds from which an operator counts as long: below, launches and latencies decide."""

NEAR = 0.25
"""How far from the measured a modelled figure may be and still count as near it."""


class Group(NamedTuple):
    """Like rows: how many, the medians of modelled over measured and of |ratio - 1|, the shares in 25 and 10 %."""

    hardware: str
    kind: str
    size: str
    quantity: str
    n: int
    ratio: float
    error: float
    near: float
    very_near: float


def size_of(found: Found) -> str:
    """Return the class of size that a row belongs to, where size matters."""
    if found.quantity == "bytes" or found.meaning.kind.startswith("network"):
        return ""
    return "0.1 ms and more" if found.measured >= LONG else "below 0.1 ms"


def groups(found: Iterable[Found]) -> list[Group]:
    """Sum rows up by hardware, kind of work, size and quantity."""
    alike: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for each in found:
        alike[each.profile, each.meaning.kind, size_of(each), each.quantity].append(each.ratio)
    made = []
    for key, ratios in sorted(alike.items()):
        off, n = [abs(ratio - 1) for ratio in ratios], len(ratios)
        near, very_near = (sum(error <= most for error in off) / n for most in (NEAR, 0.1))
        made.append(Group(*key, n, median(ratios), median(off), near, very_near))
    return made


def worst(found: Iterable[Found], count: int) -> list[Found]:
    """Return the rows that are furthest off, by the factor between modelled and measured."""
    return sorted(found, key=lambda each: max(each.ratio, 1 / each.ratio), reverse=True)[:count]


def reasons(left_out: Iterable[LeftOut]) -> list[tuple[str, str, int]]:
    """Return workload, reason and how many rows, the most frequent first."""
    counted = Counter((left.row.workload, left.reason) for left in left_out)
    return [(*what, n) for what, n in counted.most_common()]


def as_text(found: Sequence[Found], left_out: Sequence[LeftOut], again: int, count: int) -> str:
    """Return the report for a reader, with ``count`` of the worst rows of each kind of work.

    ``again`` says how many rows were left away because an earlier file has them too.
    """
    first = f"{len(found)} rows modelled, {len(left_out)} not"
    if again:
        first += f", and {again} given in an earlier file already"
    rows = [("Card", "Work", "Size", "Rows", "Ratio", "Error", "In 25 %", "In 10 %")]
    for g in groups(found):
        what = f"{g.kind}: memory" if g.quantity == "bytes" else g.kind
        shares = (f"{share:.0%}" for share in (g.error, g.near, g.very_near))
        rows.append((g.hardware, what, g.size, str(g.n), f"{g.ratio:.2f}", *shares))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{first}. Ratio: modelled / measured; error: the median of |ratio - 1|.", ""]
    for row in rows:
        cells = (
            f"{c:{'<' if i < 3 else '>'}{w}}"
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    if count and found:
        lines += ["", "Furthest off:"]
        for kind in sorted({each.meaning.kind for each in found}):
            alike = [each for each in found if each.meaning.kind == kind]
            lines += [_line(each) for each in worst(alike, count)]
    if left_out:
        lines += ["", "Not modelled:"]
        for reason, n in Counter(left.reason for left in left_out).most_common():
            named = (f"{name} ({times})" for name, why, times in reasons(left_out) if why == reason)
            lines.append(f"  {n:5}  because {reason}: {', '.join(named)}")
    return "\n".join(lines)


def _line(each: Found) -> str:
    what = f"{each.row.workload} {each.row.params}".strip()
    sizes = f"{_amount(each.modelled, each.quantity)} for {_amount(each.measured, each.quantity)}"
    return f"  {each.ratio:8.3g}  {each.meaning.kind}, {each.profile}: {sizes}: {what[:110]}"


def _amount(value: float, quantity: str) -> str:
    if quantity == "bytes":
        return f"{value / 1e9:.3g} GB"
    scale, unit = (1.0, "s") if value >= 1 else (1e-3, "ms") if value >= 1e-3 else (1e-6, "µs")
    return f"{value / scale:.3g} {unit}"


def as_json(found: Sequence[Found], left_out: Sequence[LeftOut], again: int) -> dict[str, Any]:
    """Return the report for a machine: every row, the groups, and what was left out; SI units."""
    said = ("file", "line", "source", "workload", "params", "dtype", "hardware")
    rows = [
        {name: getattr(f.row, name) for name in said}
        | {"profile": f.profile, "kind": f.meaning.kind, "size": size_of(f), "host": f.meaning.host}
        | {"quantity": f.quantity, "measured": f.measured, "modelled": f.modelled}
        for f in found
    ]
    left = [{"workload": name, "reason": why, "rows": n} for name, why, n in reasons(left_out)]
    return {
        **{"schema": 1, "kind": "modelled beside measured", "rows": rows},
        "groups": [group._asdict() for group in groups(found)],
        **{"not_modelled": left, "given_twice": again},
    }
