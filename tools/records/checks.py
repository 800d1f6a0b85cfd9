"""Validates files of records: by the schema, and by checks that no schema can express."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from course_utils.evidence import FOLDER, RecordError, kind_of_file, label, load, published_gpus
from course_utils.number_format import amount, is_share

from .experiments import REGISTRY

TOLERANCE = 1.05
"""The factor by which a rate may exceed the peak: a GPU's clock can exceed the one in its datasheet."""


def problems(path: Path, content: Mapping[str, Any] | None = None) -> list[str]:
    """Return why a file of records is invalid, one sentence each; an empty list if it is valid.

    ``content`` is checked in place of what the file contains, if given.
    """
    try:
        content = load(path) if content is None else content
    except RecordError as error:
        return [str(error)]
    return list(_schema_problems(path.name, content)) or list(_content_problems(path, content))


def checked(path: Path) -> dict[str, Any]:
    """Return a file's content if it is valid, else raise a RecordError with its first problem."""
    if found := problems(path):
        more = f" ({len(found) - 1} more: `record --check {path.name}`)" if len(found) > 1 else ""
        raise RecordError(found[0] + more)
    return load(path)


@cache
def _validator() -> Any:
    """Return the validator for schema.json."""
    from jsonschema import Draft202012Validator

    schema = json.loads((FOLDER / "schema.json").read_text(encoding="utf-8"))
    checker = Draft202012Validator.FORMAT_CHECKER
    return Draft202012Validator(schema, format_checker=checker)


def _schema_problems(name: str, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield for each part of the file the most relevant violation of schema.json."""
    from jsonschema.exceptions import best_match

    parts: dict[tuple[Any, ...], list[Any]] = {}
    for error in _validator().iter_errors(content):
        parts.setdefault(tuple(error.absolute_path)[:2], []).append(error)
    for errors in parts.values():
        error = best_match(errors)
        keys, where = list(error.absolute_path), name
        if keys[:1] == ["results"] and len(keys) > 1:
            where += f", {_title(keys[1], content['results'][keys[1]])}"
            keys = keys[2:]
        message = textwrap.shorten(error.message, 160, placeholder=" …")
        if keys:
            message = f"{'.'.join(map(str, keys))}: {message}"
        if about := error.schema.get("description"):
            message += f" ({about})"
        yield f"{where}: {message}. Correct it, or record it anew."


def _title(index: int, result: Any) -> str:
    """Return a label for a result, such as ``result 3 (matmul size 32, time)``."""
    if not isinstance(result, dict):
        return f"result {index + 1}"
    parameters = result.get("parameters")
    given = parameters if isinstance(parameters, dict) else {}
    name = label(str(result.get("experiment")), given)
    return f"result {index + 1} ({name}, {result.get('quantity')})"


def _content_problems(path: Path, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a schema cannot check: future dates, impossible values, duplicates."""
    kind = kind_of_file(path)
    if kind is None:
        yield (
            f"{path.name}: its name says no kind. Name it machine_….json for what was recorded, "
            "modelled_….json for what was modelled, or published.json."
        )
        return
    if (content["machine"] is None) != (kind == "published"):
        state = "a machine" if kind == "published" else "no machine"
        yield f"{path.name}: {kind} results, and {state}. Correct `machine`."
        return
    if problem := _future(content["date"]):
        yield f"{path.name}: {problem}"
    seen: dict[str, int] = {}
    for index, result in enumerate(content["results"]):
        where = f"{path.name}, {_title(index, result)}"
        if result["kind"] != kind:
            yield f"{where}: its kind is {result['kind']}, and a file of this name holds what is {kind}."
        too_fast = _too_fast(content["machine"], result)
        for problem in filter(None, (_future(result["date"]), _impossible(result), too_fast)):
            yield f"{where}: {problem}"
        names = ("experiment", "parameters", "quantity", "device", "source")
        key = json.dumps([result.get(name) for name in names], sort_keys=True)
        if key in seen:
            yield f"{where}: result {seen[key] + 1} is of the same thing. Take one of them out."
        seen.setdefault(key, index)


def _future(day: str) -> str | None:
    """Return a sentence if an ISO date is in the future, else None."""
    if date.fromisoformat(day) <= date.today() + timedelta(days=1):  # time zones
        return None
    return (
        f"{day} is in the future (today is {date.today()}). Set the clock that is wrong, of this "
        "machine or of the one that recorded it, and record anew."
    )


def _impossible(result: Mapping[str, Any]) -> str | None:
    """Return a sentence if a result's values are not finite, not ordered or out of range, else None."""
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


class Ceiling(NamedTuple):
    """The peak rates of a chip, in FLOP/s and bytes/s, and their source."""

    flops: float
    bytes: float
    source: str


ANY_CHIP = Ceiling(
    flops=4 * 2.5e15,
    bytes=4 * 8e12,
    source="four times a GPU of NVIDIA's GB200 NVL72: datasheet, 2024, without sparsity",
)
"""The limit for unknown chips, also future ones: it detects a wrong unit, not a small error."""

CYCLES, FLOPS_A_CYCLE, MATRIX_FLOPS_A_CYCLE = 6e9, 64, 2048
"""Upper limits for a CPU core: 6 GHz; two AVX-512 units of 16 FMAs; an AMX unit of 1024 in bfloat16."""

CACHE = 256e6
"""Below this number of bytes, data may be in a GPU's cache, which is faster than its memory."""


def ceiling(machine: Mapping[str, Any] | None, device: str, matrix_units: bool) -> Ceiling:
    """Return the peak rates of a device on a record's machine; None stands for a published result's.

    With ``matrix_units`` they are those of tensor cores (or AMX on a CPU).
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
    """Return a sentence if a rate exceeds the chip's peak; None if not, or if the work is not known."""
    experiment = REGISTRY.get(result["experiment"])
    matrix_units = experiment is None or experiment.matrix_units
    most = ceiling(machine, result["device"], matrix_units)
    rates = [(result["unit"], result["median"])] if result["unit"] in ("FLOP/s", "B/s") else []
    fits = experiment is not None and experiment.takes(result["parameters"])
    if fits and result["quantity"] == "time" and result["median"] > 0:
        if experiment.flops:
            rates.append(("FLOP/s", experiment.flops(result["parameters"]) / result["median"]))
        moved = experiment.bytes(result["parameters"]) if experiment.bytes else 0
        if moved >= CACHE:
            rates.append(("B/s", moved / result["median"]))
    for unit, rate in rates:
        peak = most.flops if unit == "FLOP/s" else most.bytes
        if rate > TOLERANCE * peak:
            return (
                f"{amount(rate, unit)} is above the peak of {amount(peak, unit)} ({most.source}). "
                "Was the device waited for? Record it anew."
            )
    return None
