"""Compare measurements with known results: recorded on named hardware, modelled, or published.

They are in ``recorded/``, in the format of ``recorded/schema.json``: ``machine_*.json`` and
``modelled_*.json`` are written by ``python -m course_utils record``, ``published.json`` by hand. A file with
an error is refused as a whole; ``record --check`` says why. ``published_gpus.json`` has the makers' peak
figures.
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
"""The prefix of a file's name, to the kind of all its results."""
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
    """A file of records cannot be used; the message names the file, the problem and what to do."""


@dataclass(frozen=True)
class Gpu:
    """A GPU's published peak figures in TFLOP/s, GB/s and GB, and their source."""

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
    """Return the published peak figures of the GPUs that the course mentions."""
    raw = json.loads((FOLDER / "published_gpus.json").read_text(encoding="utf-8"))
    return tuple(Gpu(**gpu) for gpu in raw["gpus"])


def recorded(
    experiment: str, quantity: str = "time", *, folder: Path | None = None, **parameters: Any
) -> list[Measurement]:
    """Return the known results of an experiment: recorded, then modelled, then published, oldest first.

    Parameters
    ----------
    experiment
        The experiment's name, such as ``"matmul"``.
    quantity
        What was measured: ``"time"``, ``"peak memory"``, ``"test accuracy"``, …
    folder
        The folder of the files; by default the course's own.
    parameters
        Return only results with these parameters, such as ``size=1024``.

    Raises
    ------
    RecordError
        If a file cannot be used.
    """
    results = [
        m
        for path in _files(folder or FOLDER)
        for m in read_records(path)
        if (m.experiment, m.quantity) == (experiment, quantity)
        and all(m.parameters.get(key) == value for key, value in parameters.items())
    ]
    order = list(KIND_BY_PREFIX.values())
    return sorted(results, key=lambda m: (order.index(m.kind), m.date))


def _files(folder: Path) -> list[Path]:
    """Return the paths of the files of records in a folder, sorted by name."""
    return [path for path in sorted(folder.glob("*.json")) if kind_of_file(path)]


def kind_of_file(path: Path) -> str | None:
    """Return the kind of the results in a file, judged by its name; None if it is not a file of records."""
    return next((kind for start, kind in KIND_BY_PREFIX.items() if path.name.startswith(start)), None)


def read_records(path: Path) -> list[Measurement]:
    """Return the results of one file, in its order; cached until the file changes.

    Raises
    ------
    RecordError
        If it cannot be used.
    """
    return list(_read_cached(path, *_mtime_and_size(path)))


