"""``nn.DataParallel`` on two simulated devices: the same gradients as on one, and what it costs is seen."""

import copy
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import simgpu


@pytest.fixture(autouse=True)
def without_warnings(two_devices):
    """Turn warnings into errors; afterwards enable one T4."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    simgpu.enable("T4")


def pair(*layers):
    """Return a network on the CPU and its DataParallel copy on two devices."""
    torch.manual_seed(0)
    plain = nn.Sequential(*layers)
    return plain, nn.DataParallel(copy.deepcopy(plain).to("sim:0"), device_ids=[0, 1])


def rows(n):
    """Return n random input rows and targets."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 16, generator=generator), torch.randn(n, 4, generator=generator)


@pytest.mark.parametrize("where", ["cpu", "sim:0", "sim:1"])
@pytest.mark.parametrize("n", [1, 7, 10])
def test_the_gradients_equal_those_of_one_device(n, where):
    plain, both = pair(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    x, y = rows(n)
    inputs = x.to(where).requires_grad_(where != "cpu")
    out = both(inputs)
    assert out.device == torch.device("sim:0") and out.shape == (n, 4)
    mse_loss(out, y.to("sim:0")).backward()
    expected = x.clone().requires_grad_()
    mse_loss(plain(expected), y).backward()
    for p, q in zip(both.parameters(), plain.parameters(), strict=True):
        assert p.grad.device == torch.device("sim:0")
        torch.testing.assert_close(p.grad.cpu(), q.grad)
    if inputs.requires_grad:
        assert inputs.grad.device == inputs.device
        torch.testing.assert_close(inputs.grad.cpu(), expected.grad)


def test_both_devices_work_and_the_copies_between_them_are_counted():
    _, both = pair(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    x, _ = rows(10)
    size = sum(p.numel() * 4 for p in both.parameters())

    def step():
        both.zero_grad()
        with simgpu.count() as counted, simgpu.timeline() as seen:
            both(x).sum().backward()
        between = sum(copied.bytes for copied in counted.copies if copied.code == "p2p")
        scattered = [copied.bytes for copied in counted.copies if copied.code == "h2d"]
        return scattered, between, seen.spans[-1].end - seen.spans[0].start, seen.spans

    scattered, between, seconds, spans = step()
    assert scattered == [5 * 16 * 4] * 2
    # The parameters there and their gradients back; half the outputs back and their gradients there.
    assert between == 2 * size + 2 * (5 * 4 * 4)
    kernels = [[s.name for s in spans if s.lane == f"sim:{i} compute"] for i in (0, 1)]
    assert all(names.count("addmm") == 2 and "threshold_backward" in names for names in kernels)
    assert step()[2] == pytest.approx(seconds)  # the same each time


def test_each_step_copies_the_model_anew_and_the_second_device_keeps_nothing():
    _, both = pair(nn.Linear(16, 4))
    x, _ = rows(4)
    before = torch.sim.memory_allocated(1)
    first = both(x)
    assert torch.sim.memory_allocated(1) > before
    with torch.no_grad():
        for p in both.parameters():
            p.zero_()
    assert first.abs().sum() > 0
    del first
    assert both(x).abs().sum() == 0
    assert torch.sim.memory_allocated(1) == before


def test_the_first_devices_statistics_are_kept_and_the_others_are_lost():
    plain, both = pair(nn.BatchNorm1d(16))
    x, _ = rows(8)
    both(x)
    plain(x[:4])
    torch.testing.assert_close(both.module[0].running_mean.cpu(), plain[0].running_mean)
    assert both.module[0].num_batches_tracked.item() == 1


class Named(nn.Module):
    """A network that takes a dict and a keyword argument, records devices, and raises for three rows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 4)
        self.seen = []

    def forward(self, x, *, scale):
        self.seen.append(x.device)
        if x.shape[0] == 3:
            raise ValueError("three rows")
        return {"out": self.layer(x["x"] if isinstance(x, dict) else x) * scale, "rows": [x]}


def test_keyword_arguments_and_nested_outputs_and_errors():
    both = nn.DataParallel(Named().to("sim:0"))
    x, _ = rows(8)
    out = both(x, scale=2.0)
    assert out["out"].shape == (8, 4) and torch.equal(out["rows"][0].cpu(), x)
    assert both.module.seen == [torch.device("sim:0"), torch.device("sim:1")]
    with pytest.raises(ValueError, match="three rows"):
        both(rows(6)[0], scale=2.0)


def test_a_model_on_the_wrong_device_is_refused_as_on_cuda():
    both = nn.DataParallel(nn.Linear(16, 4).to("sim:1"), device_ids=[0, 1])
    with pytest.raises(RuntimeError, match="parameters and buffers on device sim:0"):
        both(rows(4)[0])


def test_beside_a_real_gpu_the_module_decides(monkeypatch):
    """With CUDA in the process, PyTorch takes a bare number for one of its devices."""
    real = torch._utils._get_available_device_type.__wrapped__
    assert real() == "sim" or torch.cuda.is_available()
    cells = [
        owner._get_available_device_type.__closure__
        for owner in (torch._utils, sys.modules[nn.DataParallel.__module__])
    ]
    for closure in cells:
        cell_of_original = next(cell for cell in closure if cell.cell_contents is real)
        monkeypatch.setattr(cell_of_original, "cell_contents", lambda: "cuda")
    assert torch._utils._get_available_device_type() == "cuda"
    plain, both = pair(nn.Linear(16, 4))
    x, _ = rows(6)
    both(x).sum().backward()
    plain(x).sum().backward()
    assert both.src_device_obj == torch.device("sim:0")
    torch.testing.assert_close(both.module[0].weight.grad.cpu(), plain[0].weight.grad)
