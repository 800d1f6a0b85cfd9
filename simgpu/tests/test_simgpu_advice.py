"""What the advisor finds in a program at each step, and what it leaves alone."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import simgpu
from simgpu import named


def net(device, width=64):
    return nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)


@pytest.fixture
def device():
    return simgpu.enable("T4")


def seen_in(step, count=8):
    """Return the kinds of what is found when ``step(number)`` runs some times."""
    with simgpu.report() as seen:
        for number in range(count):
            step(number)
    return [finding.kind for finding in seen.findings]


def training(device, loss_of, zero=True, between=lambda: None, **backward):
    """Return a step that trains a network, whose loss is ``loss_of(model, x)``."""
    model = net(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, 64, device=device)

    def step(number):
        if zero:
            optimizer.zero_grad()
        loss_of(model, x).backward(**backward)
        optimizer.step()
        between()

    return step


def squares(model, x):
    return model(x).square().mean()


def test_gradients_that_no_step_sets_to_zero_are_found(device):
    assert seen_in(training(device, squares, zero=False)) == ["no zero_grad"]


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_accumulated_on_purpose_are_not(device, to_none):
    model = net(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, 64, device=device)

    def step(number):
        for _ in range(4):
            squares(model, x).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)

    assert seen_in(step) == []


def test_a_graph_that_is_retained_for_nothing_is_found(device):
    assert seen_in(training(device, squares, retain_graph=True)) == ["graph retained"]


def test_a_graph_that_is_used_twice_may_be_retained(device):
    def loss_of(model, x):
        y = model(x)
        y.mean().backward(retain_graph=True)
        return y.square().mean()

    assert seen_in(training(device, loss_of)) == []


@pytest.mark.parametrize(("size", "kinds"), [(64, []), (4, ["small batch"])])
def test_an_epochs_last_batch_is_not_taken_for_the_batch(device, size, kinds):
    numbers = iter(range(100))

    def loss_of(model, x):
        return squares(model, x[: size if next(numbers) % 4 else 2])

    assert seen_in(training(device, loss_of)) == kinds


def test_a_recurrent_network_retains_no_graph(device):
    rnn = nn.GRU(8, 16, batch_first=True).to(device)
    optimizer = torch.optim.SGD(rnn.parameters(), lr=0.01)
    x = torch.randn(16, 5, 8, device=device)

    def step(number):
        optimizer.zero_grad()
        rnn(x)[0].mean().backward()
        optimizer.step()

    assert seen_in(step) == []


def test_an_optimizer_made_at_each_step_is_found_and_its_steps_are_steps(device):
    model = net(device)
    x = torch.randn(64, 64, device=device)

    def step(number):
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        optimizer.zero_grad()
        squares(model, x).backward()
        optimizer.step()

    assert seen_in(step) == ["new optimizer"]


def test_a_file_saved_at_each_step_is_found_and_one_saved_seldom_is_not(device, tmp_path):
    def save():
        torch.save({"step": 1}, tmp_path / "last.pt")

    calls = iter(range(100))
    assert seen_in(training(device, squares, between=save)) == ["saving"]
    assert seen_in(training(device, squares, between=lambda: next(calls) % 4 or save())) == []


def test_a_loop_over_samples_is_found_and_layers_in_a_loop_are_not(device):
    def by_sample(model, x):
        return sum(model(x[i]).square().mean() for i in range(len(x)))

    assert seen_in(training(device, by_sample)) == ["loop of calls"]

    layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(16)).to(device)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)

    def step(number):
        x = torch.randn(64, 64, device=device)
        for layer in layers:
            x = torch.relu(layer(x))
        optimizer.zero_grad()
        x.mean().backward()
        optimizer.step()

    assert seen_in(step) == []


def test_an_average_made_tensor_by_tensor_is_found(device):
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(12)]).to(device)
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, 64, device=device)

    def step(number):
        optimizer.zero_grad()
        squares(model, x).backward()
        optimizer.step()
        with torch.no_grad():
            for mean, now in zip(average.parameters(), model.parameters(), strict=True):
                mean.mul_(0.9).add_(now, alpha=0.1)

    assert seen_in(step) == ["loop of tensors"]


class OwnSGD(torch.optim.Optimizer):
    """An optimizer that a program has written."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            parameter.add_(parameter.grad, alpha=-0.01)


def test_an_optimizer_of_ones_own_that_loops_is_found(device):
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(12)]).to(device)
    optimizer = OwnSGD(model.parameters())
    x = torch.randn(64, 64, device=device)

    def step(number):
        optimizer.zero_grad()
        squares(model, x).backward()
        optimizer.step()

    assert seen_in(step) == ["loop of tensors"]


def test_convolutions_in_float32_are_found_on_a_card_without_tf32():
    device = simgpu.enable("T4")
    model = nn.Sequential(nn.Conv2d(64, 128, 3), nn.Conv2d(128, 128, 3)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with simgpu.report(dry=True) as seen:
        x = torch.randn(64, 64, 32, 32, device=device)
        for _ in range(5):
            optimizer.zero_grad()
            squares(model, x).backward()
            optimizer.step()
    assert [finding.kind for finding in seen.findings] == ["float32 products"]


def test_float64_is_found(device):
    model = nn.Sequential(nn.Linear(512, 1024), nn.Linear(1024, 512)).double().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(512, 512, dtype=torch.float64, device=device)

    def step(number):
        optimizer.zero_grad()
        mse_loss(model(x), x).backward()
        optimizer.step()

    assert seen_in(step) == ["float64"]


@pytest.mark.parametrize(
    ("make", "kinds"),
    [
        (lambda number: torch.tensor([0.5, 0.25] * 5), ["repeated copy"]),
        (lambda number: torch.ones(10), []),  # may be another one later
        (lambda number: torch.rand(10), []),
    ],
)
def test_equal_values_that_are_copied_at_each_step_are_found(device, make, kinds):
    target = torch.zeros(64, dtype=torch.long, device=device)
    numbers = iter(range(100))

    def loss_of(model, x):
        weights = make(next(numbers)).to(device)
        return cross_entropy(model(x), target, weight=weights)

    assert seen_in(training(device, loss_of)) == kinds


def test_a_network_moved_at_each_step_is_not_told_to_pin_memory(device):
    other = nn.Linear(512, 512)

    def move():
        other.cpu()
        other.to(device)

    assert seen_in(training(device, squares, between=move)) == ["moved network"]


def test_an_lstm_goes_to_the_device_by_the_name_cuda():
    simgpu.enable("T4", named="cuda")
    try:
        out, _ = nn.LSTM(4, 8).to("cuda")(torch.randn(3, 2, 4, device="cuda"))
        assert out.device.type == "cuda"
    finally:
        named.disable()
