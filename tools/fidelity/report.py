"""How well the simulated device agrees with what was measured: in groups, as text and as JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from .model import Found, LeftOut

LONG = 1e-4
"""Seconds from which an operator counts as long: below, launches and latencies decide."""

NEAR = 0.25
"""How far from the measured a modelled figure may be and still count as near it."""


class Group(NamedTuple):
    """Like rows, summed up.

    Attributes
    ----------
    hardware
        The profile's name.
    kind, size, quantity
        Of work; ``"below 0.1 ms"``, ``"0.1 ms and more"`` or, where size does not matter, ``""``;
        ``"seconds"`` or ``"bytes"``.
    n
        How many rows.
    ratio
        The median of modelled over measured.
    error
        The median of ``|ratio - 1|``.
    near, very_near
        The share of rows within 25 % and within 10 %.
    """

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
    """Return the class of size that a row belongs to."""
    if found.quantity == "bytes" or found.meaning.kind.startswith("network"):
        return ""
    return "0.1 ms and more" if found.measured >= LONG else "below 0.1 ms"


def groups(found: Iterable[Found]) -> list[Group]:
    """Sum rows up by hardware, kind of work, size and quantity."""
    alike: dict[tuple[str, str, str, str], list[Found]] = defaultdict(list)
    for each in found:
        alike[each.profile, each.meaning.kind, size_of(each), each.quantity].append(each)
    return [_group(*key, members) for key, members in sorted(alike.items())]


def _group(hardware: str, kind: str, size: str, quantity: str, members: list[Found]) -> Group:
    off = [abs(each.ratio - 1) for each in members]
    return Group(
        hardware,
        kind,
        size,
        quantity,
        len(members),
        median(each.ratio for each in members),
        median(off),
        sum(error <= NEAR for error in off) / len(off),
        sum(error <= 0.1 for error in off) / len(off),
    )


def worst(found: Iterable[Found], count: int) -> list[Found]:
    """Return the rows that are furthest off, by the factor between modelled and measured."""
    return sorted(found, key=lambda each: max(each.ratio, 1 / each.ratio), reverse=True)[:count]


def reasons(left_out: Iterable[LeftOut]) -> list[tuple[str, str, int]]:
    """Return workload, reason and how many rows, the most frequent first."""
    counted = Counter((left.row.workload, left.reason) for left in left_out)
    return [(workload, reason, n) for (workload, reason), n in counted.most_common()]


def as_text(found: Sequence[Found], left_out: Sequence[LeftOut], again: int, count: int) -> str:
    """Return the report for a reader.

    Parameters
    ----------
    found, left_out
        What was modelled, and what not.
    again
        How many rows were left away because an earlier file has them too.
    count
        How many of the worst rows to name for each kind of work.
    """
    lines = [f"{len(found)} rows modelled, {len(left_out)} not"]
    if again:
        lines[0] += f", and {again} given in an earlier file already"
    lines[0] += ". Ratio: modelled / measured; error: the median of |ratio - 1|."
    head = ("Card", "Work", "Size", "Rows", "Ratio", "Error", "In 25 %", "In 10 %")
    rows = [head] + [_cells(group) for group in groups(found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines += [""] + ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    if count and found:
        lines += ["", "Furthest off:"]
        for kind in sorted({each.meaning.kind for each in found}):
            alike = [each for each in found if each.meaning.kind == kind]
            lines += [_line(each) for each in worst(alike, count)]
    if left_out:
        lines += ["", "Not modelled:", *_not_modelled(left_out)]
    return "\n".join(lines)


def _not_modelled(left_out: Sequence[LeftOut]) -> Iterable[str]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason, n in reasons(left_out):
        by_reason[reason].append(f"{name} ({n})")
    total = Counter(left.reason for left in left_out)
    for reason, n in total.most_common():
        yield f"  {n:5}  because {reason}: {', '.join(by_reason[reason])}"


def _cells(group: Group) -> tuple[str, ...]:
    what = f"{group.kind}: memory" if group.quantity == "bytes" else group.kind
    shares = (f"{share:.0%}" for share in (group.error, group.near, group.very_near))
    return group.hardware, what, group.size, str(group.n), f"{group.ratio:.2f}", *shares


def _aligned(row: tuple[str, ...], widths: list[int]) -> Iterable[str]:
    for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.ljust(width) if i < 3 else cell.rjust(width)


def _line(each: Found) -> str:
    what = f"{each.row.workload} {each.row.params}".strip()
    sizes = f"{_amount(each.modelled, each.quantity)} for {_amount(each.measured, each.quantity)}"
    return f"  {each.ratio:8.3g}  {each.meaning.kind}, {each.profile}: {sizes}: {what[:110]}"


_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def _amount(value: float, quantity: str) -> str:
    if quantity == "bytes":
        return f"{value / 1e9:.3g} GB"
    scale, unit = next((u for u in _UNITS if value >= u[0]), _UNITS[-1])
    return f"{value / scale:.3g} {unit}"


def as_json(found: Sequence[Found], left_out: Sequence[LeftOut], again: int) -> dict[str, Any]:
    """Return the report for a machine: every row, the groups, and what was left out; SI units."""
    return {
        "schema": 1,
        "kind": "modelled beside measured",
        "rows": [
            {
                "file": each.row.file,
                "line": each.row.line,
                "source": each.row.source,
                "workload": each.row.workload,
                "params": each.row.params,
                "dtype": each.row.dtype,
                "hardware": each.row.hardware,
                "profile": each.profile,
                "kind": each.meaning.kind,
                "size": size_of(each),
                "host": each.meaning.host,
                "quantity": each.quantity,
                "measured": each.measured,
                "modelled": each.modelled,
            }
            for each in found
        ],
        "groups": [group._asdict() for group in groups(found)],
        "not_modelled": [
            {"workload": workload, "reason": reason, "rows": n}
            for workload, reason, n in reasons(left_out)
        ],
        "given_twice": again,
    }
