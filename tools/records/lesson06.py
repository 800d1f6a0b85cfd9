"""The experiment of lesson 06: a training step on several ranks, with and without sending gradients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from course_lessons.shared import launch
from course_utils.this_machine import usable_cores

from .experiments import Samples, Unsuitable, experiment

WORKER = Path(__file__).with_name("ddp_worker.py")
"""The script that each rank runs."""


@experiment(
    sweep=[{"ranks": n, "batch": size} for size in (16, 256) for n in (1, 2, 4, 8)],
    quick=[{"ranks": n, "batch": 256} for n in (1, 2)],
    seconds=8,
    modelled=False,
)
def ddp_step(device: torch.device, ranks: int, batch: int) -> Mapping[str, Samples]:
    """Train three linear layers with DDP, ``batch`` rows a rank, each rank with its own core or GPU.

    Claimed: nothing by the seeds; they print such code, and do not run it.
    Refuted by: nothing. ``time without sending`` is that of the same step under ``no_sync()``.
    """
    if device.index not in (None, 0):
        raise Unsuitable("the ranks take all GPUs: it is measured once, for the first")
    if device.type not in ("cpu", "cuda", "xpu"):
        raise Unsuitable("there is no library of collectives for it")
    available = usable_cores() if device.type == "cpu" else torch.accelerator.device_count()
    if ranks > available:
        raise Unsuitable(f"{ranks} ranks need {ranks} cores or GPUs, and there are {available}")
    environment = {"DEVICE": device.type, "OMP_NUM_THREADS": "1"}
    done = launch.run(str(WORKER), str(batch), ranks=ranks, seconds=120, environment=environment, quiet=True)
    if not done.ok:
        raise RuntimeError(str(done.error or done.stopped))
    times_of = json.loads(done.lines[0][-1])
    return {name: Samples(times) for name, times in times_of.items()}
