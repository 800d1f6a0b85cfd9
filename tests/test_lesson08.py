"""Lesson 08: its checks accept right answers of other kinds, refuse more wrong ones, and count what they say."""

from __future__ import annotations

import copy
import math
import pickle
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from support import skip
from torch import nn
from torch.nn import functional as F

from course_utils import drawings, progress, simgpu
from course_utils.devices import synchronize
from course_utils.exercises import lesson, todo
from course_utils.exercises.lesson08 import devices, loop, precision, takehome

EX = lesson("08")


@pytest.fixture
def sim():
    if problem := simgpu.problem():
        skip(problem, until="2027-11-30")


def judged(name, answer):
    result = getattr(EX, name).result(answer)
    return result.outcome, result.diagnosis


# --- right answers of other kinds


def race_with_moved_matrices(sizes, devices, measure):
    def seconds(n, device):
        a, b = torch.randn(n, n).to(device), torch.randn(n, n).to(device)

        def product():
            torch.mm(a, b)

        return measure(product, "product", device=device).median

    found = []
    for n in sizes:
        first, second = seconds(n, devices[0]), seconds(n, devices[1])
        found.append([n, first, second, first / second])
    return found


def crossover_from_below(rows):
    wins = [(n, ratio > 1) for n, _, _, ratio in sorted(rows)]
    return next((n for i, (n, _) in enumerate(wins) if all(w for _, w in wins[i:])), None)


def compare_warming_up_first(formats, seeds, train, accuracy, machine):
    for dtype in formats.values():
        accuracy(train(dtype, 99))
    found = {}
    for name, dtype in formats.items():
        runs = []
        for seed in seeds:
            machine.synchronize()
            machine.reset_peak()
            begin = machine.clock()
            model = train(dtype, seed)
            machine.synchronize()
            runs.append((machine.clock() - begin, machine.peak(), accuracy(model)))
        times, peaks, scores = zip(*runs, strict=True)
        found[name] = [list(scores), float(np.median(times)), max(peaks)]
    return found


def memory_line_by_least_squares(make_step, batches, meter):
    def peak(batch):
        step = make_step(batch)
        for _ in range(3):
            meter.reset_peak_memory_stats()
            step()
        return meter.max_memory_allocated()

    table = np.stack([np.ones(len(batches)), batches], axis=1)
    return list(np.linalg.lstsq(table, np.array([peak(n) for n in batches]), rcond=None)[0])


def accumulation_gap_by_autograd(model, loss_fn, x, y, size):
    weights = list(model.parameters())

    def gradient(cuts):
        state = copy.deepcopy(model.state_dict())
        total = [torch.zeros_like(p) for p in weights]
        for a, b in pairwise(cuts):
            loss = loss_fn(model(x[a:b]), y[a:b])
            for t, g in zip(total, torch.autograd.grad(loss, weights), strict=True):
                t += g * (b - a) / len(x)
        model.load_state_dict(state)
        return nn.utils.parameters_to_vector(total)

    n = len(x)
    whole = gradient([0, n])
    return float((gradient([*range(0, n, size), n]) - whole).norm() / whole.norm())


def gpu_list_by_name(cuda):
    return [
        f"cuda:{i} {cuda.get_device_name(i)}, "
        f"{cuda.get_device_properties(f'cuda:{i}').total_memory / 1024**3:.1f} GiB"
        for i in range(cuda.device_count())
    ]


def bad_labels_one_by_one(labels, classes, ignore_index=-100):
    return [
        i
        for i, label in enumerate(labels.tolist())
        if label != ignore_index and not 0 <= label < classes
    ]


def as_numpy_by_force(tensor):
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(force=True)


def first_that_runs_with_a_dict(work, devices):
    said = {}
    for device in devices:
        try:
            result = work(device)
        except (AssertionError, RuntimeError) as error:
            said[device] = error
        else:
            return (device, result)
    raise RuntimeError(f"nothing works: {said}")


def predictions_from_one_tensor(model, batches, landing, device):
    return torch.cat([model(x).argmax(1) for x in batches]).tolist()


