"""Claims, the verdicts that records give them, and the card that `claim` shows."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from course_language import N_, _
from course_utils import evidence
from course_utils.number_format import amount
from course_utils.show import Bundle, real_gpus_link, table

from .numbers import DataPoint, Ratio, Value, numbers, on_cpu

FILE = Path(__file__).with_name("claims.yml")
TRANSLATED = ("group", "text", "document", "section", "verdict", "short")
"""The fields of a claim that are translated."""
WORDS = (N_("Holds"), N_("Depends"), N_("Not seen"), N_("Open"))
"""The verdicts that `weigh` returns."""
_KEYS = (
    N_("cores"),
    N_("images/s"),
)
MEMORY, ERROR = "memory", "error"
"""Units of claims: memory saved, and numerical error."""


@dataclass(frozen=True)
class Claim:
    """A quantitative claim, the numbers relevant to it, and the verdict.

    ``low`` and ``high`` are the claimed range in ``unit``; None is an open end. Units: ``"×"``, times as
    fast; ``"memory"``, times less memory, which texts and the file give as the share saved; ``"images/s"``,
    ``"cores"``, ``"h"`` or ``"error"``. ``tolerance`` is the factor by which a number may miss the range and
    still count as inside. ``verdict`` may contain ``{least}``, ``{most}``, ``{range}``, ``{claimed}``,
    ``{count}`` and ``{inside}`` (how many are inside the range); ``word`` must be what `weigh` returns.
    ``gpu``: whether the claim is about a GPU.
    """

    id: str
    group: str
    text: str
    quote: str
    document: str
    section: str
    low: float | None
    high: float | None
    needs: str
    word: str
    verdict: str
    short: str
    numbers: Sequence[Ratio | Value] = ()
    unit: str = "×"
    tolerance: float = 1.15
    gpu: bool = True

    @property
    def points(self) -> list[DataPoint]:
        """The numbers relevant to the claim: recorded, then modelled, then published; of each kind, weighed
        ones first.
        """
        order = list(evidence.KIND_BY_PREFIX.values())
        every = [point for number in self.numbers for point in number.points()]
        return sorted(every, key=lambda f: (order.index(f.kind), not f.weighed))

    @property
    def experiments(self) -> list[str]:
        """The experiments for this claim that a machine can run."""
        names = dict.fromkeys(number.experiment for number in self.numbers)
        return [name for name in names if name not in ONLY_PUBLISHED]

    @property
    def command(self) -> str:
        """The command that records these experiments."""
        return "python -m course_utils record " + " ".join(f"--only {name}" for name in self.experiments)

    @property
    def lacks_gpu(self) -> bool:
        """Whether the claim is about a GPU, could be measured on one, and has not been."""
        if not (self.gpu and self.experiments):
            return False
        return not any(
            m.kind == "recorded" and not on_cpu(m)
            for number in self.numbers
            for m in evidence.recorded(number.experiment, number.quantity)
        )

    @property
    def claimed(self) -> str:
        """The claimed range as text: ``"10 to 100×"``."""
        return format_range(self.low, self.high, self.unit)

    @property
    def sentence(self) -> str:
        """The verdict as a sentence, with numbers from the records filled in."""
        values = [f.value for f in weighed(self)]
        if not values:
            return _("No number yet.") if "{" in self.verdict else self.verdict
        ends = {
            "least": formatted(min(values), self.unit),
            "most": formatted(max(values), self.unit),
            "range": format_range(min(values), max(values), self.unit),
            "count": len(values),
            "inside": sum(is_within_tolerance(self, value) for value in values),
        }
        return self.verdict.format(claimed=self.claimed, **ends)


def read(raw: dict[str, Any]) -> tuple[Claim, ...]:
    """Return the claims in the parsed ``claims.yml``, with translated texts; it modifies ``raw``."""
    claims = []
    for group, entries in raw["claims"].items():
        for entry in entries:
            low, high = entry.pop("claimed")
            if entry.get("unit") == MEMORY:
                low, high = 1 / (1 - low), 1 / (1 - high)
            entry["numbers"] = numbers(entry.get("numbers", ()))
            entry["document"] = raw["documents"][entry["document"]]
            parsed = Claim(**entry, group=group, low=low, high=high)
            claims.append(replace(parsed, **{name: _(getattr(parsed, name)) for name in TRANSLATED}))
    return tuple(claims)


_RAW = yaml.safe_load(FILE.read_text(encoding="utf-8"))
ONLY_PUBLISHED = frozenset(_RAW["only_published"])
CLAIMS = read(_RAW)


def weighed(claim: Claim) -> list[DataPoint]:
    """Return the numbers that decide the verdict: those ``weighed``, except modelled ones."""
    return [f for f in claim.points if f.weighed and f.kind != "modelled"]


def weigh(claim: Claim) -> str:
    """Return the verdict that the records give, one of `WORDS`.

    ``"Open"`` without numbers; else ``"Holds"``, ``"Depends"`` or ``"Not seen"`` if all, some or none are in
    the range.
    """
    inside = [is_within_tolerance(claim, f.value) for f in weighed(claim)]
    if not inside:
        return "Open"
    if all(inside):
        return "Holds"
    return "Depends" if any(inside) else "Not seen"


def is_within_tolerance(claim: Claim, value: float) -> bool:
    """Return whether a value is in the claimed range, widened at both ends by the factor ``claim.tolerance``.

    For the unit `MEMORY`, ``value``, ``low`` and ``high`` are factors (times less memory); the shares saved,
    ``1 - 1 / factor``, are compared.
    """
    low, high = claim.low, claim.high
    if claim.unit == MEMORY:
        value, low, high = (end and 1 - 1 / end for end in (value, low, high))
    above = low is None or value * claim.tolerance >= low
    below = high is None or value <= high * claim.tolerance
    return above and below


def formatted(value: float, unit: str) -> str:
    """Format a number in a claim's unit."""
    if unit == "×":
        return f"{value:.2g}×" if value < 10 else f"{value:,.0f}×"
    if unit == MEMORY:
        return f"{round(100 * (1 - 1 / value))} %"
    if unit == ERROR:
        return _("rounding") if value < 1e-5 else amount(value, "1", "share")
    digits = 4 - len(f"{value:.0f}") if unit == "images/s" else 0
    return f"{round(value, min(digits, 0)):,.0f} {_(unit)}"


