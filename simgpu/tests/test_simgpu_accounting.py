"""What the simulated device only books (cost, timeline, counters, history) never stops an operation."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simgpu
from simgpu import cost, latency, selftest
from simgpu.clock import Clock
from simgpu.history import History

pytestmark = pytest.mark.usefixtures("two_devices")


def broken(*_, **__):
    """Raise AssertionError; replaces a function of the accounting."""
    raise AssertionError("this formula does not know its shapes")


@pytest.fixture(autouse=True)
def _nothing_remembered():
    """Clear the caches of `simgpu.cost` before and after each test."""
    for cache in (cost._cache, cost._NO_WORK):
        cache.clear()
    yield
    for cache in (cost._cache, cost._NO_WORK):
        cache.clear()


def step(device):
    """Train once on layers that have formulas of their own; return loss, weights and a copy."""
    torch.manual_seed(3)
    net = nn.ModuleDict({"conv": nn.Conv2d(1, 4, 3), "up": nn.ConvTranspose2d(4, 4, 2)})
    net["head"] = nn.Linear(4, 4)
    net.to(device)
    x = torch.linspace(0, 1, 2 * 36).reshape(2, 1, 6, 6).to(device)
    rows = net["head"](net["up"](net["conv"](x)).flatten(2).transpose(1, 2))
    heads = rows.unflatten(-1, (2, 2)).transpose(1, 2)
    loss = (F.scaled_dot_product_attention(heads, heads, heads) @ heads.mT).square().mean()
    loss.backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    return [value.detach().cpu() for value in (loss, *net.parameters(), heads[..., :1].clone())]


EXPECTED = step("cpu")


def same(results):
    """Return whether results equal the expected ones bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(results, EXPECTED, strict=True))


def test_every_formula_at_once_leaves_a_fallback_cost(monkeypatch):
    monkeypatch.setattr(cost, "_formula", lambda packet: broken)
    with simgpu.count() as counted:
        start = simgpu.clock().device
        assert same(step("sim"))
    assert counted.unmodelled > 20
    assert simgpu.clock().device > start


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (cost, "_work"),
        (latency, "seconds"),
        (Clock, "launch"),
        (Clock, "copy"),
        (History, "record"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_no_part_of_the_books_stops_an_operation(owner, name, monkeypatch):
    torch.sim.memory._record_memory_history()
    monkeypatch.setattr(owner, name, broken)
    try:
        with simgpu.count() as counted:
            assert same(step("sim"))
    finally:
        torch.sim.memory._record_memory_history(None)
    assert counted.unmodelled
    assert "cost only guessed" in str(counted)


def test_a_listener_that_fails_stops_nothing(monkeypatch):
    monkeypatch.setattr(simgpu.clock()._host, "listeners", [broken])
    with simgpu.count() as counted:
        assert same(step("sim"))
    assert counted.unmodelled


def test_where_all_is_known_nothing_is_guessed():
    with simgpu.count() as counted:
        assert same(step("sim"))
    assert counted.unmodelled == 0
    assert "guessed" not in str(counted)


# --- A training step is tried before the device is trusted


@pytest.fixture
def untried():
    """Clear the cached result of the self-test before and after a test."""
    selftest.training_step_error.cache_clear()
    yield
    selftest.training_step_error.cache_clear()


def test_the_trial_leaves_no_trace(untried):
    torch.sim.manual_seed(5)
    held = torch.ones(10, device="sim")

    def state():
        drawn = (torch.get_rng_state().tolist(), torch.sim.get_rng_state().tolist())
        return *drawn, torch.sim.memory_stats(), simgpu.clock().host

    before = state()
    with simgpu.count() as counted:
        assert simgpu.self_test() is None
    assert state() == before and counted.launches == 0 and held.sum() == 10


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (torch.optim.AdamW, "step"),
        (torch.amp.GradScaler, "step"),
        (torch, "autocast"),
        (torch, "load"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_step_that_fails_is_told_in_a_line(owner, name, untried, monkeypatch):
    def new(*_, **__):
        raise AttributeError("a name that only a newer device has\nand more")

    monkeypatch.setattr(owner, name, new)
    assert simgpu.self_test() == "AttributeError: a name that only a newer device has"


def test_a_step_that_comes_out_wrong_is_told(untried, monkeypatch):
    monkeypatch.setattr(selftest, "_train", lambda device: [torch.ones(1) * len(device)])
    assert simgpu.self_test() == "a training step came out wrong"
