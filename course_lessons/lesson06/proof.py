"""The parts of prove.py: a small network, rows for each rank, and two reference gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from course_language import _
from course_utils.data import load_digits


class Proof:
    """240 digits divided among the ranks; the gradient of all of them, and that of rank 0's part alone.

    Parameters
    ----------
    device
        This rank's device.
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
        self._reference_gradients = [self._gradient_of(rows) for rows in (torch.arange(240), self.part_0)]

    def loss(self, model: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """Return the mean loss over the given rows."""
        return F.cross_entropy(model(self._x[rows]), self._y[rows])

    def report(self, way: str, sent: list[int]) -> None:
        """Print how far the gradient is from the two reference gradients, and how many buckets were sent.

        Clears the gradients and ``sent``.
        """
        gradient = self._pop_gradient()
        errors = [f"{(torch.dist(gradient, g) / g.norm()).item():.0e}" for g in self._reference_gradients]
        print(
            _(
                "{way}: buckets sent: {n_sent}, off the whole by {first_off}, off part 0 by {second_off}"
            ).format(way=way, n_sent=len(sent), first_off=errors[0], second_off=errors[1])
        )
        sent.clear()

    def _gradient_of(self, rows: Tensor) -> Tensor:
        """Return the gradient of the given rows, computed without communication."""
        self.loss(self.net, rows).backward()
        return self._pop_gradient()

    def _pop_gradient(self) -> Tensor:
        """Return the network's gradient as one vector, and clear it."""
        gradient = torch.cat([p.grad.flatten() for p in self.net.parameters()])
        self.net.zero_grad()
        return gradient
