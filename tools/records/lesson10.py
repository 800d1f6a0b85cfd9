"""The experiment of lesson 10: the capstone's ladder, each rung beside the slow script."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from course_lessons.shared.profiling import best_flops

from . import ladder as rungs
from .experiments import Samples, experiment, grid


@experiment(
    sweep=grid(network=rungs.NETWORKS, rung=rungs.RUNGS),
    quick=grid(network=("tutorial",), rung=("none", "large batch")),
    seconds=20,
    modelled=False,
)
def ladder(device: torch.device, network: str, rung: str) -> Mapping[str, Samples]:
    """Train on synthetic images as a slow script does, and with the capstone's steps up to one, in turns.

    Returned are "speed-up" over the slow script, "rate" in samples/s with the steps, and "share of the matmul
    rate", the part of `best_flops` that training with the steps reaches.

    Claimed: nothing; the lesson quotes it.
    Refuted by: a rung after which training is no faster than after the one before it.
    """
    options = rungs.options_up_to(device, rung)
    slow, fast = rungs.in_turns(
        rungs.make_turn(network, rungs.LoopOptions(), device), rungs.make_turn(network, options, device)
    )
    at_best = best_flops(device, rungs.unit(options, device)) / rungs.flops_an_image(network)
    rates = [1 / seconds for seconds in fast]
    return {
        "speed-up": Samples([a / b for a, b in zip(slow, fast, strict=True)], "1"),
        "rate": Samples(rates, "samples/s"),
        "share of the matmul rate": Samples([rate / at_best for rate in rates], "1"),
    }