@lru_cache(maxsize=64)
def _read_cached(path: Path, mtime_ns: int, size: int) -> tuple[Measurement, ...]:
    """Return the results of a file; cached by path, modification time and size.

    `RecordError` if it cannot be used.
    """
    content = _load_cached(path, mtime_ns, size)
    try:
        return tuple(_measurement(content["machine"], result) for result in content["results"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RecordError(
            _(
                "{path} is not a file of records ({type}: {error}): "
                "`record --check {path}` says what is wrong with it."
            ).format(path=path.name, type=type(error).__name__, error=error)
        ) from error


def load(path: Path) -> dict[str, Any]:
    """Return the parsed JSON of one file of records, unchecked but for its schema version.

    The dict itself is cached until the file changes, so don't modify it. ``checked`` in
    ``tools/records/checks.py`` validates the content too.

    Raises
    ------
    RecordError
        If it cannot be read, is not JSON, or has another schema version than `SCHEMA`.
    """
    return _load_cached(path, *_mtime_and_size(path))


def _mtime_and_size(path: Path) -> tuple[int, int]:
    """Return a file's modification time in ns and its size in bytes: the key of the caches.

    `RecordError` if there is no such file, or it can't be reached.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise RecordError(
            _("{path} cannot be read: {strerror}.").format(path=path.name, strerror=error.strerror)
        ) from error
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=64)
def _load_cached(path: Path, _mtime_ns: int, _size: int) -> dict[str, Any]:
    """Read and parse a file; cached by path, modification time and size.

    The dict is shared by all callers, so don't modify it. `RecordError` as for `load`.
    """
    try:
        content = files.parse(files.read_text(path), parse_constant=_reject_constant)
    except files.FileError as error:
        raise RecordError(
            _("{path} cannot be used, {error}. {remedy}").format(path=path.name, error=error, remedy=_REMEDY)
        ) from error
    version = content.get("schema") if isinstance(content, dict) else None
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
    return content


_REMEDY = _("Move it away and write it anew with `python -m course_utils record`.")


def _reject_constant(text: str) -> float:
    """Raise ValueError for NaN and Infinity, which Python's JSON parser accepts."""
    raise ValueError(_("{text} is no number that JSON knows").format(text=text))


# --- reading ------------------------------------------------------------------------------------


def label(experiment: str, parameters: Mapping[str, Any]) -> str:
    """Return an experiment's name with its parameters: ``"matmul size 32"``."""
    return " ".join([experiment, *(f"{name} {value}" for name, value in parameters.items())])


def _parameter_text(name: str, value: Any) -> str:
    """Return a parameter as translated text: its name and value, or a text value alone."""
    return _(value) if isinstance(value, str) else f"{_(name)} {value}"


def _measurement(machine: Mapping[str, Any] | None, result: Mapping[str, Any]) -> Measurement:
    """Return the `Measurement` of one result in a file of records; ``machine`` is the file's, if any.

    A malformed result raises KeyError, TypeError, AttributeError or ValueError.
    """
    device = result["device"]
    part = "cpu" if device.startswith("cpu") else "device"
    same = ("experiment", "parameters", "median", "q1", "q3", "n", "unit", "quantity", "kind")
    return Measurement(
        label=" ".join([result["experiment"], *(_parameter_text(*p) for p in result["parameters"].items())]),
        device=device,
        machine=_(device) if machine is None else machine[part],
        torch="" if machine is None else machine["torch"],
        threads=result.get("threads"),
        date=result["date"],
        source=_citation(result.get("source")),
        **{field: result[field] for field in same},
    )


def _citation(source: Mapping[str, str] | None) -> str:
    """Return a source as text: its title, date and URL, as far as it has them; "" for none."""
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
    """Show a table of the learner's measurements and, below them, known results of the same experiment.

    If there are any, and all have one unit, a plot of them is shown above. A `RecordError` becomes a note.

    Parameters
    ----------
    measurements
        The measurements just taken.
    experiment, quantity, parameters
        Which recorded, modelled and published results to show, as for `recorded`, such as
        ``experiment="matmul", size=1024``.
    folder
        The folder of the files of records; by default the course's own.
    """
    others: list[Measurement] = []
    note = ""
    if experiment:
        try:
            others = recorded(experiment, quantity, folder=folder, **parameters)
        except RecordError as error:
            note = _("Nothing is shown beside it: {error}").format(error=error)
        machines = {m.machine for m in measurements if m.kind == "modelled"}
        others = [m for m in others if m.kind != "modelled" or m.machine not in machines]
        if not (others or note):
            note = _("Nobody has recorded {label} yet.").format(label=label(experiment, parameters))
    rows = [*measurements, *others]
    if others and len(rows) > 1 and len({m.unit for m in rows}) == 1:
        from . import plots

        plots.dots(rows, [*(m.label for m in measurements), *_names(others)])
    _show_table(rows, note)


def _names(others: Sequence[Measurement]) -> list[str]:
    """Return a label for each: its machine, and those parameters whose values differ among them."""
    values: dict[str, set[Any]] = {}
    for m in others:
        for parameter, value in m.parameters.items():
            values.setdefault(parameter, set()).add(value)
    return [
        ", ".join(
            [m.machine, *(_parameter_text(k, v) for k, v in m.parameters.items() if len(values[k]) > 1)]
        )
        for m in others
    ]


def _interval_text(m: Measurement) -> str:
    """Return a measurement's quartiles, or likely range, as text; "" if it has none."""
    low, high = m.interval
    if low is None or high is None or low == high:
        return ""
    ends = " – ".join(amount(end, m.unit, m.quantity) for end in (low, high))
    return ends + _(", likely") if m.likely else ends


def _spread_note(likely: Spread) -> str:
    """Return the sentence that says on how many timings a likely range is based."""
    cards = _("all cards") if likely.card == "all" else _("the {card}").format(card=likely.card)
    work = _("single operators") if likely.work == "operator" else _("steps of networks")
    return _("Likely: of {n:,} {work} timed on {cards}, 8 of 10 lay within such a range.").format(
        n=likely.n, work=work, cards=cards
    )


def _show_table(measurements: Sequence[Measurement], note: str) -> None:
    """Show measurements as a table, with sources and a note below it."""
    head = (_("What"), _("Median"), _("Quartiles"), "n", _("Kind"), _("Where"))
    rows = [
        (m.label, m.written(), _interval_text(m), m.n or "", m.kind, m.machine or m.device)
        for m in measurements
    ]
    runs = dict.fromkeys(
        _("{machine} ({device}): torch {torch}, {date}.").format(
            machine=m.machine, device=m.device, torch=m.torch, date=m.date
        )
        for m in measurements
        if m.torch
    )
    bases = sorted({_spread_note(m.likely) for m in measurements if m.likely})
    published = sorted({_("Published: {source}.").format(source=m.source) for m in measurements if m.source})
    show_table(head, rows, [m.kind for m in measurements], note, [*runs, *bases, *published])