def predictions_by_pieces(model, batches, landing, device):
    places = landing.split([len(x) for x in batches])
    for x, place in zip(batches, places, strict=True):
        place.copy_(torch.argmax(model(x), -1), non_blocking=True)
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return [int(k) for k in landing]


def left_behind_by_walking(module, device):
    found = set()

    def walk(value):
        if isinstance(value, torch.Tensor):
            return value.device != device
        if isinstance(value, nn.Module):
            return any(t.device != device for t in value.state_dict(keep_vars=True).values())
        if isinstance(value, dict):
            return any([walk(v) for v in value.values()])
        return isinstance(value, (list, tuple)) and any([walk(v) for v in value])

    for path, part in module.named_modules():
        own = {
            k: v for k, v in vars(part).items() if k not in ("_parameters", "_buffers", "_modules")
        }
        for name, value in {**part._parameters, **part._buffers, **own}.items():
            if walk(value):
                found.add(f"{path}.{name}" if path else name)
    return sorted(found)


def optimizer_steps_by_counting(samples, batch_size, accumulate, epochs, drop_last=False):
    steps = 0
    for _ in range(epochs):
        sizes = [len(part) for part in torch.arange(samples).split(batch_size)]
        sizes = [size for size in sizes if size == batch_size or not drop_last]
        steps += len(range(0, len(sizes), accumulate))
    return steps


def keep_best_by_clones(model, train_epoch, score, epochs):
    history = []
    for _ in range(epochs):
        train_epoch(model)
        history.append(
            (score(model), {k: v.detach().clone() for k, v in model.state_dict().items()})
        )
    history = [entry for entry in history if not math.isnan(entry[0])]
    best = max(history, key=lambda entry: entry[0])
    model.load_state_dict(best[1])
    return best[0]


def newest_by_pattern(folder, load):
    found = {}
    for file in folder.iterdir():
        if match := re.fullmatch(r"step_(\d+)\.pt", file.name):
            found[int(match[1])] = file
    for step in sorted(found)[::-1]:
        try:
            state = load(found[step])
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            continue
        return state
    return None


def train_watched_by_a_counter(model, batches, optimizer, every):
    first = torch.full((), len(batches), device=batches[0][0].device)
    for step, (x, y) in enumerate(batches):
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        bad = torch.where(loss.detach().isfinite(), len(batches), step)
        first = torch.minimum(first, bad)
        if (step + 1) % every == 0 or step + 1 == len(batches):
            found = int(first)
            if found < len(batches):
                return found
    return None


def without_sigmoid_in_other_words(model):
    def loss(logits, targets):
        return F.binary_cross_entropy_with_logits(logits, targets)

    return nn.Sequential(*list(model)[:-1]), loss, lambda logits: logits.sigmoid() > 0.5


def fit_mixed_in_two_branches(model, batches, optimizer):
    where = next(model.parameters()).device
    on_cpu = where.type == "cpu"
    scaler = None if on_cpu else torch.amp.GradScaler(where.type)
    for x, y in batches:
        optimizer.zero_grad()
        x, y = x.to(where, non_blocking=True), y.to(where, non_blocking=True)
        with torch.amp.autocast(where.type, torch.bfloat16 if on_cpu else torch.float16):
            outputs = model(x)
        loss = F.cross_entropy(outputs.float(), y)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()


def averaged_by_the_formula(states, decay):
    average = None
    for state in states:
        now = copy.deepcopy(state)
        now = {k: v.float() if v.is_floating_point() else v for k, v in now.items()}
        for k, v in now.items():
            if average and v.is_floating_point():
                now[k] = decay * average[k] + (1 - decay) * v
        average = now
    return average


def two_steps_unscaling_first(model, x, y, loss_fn, optimizers, scaler, dtype):
    model.zero_grad()
    with torch.amp.autocast(x.device.type, dtype):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
    for optimizer in reversed(optimizers):
        scaler.step(optimizer)
    scaler.update()
    return loss.detach().clone()


