"""What a claim is, how numbers are formed from records, and how they are weighed against it."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from course_language import say, spoken, word
from course_utils import evidence
from course_utils.number_format import amount
from course_utils.show import Bundle, table
from course_utils.timing import Measurement

WORDS = spoken("Holds", "Depends", "Not seen", "Cannot be so", "Open")
"""The verdicts, as `weigh` gives them."""

ONLY_PUBLISHED = frozenset(
    [
        "amp_training",
        "cifar10_training",
        "cores",
        "free_gpu_time",
        "kernels",
        "loading",
        "loop_with_copies",
        "memory_bandwidth",
        "pure_bf16_training",
        "training",
    ]
)
"""What others have measured and no command of the course does: `Claim.experiments` leaves it out."""

Selection = Mapping[str, Any]
"""Parameters with the value they must have, or a tuple of values."""


@dataclass(frozen=True)
class Found:
    """A number that speaks to a claim, in the claim's unit, and where it is from.

    ``weighed`` is False for what is only related: the same switch on a CPU, or another task.
    """

    value: float
    low: float
    high: float
    kind: str
    what: str
    where: str
    date: str
    source: str
    weighed: bool
    accelerator: bool


@dataclass(frozen=True)
class Ratio:
    """How many times as fast, or as small, ``after`` is as ``before``.

    Two records make a number where they are of one machine and equal in all that neither names. Where
    the two sides name a ``device``, ``"cpu"`` or ``"accelerator"``, the machines may differ. Where a rate
    may meet a time, ``items`` says how many the time is of.
    """

    experiment: str
    before: Selection
    after: Selection
    quantity: str = "time"
    where: Selection = field(default_factory=dict)
    weighed: bool = True
    items: int = 0

    def found(self) -> Iterator[Found]:
        """Yield a number for each two records that belong together, and each published ratio."""
        sides = {*self.before, *self.after}
        across = bool({"device", "memory"} & sides)
        for records in _of(self.experiment, self.quantity, self.items):
            first = [m for m in records if _fits(m, {**self.where, **self.before})]
            second = [m for m in records if _fits(m, {**self.where, **self.after})]
            for before, after in product(first, second):
                same = across or _place(before) == _place(after)
                if same and _rest(before, sides) == _rest(after, sides):
                    yield self._pair(before, after)
        if self.quantity == "time" and not across:
            for m in evidence.recorded(self.experiment, "speed-up"):
                if self._is_this(m):
                    yield _found(m, m.median, self._what(m), _where(m), self.weighed)

    def _is_this(self, speedup: Measurement) -> bool:
        against = self.before.get("precision")
        given = speedup.parameters.get("against")
        return _fits(speedup, {**self.where, **self.after}) and (
            against is None or _among(given, against)
        )

    def _pair(self, before: Measurement, after: Measurement) -> Found:
        less_is_better = after.unit in ("s", "B")
        over, under = (before, after) if less_is_better else (after, before)
        value = low = high = over.median / under.median
        if over.q1 is not None and under.q1 is not None:
            low, high = over.q1 / under.q3, over.q3 / under.q1
        where = _where(after)
        if _where(before) != where:
            where += f" against {_where(before)}"
        return Found(
            value=value,
            low=low,
            high=high,
            kind=after.kind,
            what=self._what(after, before),
            where=where,
            date=max(before.date, after.date),
            source="; ".join(dict.fromkeys(m.source for m in (after, before) if m.source)),
            weighed=self.weighed,
            accelerator=not _on_cpu(after),
        )

    def _what(self, after: Measurement, before: Measurement | None = None) -> str:
        sides = sorted({*self.before, *self.after} - {"device", "memory", "processor"})
        named = {k: v for k, v in after.parameters.items() if k not in (*sides, "against")}
        change = []
        if before is not None:
            change = [f"{_said(s, before)} → {_said(s, after)}" for s in sides]
        elif "against" in after.parameters:
            change = [f"{after.parameters['against']} → {after.parameters['precision']}"]
        return ", ".join([_named(self.experiment, named), *change])


@dataclass(frozen=True)
class Rate:
    """How many items a second: ``items``, or the parameter of that name, over the time."""

    experiment: str
    items: int | str
    where: Selection = field(default_factory=dict)
    weighed: bool = True

    def found(self) -> Iterator[Found]:
        """Yield a rate for each record."""
        for m in (m for records in _of(self.experiment, "time") for m in records):
            if not _fits(m, self.where):
                continue
            value, ends = m.median, None
            if m.unit == "s":
                n = m.parameters[self.items] if isinstance(self.items, str) else self.items
                value = n / m.median
                ends = (n / m.q3, n / m.q1) if m.q1 is not None else None
            what = _named(m.experiment, m.parameters)
            yield _found(m, value, what, _where(m), self.weighed, ends)


@dataclass(frozen=True)
class Value:
    """The records of a quantity as they stand, times ``scale``."""

    experiment: str
    quantity: str
    where: Selection = field(default_factory=dict)
    scale: float = 1.0
    weighed: bool = True

    def found(self) -> Iterator[Found]:
        """Yield each record."""
        for m in evidence.recorded(self.experiment, self.quantity):
            if _fits(m, self.where):
                ends = (m.q1 * self.scale, m.q3 * self.scale) if m.q1 is not None else None
                value, what = m.median * self.scale, _named(m.experiment, m.parameters)
                yield _found(m, value, what, _where(m), self.weighed, ends)


@dataclass(frozen=True)
class Claim:
    """One claim in numbers, what speaks to it, and the verdict.

    ``low`` and ``high`` are what was claimed, in ``unit``: ``"×"`` times as fast; ``"memory"`` times less
    memory, written as the share saved; ``"images/s"``, ``"cores"``, ``"h"`` or ``"error"``. None is an open
    end. ``tolerance`` is the factor by which a number may miss the range and still count as inside.
    ``verdict`` may hold ``{least}``, ``{most}``, ``{range}``, ``{claimed}``, and how many: ``{count}``, ``{inside}``; ``word`` must be what `weigh`
    finds.
    ``ceiling`` says that the numbers are records, so that more than them cannot be.
    """

    id: str
    text: str
    quote: str
    document: str
    section: str
    low: float | None
    high: float | None
    needs: str
    numbers: Sequence[Ratio | Rate | Value]
    word: str
    verdict: str
    unit: str = "×"
    short: str = ""
    tolerance: float = 1.15
    ceiling: bool = False
    group: str = ""
    gpu: bool = True
    more: Sequence[str] = ()

    @property
    def found(self) -> list[Found]:
        """The numbers that speak to it: recorded, modelled, published."""
        order = list(evidence.KINDS.values())
        every = [found for number in self.numbers for found in number.found()]
        return sorted(every, key=lambda f: (order.index(f.kind), not f.weighed))

    @property
    def experiments(self) -> list[str]:
        """The experiments that a machine can run for it."""
        names = [*(number.experiment for number in self.numbers), *self.more]
        return [name for name in dict.fromkeys(names) if name not in ONLY_PUBLISHED]

    @property
    def command(self) -> str:
        """What to run for it."""
        return "python -m course_utils record " + " ".join(
            f"--only {name}" for name in self.experiments
        )

    @property
    def lacks_gpu(self) -> bool:
        """Whether it is about a GPU, could be measured on one, and was not."""
        measured = any(f.kind == "recorded" and f.accelerator for f in self.found)
        return self.gpu and bool(self.experiments) and not measured

    @property
    def claimed(self) -> str:
        """What was claimed, in words: ``"10 to 100×"``."""
        return between(self.low, self.high, self.unit)

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, its numbers taken from the records."""
        values = [f.value for f in weighed(self)]
        if not values:
            return "No number yet." if "{" in self.verdict else self.verdict
        ends = {
            "least": written(min(values), self.unit),
            "most": written(max(values), self.unit),
            "range": between(min(values), max(values), self.unit),
            "count": len(values),
            "inside": sum(is_inside(self, value) for value in values),
        }
        return self.verdict.format(claimed=self.claimed, **ends)


