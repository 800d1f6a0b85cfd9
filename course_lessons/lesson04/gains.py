"""What a format gains with a lesson's training step: time, peak memory, and what it costs in accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

import torch
from torch import nn

from course_utils import measure, synchronize
from course_utils.timing import take_turns

from .networks import Digits, mlp

TrainStep = Callable[..., object]
"""``train_step(net, optimizer, scaler, x, y, dtype)``: one step; with float32, without autocast."""


class Gains:
    """Runs a training step in float32 and in 16 bits, on the device where the digits are.

    Parameters
    ----------
    train_step
        The step, as the lesson writes it.
    digits
        What is read.
    """

    def __init__(self, train_step: TrainStep, digits: Digits) -> None:
        self.train_step = train_step
        self.digits = digits
        self.device = digits.images.device

    def step(self, net: nn.Module, size: int, dtype: torch.dtype) -> Callable[[], object]:
        """Return one step of ``net`` on ``size`` digits, without arguments; float16 gets a scaler."""
        x, y = self.digits.batch(0, size)
        net = net.to(self.device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler(self.device.type, enabled=dtype is torch.float16)
        return lambda: self.train_step(net, optimizer, scaler, x, y, dtype)

    def speed_up(
        self, make_net: Callable[[], nn.Module], sizes: Sequence[int], dtype: torch.dtype
    ) -> tuple[Sequence[int], list[float]]:
        """Return the sizes, and how many times as fast as float32 a step is with each."""
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
        """Return, for each round, how many times as fast as float32 a step is, by the real clock.

        The two run in turns, so that whatever else the machine does hits both.
        """

        def clocked(dtype: torch.dtype) -> Callable[[], float]:
            step = self.step(make_net(), size, dtype)

            def once() -> float:
                start = perf_counter()
                step()
                synchronize(self.device)
                return perf_counter() - start

            return once

        single, low = take_turns(clocked(torch.float32), clocked(dtype), rounds)
        return [full / half for full, half in zip(single, low, strict=True)]

    def peak(self, make_net: Callable[[], nn.Module], size: int, dtype: torch.dtype) -> float:
        """Return the peak of one step in MiB, beyond what was there before the network."""
        meter = torch.get_device_module(self.device)
        before = meter.memory_allocated()
        step = self.step(make_net(), size, dtype)
        step()  # makes what stays
        synchronize(self.device)
        meter.reset_peak_memory_stats()
        step()
        synchronize(self.device)
        return (meter.max_memory_allocated() - before) / 2**20

    def has_meter(self) -> bool:
        """Whether the device can say what its peak was."""
        return hasattr(torch.get_device_module(self.device), "max_memory_allocated")

    def accuracy(self, seed: int, dtype: torch.dtype) -> float:
        """Train a small network twice over 4,000 digits; return how many per cent of new ones it reads."""
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
