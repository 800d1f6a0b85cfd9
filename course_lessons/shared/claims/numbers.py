"""Computes the numbers that support or refute a claim from records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from course_language import N_, _
from course_utils import evidence
from course_utils.timing import Measurement

_KEYS = (
    N_("as given"),
    N_("light"),
    N_("heavy"),
    N_("loader epoch"),
    N_("channels last"),
    N_("benchmark"),
    N_("pure bf16"),
)
Selection = Mapping[str, Any]
"""Parameters of records with the value they must have, or a list of allowed values."""
HIDDEN = ("work", "processor", "kind", "memory", "per", "images")
"""Parameters left out of descriptions, because the text of the claim already says them."""


@dataclass(frozen=True)
class DataPoint:
    """A number relevant to a claim, in the claim's unit, with its range, kind and source.

    ``weighed`` is False for a number that is only related, such as the same setting on a CPU, or another
    task.
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
    """A speed-up, or a reduction in size: how many times as fast, or as small, ``after`` is as ``before``.

    Two records form a ratio if they are from one machine and agree in all parameters that ``before`` and
    ``after`` do not name. If these name a ``device``, ``"cpu"`` or ``"accelerator"``, or a ``memory``, the
    machines may differ. A throughput is compared with a time if ``items`` gives the number of items per time.
    ``where`` selects records of both sides.
    """

    experiment: str
    before: Selection
    after: Selection
    quantity: str = "time"
    where: Selection = field(default_factory=dict)
    weighed: bool = True
    items: int = 0

    def points(self) -> Iterator[DataPoint]:
        """Yield a number for each pair of comparable records, and for each published speed-up."""
        sides = {*self.before, *self.after}
        across = bool({"device", "memory"} & sides)
        for records in self._comparable_records():
            first = [m for m in records if _matches(m, {**self.where, **self.before})]
            second = [m for m in records if _matches(m, {**self.where, **self.after})]
            for before, after in product(first, second):
                same = across or _environment(before) == _environment(after)
                if same and _other_parameters(before, sides) == _other_parameters(after, sides):
                    yield self._ratio_of(before, after)
        if self.quantity == "time" and not across:
            against = self.before.get("precision")
            for m in evidence.recorded(self.experiment, "speed-up"):
                fits = _matches(m, {**self.where, **self.after})
                if fits and (against is None or _is_one_of(m.parameters.get("against"), against)):
                    yield _data_point(
                        m, m.median, (m.median, m.median), self._describe_change(m), self.weighed
                    )

    def _comparable_records(self) -> list[list[Measurement]]:
        """Return lists of comparable records; with ``items``, throughputs are converted to times."""
        names = ("time", "throughput") if self.quantity == "time" else (self.quantity,)
        records = [evidence.recorded(self.experiment, name) for name in names]
        if self.items:
            times, rates = records
            times += [replace(m, median=self.items / m.median, unit="s") for m in rates]
            records = [times]
        return records

    def _ratio_of(self, before: Measurement, after: Measurement) -> DataPoint:
        """Return the ratio of two records; its range is from their quartiles, if both have some."""
        less_is_better = after.unit in ("s", "B")
        over, under = (before, after) if less_is_better else (after, before)
        value = over.median / under.median
        ends = (value, value)
        if over.q1 is not None and under.q1 is not None:
            ends = over.q1 / under.q3, over.q3 / under.q1
        point = _data_point(after, value, ends, self._describe_change(after, before), self.weighed)
        where = point.where
        if _machine(before) != where:
            where += _(" against {machine}").format(machine=_machine(before))
        sources = "; ".join(dict.fromkeys(m.source for m in (after, before) if m.source))
        return replace(point, where=where, date=max(before.date, after.date), source=sources)

    def _describe_change(self, after: Measurement, before: Measurement | None = None) -> str:
        """Describe what was measured, and what changed from ``before`` to ``after``."""
        sides = sorted({*self.before, *self.after} - {"device", "memory", "processor"})
        change = []
        if before is not None:
            change = [f"{_describe_parameter(s, before)} → {_describe_parameter(s, after)}" for s in sides]
        elif "against" in after.parameters:
            change = [f"{after.parameters['against']} → {after.parameters['precision']}"]
        return ", ".join([_describe(after, *sides, "against"), *change])


