"""The report of a program: what it says of steps, memory and faults, and where it stays silent."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import simgpu


def train(device, extra=lambda loss: None, steps=8):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x, y = torch.randn(64, 64, device=device), torch.zeros(64, dtype=torch.long, device=device)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        extra(loss)


def kinds(seen):
    return [finding.kind for finding in seen.findings]


@pytest.fixture
def device():
    return simgpu.enable("T4")


def test_a_sound_training_has_steps_memory_and_no_finding(device):
    with simgpu.report() as seen:
        train(device)
    assert len(seen.steady) == 7 and seen.step_seconds > 0
    assert {"weights", "gradients", "optimizer"} <= set(seen.bytes_by("kind"))
    assert seen.fits("16GB") and not seen.fits("1MB")
    assert kinds(seen) == []


@pytest.mark.parametrize(
    ("extra", "kind"),
    [
        (lambda loss: loss.item(), "wait"),
        (lambda loss: torch.sim.synchronize(), "synchronize"),
        (lambda loss: torch.sim.empty_cache(), "empty_cache"),
    ],
)
def test_a_habit_at_each_step_is_found_with_its_line(device, extra, kind):
    with simgpu.report() as seen:
        train(device, extra)
    assert kinds(seen) == [kind]
    assert seen.findings[0].file == __file__
    assert seen.findings[0].line == extra.__code__.co_firstlineno


def test_what_was_recorded_can_be_modelled_on_other_cards(device, tmp_path):
    with simgpu.report() as seen:
        train(device)
    assert "H100" in seen.compare(["T4", "H100"]).text
    assert seen.to_json(tmp_path / "report.json").read_text().startswith("{")
    assert seen.export(tmp_path / "trace.json").stat().st_size > 1000


def test_a_dry_run_says_by_how_much_it_does_not_fit():
    device = simgpu.enable("T4", memory="1 MB")
    with simgpu.report(dry=True) as seen:
        model = nn.Linear(2**15, 2**15)  # 4 GiB that the host doesn't get
        model.to(device)
    assert seen.needed > 4 * 2**30
    assert not seen.fits("1MB")
    assert "no batch is small enough" in str(seen)


def test_a_dry_run_finds_a_wait_too(device):
    with simgpu.report(dry=True) as seen:
        train(device, lambda loss: loss.item())
    assert kinds(seen) == ["wait"]


def test_what_runs_out_of_memory_is_told_at_the_programs_line_and_without_a_time():
    device = simgpu.enable("T4", memory="45 MB")
    with pytest.raises(torch.OutOfMemoryError), simgpu.report() as seen:
        model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()).to(device)
        x = torch.randn(4096, 1024, device=device)
        optimizer = torch.optim.SGD(model.parameters())
        model(x)  # the ReLU has no room: PyTorch's line, asked for here
        optimizer.step()
    text = str(seen)
    assert "Make the batch smaller" in text.splitlines()[3]
    assert "model(x)  # the ReLU has no room" in text and "No whole step was recorded" in text


def test_a_program_with_one_step_is_told_nothing_about_each_step(device):
    with simgpu.report() as seen:
        train(device, lambda loss: loss.item(), steps=1)
    assert kinds(seen) == []
    assert "The program made one step" in str(seen)


def test_a_training_without_an_optimizer_is_timed_by_its_training_and_not_by_its_evaluation(device):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    x, y = torch.randn(64, 64, device=device), torch.zeros(64, dtype=torch.long, device=device)
    with simgpu.report() as seen:
        for _ in range(4):
            cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
        with torch.no_grad():
            for _ in range(20):
                model(x)
    assert all(any(event.phase == "backward" for event in step) for step in seen.steady)
    assert len(seen.steady) == 3


def test_a_copy_in_a_backward_pass_is_not_the_programs(device):
    table = torch.ones(2**20)

    def hook(gradient):
        return gradient + table.to(device).sum() * 0

    model = nn.Linear(64, 10).to(device)
    model.weight.register_hook(hook)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with simgpu.report() as seen:
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.ones(64, 64, device=device)).sum().backward()
            optimizer.step()
    assert not {"unpinned copy", "repeated copy"} & set(kinds(seen))


def needs_both_parts(device):
    """Fill the device with blocks that are freed, and then with larger ones."""
    parts = [torch.empty(2**20, device=device) for _ in range(40)]  # 4 MiB each
    del parts
    return [torch.empty(2**25, device=device)]  # 128 MiB


def test_a_dry_run_gives_cached_memory_back_as_a_full_device_does():
    for dry in (False, True):
        device = simgpu.enable("T4", memory="240 MB")
        with simgpu.report(dry=dry) as seen:
            needs_both_parts(device)
        assert seen.fits(), f"dry={dry}: {seen}"
