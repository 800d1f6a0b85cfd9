"""Where numbers come from: measured here, recorded on named hardware, modelled, or published.

``recorded/`` holds them in one form, ``recorded/schema.json``: ``machine_*.json`` and ``modelled_*.json``
are written by ``python -m course_utils record``, ``published.json`` by hand. A file is read whole or
refused; ``record --check`` says why. ``published_gpus.json`` holds the makers' peak figures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from course_language import N_, _
from simgpu.profiles import Spread

from . import content, files
from .number_format import amount
from .show import show_table
from .timing import Measurement

FOLDER = content.recorded("")
SCHEMA = 2
KIND_BY_PREFIX = {"machine_": "recorded", "modelled_": "modelled", "published.json": "published"}
"""How the name of a file begins, and the kind of all that is in it."""
_KEYS = (
    N_("time"),
    N_("throughput"),
    N_("rate"),
    N_("peak memory"),
    N_("speed-up"),
    N_("bandwidth"),
    N_("test accuracy"),
)
_MORE_KEYS = (
    N_("by hand"),
    N_("compiled"),
    N_("built in"),
    N_("batch"),
    N_("ranks"),
    N_("size"),
    N_("numbers"),
    N_("workers"),
)


class RecordError(ValueError):
    """A recorded file cannot be used; the message names the file, what is wrong and what to do."""


@dataclass(frozen=True)
class Gpu:
    """A GPU's published peak figures: TFLOP/s, GB/s and GB, and where they are printed."""

    name: str
    compute_capability: str
    fp32_tflops: float
    fp16_tensor_tflops: float
    bf16_tensor_tflops: float | None
    bandwidth_gb_s: float
    memory_gb: float
    source: str


@cache
def published_gpus() -> tuple[Gpu, ...]:
    """Return the published figures of the GPUs the course speaks of."""
    raw = json.loads((FOLDER / "published_gpus.json").read_text(encoding="utf-8"))
    return tuple(Gpu(**gpu) for gpu in raw["gpus"])


def recorded(
    experiment: str, quantity: str = "time", *, folder: Path | None = None, **parameters: Any
) -> list[Measurement]:
    """Return what is known of an experiment: recorded, then modelled, then published, oldest first.

    Parameters
    ----------
    experiment
        Its name, such as ``"matmul"``.
    quantity
        What was measured: ``"time"``, ``"peak memory"``, ``"test accuracy"``, …
    folder
        Where the files are; by default the course's own.
    parameters
        Only records with these parameters, such as ``size=1024``.

    Raises
    ------
    RecordError
        Where a file is refused.
    """
    found = [
        m
        for path in _files(folder or FOLDER)
        for m in read_records(path)
        if (m.experiment, m.quantity) == (experiment, quantity)
        and all(m.parameters.get(key) == value for key, value in parameters.items())
    ]
    order = list(KIND_BY_PREFIX.values())
    return sorted(found, key=lambda m: (order.index(m.kind), m.date))


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.json")) if kind_of_file(path)]


def kind_of_file(path: Path) -> str | None:
    """Return the kind of all that is in a file of this name; None where it is no file of records."""
    return next((kind for start, kind in KIND_BY_PREFIX.items() if path.name.startswith(start)), None)


def read_records(path: Path) -> list[Measurement]:
    """Return the results of one file.

    Raises
    ------
    RecordError
        Where it is refused.
    """
    return list(_read(path, *_state(path)))