RIGHT = [
    ("race", race_with_moved_matrices),
    ("crossover", crossover_from_below),
    ("compare", compare_warming_up_first),
    ("memory_line", memory_line_by_least_squares),
    ("accumulation_gap", accumulation_gap_by_autograd),
    ("gpu_list", gpu_list_by_name),
    ("bad_labels", bad_labels_one_by_one),
    ("as_numpy", as_numpy_by_force),
    ("first_that_runs", first_that_runs_with_a_dict),
    ("predictions", predictions_from_one_tensor),
    ("predictions", predictions_by_pieces),
    ("left_behind", left_behind_by_walking),
    ("optimizer_steps", optimizer_steps_by_counting),
    ("waits", 15.0),
    ("keep_best", keep_best_by_clones),
    ("newest", newest_by_pattern),
    ("train_watched", train_watched_by_a_counter),
    ("leaving", [str(name) for name in precision.LEAVING]),
    ("leaving", tuple(getattr(torch, name) for name in precision.LEAVING)),
    ("without_sigmoid", without_sigmoid_in_other_words),
    ("fit_mixed", fit_mixed_in_two_branches),
    ("averaged", averaged_by_the_formula),
    ("two_steps", two_steps_unscaling_first),
]


@pytest.mark.parametrize(
    ("name", "answer"), RIGHT, ids=[f"{n}-{i}" for i, (n, _) in enumerate(RIGHT)]
)
def test_another_right_answer_is_right(name, answer):
    assert judged(name, answer) == ("right", "")


# --- more wrong answers


def compare_first_seed_warms_up(formats, seeds, train, accuracy, machine):
    return takehome.compare(formats, [seeds[0], *seeds], train, accuracy, machine)


def keep_best_on_the_host(model, train_epoch, score, epochs):
    best = -math.inf
    for _ in range(epochs):
        train_epoch(model)
        found = score(model)
        if found > best:
            best, kept = found, {k: v.cpu() for k, v in model.state_dict().items()}
    model.load_state_dict(kept)
    return best


def predictions_waiting_in_each_round(model, batches, landing, device):
    start = 0
    for x in batches:
        landing[start : start + len(x)].copy_(model(x).argmax(1), non_blocking=True)
        start += len(x)
        synchronize(device)
    return landing.tolist()


def predictions_before_the_last(model, batches, landing, device):
    start = 0
    for i, x in enumerate(batches):
        landing[start : start + len(x)].copy_(model(x).argmax(1), non_blocking=True)
        start += len(x)
        if i == len(batches) - 2:
            synchronize(device)
    return landing.tolist()


def train_watched_reading_a_flag(model, batches, optimizer, every):
    for step, (x, y) in enumerate(batches):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not loss.isfinite():
            return step
    return None


def fit_mixed_scaling_by_hand(model, batches, optimizer):
    where = next(model.parameters()).device
    dtype = torch.bfloat16 if where.type == "cpu" else torch.float16
    scale = 1.0 if where.type == "cpu" else 2.0**16
    for x, y in batches:
        with torch.autocast(where.type, dtype=dtype):
            loss = F.cross_entropy(model(x.to(where)), y.to(where))
        optimizer.zero_grad()
        (loss * scale).backward()
        for p in model.parameters():
            p.grad /= scale
        optimizer.step()


def fit_mixed_with_the_old_scaler(model, batches, optimizer):
    where = next(model.parameters()).device
    dtype = torch.bfloat16 if where.type == "cpu" else torch.float16
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    for x, y in batches:
        with torch.autocast(where.type, dtype=dtype):
            loss = F.cross_entropy(model(x.to(where)), y.to(where))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)


def two_steps_after_checking(model, x, y, loss_fn, optimizers, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    model.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizers[0])
    optimizers[1].step()
    scaler.update()
    return loss.detach()


