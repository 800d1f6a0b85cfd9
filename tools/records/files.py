"""A machine's file of records: its name, the description of the machine, and adding results."""

from __future__ import annotations

import itertools
import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

from course_utils import files
from course_utils.devices import abilities, problem_with
from course_utils.evidence import SCHEMA, RecordError
from course_utils.this_machine import cpu_name, usable_cores
from course_utils.timing import Measurement

from .checks import checked, problems
from .experiments import Point, key


def working_devices() -> list[torch.device]:
    """Return the CPU, and the accelerator if there is one that computes correctly.

    The simulated device is left out: a record is of hardware.
    """
    devices = [torch.device("cpu")]
    if torch.accelerator.is_available():
        accelerator = torch.device(torch.accelerator.current_accelerator())
        if accelerator.type != "sim" and problem_with(accelerator) is None:
            devices.append(accelerator)
    return devices


def machine(devices: Sequence[torch.device]) -> dict[str, Any]:
    """Return the description of the machine for a record; its device is the last of ``devices``.

    The keys are device, memory (in bytes), driver, torch, cuda, os, cpu and cores.
    """
    can = abilities(devices[-1])
    simulated = devices[-1].type == "sim"
    return {
        "device": can.name,
        "memory": can.memory,
        "driver": None if simulated else _driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or torch.version.hip,
        "os": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cores": usable_cores(),
    }


def file_name(description: Mapping[str, Any]) -> str:
    """Return the name of a machine's file: ``machine_nvidia_h200.json``, ``modelled_nvidia_t4.json``."""
    name = description["device"]
    if name == description["cpu"]:
        name += f" {description['cores']} cores"
    kind = "modelled" if name.startswith(SIMULATED) else "machine"
    name = name.removeprefix(SIMULATED).lower()
    return f"{kind}_{re.sub('[^a-z0-9]+', '_', name).strip('_')}.json"


SIMULATED = "Simulated "


class Record:
    """One machine's file of results, to which results are added one by one.

    A RecordError is raised for a file that is invalid, or that another machine or version of PyTorch wrote;
    with ``again`` the latter is renamed to ``….json.old`` instead. The file is written by `add` and `write`.
    """

    def __init__(self, path: Path, description: Mapping[str, Any], again: bool = False) -> None:
        self.path = path
        self.note = ""
        self._description = dict(description)
        self._results: dict[tuple[object, ...], list[dict[str, Any]]] = {}
        if not path.exists():
            return
        content = checked(path)
        if changed := self._changes_since(content["machine"]):
            if not again:
                raise RecordError(
                    f"{path.name} holds what {changed} gave, and one file holds one setting. Record "
                    "all of it with --again, which keeps the old file under another name, or "
                    "elsewhere with --output FOLDER."
                )
            asides = (path.with_name(f"{path.name}.old{i or ''}") for i in itertools.count())
            path.rename(next(aside for aside in asides if not aside.exists()))
        else:
            for result in content["results"]:
                point = key(result["experiment"], result["parameters"], result["device"])
                self._results.setdefault(point, []).append(result)
        self.note = content.get("note", "")

    def __contains__(self, point: Point) -> bool:
        return point.key in self._results

    def __len__(self) -> int:
        return sum(map(len, self._results.values()))

    def add(self, point: Point, measured: Sequence[Measurement]) -> None:
        """Store a point's results and write the file, so that an interruption loses no finished results.

        Raises
        ------
        RecordError
            If the file would be invalid with them; they are not stored.
        """
        results = [as_result(m) for m in measured]
        if found := problems(self.path, self._content(results)):
            raise RecordError(found[0])
        self._results[point.key] = results
        self.write()

    def _changes_since(self, old: Mapping[str, Any]) -> str:
        """Return what differs from the machine ``old``, such as ``"torch 2.12.0 (now 2.13.0)"``, or ""."""
        new = self._description
        names = ["torch"]
        if not new["device"].startswith(SIMULATED):
            names += ["cuda", "driver", "os", "cpu", "cores"]
        return ", ".join(f"{name} {old[name]} (now {new[name]})" for name in names if old[name] != new[name])

    def _content(self, results: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the file's content with these results."""
        return {
            "schema": SCHEMA,
            "machine": self._description,
            "date": date.today().isoformat(),
            **({"note": self.note} if self.note else {}),
            "results": results,
        }

    def write(self) -> None:
        """Write the file atomically."""
        content = self._content(list(itertools.chain.from_iterable(self._results.values())))
        files.write(self.path, json.dumps(content, indent=1) + "\n")


def _driver() -> str | None:
    """Return the version of NVIDIA's driver; None without nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout.split() or [None])[0]


def as_result(m: Measurement) -> dict[str, Any]:
    """Return a measurement as a dict, in the form of a file's result."""
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