def weighed(claim: Claim) -> list[Found]:
    """Return the numbers that decide: recorded or published, and of the thing that was claimed."""
    return [f for f in claim.found if f.weighed and f.kind != "modelled"]


def weigh(claim: Claim) -> str:
    """Return the verdict that the records give: one of `WORDS`."""
    values = [f.value for f in weighed(claim)]
    if not values:
        return "Open"
    inside = [is_inside(claim, value) for value in values]
    if all(inside):
        return "Holds"
    if any(inside):
        return "Depends"
    if claim.ceiling and claim.low is not None and claim.low > claim.tolerance * max(values):
        return "Cannot be so"
    return "Not seen"


def is_inside(claim: Claim, value: float) -> bool:
    """Return whether a number is within what was claimed, and the tolerance."""
    above = claim.low is None or value * claim.tolerance >= claim.low
    below = claim.high is None or value <= claim.high * claim.tolerance
    return above and below


def written(value: float, unit: str) -> str:
    """Write a number in a claim's unit."""
    if unit == "×":
        return f"{value:.2g}×" if value < 10 else f"{value:,.0f}×"
    if unit == "memory":
        return f"{100 * (1 - 1 / value):.0f} %"
    if unit == "error":
        return word("rounding") if value < 1e-5 else amount(value, "1", "share")
    digits = 4 - len(f"{value:.0f}") if unit == "images/s" else 0
    return f"{round(value, min(digits, 0)):,.0f} {unit}"


def between(low: float | None, high: float | None, unit: str) -> str:
    """Write a range in a claim's unit: ``"1.5 to 2×"``."""
    if unit == "error" and low is None:
        return "equal, up to rounding"
    if high is None:
        return word("faster") if unit == "×" else f"at least {written(low, unit)}"
    if written(low, unit) == written(high, unit):
        return written(high, unit)
    first = written(low, unit)
    return f"{first.removesuffix('×').removesuffix(' %').removesuffix(f' {unit}')} to {written(high, unit)}"


