"""Where numbers come from: measured here, recorded on named hardware, modelled, or published.

``recorded/`` holds them in one form, ``recorded/schema.json``: ``machine_*.json`` and ``modelled_*.json``
are written by ``python -m course_utils record``, ``published.json`` by hand. A file is read whole or
refused; `problems` says why. ``published_gpus.json`` holds the makers' peak figures.
"""

from __future__ import annotations

import html
import json
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from .show import Bundle, amount, is_share, show, table
from .timing import Measurement

FOLDER = Path(__file__).parent / "recorded"
SCHEMA = 2
KINDS = {"machine_": "recorded", "modelled_": "modelled", "published.json": "published"}
"""How the name of a file begins, and the kind of all that is in it."""

TOLERANCE = 1.05
"""How far above a peak a rate may lie: a GPU's clock can exceed the one its figures are stated for."""


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
    order = list(KINDS.values())
    return sorted(found, key=lambda m: (order.index(m.kind), m.date))


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.json")) if _kind(path)]


def _kind(path: Path) -> str | None:
    return next((kind for start, kind in KINDS.items() if path.name.startswith(start)), None)


def read_records(path: Path) -> list[Measurement]:
    """Return the results of one file.

    Raises
    ------
    RecordError
        Where it is refused.
    """
    machine, results = (content := load(path))["machine"], content["results"]
    return [_measurement(machine, result) for result in results]


def load(path: Path) -> dict[str, Any]:
    """Return the content of one file as it stands there.

    Raises
    ------
    RecordError
        Where the file is refused: the message names the first problem that `problems` finds.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise RecordError(f"{path.name} cannot be read: {error.strerror}.") from error
    content, found = _read(path, stat.st_mtime_ns, stat.st_size)
    if found:
        more = f" ({len(found) - 1} more: `record --check {path.name}`)" if len(found) > 1 else ""
        raise RecordError(found[0] + more)
    return content


def problems(path: Path) -> list[str]:
    """Return everything for which a file is refused, one sentence each; nothing where it is good."""
    try:
        stat = path.stat()
    except OSError as error:
        return [f"{path.name} cannot be read: {error.strerror}."]
    return list(_read(path, stat.st_mtime_ns, stat.st_size)[1])


@lru_cache(maxsize=64)
def _read(path: Path, _changed: int, _size: int) -> tuple[Any, tuple[str, ...]]:
    """Return a file's content and its problems; read again only when the file has changed."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except (
        OSError,
        ValueError,
    ) as error:  # a JSONDecodeError and a UnicodeDecodeError are ValueErrors
        return None, (f"{path.name} is not JSON: {error}. {ANEW}",)
    version = content.get("schema") if isinstance(content, dict) else None
    if version != SCHEMA:
        said = f"says schema {version}" if version is not None else "does not say its schema"
        return None, (
            f"{path.name} {said}, and this copy of the course reads schema {SCHEMA}. {ANEW}",
        )
    return content, tuple(faults(path, content))


def faults(path: Path, content: Mapping[str, Any]) -> list[str]:
    """Return why a file of this name and content would be refused, one sentence each."""
    return list(_misshapen(path.name, content)) or list(_senseless(path, content))


ANEW = "Move it away and write it anew with `python -m course_utils record`."


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number that JSON knows")


# --- form: what schema.json says ----------------------------------------------------------------


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    schema = json.loads((FOLDER / "schema.json").read_text(encoding="utf-8"))
    checker = Draft202012Validator.FORMAT_CHECKER
    return Draft202012Validator(schema, format_checker=checker)


