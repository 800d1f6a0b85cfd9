"""What prove.py compares: a small network, rows for each rank, and the two gradients that a way may give."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from course_language import _
from course_utils.data import load_digits


class Proof:
    """240 digits in a part for each rank; the gradient of all of them, and that of rank 0's part alone.

    Parameters
    ----------
    device
        Where this rank computes.
    """

    def __init__(self, device: torch.device) -> None:
        digits = load_digits()
        self._x = (digits.train_x[:240].float() / 255).to(device)
        self._y = digits.train_y[:240].to(device)
        parts = torch.arange(240).chunk(dist.get_world_size())
        self.part_0, self.mine = parts[0], parts[dist.get_rank()]
        torch.manual_seed(0)
        layers = nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)
        self.net = nn.Sequential(*layers).to(device)
        self._known = [self._alone(rows) for rows in (torch.arange(240), self.part_0)]

    def loss(self, model: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """Return the mean loss over some rows."""
        return F.cross_entropy(model(self._x[rows]), self._y[rows])

    def report(self, way: str, sent: list[int]) -> None:
        """Say what a way gave and what it sent, and begin again."""
        found = self._take()
        off = [f"{(torch.dist(found, g) / g.norm()).item():.0e}" for g in self._known]
        print(
            _(
                "{way}: buckets sent: {n_sent}, off the whole by {first_off}, off part 0 by {second_off}"
            ).format(way=way, n_sent=len(sent), first_off=off[0], second_off=off[1])
        )
        sent.clear()

    def _alone(self, rows: Tensor) -> Tensor:
        self.loss(self.net, rows).backward()
        return self._take()

    def _take(self) -> Tensor:
        gradient = torch.cat([p.grad.flatten() for p in self.net.parameters()])
        self.net.zero_grad()
        return gradient