def format_range(low: float | None, high: float | None, unit: str) -> str:
    """Format a range in a claim's unit: ``"1.5 to 2×"``."""
    if unit == ERROR and low is None:
        return _("equal, up to rounding")
    if high is None:
        return (
            _("faster") if unit == "×" else _("at least {formatted}").format(formatted=formatted(low, unit))
        )
    if formatted(low, unit) == formatted(high, unit):
        return formatted(high, unit)
    first = formatted(low, unit).removesuffix("×").removesuffix(" %")
    return _("{removesuffix} to {formatted}").format(
        removesuffix=first.removesuffix(f" {_(unit)}"), formatted=formatted(high, unit)
    )


def card(claim: Claim) -> Bundle:
    """Return the card that `claim` displays: a row for each kind of number and machine."""
    places = grouped(claim.points, *evidence.KIND_BY_PREFIX.values())
    rows = [
        (number, kind_label(group[0]), group[0].where, what)
        for group in places
        for number, what in [describe(group, claim.unit)]
    ]
    head = (_("Found"), _("Kind"), _("Where"), _("What"))
    kinds = [group[0].kind for group in places]
    text, table_html = table(head, rows, kinds) if rows else ("", "")
    if "modelled" in kinds:
        table_html += real_gpus_link()
    title = _("Claimed: {text} ({document}, {section})").format(
        text=claim.text, document=claim.document, section=claim.section
    )
    stop = _(". ")
    verdict = f"{_(claim.word)}{stop}{claim.sentence}"
    footer = []
    if len(weighed(claim)) < len(claim.points):
        footer.append(_("The verdict counts no number that is modelled or related."))
    if claim.lacks_gpu:
        footer.append(_("Not measured yet: needs a GPU. {command}").format(command=claim.command))
    if rows:
        footer.append(
            _("Each number with its source: handbook/claims_numbers.md, {short}.").format(short=claim.short)
        )
    return Bundle(
        text="\n".join(line for line in (title, verdict, text, *footer) if line),
        html='<div style="border:1px solid #8888;border-radius:6px;padding:.5em 1em">'
        f"<div>{html.escape(title)}</div>"
        f"<div><b>{_(claim.word)}{stop}</b>{html.escape(claim.sentence)}</div>"
        f'{table_html}<div style="opacity:.8">{"<br>".join(map(html.escape, footer))}</div></div>',
    )


def grouped(points: Sequence[DataPoint], *kinds: str) -> list[list[DataPoint]]:
    """Group numbers of the given kinds by kind and machine; the others stay alone, each a group.

    Without ``kinds``, only modelled numbers are grouped.
    """
    places: dict[tuple[object, ...], list[DataPoint]] = {}
    for n, f in enumerate(points):
        place = f.where if f.kind in (kinds or ("modelled",)) else n
        places.setdefault((kind_label(f), place), []).append(f)
    return list(places.values())


def describe(group: Sequence[DataPoint], unit: str) -> tuple[str, str]:
    """Return the range of a group's numbers as text, and a description of what was measured."""
    values = [f.value for f in group]
    what = "; ".join(dict.fromkeys(f.what for f in group))
    if len(group) > 2:
        what = _("{n_group} cases").format(n_group=len(group))
    return format_range(min(values), max(values), unit), what


def kind_label(point: DataPoint) -> str:
    """Return the translated name of a number's kind, with "related" if it is not weighed."""
    return _(point.kind) if point.weighed else _("{kind}, related").format(kind=_(point.kind))
