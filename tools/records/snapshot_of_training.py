"""Records the shipped memory snapshot: three steps of a small training. Run it with ``python -m``."""

from __future__ import annotations

import argparse
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from course_lessons.lesson07.snapshots import RECORDED
from course_lessons.shared.memory import metering_device
from course_utils import files
from course_utils.cli.bootstrap import ROOT
from course_utils.devices import get_device


def record(path: str | Path, device: torch.device | str) -> None:
    """Record the memory history of three training steps and write the snapshot, a pickle, to ``path``.

    The device is CUDA or simulated. File names are relative to the clone or to site-packages.
    """
    memory: Any = torch.get_device_module(device).memory
    torch.manual_seed(0)
    memory._record_memory_history(max_entries=100_000)
    model, images, labels = prepare(torch.device(device))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        loss = forward(model, images, labels)
        backward(loss)
        update(optimizer)
        clear(optimizer)
    snapshot = memory._snapshot()
    memory._record_memory_history(enabled=None)
    files.write(Path(path), pickle.dumps(_without_folders(snapshot), protocol=4))


def prepare(device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    """Return an MLP, 2,048 random images and their labels, all on the device."""
    sizes = (784, 1024, 1024, 1024, 10)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers[:-1]).to(device)
    return model, torch.rand(2048, 784).to(device), torch.randint(10, (2048,)).to(device)


def forward(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross entropy."""
    return cross_entropy(model(images), labels)


def backward(loss: Tensor) -> None:
    """Compute the gradients of all parameters."""
    loss.backward()


def update(optimizer: Optimizer) -> None:
    """Update the weights in place."""
    optimizer.step()


def clear(optimizer: Optimizer) -> None:
    """Set the gradients to None."""
    optimizer.zero_grad()


def _without_folders(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Shorten file names in a snapshot in place, and share equal stacks; return it."""
    stacks: dict[tuple[Any, ...], list[dict[str, Any]]] = {}

    def short(filename: str) -> str:
        path = Path(filename)
        if "site-packages" in path.parts:
            return Path(*path.parts[path.parts.index("site-packages") + 1 :]).as_posix()
        return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name

    def tidy(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
        key = tuple((short(f["filename"]), f["line"], f["name"]) for f in frames)
        made = [{"filename": name, "line": line, "name": function} for name, line, function in key]
        return stacks.setdefault(key, made)

    for event in (event for trace in snapshot["device_traces"] for event in trace):
        event["frames"] = tidy(event["frames"])
    for block in (block for segment in snapshot["segments"] for block in segment["blocks"]):
        block["frames"] = tidy(block["frames"])
    return snapshot


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record the memory snapshot of a small training.")
    parser.add_argument("path", nargs="?", type=Path, default=RECORDED)
    asked = parser.parse_args()
    record(asked.path, metering_device(get_device(quiet=True)))
    print(f"{asked.path}: {asked.path.stat().st_size / 1024:.0f} KiB")
