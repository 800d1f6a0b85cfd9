"""Experiments of lesson 09: training loops beside each other. ``benchmark`` prints them as tables."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from course_lessons.shared.profiling import best_flops

from .benchmarks import ladder as rungs
from .benchmarks import mlp, peers
from .benchmarks.comparison import in_turns, setting
from .experiments import Samples, experiment, grid

FRESH = 7
"""The least number of seeds that a time to an accuracy rests on."""


@experiment(
    sweep=grid(task=("mlp", "cnn"), data=("loader", "device"), loop=peers.LOOPS),
    quick=grid(task=("mlp",), data=("device",), loop=("bare", "lesson 03")),
    seconds=10,
    modelled=False,
)
def peer_loop(device: torch.device, task: str, data: str, loop: str) -> Mapping[str, Samples]:
    """Train the same network by a package's loop, or one of the course, and by the barest loop, in turns: steady steps.

    Claimed: nothing; the course says that its own loop costs next to nothing.
    Refuted by: a speed-up of ``lesson 03`` below 0.98 where the data is on the device.
    """
    bare, other = (peers.Peer(name, task, data, device) for name in ("bare", loop))
    found = in_turns(bare, other)
    same = (bare.weights == other.weights).float().mean().item()
    return {
        "speed-up": Samples(found.ratios, "1"),
        "rate": Samples(found.rates, "samples/s"),
        "share of equal weights": Samples([same], "1"),
    }


@experiment(
    sweep=grid(network=rungs.NETWORKS, rung=rungs.RUNGS),
    quick=grid(network=("tutorial",), rung=("none", "large batch")),
    seconds=20,
    modelled=False,
)
def ladder(device: torch.device, network: str, rung: str) -> Mapping[str, Samples]:
    """Train on synthetic images as a slow script does, and with every step of the capstone up to one, in turns.

    Claimed: nothing; the lesson quotes it.
    Refuted by: a rung after which training is no faster than after the one before it.
    """
    parts = rungs.climbed(device, rung)
    found = in_turns(rungs.turn(network, rungs.Parts(), device), rungs.turn(network, parts, device))
    at_best = best_flops(device, rungs.unit(parts, device)) / rungs.flops_an_image(network)
    return {
        "speed-up": Samples(found.ratios, "1"),
        "rate": Samples(found.rates, "samples/s"),
        "share of the matmul rate": Samples([rate / at_best for rate in found.rates], "1"),
    }


@experiment(
    sweep=[{"batch": mlp.TUNED.batch, "peak_rate": mlp.TUNED.rate, "steps": mlp.TUNED.steps}],
    seconds=10,
    modelled=False,
)
def mlp_to_accuracy(
    device: torch.device, batch: int, peak_rate: float, steps: int
) -> Mapping[str, Samples]:
    """Train the seed's network as the seed does, and fast, to an equal accuracy on held-out rows, in turns.

    Claimed: nothing; the lesson quotes it. The seed's loop is that of "第7章:GPU 训练与性能优化", 7.3.
    Refuted by: a test accuracy below that of the seed's loop.
    """
    torch.set_num_threads(1)  # for products this small, handing work to a second one costs more
    recipe = mlp.Recipe(batch, peak_rate, steps)
    slow, fast = [], []
    for which in (None, recipe):
        mlp.run(0, which, device)
    for seed in range(1, 1 + max(FRESH, setting().rounds)):
        slow.append(mlp.run(seed, None, device))
        fast.append(mlp.run(seed, recipe, device))
    return {
        "speed-up": Samples([a / b for (a, _), (b, _) in zip(slow, fast, strict=True)], "1"),
        "time": Samples([seconds for seconds, _ in fast]),
        "time of the seed's loop": Samples([seconds for seconds, _ in slow]),
        "test accuracy": Samples([accuracy for _, accuracy in fast], "1"),
        "test accuracy of the seed's loop": Samples([accuracy for _, accuracy in slow], "1"),
    }
