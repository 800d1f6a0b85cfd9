"""Lesson 09: checks accept right answers of other kinds, refuse wrong ones, and its texts are true."""

from __future__ import annotations

import gc
import inspect
import re
import types

import pytest
import torch
from support import skip
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import simgpu
from course_lessons.lesson09 import drawings, exercises
from course_lessons.lesson09.hottest import DEVICE_ROWS, hottest
from course_lessons.lesson09.leaving import LEAVING, six_results, traced_dtypes
from course_lessons.lesson09.memory_ledger import LEDGER, ledger
from course_lessons.lesson09.waits import WAITS, count_waits, four_steps
from course_lessons.shared import memory
from course_utils import progress_file
from course_utils.exercises import lesson, todo

EX = lesson("09")
REASONS = ("without the simulated device", "on the CPU alone")


@pytest.fixture
def sim():
    if problem := simgpu.unavailable_reason():
        skip(problem, until="2027-11-30")
    return simgpu.first()


def result_of_reference(exercise):
    return exercise.result(exercise.reference() if exercise.wants_value else exercise.reference)


def test_the_misspelled_field_of_the_tutorial_raises_what_cuda_raises():
    def gpu_list(cuda):
        return [f"{cuda.get_device_properties(0).total_mem / 1e9:.1f} GB"]

    result = EX.gpu_list.result(gpu_list)
    assert (result.outcome, result.diagnosis) == ("raised", "AttributeError")
    assert "total_mem" in result.bundle().text


def test_an_error_on_the_device_is_the_learners(sim):
    def masked_loss(logits, targets, mask):
        kept = torch.where(mask, targets, torch.full((len(targets),), -100))
        return F.cross_entropy(logits, kept, reduction="sum") / mask.sum().clamp(min=1)

    result = EX.masked_loss.result(masked_loss)
    assert result.outcome == "raised"
    assert "torch.where" in result.bundle().text


def test_a_generator_that_fails_is_the_learners():
    def prefetch(batches, bound):
        yield from batches.nothing

    result = EX.prefetch.result(prefetch)
    assert result.outcome == "raised"
    assert "yield from batches.nothing" in result.bundle().text


# --- what the texts promise


@pytest.mark.usefixtures("sim")
def test_stored_answers_are_those_of_a_run():
    assert count_waits() == WAITS == EX.waits.reference()
    assert traced_dtypes() == LEAVING == EX.leaving.reference()


def test_the_code_in_a_task_is_the_code_that_is_run():
    assert inspect.getsource(four_steps).strip() in EX.waits.task
    assert inspect.getsource(six_results).strip() in EX.leaving.task


@pytest.mark.slow
@pytest.mark.parametrize("exercise", list(EX), ids=lambda exercise: exercise.slug)
def test_answers_are_judged_without_the_simulated_device_too(exercise, monkeypatch):
    monkeypatch.setattr(simgpu, "problem", lambda: "No simulated device here.")
    result = result_of_reference(exercise)
    assert result.outcome == "right", result.bundle().text
    assert not result.printed or any(reason in result.printed for reason in REASONS)


@pytest.mark.slow
def test_checks_leave_the_learners_devices_alone(sim):
    kept = torch.ones(4, device=sim)
    collect = gc.collect

    def state():
        return torch.sim.memory_allocated(sim), torch.sim.current_device(), torch.sim.device_count()

    before = state()
    for exercise in EX:
        assert result_of_reference(exercise).outcome == "right", exercise.id
        assert state() == before, exercise.id
    assert gc.collect is collect
    assert kept.sum().item() == 4


def test_levels_are_mixed_and_rise_within_a_subject():
    levels = [exercise.level for exercise in EX]
    assert all(levels.count(level) >= 7 for level in (1, 2, 3))
    for subject in ["DEVICES", "LOOP", "PRECISION", "MEMORY", "SPEED", "SEVERAL"]:
        levels = [exercise.level for exercise in vars(exercises)[subject]]
        assert levels == sorted(levels)


def test_the_ledger_is_what_a_device_counts(sim):
    with memory.temporary_device("1 GB") as device:
        names = {"torch": torch, "device": device}
        allocated = []
        for line in LEDGER:
            exec(line, names)
            allocated.append(torch.sim.memory_allocated(device) / 2**20)
        names.clear()
    assert tuple(allocated) == ledger() == tuple(EX.memory_ledger.reference())
    shown = EX.memory_ledger.task.split("```")[1].removeprefix("python").strip().splitlines()
    assert tuple(shown) == LEDGER


def test_a_view_of_a_hollow_weight_takes_no_memory(sim):
    with memory.NoData():
        no_data = nn.Linear(1024, 1024).to(sim)
    real = nn.Linear(8, 8).to(sim)
    before = torch.sim.memory_allocated(sim)
    with memory.NoData():
        views = no_data.weight.t(), no_data.weight[3:7].detach(), real.weight.t()
        assert torch.sim.memory_allocated(sim) == before
    assert [tuple(view.shape) for view in views] == [(1024, 1024), (4, 1024), (8, 8)]


