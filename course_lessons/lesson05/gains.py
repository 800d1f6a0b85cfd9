"""What 16-bit formats bring to the lesson's training step: time and peak memory, and what accuracy they
cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

import torch
from torch import nn

from course_utils import measure, synchronize
from course_utils.timing import take_turns

from .networks import Digits, mlp

TrainStep = Callable[..., object]
"""``train_step(net, optimizer, scaler, x, y, dtype)``: one step; without autocast if ``dtype`` is float32."""


class Gains:
    """Measures a training step in float32 and in 16 bits, on the device of the digits.

    Parameters
    ----------
    train_step
        The lesson's step.
    digits
        The training and test data.
    """

    def __init__(self, train_step: TrainStep, digits: Digits) -> None:
        self.train_step = train_step
        self.digits = digits
        self.device = digits.images.device

    def step(self, net: nn.Module, size: int, dtype: torch.dtype) -> Callable[[], object]:
        """Return a function that runs a step of ``net`` on ``size`` digits, for float16 with a scaler.

        It moves ``net`` to the device.
        """
        x, y = self.digits.batch(0, size)
        net = net.to(self.device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler(self.device.type, enabled=dtype is torch.float16)
        return lambda: self.train_step(net, optimizer, scaler, x, y, dtype)

    def speed_up(
        self, make_net: Callable[[], nn.Module], sizes: Sequence[int], dtype: torch.dtype
    ) -> tuple[Sequence[int], list[float]]:
        """Return the batch sizes, and for each the speed-up over float32: the ratio of median times."""
        gains = []
        for size in sizes:
            single, low = (
                measure(self.step(make_net(), size, how), device=self.device, min_seconds=1e-3)
                for how in (torch.float32, dtype)
            )
            gains.append(single.median / low.median)
        return sizes, gains

    def in_turns(
        self,
        make_net: Callable[[], nn.Module],
        size: int,
        dtype: torch.dtype,
        rounds: Iterable[object],
    ) -> list[float]:
        """Return, for each round, the speed-up over float32, by the wall clock.

        The two steps alternate, so that disturbances of the machine affect both.
        """

        def timed_step(dtype: torch.dtype) -> Callable[[], float]:
            """Return a function that runs a step and returns its seconds."""
            step = self.step(make_net(), size, dtype)

            def once() -> float:
                start = perf_counter()
                step()
                synchronize(self.device)
                return perf_counter() - start

            return once

        single, low = take_turns(timed_step(torch.float32), timed_step(dtype), rounds)
        return [full / half for full, half in zip(single, low, strict=True)]

    def peak(self, make_net: Callable[[], nn.Module], size: int, dtype: torch.dtype) -> float:
        """Return the peak memory of a step in MiB, above what was in use before the network was created."""
        meter = torch.get_device_module(self.device)
        before = meter.memory_allocated()
        step = self.step(make_net(), size, dtype)
        step()  # the first step allocates gradients, which stay
        synchronize(self.device)
        meter.reset_peak_memory_stats()
        step()
        synchronize(self.device)
        return (meter.max_memory_allocated() - before) / 2**20

    def has_meter(self) -> bool:
        """Return whether the device counts its peak memory."""
        return hasattr(torch.get_device_module(self.device), "max_memory_allocated")

    def accuracy(self, seed: int, dtype: torch.dtype) -> float:
        """Train a small network for two epochs on 4,000 digits; return its test accuracy in %."""
        net = mlp(784, 64, 10)
        torch.manual_seed(seed)
        for layer in net[1], net[3]:
            layer.reset_parameters()
        net = net.to(self.device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        scaler = torch.amp.GradScaler(self.device.type, enabled=dtype is torch.float16)
        digits = self.digits
        for take in torch.cat([torch.randperm(4000) for _ in range(2)]).to(self.device).split(100):
            self.train_step(net, optimizer, scaler, digits.images[take], digits.labels[take], dtype)
        with torch.inference_mode():
            right = net(digits.test_images).argmax(1) == digits.test_labels
        return 100 * right.float().mean().item()
