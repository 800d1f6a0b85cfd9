"""Fits how slow a host is to published times of networks that wait for it.

Run as ``python -m tools.records.fit_host points.csv``: what kinds of operators cost stands in
``simgpu/host.json``; of the networks at batch 1, every second one gives a hardware's factor, the others are held
against it.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict

from simgpu import host, profiles
from tools.fidelity import read

NETWORKS = {
    "inference ViT": (98, 99, 449),
    "inference BeiT": (182, 99, 557),
    "inference ResNet": (67, 107, 55),
    "inference ConvNeXT": (109, 154, 297),
    "inference Segformer": (84, 103, 397),
    "inference MobileNet": (107, 111, 55),
    "BERT-base inference forward eager": (120, 98, 454),
    "BERT-base inference forward sdpa": (48, 110, 320),
}
"""One forward pass's operators with a kernel, those of a library, and those without a kernel.

Counted on the simulated device with random weights, in transformers 4.57 with eager attention.
"""


def main(file: str) -> None:
    """Print the factor of each hardware's host, and how the networks that it did not see stand to it."""
    reference, launch = host.costs(), profiles.load("A100").launch
    costs = reference.dispatch + launch, reference.library + launch, reference.view
    found: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in read(file):
        params, name = row.params.replace(",", " ").split(), row.workload
        if name.startswith("BERT-base inference"):
            name += " " + ("sdpa" if "attention=sdpa" in params else "eager")
        elif "eager" not in params:
            continue
        if name in NETWORKS and row.metric == "latency" and "batch=1" in params:
            modelled = sum(n * cost for n, cost in zip(NETWORKS[name], costs, strict=True))
            found[row.hardware].append((name, 1e-3 * float(row.value) / modelled))
    for hardware, ratios in sorted(found.items()):
        ratios.sort()
        factor = statistics.median(ratio for _, ratio in ratios[::2])
        print(f"{hardware}: its host takes {factor:.2f} times as long as the reference")
        for name, ratio in ratios[1::2]:
            print(f"    held out: {factor / ratio:.2f} of the measured, {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
