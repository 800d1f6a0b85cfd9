"""An error in the middle of a backward pass on the simulated device is an ordinary error."""

import sys

import pytest
import torch
from torch import nn

import simgpu
from simgpu import temporary_device

pytestmark = pytest.mark.usefixtures("two_devices")

MIB = 2**20


@pytest.mark.parametrize("watch", [None, None, sys.settrace, sys.setprofile])
def test_backward_that_runs_out_of_memory_can_be_caught(watch):
    """More than once, and while a debugger or a profiler hears of each function that begins."""
    with temporary_device(60 * MIB) as device:
        layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())]
        loss = nn.Sequential(*layers).to(device)(torch.randn(2048, 256, device=device)).sum()
        held = []
        with pytest.raises(torch.OutOfMemoryError):
            while True:
                held.append(torch.empty(MIB // 4, device=device))
        if watch:
            watch(lambda *event: None)
        try:
            with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
                loss.backward()
        finally:
            if watch:
                watch(None)
        del held, loss
        x = torch.ones(3, device=device, requires_grad=True)
        (x * x).sum().backward()
        assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_other_errors_in_backward_keep_their_type_and_words():
    simgpu.first()
    x = torch.ones(4, device="sim", requires_grad=True)
    y = x * 1

    def hook(gradient):
        return gradient @ torch.ones(4)  # on the CPU

    y.register_hook(hook)
    with pytest.raises(RuntimeError, match="same device"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        z = (x * x).sum()
        z.backward()
        z.backward()