@lru_cache(maxsize=64)
def _read(path: Path, changed: int, size: int) -> tuple[Measurement, ...]:
    found = _load(path, changed, size)
    try:
        return tuple(_measurement(found["machine"], result) for result in found["results"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RecordError(
            _(
                "{path} is not a file of records ({type}: {error}): "
                "`record --check {path}` says what is wrong with it."
            ).format(path=path.name, type=type(error).__name__, error=error)
        ) from error


def load(path: Path) -> dict[str, Any]:
    """Return the content of one file as it stands there.

    Raises
    ------
    RecordError
        Where it cannot be read, is not JSON, or says another schema than this copy reads.
    """
    return _load(path, *_state(path))


def _state(path: Path) -> tuple[int, int]:
    """Return when a file was changed last, and its size."""
    try:
        stat = path.stat()
    except OSError as error:
        raise RecordError(
            _("{path} cannot be read: {strerror}.").format(path=path.name, strerror=error.strerror)
        ) from error
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=64)
def _load(path: Path, _changed: int, _size: int) -> dict[str, Any]:
    """Read a file; again only when it has changed."""
    try:
        found = files.parse(files.read_text(path), parse_constant=_reject_constant)
    except files.FileError as error:
        raise RecordError(
            _("{path} cannot be used, {error}. {remedy}").format(path=path.name, error=error, remedy=_REMEDY)
        ) from error
    version = found.get("schema") if isinstance(found, dict) else None
    if version != SCHEMA:
        problem = (
            _("says schema {version}").format(version=version)
            if version is not None
            else _("does not say its schema")
        )
        raise RecordError(
            _("{path} {problem}, and this copy of the course reads schema {schema}. {remedy}").format(
                path=path.name, problem=problem, schema=SCHEMA, remedy=_REMEDY
            )
        )
    return found


_REMEDY = _("Move it away and write it anew with `python -m course_utils record`.")


def _reject_constant(text: str) -> float:
    raise ValueError(_("{text} is no number that JSON knows").format(text=text))


# --- reading ------------------------------------------------------------------------------------


def label(experiment: str, parameters: Mapping[str, Any]) -> str:
    """Name an experiment with its parameters: ``"matmul size 32"``."""
    return " ".join([experiment, *(f"{name} {value}" for name, value in parameters.items())])


def _parameter(name: str, value: Any) -> str:
    """Write a parameter; a text says by itself what it is."""
    return _(value) if isinstance(value, str) else f"{_(name)} {value}"


def _measurement(machine: Mapping[str, Any] | None, result: Mapping[str, Any]) -> Measurement:
    device = result["device"]
    part = "cpu" if device.startswith("cpu") else "device"
    same = ("experiment", "parameters", "median", "q1", "q3", "n", "unit", "quantity", "kind")
    return Measurement(
        label=" ".join([result["experiment"], *(_parameter(*p) for p in result["parameters"].items())]),
        device=device,
        machine=_(device) if machine is None else machine[part],
        torch="" if machine is None else machine["torch"],
        threads=result.get("threads"),
        date=result["date"],
        source=_cite(result.get("source")),
        **{field: result[field] for field in same},
    )


def _cite(source: Mapping[str, str] | None) -> str:
    parts = map(source.get, ("title", "date", "url")) if source else ()
    return ", ".join(part for part in parts if part)


# --- cards --------------------------------------------------------------------------------------


def card(
    *measurements: Measurement,
    experiment: str = "",
    quantity: str = "time",
    folder: Path | None = None,
    **parameters: Any,
) -> None:
    """Show the learner's numbers, and below them what is known of the same experiment.

    It is a table, and above it a picture where there is something to compare with.

    Parameters
    ----------
    measurements
        What was just measured.
    experiment, quantity, parameters
        Which recorded, modelled and published numbers to set beside them, such as
        ``experiment="matmul", size=1024``.
    folder
        Where the recorded files are; by default the course's own.
    """
    others: list[Measurement] = []
    note = ""
    if experiment:
        try:
            others = recorded(experiment, quantity, folder=folder, **parameters)
        except RecordError as error:
            note = _("Nothing is shown beside it: {error}").format(error=error)
        mine = {m.machine for m in measurements if m.kind == "modelled"}
        others = [m for m in others if m.kind != "modelled" or m.machine not in mine]
        if not (others or note):
            note = _("Nobody has recorded {label} yet.").format(label=label(experiment, parameters))
    rows = [*measurements, *others]
    if others and len(rows) > 1 and len({m.unit for m in rows}) == 1:
        from . import plots

        plots.dots(rows, [*(m.label for m in measurements), *_names(others)])
    _show_table(rows, note)


def _names(others: Sequence[Measurement]) -> list[str]:
    """Name each by its machine, and by the parameters in which they differ."""
    values: dict[str, set[Any]] = {}
    for m in others:
        for parameter, value in m.parameters.items():
            values.setdefault(parameter, set()).add(value)
    return [
        ", ".join([m.machine, *(_parameter(k, v) for k, v in m.parameters.items() if len(values[k]) > 1)])
        for m in others
    ]


def _between(m: Measurement) -> str:
    low, high = m.interval
    if low is None or high is None or low == high:
        return ""
    ends = " – ".join(amount(end, m.unit, m.quantity) for end in (low, high))
    return ends + _(", likely") if m.likely else ends


def _basis(likely: Spread) -> str:
    cards = _("all cards") if likely.card == "all" else _("the {card}").format(card=likely.card)
    work = _("single operators") if likely.work == "operator" else _("steps of networks")
    return _("Likely: of {n:,} {work} timed on {cards}, 8 of 10 lay within such a range.").format(
        n=likely.n, work=work, cards=cards
    )


def _show_table(measurements: Sequence[Measurement], note: str) -> None:
    head = (_("What"), _("Median"), _("Quartiles"), "n", _("Kind"), _("Where"), _("When"))
    rows = [
        (
            m.label,
            m.written(),
            _between(m),
            m.n or "",
            m.kind,
            _("{device}: {machine}, torch {torch}").format(device=m.device, machine=m.machine, torch=m.torch)
            if m.torch
            else m.machine,
            m.date,
        )
        for m in measurements
    ]
    bases = sorted({_basis(m.likely) for m in measurements if m.likely})
    sources = sorted({_("Published: {source}.").format(source=m.source) for m in measurements if m.source})
    show_table(head, rows, [m.kind for m in measurements], "\n".join([*bases, *sources, note]))
