"""The second ladder: its text, what its GPT has learned, two ranks in turns."""

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
"""The GPT's sizes on a CPU: the whole ladder takes one or two minutes."""

FOUND = Path("work/two_ranks.json")
"""Where two ranks leave what they found."""

TURN = 0.12
"""How long a rank trains alone in one turn, in seconds, about."""


def text(device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Return the lessons' Python files as ASCII bytes on a device: to learn from, and a twentieth apart."""
    files = sorted(Path(__file__).parent.parent.glob("lesson*/*.py"))
    whole = "".join(path.read_text(encoding="utf-8") for path in files).encode("ascii", "ignore")
    numbers = torch.frombuffer(bytearray(whole), dtype=torch.uint8).to(device)
    cut = len(numbers) * 19 // 20
    return numbers[:cut], numbers[cut:]


def accuracy(model: nn.Module, text: Tensor, texts: int = 64) -> float:
    """Return the share of next letters of a held-out text that a GPT guesses, from 0 to 1."""
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
    """Let one rank train alone and all together, in turns; write the speed-ups into a file.

    Parameters
    ----------
    alone
        A training of this rank; only that of rank 0 is used, while the others wait.
    together
        A training in which all ranks take part.
    device
        That of this rank.
    accuracy
        Of what was trained together, to be written beside them.
    rounds
        How often they take turns.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        _seconds(alone, 2, device)
    count = torch.tensor([max(1, round(TURN / (_seconds(alone, 2, device) / 2)))] if not rank else [0])
    count = count.to(device)
    dist.broadcast(count, 0)

    def by_itself() -> float:
        dist.barrier()
        took = _seconds(alone, int(count), device) if rank == 0 else 0.0
        dist.barrier()
        return took

    def in_company() -> float:
        dist.barrier()
        return _seconds(together, int(count), device)

    in_company()
    ratios = []
    for turn in range(rounds):
        order = (by_itself, in_company) if turn % 2 == 0 else (in_company, by_itself)
        took = {work: work() for work in order}
        ratios.append(ranks * took[by_itself] / took[in_company])
    if rank == 0:
        FOUND.write_text(json.dumps({"ratios": ratios, "accuracy": accuracy}), encoding="utf-8")


def found() -> dict[str, Any]:
    """Return what two ranks found: the speed-up of each round, and the accuracy."""
    return json.loads(FOUND.read_text(encoding="utf-8"))


def _seconds(steps: Iterator[Any], count: int, device: torch.device) -> float:
    synchronize(device)
    begin = perf_counter()
    for _ in islice(steps, count):
        pass
    synchronize(device)
    return perf_counter() - begin