def card(claim: Claim) -> Bundle:
    """Return what `claim` shows: one row for each kind of number and each place; the page has them all."""
    places = gathered(claim.found, *evidence.KINDS.values())
    rows = [
        (number, kind_of(group[0]), group[0].where, what)
        for group in places
        for number, what in [said_of(group, claim.unit)]
    ]
    head = (word("Found"), word("Kind"), word("Where"), word("What"))
    text, page = table(head, rows, [group[0].kind for group in places]) if rows else ("", "")
    title = f"Claimed: {claim.text} ({claim.document}, {claim.section})"
    stop = word(". ")
    verdict = f"{say(claim.word)}{stop}{claim.sentence}"
    todo = f"Not measured yet: needs a GPU. {claim.command}" if claim.lacks_gpu else ""
    more = (
        f"Each number with its source: claims_numbers.md, {claim.short or claim.id}."
        if rows
        else ""
    )
    last = [line for line in (todo, more) if line]
    return Bundle(
        text="\n".join(line for line in (title, verdict, text, *last) if line),
        html='<div style="border:1px solid #8888;border-radius:6px;padding:.5em 1em">'
        f"<div>{html.escape(title)}</div><div><b>{say(claim.word)}{stop}</b>{html.escape(claim.sentence)}</div>"
        f'{page}<div style="opacity:.8">{"<br>".join(map(html.escape, last))}</div></div>',
    )


def gathered(found: Sequence[Found], *kinds: str) -> list[list[Found]]:
    """Return the numbers, those of one place and one of the kinds together; without kinds, the modelled."""
    places: dict[tuple[object, ...], list[Found]] = {}
    for n, f in enumerate(found):
        place = f.where if f.kind in (kinds or ("modelled",)) else n
        places.setdefault((kind_of(f), place), []).append(f)
    return list(places.values())


def said_of(group: Sequence[Found], unit: str) -> tuple[str, str]:
    """Write the numbers of a group, from the least to the most, and what they are of."""
    values = [f.value for f in group]
    what = "; ".join(dict.fromkeys(f.what for f in group))
    if len(group) > 2:
        what = f"{len(group)} cases"
    return between(min(values), max(values), unit), what


def kind_of(found: Found) -> str:
    """Name the kind of a number; what is not weighed is called related."""
    return say(found.kind) if found.weighed else f"{found.kind}, related"


# --- numbers from records -----------------------------------------------------------------------


def _of(experiment: str, quantity: str, items: int = 0) -> list[list[Measurement]]:
    """Return the records that may be compared; with ``items``, rates as the times of so many."""
    names = ("time", "throughput") if quantity == "time" else (quantity,)
    found = [evidence.recorded(experiment, name) for name in names]
    if items:
        times, rates = found
        found = [times + [replace(m, median=items / m.median, unit="s") for m in rates]]
    return found


def _fits(m: Measurement, selection: Selection) -> bool:
    for name, wanted in selection.items():
        if name == "device":
            if _on_cpu(m) != (wanted == "cpu"):
                return False
        elif not (name in m.parameters and _among(m.parameters[name], wanted)):
            return False
    return True


def _on_cpu(m: Measurement) -> bool:
    return m.device.startswith(("cpu", "a CPU"))


def _among(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, tuple) else value == wanted


def _rest(m: Measurement, without: set[str]) -> dict[str, Any]:
    return {name: value for name, value in m.parameters.items() if name not in without}


def _place(m: Measurement) -> tuple[str, ...]:
    return (m.kind, m.machine, m.device, m.torch, m.source)


def _where(m: Measurement) -> str:
    threads = f", {m.threads} threads" if m.threads and _on_cpu(m) else ""
    return f"{m.machine}{threads}"


HIDDEN = ("processor", "kind", "memory", "per", "images")
"""Parameters that the words of a claim or of a published number say already."""


def _named(experiment: str, parameters: Mapping[str, Any]) -> str:
    """Name what was done: a published number by its own words, another by its experiment."""
    work = parameters.get("work") or experiment.replace("_", " ")
    rest = [name for name in parameters if name not in ("work", *HIDDEN)]
    return ", ".join([work, *(_said(name, parameters) for name in rest)])


def _said(name: str, m: Measurement | Mapping[str, Any]) -> str:
    """Say what a parameter was: ``"batch 64"``, ``"channels last"``, ``"pinned"``, ``"fp16"``."""
    value = (m.parameters if isinstance(m, Measurement) else m)[name]
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"not {words}"
    return (
        str(value)
        if isinstance(value, str)
        else f"{value} {words}"
        if name == "workers"
        else f"{words} {value}"
    )


def _found(
    m: Measurement,
    value: float,
    what: str,
    where: str,
    weighed: bool = True,
    ends: tuple[float, float] | None = None,
) -> Found:
    low, high = ends or (value, value)
    return Found(value, low, high, m.kind, what, where, m.date, m.source, weighed, not _on_cpu(m))