@dataclass(frozen=True)
class Value:
    """All records of a quantity, multiplied by ``scale``.

    With ``items`` (a number, or the name of a parameter), times are converted to rates: items per second.
    """

    experiment: str
    quantity: str = "time"
    where: Selection = field(default_factory=dict)
    scale: float = 1.0
    items: int | str = 0
    weighed: bool = True

    def points(self) -> Iterator[DataPoint]:
        """Yield a number for each record that matches ``where``."""
        rates = evidence.recorded(self.experiment, "throughput") if self.items else []
        for m in [*evidence.recorded(self.experiment, self.quantity), *rates]:
            if not _matches(m, self.where):
                continue
            low, high = (m.median, m.median) if m.q1 is None else (m.q1, m.q3)
            value, low, high = (end * self.scale for end in (m.median, low, high))
            if self.items and m.unit == "s":
                n = m.parameters[self.items] if isinstance(self.items, str) else self.items
                value, low, high = n / value, n / high, n / low
            yield _data_point(m, value, (low, high), _describe(m), self.weighed)


def numbers(entries: Iterable[Mapping[str, Any]]) -> tuple[Ratio | Value, ...]:
    """Return a `Ratio`, for entries with ``"before"``, or `Value` for each entry and experiment."""
    listed = []
    for entry in entries:
        names = entry["experiment"]
        for name in [names] if isinstance(names, str) else names:
            listed.append((Ratio if "before" in entry else Value)(**{**entry, "experiment": name}))
    return tuple(listed)


def on_cpu(m: Measurement) -> bool:
    """Return whether a measurement was made on a CPU."""
    return m.device.startswith(("cpu", "a CPU"))


def _matches(m: Measurement, selection: Selection) -> bool:
    """Return whether a record has the selected parameters; ``"device"`` is ``"cpu"`` or anything else."""
    for name, wanted in selection.items():
        if name == "device":
            if on_cpu(m) != (wanted == "cpu"):
                return False
        elif not (name in m.parameters and _is_one_of(m.parameters[name], wanted)):
            return False
    return True


def _is_one_of(value: Any, wanted: Any) -> bool:
    """Return whether a value equals ``wanted``, or one of its items if it is a list."""
    return value in wanted if isinstance(wanted, list) else value == wanted


def _other_parameters(m: Measurement, without: set[str]) -> dict[str, Any]:
    """Return the parameters of a record without those named."""
    return {name: value for name, value in m.parameters.items() if name not in without}


def _environment(m: Measurement) -> tuple[str, ...]:
    """Return what two records must share to be compared: kind, machine, device, PyTorch's version, source."""
    return (m.kind, m.machine, m.device, m.torch, m.source)


def _machine(m: Measurement) -> str:
    """Return the machine's name, for a CPU with its number of threads."""
    threads = _(", {threads} threads").format(threads=m.threads) if m.threads and on_cpu(m) else ""
    return f"{m.machine}{threads}"


def _data_point(
    m: Measurement, value: float, ends: tuple[float, float], what: str, weighed: bool
) -> DataPoint:
    """Return a `DataPoint` with the machine, date and source of a record."""
    return DataPoint(value, *ends, m.kind, what, _machine(m), m.date, m.source, weighed, not on_cpu(m))


def _describe(m: Measurement, *without: str) -> str:
    """Describe a record: its ``work``, or else its experiment, and its parameters except ``without``."""
    work = _(m.parameters.get("work") or m.experiment.replace("_", " "))
    rest = [name for name in m.parameters if name not in (*HIDDEN, *without)]
    return ", ".join([work, *(_describe_parameter(name, m) for name in rest)])


def _describe_parameter(name: str, m: Measurement) -> str:
    """Describe a parameter's value: ``"batch 64"``, ``"channels last"``, ``"pinned"``, ``"fp16"``."""
    value, words = m.parameters[name], _(name.replace("_", " "))
    if isinstance(value, bool):
        return words if value else _("not {words}").format(words=words)
    if isinstance(value, str):
        return _(value)
    return _("{value} workers").format(value=value) if name == "workers" else f"{words} {value}"