def _misshapen(name: str, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield for each part of the file the most telling way in which it breaks the schema."""
    from jsonschema.exceptions import best_match

    parts: dict[tuple[Any, ...], list[Any]] = {}
    for error in _validator().iter_errors(content):
        parts.setdefault(tuple(error.absolute_path)[:2], []).append(error)
    for errors in parts.values():
        error = best_match(errors)
        place = list(error.absolute_path)
        where = name
        if place[:1] == ["results"] and len(place) > 1:
            where += f", {_title(place[1], content['results'][place[1]])}"
            place = place[2:]
        field = ".".join(map(str, place))
        said = textwrap.shorten(error.message, 160, placeholder=" …")
        about = error.schema.get("description", "")
        yield (
            f"{where}: {f'{field}: ' if field else ''}{said}"
            f"{f' ({about})' if about else ''}. Correct it, or record it anew."
        )


def _title(index: int, result: Any) -> str:
    """Name a result, as far as it has a name: ``result 3 (matmul size 32, time)``."""
    if not isinstance(result, dict):
        return f"result {index + 1}"
    parameters = result.get("parameters")
    words = [
        label(str(result.get("experiment")), parameters if isinstance(parameters, dict) else {}),
        str(result.get("quantity")),
    ]
    return f"result {index + 1} ({', '.join(words)})"


def label(experiment: str, parameters: Mapping[str, Any]) -> str:
    """Name an experiment with its parameters: ``"matmul size 32"``."""
    return " ".join([experiment, *(f"{name} {value}" for name, value in parameters.items())])


def _said(name: str, value: Any) -> str:
    """Write a parameter; a text says by itself what it is."""
    return value if isinstance(value, str) else f"{name} {value}"


# --- sense: what no schema can say --------------------------------------------------------------


def _senseless(path: Path, content: Mapping[str, Any]) -> Iterator[str]:
    kind = _kind(path)
    if kind is None:
        yield (
            f"{path.name}: its name says no kind. Name it machine_….json for what was recorded, "
            "modelled_….json for what was modelled, or published.json."
        )
        return
    if (content["machine"] is None) != (kind == "published"):
        said = "a machine" if kind == "published" else "no machine"
        yield f"{path.name}: {kind} results, and {said}. Correct `machine`."
        return
    if problem := _future(content["date"]):
        yield f"{path.name}: {problem}"
    seen: dict[str, int] = {}
    for index, result in enumerate(content["results"]):
        where = f"{path.name}, {_title(index, result)}"
        if result["kind"] != kind:
            yield f"{where}: its kind is {result['kind']}, and a file of this name holds what is {kind}."
        for problem in (
            _future(result["date"]),
            _impossible(result),
            _too_fast(content["machine"], result),
        ):
            if problem:
                yield f"{where}: {problem}"
        key = json.dumps(
            [result.get(k) for k in ("experiment", "parameters", "quantity", "device", "source")],
            sort_keys=True,
        )
        if key in seen:
            yield f"{where}: result {seen[key] + 1} is of the same thing. Take one of them out."
        seen.setdefault(key, index)


def _future(day: str) -> str | None:
    if date.fromisoformat(day) <= date.today() + timedelta(days=1):  # time zones
        return None
    return (
        f"{day} is in the future (today is {date.today()}). Set the clock that is wrong, of this "
        "machine or of the one that recorded it, and record anew."
    )


def _impossible(result: Mapping[str, Any]) -> str | None:
    figures = {name: result[name] for name in ("q1", "median", "q3") if result[name] is not None}
    wrong = [f"{name} {value}" for name, value in figures.items() if not math.isfinite(value)]
    if wrong:
        return f"{wrong[0]} is not a finite number. Record it anew."
    if list(figures.values()) != sorted(figures.values()):
        order = ", ".join(f"{name} {value:g}" for name, value in figures.items())
        return f"the quartiles do not enclose the median ({order}). Record it anew."
    share = result["unit"] == "1" and is_share(result["quantity"])
    for name, value in figures.items():
        if share and not 0 <= value <= 1:
            return f"{name} {value:g} is no share: it lies outside 0 to 1. Record it anew."
        if value <= 0 and (result["unit"] != "1" or result["quantity"] == "speed-up"):
            return f"{name} {value:g} {result['unit']} is not above zero. Record it anew."
    return None


@dataclass(frozen=True)
class Ceiling:
    """The most that a chip can do, FLOP/s and bytes/s, and who says so."""

    flops: float
    bytes: float
    source: str


ANY_CHIP = Ceiling(
    flops=4 * 2.5e15,
    bytes=4 * 8e12,
    source="four times a GPU of NVIDIA's GB200 NVL72: datasheet, 2024, without sparsity",
)
"""For chips the course has no figures of, newer ones too: it stops a wrong unit, not a small mistake."""

CYCLES, FLOPS_A_CYCLE, MATRIX_FLOPS_A_CYCLE = 6e9, 64, 2048
"""What a CPU core can at most do: 6 GHz; two AVX-512 units of 16 float32 multiply-adds; one AMX unit of 1024 in bfloat16."""

CACHE = 256e6
"""Work that moves fewer bytes may be served by a GPU's cache, which is faster than its memory."""


def ceiling(machine: Mapping[str, Any] | None, device: str, matrix_units: bool) -> Ceiling:
    """Return the most that a device of a machine can do.

    Parameters
    ----------
    machine
        The machine as its file describes it; None for a published number.
    device
        The device as the result names it.
    matrix_units
        Whether tensor cores, or a CPU's matrix units, may have done the arithmetic.
    """
    if machine is not None and device.startswith("cpu"):
        cycle = MATRIX_FLOPS_A_CYCLE if matrix_units else FLOPS_A_CYCLE
        cores = machine["cores"]
        source = f"{cores} cores × 6 GHz × {cycle} FLOPs a cycle"
        return Ceiling(cores * CYCLES * cycle, ANY_CHIP.bytes, source)
    name = device if machine is None else machine["device"]
    words = re.split(r"[^A-Za-z0-9]+", name)
    for gpu in published_gpus():
        if gpu.name.split()[1] in words:
            tflops = gpu.fp16_tensor_tflops if matrix_units else gpu.fp32_tflops
            return Ceiling(tflops * 1e12, gpu.bandwidth_gb_s * 1e9, gpu.source)
    return ANY_CHIP


def _too_fast(machine: Mapping[str, Any] | None, result: Mapping[str, Any]) -> str | None:
    """Say which rate no such chip can reach; nothing where the work is not known in numbers."""
    from .experiments import EXPERIMENTS

    experiment = EXPERIMENTS.get(result["experiment"])
    matrix_units = experiment is None or experiment.matrix_units
    most = ceiling(machine, result["device"], matrix_units)
    for unit, rate in _rates(experiment, result):
        peak = most.flops if unit == "FLOP/s" else most.bytes
        if rate > TOLERANCE * peak:
            return (
                f"{amount(rate, unit)} is above the peak of {amount(peak, unit)} ({most.source}). "
                "Was the device waited for? Record it anew."
            )
    return None


def _rates(experiment: Any, result: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    if result["unit"] in ("FLOP/s", "B/s"):
        yield result["unit"], result["median"]
    fits = experiment is not None and experiment.takes(result["parameters"])
    if fits and result["quantity"] == "time" and result["median"] > 0:
        if experiment.flops:
            yield "FLOP/s", experiment.flops(result["parameters"]) / result["median"]
        if experiment.bytes and (moved := experiment.bytes(result["parameters"])) >= CACHE:
            yield "B/s", moved / result["median"]


# --- reading ------------------------------------------------------------------------------------


def _measurement(machine: Mapping[str, Any] | None, result: Mapping[str, Any]) -> Measurement:
    device = result["device"]
    part = "cpu" if device.startswith("cpu") else "device"
    same = ("experiment", "parameters", "median", "q1", "q3", "n", "unit", "quantity", "kind")
    return Measurement(
        label=" ".join([result["experiment"], *(_said(*p) for p in result["parameters"].items())]),
        device=device,
        machine=device if machine is None else machine[part],
        torch="" if machine is None else machine["torch"],
        threads=result.get("threads"),
        date=result["date"],
        source=_cite(result.get("source")),
        **{field: result[field] for field in same},
    )


def _cite(source: Mapping[str, str] | None) -> str:
    if source is None:
        return ""
    parts = (source["title"], source.get("date"), source.get("url"))
    return ", ".join(part for part in parts if part)


def as_result(m: Measurement) -> dict[str, Any]:
    """Return a measurement as a result of a file: what was measured becomes what is recorded."""
    # The last digits of the virtual clock are rounding; bytes are exact.
    digits = 6 if m.kind == "modelled" and m.unit != "B" else 17
    return {
        "experiment": m.experiment,
        "parameters": dict(m.parameters),
        "quantity": m.quantity,
        "unit": m.unit,
        **{name: float(f"{getattr(m, name):.{digits}g}") for name in ("median", "q1", "q3")},
        "n": m.n,
        "device": m.device,
        "threads": m.threads,
        "date": m.date,
        "kind": "recorded" if m.kind == "measured" else m.kind,
    }


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
            note = f"Nothing is shown beside it: {error}"
        mine = {m.machine for m in measurements if m.kind == "modelled"}
        others = [m for m in others if m.kind != "modelled" or m.machine not in mine]
        if not (others or note):
            note = f"Nobody has recorded {label(experiment, parameters)} yet."
    rows = [*measurements, *others]
    if others and len(rows) > 1 and len({m.unit for m in rows}) == 1:
        from . import plots

        plots.dots(rows, [*(m.label for m in measurements), *_names(others)])
    show(_table(rows, note))


def _names(others: Sequence[Measurement]) -> list[str]:
    """Name each by its machine, and by the parameters in which they differ."""
    values: dict[str, set[Any]] = {}
    for m in others:
        for parameter, value in m.parameters.items():
            values.setdefault(parameter, set()).add(value)
    return [
        ", ".join(
            [m.machine, *(_said(k, v) for k, v in m.parameters.items() if len(values[k]) > 1)]
        )
        for m in others
    ]


def _table(rows: Sequence[Measurement], note: str) -> Bundle:
    head = ("What", "Median", "Quartiles", "n", "Kind", "Where", "When")
    cells = [
        (
            m.label,
            m.written(),
            f"{m.written('q1')} – {m.written('q3')}" if m.q1 != m.q3 else "",
            m.n or "",
            m.kind,
            f"{m.device}: {m.machine}, torch {m.torch}" if m.torch else m.machine,
            m.date,
        )
        for m in rows
    ]
    text, page = table(head, cells, [m.kind for m in rows])
    sources = sorted({f"Published: {m.source}." for m in rows if m.source})
    for line in [*sources, *([note] if note else [])]:
        text += f"\n{line}"
        page += f"<div><small>{html.escape(line)}</small></div>"
    return Bundle(text=text, html=page)
