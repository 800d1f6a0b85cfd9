"""What ``python -m course_utils record`` measures: one function a quantity that the lessons quote.

Each function prepares its tensors on a device and returns the work to time, so that a recorded number
and a learner's own come from the same lines.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from .devices import abilities, fault, synchronize
from .evidence import read_records
from .host import cpu_name, usable_cores
from .timing import Measurement, measure

Parameters = Mapping[str, int]
Work = Callable[[], object]

LONGEST_CALL = 2.0
"""Larger parameters are left out once one call takes longer than this, in seconds."""


def matmul(device: torch.device, size: int) -> Work:
    """Return ``a @ b`` for two float32 matrices of ``size`` × ``size``: 2·size³ FLOPs."""
    a, b = torch.rand(2, size, size, device=device)
    return lambda: a @ b


def add(device: torch.device, numbers: int) -> Work:
    """Return the in-place sum of two float32 vectors: one FLOP and 12 bytes moved a number."""
    a, b = torch.rand(2, numbers, device=device)
    return lambda: a.add_(b)


def copy(device: torch.device, numbers: int) -> Work:
    """Return the copy of a float32 vector within the device: 8 bytes moved a number."""
    source = torch.rand(numbers, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def launch(device: torch.device) -> Work:
    """Return the addition of 1 to a single float32 number: nearly all of it is the cost of a call."""
    x = torch.zeros(1, device=device)
    return lambda: x.add_(1)


@dataclass(frozen=True)
class Experiment:
    """A function that prepares the work, and the parameters it is run with, smallest first."""

    prepare: Callable[..., Work]
    sweep: tuple[Parameters, ...]
    quick: tuple[Parameters, ...]

    @property
    def name(self) -> str:
        """Its name in records: ``"matmul"``."""
        return self.prepare.__name__

    @property
    def about(self) -> str:
        """What is measured, in one sentence."""
        return (
            (self.prepare.__doc__ or "").splitlines()[0].removeprefix("Return ").replace("``", "")
        )


def _powers(name: str, exponents: range) -> tuple[Parameters, ...]:
    return tuple({name: 2**exponent} for exponent in exponents)


EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(matmul, _powers("size", range(5, 13)), _powers("size", range(5, 12, 2))),
        Experiment(add, _powers("numbers", range(0, 26)), _powers("numbers", range(0, 25, 6))),
        Experiment(copy, _powers("numbers", range(20, 26)), _powers("numbers", range(24, 25))),
        Experiment(launch, ({},), ({},)),
    )
}


@dataclass(frozen=True)
class Point:
    """One thing to measure: an experiment, its parameters and a device."""

    experiment: Experiment
    parameters: Parameters
    device: torch.device

    def __str__(self) -> str:
        values = ", ".join(f"{name} {value}" for name, value in self.parameters.items())
        return f"{self.experiment.name} {values}".strip() + f" on {self.device}"

    @property
    def key(self) -> tuple[object, ...]:
        """What tells this point from others in one file."""
        return (
            self.experiment.name,
            tuple(sorted(self.parameters.items())),
            str(self.device),
        )


def working_devices() -> list[torch.device]:
    """Return the CPU, and the accelerator where there is one that computes rightly.

    The simulated device is never among them: a record is of hardware.
    """
    devices = [torch.device("cpu")]
    if torch.accelerator.is_available():
        accelerator = torch.device(torch.accelerator.current_accelerator())
        if accelerator.type != "sim" and fault(accelerator) is None:
            devices.append(accelerator)
    return devices


def points(
    names: Sequence[str], devices: Sequence[torch.device], quick: bool = False
) -> list[Point]:
    """List what is to be measured, device by device, each sweep from small to large."""
    chosen = [EXPERIMENTS[name] for name in names]
    return [
        Point(experiment, parameters, device)
        for device in devices
        for experiment in chosen
        for parameters in (experiment.quick if quick else experiment.sweep)
    ]


def run_points(todo: Sequence[Point]) -> Iterator[tuple[Point, Measurement | str]]:
    """Measure point by point.

    Yields
    ------
    tuple
        The point, and its measurement or the reason why there is none. After a point that took too
        long or did not fit into memory, the larger ones of its sweep are left out.
    """
    beyond: dict[tuple[str, str], str] = {}
    for point in todo:
        sweep = (point.experiment.name, str(point.device))
        if sweep not in beyond:
            found = _run(point)
            if isinstance(found, str):
                beyond[sweep] = found
            yield point, found
        else:
            yield point, beyond[sweep]


def _run(point: Point) -> Measurement | str:
    try:
        work = point.experiment.prepare(point.device, **point.parameters)
        work()
        synchronize(point.device)
        start = perf_counter()
        work()
        synchronize(point.device)
        if (took := perf_counter() - start) > LONGEST_CALL:
            return f"one call takes {took:.1f} s, and {LONGEST_CALL:g} s is the limit"
        return measure(work, str(point).removesuffix(f" on {point.device}"), device=point.device)
    except (MemoryError, torch.OutOfMemoryError):
        return "it does not fit into the memory"
    except RuntimeError as error:
        if "allocate" not in str(error):
            raise
        return "it does not fit into the memory"


def machine(devices: Sequence[torch.device]) -> dict[str, Any]:
    """Describe the machine: its last device, memory in bytes, driver, versions and processor."""
    can = abilities(devices[-1])
    return {
        "device": can.name,
        "memory": can.memory,
        "driver": _driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or torch.version.hip,
        "os": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cores": usable_cores(),
    }


def file_name(description: Mapping[str, Any]) -> str:
    """Return the name of a machine's file, such as ``machine_nvidia_h200.json``."""
    words = description["device"]
    if words == description["cpu"]:
        words += f" {description['cores']} cores"
    return f"machine_{re.sub('[^a-z0-9]+', '_', words.lower()).strip('_')}.json"


class Record:
    """One machine's file: what it holds already, and what is added to it, result by result.

    Parameters
    ----------
    path
        The file; it need not exist yet.

    Raises
    ------
    RecordError
        Where there is a file that ``record`` did not write. It is left as it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ""
        self._results: dict[tuple[object, ...], dict[str, Any]] = {}
        if not path.exists():
            return
        for entry in read_records(path):
            self._results[_entry_key(entry)] = entry
        self.note = json.loads(path.read_text(encoding="utf-8")).get("note", "")

    def __contains__(self, point: Point) -> bool:
        return point.key in self._results

    def __len__(self) -> int:
        return len(self._results)

    def add(self, point: Point, found: Measurement, description: Mapping[str, Any]) -> None:
        """Keep a measurement, and write the file: an interruption loses nothing that is finished.

        Raises
        ------
        ValueError
            Where it was not measured, but modelled on the simulated device.
        """
        if found.kind != "measured":
            raise ValueError(
                f"{found.label} is {found.kind}, on {found.machine}: nothing to record."
            )
        entry = {
            "experiment": point.experiment.name,
            "parameters": dict(point.parameters),
            "measurement": found.as_dict(),
        }
        self._results[point.key] = entry
        self.write(description)

    def write(self, description: Mapping[str, Any]) -> None:
        """Write the file whole, or not at all."""
        content = {
            "schema": 1,
            "machine": dict(description),
            "date": date.today().isoformat(),
            **({"note": self.note} if self.note else {}),
            "results": list(self._results.values()),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(part, self.path)


def _entry_key(entry: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        entry["experiment"],
        tuple(sorted(entry["parameters"].items())),
        entry["measurement"]["device"],
    )


def _driver() -> str | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout.split() or [None])[0]
