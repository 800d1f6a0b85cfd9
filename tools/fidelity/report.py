"""Reports the agreement of the simulated device with measurements, by groups, as text and as JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from course_utils.number_format import amount
from course_utils.show import table

from .compare import Comparison, LeftOut

LONG = 1e-4
"""The seconds from which an operator counts as long; shorter ones depend on launches and latencies."""

NEAR = 0.25
"""The maximum relative deviation from the measured value that counts as near."""


class Group(NamedTuple):
    """The agreement of the rows of one card, kind of work, size and quantity.

    ``n`` is their number, ``ratio`` the median of modelled over measured, ``error`` the median of |ratio -
    1|; ``near`` and ``very_near`` are the shares within 25 % and 10 %.
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


def size_class(compared: Comparison) -> str:
    """Return the size class of an operator's row, by its time; "" for networks and memory."""
    if compared.quantity == "bytes" or compared.meaning.kind.startswith("network"):
        return ""
    return "0.1 ms and more" if compared.measured >= LONG else "below 0.1 ms"


def groups(compared: Iterable[Comparison]) -> list[Group]:
    """Return rows summarised by hardware, kind of work, size and quantity, sorted by these."""
    alike: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for each in compared:
        alike[each.profile, each.meaning.kind, size_class(each), each.quantity].append(each.ratio)
    result = []
    for key, ratios in sorted(alike.items()):
        errors, n = [abs(ratio - 1) for ratio in ratios], len(ratios)
        near, very_near = (sum(error <= limit for error in errors) / n for limit in (NEAR, 0.1))
        result.append(Group(*key, n, median(ratios), median(errors), near, very_near))
    return result


def worst(compared: Iterable[Comparison], count: int) -> list[Comparison]:
    """Return the ``count`` rows with the largest factor between modelled and measured, either way."""
    return sorted(compared, key=lambda each: max(each.ratio, 1 / each.ratio), reverse=True)[:count]


def reasons(left_out: Iterable[LeftOut]) -> list[tuple[str, str, int]]:
    """Return workload, reason and number of the rows left out, the most frequent first."""
    counted = Counter((left.row.workload, left.reason) for left in left_out)
    return [(*what, n) for what, n in counted.most_common()]


def as_text(compared: Sequence[Comparison], left_out: Sequence[LeftOut], n_repeated: int, count: int) -> str:
    """Return the report as text, with the ``count`` worst rows of each kind of work.

    ``n_repeated`` is the number of rows left out because an earlier file has them, too.
    """
    first = f"{len(compared)} rows modelled, {len(left_out)} not"
    if n_repeated:
        first += f", and {n_repeated} given in an earlier file already"
    rows = []
    for g in groups(compared):
        kind = f"{g.kind}: memory" if g.quantity == "bytes" else g.kind
        shares = (f"{share:.0%}" for share in (g.error, g.near, g.very_near))
        rows.append((g.hardware, kind, g.size, g.n, f"{g.ratio:.2f}", *shares))
    head = ("Card", "Work", "Size", "Rows", "Ratio", "Error", "In 25 %", "In 10 %")
    lines = [f"{first}. Ratio: modelled / measured; error: the median of |ratio - 1|.", ""]
    lines.append(table(head, rows)[0])
    if count and compared:
        lines += ["", "Furthest off:"]
        for kind in sorted({each.meaning.kind for each in compared}):
            alike = [each for each in compared if each.meaning.kind == kind]
            lines += [_line(each) for each in worst(alike, count)]
    if left_out:
        lines += ["", "Not modelled:"]
        for reason, n in Counter(left.reason for left in left_out).most_common():
            named = (f"{name} ({times})" for name, why, times in reasons(left_out) if why == reason)
            lines.append(f"  {n:5}  because {reason}: {', '.join(named)}")
    return "\n".join(lines)


def _line(each: Comparison) -> str:
    """Return a row's ratio, values and workload on one line."""
    workload = f"{each.row.workload} {each.row.params}".strip()[:110]
    unit = "B" if each.quantity == "bytes" else "s"
    sizes = f"{amount(each.modelled, unit)} for {amount(each.measured, unit)}"
    return f"  {each.ratio:8.3g}  {each.meaning.kind}, {each.profile}: {sizes}: {workload}"


def as_json(compared: Sequence[Comparison], left_out: Sequence[LeftOut], n_repeated: int) -> dict[str, Any]:
    """Return the report as a dict for JSON: every row, the groups, and what was left out; in SI units."""
    columns = ("file", "line", "source", "workload", "params", "dtype", "hardware")
    rows = [
        {
            **{name: getattr(f.row, name) for name in columns},
            "profile": f.profile,
            "kind": f.meaning.kind,
            "size": size_class(f),
            "host": f.meaning.host,
            "quantity": f.quantity,
            "measured": f.measured,
            "modelled": f.modelled,
        }
        for f in compared
    ]
    left = [{"workload": name, "reason": why, "rows": n} for name, why, n in reasons(left_out)]
    return {
        "schema": 1,
        "kind": "modelled beside measured",
        "rows": rows,
        "groups": [group._asdict() for group in groups(compared)],
        "not_modelled": left,
        "given_twice": n_repeated,
    }
