"""Where numbers come from: measured here, recorded on named hardware, or published.

A recorded file is written by ``python -m course_utils record`` and holds what one machine measured;
``published_gpus.json`` holds the makers' figures with their source.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .show import Bundle, show, table
from .timing import Measurement, seconds

FOLDER = Path(__file__).parent / "recorded"


class RecordError(ValueError):
    """A recorded file cannot be used; the message names the file and what is wrong."""


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


def recorded(experiment: str, folder: Path = FOLDER, **parameters: Any) -> list[Measurement]:
    """Return what named machines recorded for an experiment, oldest first.

    Parameters
    ----------
    experiment
        Its name, such as ``"matmul"``.
    folder
        Where the recorded files are.
    parameters
        Only records with these parameters, such as ``size=1024``.

    Raises
    ------
    RecordError
        Where a file is not what ``record`` writes.
    """
    found = []
    for path in sorted(folder.glob("machine_*.json")):
        for entry in read_records(path):
            if entry["experiment"] == experiment and all(
                entry["parameters"].get(key) == value for key, value in parameters.items()
            ):
                found.append(Measurement(**{**entry["measurement"], "kind": "recorded"}))
    return sorted(found, key=lambda measurement: measurement.date)


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read one recorded file and check its form.

    Raises
    ------
    RecordError
        Where it is not JSON, lacks a field, or holds a time that cannot be.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
        for entry in results:
            m = Measurement(**entry["measurement"])
            if not (0 < m.q1 <= m.median <= m.q3 and m.n >= 5):
                raise RecordError(f"{path.name}: impossible figures for {entry['experiment']}: {m}")
            if not isinstance(entry["parameters"], dict):
                raise RecordError(
                    f"{path.name}: the parameters of {entry['experiment']} are no object"
                )
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise RecordError(
            f"{path.name} is not a file that `course_utils record` wrote: {error}"
        ) from error
    return results


def card(*measurements: Measurement, experiment: str = "", **parameters: Any) -> None:
    """Show measurements as a table, with the recorded ones of the same experiment below.

    Parameters
    ----------
    measurements
        What was just measured.
    experiment, parameters
        Which recorded measurements to set beside them, such as ``"matmul", size=1024``.
    """
    others: Sequence[Measurement] = recorded(experiment, **parameters) if experiment else ()
    show(_table([*measurements, *others]))


def _table(rows: Sequence[Measurement]) -> Bundle:
    head = ("What", "Median", "Quartiles", "n", "Kind", "Where", "When")
    cells = [
        (
            m.label,
            seconds(m.median),
            f"{seconds(m.q1)} – {seconds(m.q3)}",
            m.n,
            m.kind,
            f"{m.device}: {m.machine}, torch {m.torch}",
            m.date,
        )
        for m in rows
    ]
    text, page = table(head, cells, [m.kind for m in rows])
    return Bundle(text=text, html=page)
