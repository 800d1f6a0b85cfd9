"""Fits how slow a host is to published times of networks that wait for it.

Run as ``python -m tools.records.fit_host points.csv``: what kinds of operators cost stands in
``simgpu/host.json``; of the networks at batch 1, every second one gives a hardware's factor, the others are held
against it. The file has the columns ``workload``, ``params``, ``hardware``, ``metric``, ``value``.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from simgpu import host, profiles


class Network(NamedTuple):
    """What one forward pass asks for: operators with a kernel, those of a library, and those without one.

    Counted on the simulated device with random weights, in transformers 4.57 with eager attention.
    """

    plain: int
    library: int
    views: int

    def seconds(self, plain: float, library: float, view: float) -> float:
        """Return the host's seconds, given those of each kind."""
        return self.plain * plain + self.library * library + self.views * view


NETWORKS = {
    "inference ViT": Network(98, 99, 449),
    "inference BeiT": Network(182, 99, 557),
    "inference ResNet": Network(67, 107, 55),
    "inference ConvNeXT": Network(109, 154, 297),
    "inference Segformer": Network(84, 103, 397),
    "inference MobileNet": Network(107, 111, 55),
    "BERT-base inference forward eager": Network(120, 98, 454),
    "BERT-base inference forward sdpa": Network(48, 110, 320),
}


def published(file: Path) -> Iterator[tuple[str, str, float]]:
    """Yield the network, the hardware and the seconds of each published eager pass at batch 1."""
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            params = row["params"].replace(",", " ").split()
            name = row["workload"]
            if name.startswith("BERT-base inference"):
                name += " " + ("sdpa" if "attention=sdpa" in params else "eager")
            elif "eager" not in params:
                continue
            if name in NETWORKS and row["metric"] == "latency" and "batch=1" in params:
                yield name, row["hardware"], 1e-3 * float(row["value"])


def main(file: str) -> None:
    """Print the factor of each hardware's host, and how the networks that it did not see stand to it."""
    rows = sorted(published(Path(file)))
    reference, launch = host.costs(), profiles.load("A100").launch
    costs = reference.dispatch + launch, reference.library + launch, reference.view
    for hardware in sorted({card for _, card, _ in rows}):
        ratios = [
            (name, took / NETWORKS[name].seconds(*costs))
            for name, card, took in rows
            if card == hardware
        ]
        factor = statistics.median(ratio for _, ratio in ratios[::2])
        print(f"{hardware}: its host takes {factor:.2f} times as long as the reference")
        for name, ratio in ratios[1::2]:
            print(f"    held out: {factor / ratio:.2f} of the measured, {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