WRONG = [
    ("compare", compare_first_seed_warms_up, "too-many-runs"),
    ("keep_best", keep_best_on_the_host, "last-weights"),
    ("predictions", predictions_waiting_in_each_round, "waits-each"),
    ("predictions", predictions_before_the_last, "too-early"),
    ("train_watched", train_watched_reading_a_flag, "reads-often"),
    ("fit_mixed", fit_mixed_scaling_by_hand, "steps-on"),
    ("fit_mixed", fit_mixed_with_the_old_scaler, "deprecated"),
    ("two_steps", two_steps_after_checking, "other-step"),
    ("waits", 14, "no-end"),
    ("waits", 17, "all-prints"),
    ("waits", 100, "wrong-count"),
    ("leaving", ("float16", "half", "float16", "float16", "float32", "float16"), "no-dtype"),
    ("leaving", ("float16", "float32"), "six"),
]


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize(
    ("name", "answer", "diagnosis"),
    WRONG,
    ids=[f"{n}-{d}-{i}" for i, (n, _, d) in enumerate(WRONG)],
)
def test_another_wrong_answer_is_refused(name, answer, diagnosis):
    assert judged(name, answer) == ("not_yet", diagnosis)


def test_the_misspelled_field_of_the_tutorial_raises_what_cuda_raises():
    def gpu_list(cuda):
        return [f"{cuda.get_device_properties(0).total_mem / 1e9:.1f} GB"]

    result = EX.gpu_list.result(gpu_list)
    assert (result.outcome, result.diagnosis) == ("raised", "AttributeError")
    assert "total_mem" in result.bundle().text


# --- what the texts promise


@pytest.mark.usefixtures("sim")
def test_stored_answers_are_those_of_a_run():
    assert loop.count_waits() == loop.WAITS == loop.waits()
    assert precision.traced_dtypes() == precision.LEAVING == precision.leaving()


def test_the_code_in_a_task_is_the_code_that_is_run():
    import inspect

    for task, function in (
        (EX.waits.task, loop.four_steps),
        (EX.leaving.task, precision.six_results),
    ):
        assert inspect.getsource(function).strip() in task


@pytest.mark.parametrize("module", [takehome, devices, loop, precision])
def test_answers_are_judged_without_the_simulated_device_too(module, monkeypatch):
    monkeypatch.setattr(simgpu, "problem", lambda: "No simulated device here.")
    for exercise in module.EXERCISES:
        answer = exercise.reference() if exercise.wants_value else exercise.reference
        assert exercise.result(answer).outcome == "right", exercise.id


def test_checks_leave_the_learners_devices_alone(sim):
    before = simgpu.enable(devices=1)
    for name in ("race", "predictions", "left_behind", "train_watched", "fit_mixed", "waits"):
        exercise = getattr(EX, name)
        answer = exercise.reference() if exercise.wants_value else exercise.reference
        assert exercise.result(answer).outcome == "right"
    assert torch.accelerator.device_count() == 1
    assert torch.sim.memory_allocated(before) == 0


def test_levels_are_mixed_and_rise_within_a_subject():
    levels = [exercise.level for exercise in EX]
    assert all(levels.count(level) >= 7 for level in (1, 2, 3))
    for subject in (devices, loop, precision):
        mine = [exercise.level for exercise in subject.EXERCISES]
        assert mine == sorted(mine)


def test_no_problem_repeats_the_name_of_another_lesson():
    others = {e.slug for i in range(8) for e in lesson(f"0{i}")}
    assert not others & {e.slug for e in EX}


# --- the pictures


@pytest.fixture
def shown(monkeypatch):
    alts = []
    monkeypatch.setattr(drawings.lesson08, "present", lambda fig, alt: alts.append(alt))
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
    said = capsys.readouterr().out
    assert "81.0 (80.0 to 82.0)" in said and "2 ms" in said.replace("2.00", "2")
    assert "1 MiB" in said and "not metered" in said


def test_progress_is_counted_by_level(capsys):
    progress.note("08.race", "right")
    progress.note("08.waits", "not_yet", "no-end")
    progress.note("08.compare", "right")
    drawings.progress_by_level()
    (line,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("08")]
    right = [int(n) for n in re.findall(r"(\d+) of", line)]
    assert right == [0, 1, 1]
