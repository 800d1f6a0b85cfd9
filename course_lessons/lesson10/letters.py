"""Data and measurements of the second ladder, a GPT on letters; turns of one rank and two ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_utils.devices import synchronize

SMALL = {"width": 128, "length": 64, "depth": 2}
"""The GPT's sizes on a CPU, for which the whole ladder takes one or two minutes."""

FOUND = Path("work/two_ranks.json")
"""The file in which the ranks' process leaves the results of `in_turns`."""

TURN = 0.12
"""The approximate duration of a turn of one rank, in seconds."""


def text(device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Return the lessons' Python files as ASCII bytes on a device: 95 % for training, 5 % held out."""
    files = sorted(Path(__file__).parent.parent.glob("lesson*/*.py"))
    whole = "".join(path.read_text(encoding="utf-8") for path in files).encode("ascii", "ignore")
    numbers = torch.frombuffer(bytearray(whole), dtype=torch.uint8).to(device)
    cut = len(numbers) * 19 // 20
    return numbers[:cut], numbers[cut:]


def accuracy(model: nn.Module, text: Tensor, texts: int = 64) -> float:
    """Return a GPT's accuracy, 0 to 1, in predicting next letters in ``texts`` rows of held-out text."""
    length = model.place.num_embeddings
    rows = text[: len(text) // (length + 1) * (length + 1)].view(-1, length + 1)[:texts].long()
    seen = []
    hook = model.head.register_forward_hook(lambda module, given, out: seen.append(out))
    with torch.inference_mode():
        model(rows[:, :-1], rows[:, 1:])
    hook.remove()
    return (torch.cat(seen).argmax(1) == rows[:, 1:].flatten()).float().mean().item()


def in_turns(
    alone: Iterator[Any],
    together: Iterator[Any],
    device: torch.device,
    accuracy: float,
    rounds: int = 9,
) -> None:
    """Train alternately on rank 0 alone and on all ranks; rank 0 writes the speed-ups to the file `FOUND`.

    Call it on every rank. A speed-up is the ratio of letters per second.

    Parameters
    ----------
    alone
        An iterator whose items are steps of this rank alone; only rank 0's is used, while the others wait.
    together
        An iterator whose items are steps in which all ranks take part.
    device
        This rank's device.
    accuracy
        The accuracy of the joint training, written to the file too.
    rounds
        The number of rounds.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        _time_steps(alone, 2, device)
    count = torch.tensor([max(1, round(TURN / (_time_steps(alone, 2, device) / 2)))] if not rank else [0])
    count = count.to(device)
    dist.broadcast(count, 0)

    def turn_alone() -> float:
        """Return the seconds of a turn on rank 0 alone; 0 on other ranks."""
        dist.barrier()
        took = _time_steps(alone, int(count), device) if rank == 0 else 0.0
        dist.barrier()
        return took

    def turn_together() -> float:
        """Return the seconds of a turn on all ranks."""
        dist.barrier()
        return _time_steps(together, int(count), device)

    turn_together()
    ratios = []
    for turn in range(rounds):
        order = (turn_alone, turn_together) if turn % 2 == 0 else (turn_together, turn_alone)
        took = {work: work() for work in order}
        ratios.append(ranks * took[turn_alone] / took[turn_together])
    if rank == 0:
        FOUND.write_text(json.dumps({"ratios": ratios, "accuracy": accuracy}), encoding="utf-8")


def found() -> dict[str, Any]:
    """Return the content of `FOUND`: ``"ratios"``, the speed-up of each round, and ``"accuracy"``."""
    return json.loads(FOUND.read_text(encoding="utf-8"))


def _time_steps(steps: Iterator[Any], count: int, device: torch.device) -> float:
    """Return the seconds of ``count`` steps."""
    synchronize(device)
    begin = perf_counter()
    for _ in islice(steps, count):
        pass
    synchronize(device)
    return perf_counter() - begin
