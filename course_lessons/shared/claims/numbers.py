"""How the numbers that speak to a claim are formed from records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from course_language import say, spoken, word
from course_utils import evidence
from course_utils.timing import Measurement

spoken("as given", "light", "heavy", "loader epoch", "channels last", "benchmark", "pure bf16")
Selection = Mapping[str, Any]
"""Parameters with the value they must have, or a list of values."""
HIDDEN = ("work", "processor", "kind", "memory", "per", "images")
"""Parameters that the words of a claim or of a published number say already."""


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
        for records in self._comparable():
            first = [m for m in records if _fits(m, {**self.where, **self.before})]
            second = [m for m in records if _fits(m, {**self.where, **self.after})]
            for before, after in product(first, second):
                same = across or _place(before) == _place(after)
                if same and _rest(before, sides) == _rest(after, sides):
                    yield self._pair(before, after)
        if self.quantity == "time" and not across:
            against = self.before.get("precision")
            for m in evidence.recorded(self.experiment, "speed-up"):
                fits = _fits(m, {**self.where, **self.after})
                if fits and (against is None or _among(m.parameters.get("against"), against)):
                    yield _one(m, m.median, (m.median, m.median), self._what(m), self.weighed)

    def _comparable(self) -> list[list[Measurement]]:
        """Return the records that may be compared; with ``items``, rates as the times of so many."""
        names = ("time", "throughput") if self.quantity == "time" else (self.quantity,)
        found = [evidence.recorded(self.experiment, name) for name in names]
        if self.items:
            times, rates = found
            times += [replace(m, median=self.items / m.median, unit="s") for m in rates]
            found = [times]
        return found

    def _pair(self, before: Measurement, after: Measurement) -> Found:
        less_is_better = after.unit in ("s", "B")
        over, under = (before, after) if less_is_better else (after, before)
        value = over.median / under.median
        ends = (value, value)
        if over.q1 is not None and under.q1 is not None:
            ends = over.q1 / under.q3, over.q3 / under.q1
        found = _one(after, value, ends, self._what(after, before), self.weighed)
        where = found.where
        if _where(before) != where:
            where += f" against {_where(before)}"
        sources = "; ".join(dict.fromkeys(m.source for m in (after, before) if m.source))
        return replace(found, where=where, date=max(before.date, after.date), source=sources)

    def _what(self, after: Measurement, before: Measurement | None = None) -> str:
        sides = sorted({*self.before, *self.after} - {"device", "memory", "processor"})
        change = []
        if before is not None:
            change = [f"{_said(s, before)} → {_said(s, after)}" for s in sides]
        elif "against" in after.parameters:
            change = [f"{after.parameters['against']} → {after.parameters['precision']}"]
        return ", ".join([_named(after, *sides, "against"), *change])


@dataclass(frozen=True)
class Value:
    """The records of a quantity, times ``scale``.

    With ``items``, a number or the name of a parameter, it is so many over the time.
    """

    experiment: str
    quantity: str = "time"
    where: Selection = field(default_factory=dict)
    scale: float = 1.0
    items: int | str = 0
    weighed: bool = True

    def found(self) -> Iterator[Found]:
        """Yield each record."""
        rates = evidence.recorded(self.experiment, "throughput") if self.items else []
        for m in [*evidence.recorded(self.experiment, self.quantity), *rates]:
            if not _fits(m, self.where):
                continue
            low, high = (m.median, m.median) if m.q1 is None else (m.q1, m.q3)
            value, low, high = (end * self.scale for end in (m.median, low, high))
            if self.items and m.unit == "s":
                n = m.parameters[self.items] if isinstance(self.items, str) else self.items
                value, low, high = n / value, n / high, n / low
            yield _one(m, value, (low, high), _named(m), self.weighed)


def numbers(entries: Iterable[Mapping[str, Any]]) -> tuple[Ratio | Value, ...]:
    """Return what a file of claims or practices lists; an entry may name several experiments."""
    found = []
    for entry in entries:
        names = entry["experiment"]
        for name in [names] if isinstance(names, str) else names:
            found.append((Ratio if "before" in entry else Value)(**{**entry, "experiment": name}))
    return tuple(found)


def on_cpu(m: Measurement) -> bool:
    """Return whether a CPU was measured."""
    return m.device.startswith(("cpu", "a CPU"))


def _fits(m: Measurement, selection: Selection) -> bool:
    for name, wanted in selection.items():
        if name == "device":
            if on_cpu(m) != (wanted == "cpu"):
                return False
        elif not (name in m.parameters and _among(m.parameters[name], wanted)):
            return False
    return True


def _among(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, list) else value == wanted


def _rest(m: Measurement, without: set[str]) -> dict[str, Any]:
    return {name: value for name, value in m.parameters.items() if name not in without}


def _place(m: Measurement) -> tuple[str, ...]:
    return (m.kind, m.machine, m.device, m.torch, m.source)


def _where(m: Measurement) -> str:
    threads = f", {m.threads} threads" if m.threads and on_cpu(m) else ""
    return f"{m.machine}{threads}"


def _one(
    m: Measurement, value: float, ends: tuple[float, float], what: str, weighed: bool
) -> Found:
    return Found(value, *ends, m.kind, what, _where(m), m.date, m.source, weighed, not on_cpu(m))


def _named(m: Measurement, *without: str) -> str:
    """Name what was done: a published number by its own words, another by its experiment."""
    work = say(m.parameters.get("work") or m.experiment.replace("_", " "))
    rest = [name for name in m.parameters if name not in (*HIDDEN, *without)]
    return ", ".join([work, *(_said(name, m) for name in rest)])


def _said(name: str, m: Measurement) -> str:
    """Say what a parameter was: ``"batch 64"``, ``"channels last"``, ``"pinned"``, ``"fp16"``."""
    value, words = m.parameters[name], say(name.replace("_", " "))
    if isinstance(value, bool):
        return words if value else word(f"not {words}")
    if isinstance(value, str):
        return say(value)
    return word(f"{value} workers") if name == "workers" else f"{words} {value}"