def _peak_of_training(fuse, device):
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).to(device)
    optimizer = None if fuse else torch.optim.SGD(model.parameters())
    if fuse:
        EX.step_in_backward.reference(model, torch.optim.SGD)
    torch.sim.reset_peak_memory_stats(device)
    for _ in range(2):
        model(torch.ones(1, 512, device=device)).sum().backward()
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()
    return torch.sim.max_memory_allocated(device) / sum(p.nbytes for p in model.parameters())


def test_a_step_in_backward_saves_the_gradients(sim):
    with memory.temporary_device("1 GB") as device:
        usual = _peak_of_training(False, device)
    with memory.temporary_device("1 GB") as device:
        fused = _peak_of_training(True, device)
    assert usual > 1.95
    assert fused < 1.4


def _peak_with(chosen, device):
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64), nn.Tanh()).to(device)
        for _ in range(5)
    ]
    x = torch.ones(2048, 64, device=device)
    torch.sim.reset_peak_memory_stats(device)
    for number, block in enumerate(blocks):
        x = checkpoint(block, x, use_reentrant=False) if number in chosen else block(x)
    x.sum().backward()
    return torch.sim.max_memory_allocated(device)


@pytest.mark.slow
def test_the_last_block_is_not_worth_a_checkpoint(sim):
    peaks = []
    for chosen in (set(), {4}, {0}, {0, 1, 2, 3}):
        with memory.temporary_device("1 GB") as device:
            peaks.append(_peak_with(chosen, device))
    none, last, first, all_but_last = peaks
    assert last >= 0.99 * none
    assert first < 0.9 * none
    assert all_but_last < 0.5 * none


def test_hottest_reads_a_real_profile():
    x = torch.randn(200, 200)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(20):
            F.linear(x, x).relu()
    events = profile.key_averages()
    names = hottest(events, 3)
    times = {event.key: event.self_cpu_time_total for event in events}
    assert len(names) == 3
    assert [times[name] for name in names] == sorted(times.values(), reverse=True)[:3]


def test_the_faulty_rows_say_what_the_task_says():
    rows = sorted(DEVICE_ROWS, key=lambda row: row.cuda_time_total, reverse=True)
    assert rows[0].key == "train_step"
    own = sum(row.self_device_time_total for row in rows)
    assert own == max(row.device_time_total for row in rows)


def test_collectives_are_those_of_torch_distributed(tmp_path):
    dist = torch.distributed
    if not dist.is_available():
        skip("This PyTorch has no torch.distributed.", until="2027-11-30")
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        rows = torch.randn(5, 3)
        mean, variance = EX.batch_statistics.reference(rows, dist)
        assert torch.allclose(mean, rows.mean(0), atol=1e-6)
        assert torch.allclose(variance, rows.var(0, correction=0), atol=1e-6)
        assert torch.equal(EX.gather_rows.reference(rows, dist), rows)
        saved = []
        wrapped = types.SimpleNamespace(module=nn.Linear(2, 1))
        EX.save_on_one.reference(wrapped, dist, saved.append)
        assert list(saved[0]) == ["weight", "bias"]
    finally:
        dist.destroy_process_group()


# --- the pictures


@pytest.fixture
def shown(monkeypatch):
    alts = []
    monkeypatch.setattr(drawings, "present", lambda fig, alt: alts.append(alt))
    return alts


@pytest.mark.parametrize("value", [todo(), None])
def test_what_is_not_written_yet_is_said_in_one_sentence(value, capsys):
    assert not drawings.written(value, "race")
    assert capsys.readouterr().out.count(".") == 1
    assert drawings.written([], "race")


def test_the_line_of_memory_says_where_the_card_is_full(shown):
    mib = 2**20
    drawings.memory_fit([1, 2], [30 * mib, 40 * mib], (20.0 * mib, 10.0 * mib), 100 * mib)
    assert "20.0 MiB" in shown[0] and "at 8 samples" in shown[0]


def test_gaps_are_drawn_and_said(shown):
    drawings.gradient_gaps(
        {"equal": {"plain": 1e-7, "BatchNorm": 0.14}, "ragged": {"plain": 0.0, "BatchNorm": 0.2}}
    )
    assert "equal: plain 1e-07, BatchNorm 0.1" in shown[0]


def test_formats_stand_side_by_side(capsys):
    drawings.comparison(
        {"float32": ([80.0, 82.0], 2e-3, 2**20), "float16": ([81.0, 83.0], 1e-3, 0)}, "modelled"
    )
    out = capsys.readouterr().out
    assert "81.0 (80.0 to 82.0)" in out and "2 ms" in out.replace("2.00", "2")
    assert "1 MiB" in out and "not metered" in out


def test_progress_is_counted_by_level(capsys):
    progress_file.record_attempt("09.race", "right")
    progress_file.record_attempt("09.waits", "not_yet", "no-end")
    progress_file.record_attempt("09.compare", "right")
    drawings.progress_by_level()
    (line,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("09")]
    right = [int(n) for n in re.findall(r"(\d+) of", line)]
    assert right == [0, 1, 1]
