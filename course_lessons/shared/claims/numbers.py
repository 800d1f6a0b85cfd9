"""How the numbers that speak to a claim are formed from records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from course_language import say, spoken, word
from course_utils import evidence
from course_utils.timing import Measurement

spoken("as given", "light", "heavy", "loader epoch", "channels last", "benchmark")
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
            accelerator=not on_cpu(after),
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
    quantity: str = "time"

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
            if on_cpu(m) != (wanted == "cpu"):
                return False
        elif not (name in m.parameters and _among(m.parameters[name], wanted)):
            return False
    return True


def on_cpu(m: Measurement) -> bool:
    """Return whether a CPU was measured."""
    return m.device.startswith(("cpu", "a CPU"))


def _among(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, tuple) else value == wanted


def _rest(m: Measurement, without: set[str]) -> dict[str, Any]:
    return {name: value for name, value in m.parameters.items() if name not in without}


def _place(m: Measurement) -> tuple[str, ...]:
    return (m.kind, m.machine, m.device, m.torch, m.source)


def _where(m: Measurement) -> str:
    threads = f", {m.threads} threads" if m.threads and on_cpu(m) else ""
    return f"{m.machine}{threads}"


HIDDEN = ("processor", "kind", "memory", "per", "images")
"""Parameters that the words of a claim or of a published number say already."""


def _named(experiment: str, parameters: Mapping[str, Any]) -> str:
    """Name what was done: a published number by its own words, another by its experiment."""
    work = say(parameters.get("work") or experiment.replace("_", " "))
    rest = [name for name in parameters if name not in ("work", *HIDDEN)]
    return ", ".join([work, *(_said(name, parameters) for name in rest)])


def _said(name: str, m: Measurement | Mapping[str, Any]) -> str:
    """Say what a parameter was: ``"batch 64"``, ``"channels last"``, ``"pinned"``, ``"fp16"``."""
    value = (m.parameters if isinstance(m, Measurement) else m)[name]
    words = say(name.replace("_", " "))
    if isinstance(value, bool):
        return words if value else word(f"not {words}")
    return (
        say(value)
        if isinstance(value, str)
        else word(f"{value} workers")
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
    return Found(value, low, high, m.kind, what, where, m.date, m.source, weighed, not on_cpu(m))
