"""What lesson 03 claims, checked on the notebook's own cells."""

from __future__ import annotations

import os
import pickle
import random
import re
import shutil
import warnings
import zipfile
from pathlib import Path
from statistics import median

import nbformat
import numpy as np
import pytest
import torch
from harness import NOTEBOOKS, code_cells

import simgpu
from course_lessons.lesson03 import drawings
from course_lessons.lesson03.step_losses import step_losses
from course_lessons.lesson03.training_script import TrainingProcess
from course_lessons.lesson03.waits import waits
from course_lessons.shared.edited import edited
from course_utils import load_digits, measure, plots
from course_utils.exercises import lesson as exercises
from course_utils.timing import Measurement

SYNCHRONISED = "called a synchronizing CUDA operation"
CELLS = [
    cell
    for cell in code_cells(nbformat.read(NOTEBOOKS / "03_training_loop.ipynb", as_version=4))
    if not {"generated", "exercise"} & set(cell.metadata.get("tags", []))
]


def run_cells(last: str) -> dict:
    """Run the lesson's cells, but no exercises, to the first that contains ``last``; return their names."""
    names: dict = {"__name__": "lesson03_cells"}
    for cell in CELLS:
        exec(compile(cell.source, f"<cell {cell.id}>", "exec"), names)
        if last in cell.source:
            return names
    raise AssertionError(f"no cell of the lesson holds {last!r}")


@pytest.fixture(scope="module")
def trained() -> dict:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_DEVICE", "cpu")
        return run_cells("counted = gradient(")


@pytest.mark.slow
def test_it_reads_as_well_on_the_simulated_device(simulated, monkeypatch):
    monkeypatch.setenv("COURSE_DEVICE", "sim")
    names = run_cells("looked at once")
    assert names["train_x"].device.type == next(names["model"].parameters()).device.type == "sim"
    assert names["accuracy"](names["model"], names["test_x"], names["test_y"]) > 0.97


@pytest.mark.slow
@pytest.mark.serial
class TestTraining:
    def test_it_reads_more_than_97_percent_of_new_digits(self, trained):
        model, x, y = trained["model"], trained["test_x"], trained["test_y"]
        assert trained["accuracy"](model.eval(), x, y) > 0.97

    def test_the_weights_that_are_tested_are_those_that_the_validation_digits_chose(self, trained):
        model, x, y = trained["model"], trained["val_x"], trained["val_y"]
        assert trained["accuracy"](model.eval(), x, y) == max(trained["passes"])

    def test_a_forgotten_eval_does_little_harm_with_data_like_the_training_data(self, trained):
        model, x, y = trained["model"], trained["val_x"], trained["val_y"]
        good = trained["accuracy"](model.eval(), x, y)
        state = {name: value.clone() for name, value in model.state_dict().items()}
        trained["accuracy"](model.train(), x, y, batch=25)
        after = trained["accuracy"](model.eval(), x, y)
        model.load_state_dict(state)
        assert abs(after - good) < 0.01

    def test_data_on_the_device_beat_the_loader_and_whole_batches_beat_single_digits(self, trained):
        load = trained["load"]
        plain, whole = (trained["loaders"][name] for name in ("DataLoader", "whole batches"))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # two threads on a busy machine wait for each other
        works = (trained["index"], lambda: load(plain), lambda: load(whole))
        try:  # in turn, so that a busy moment meets all three
            rounds = [
                [measure(work, device="cpu", min_seconds=0.1).median for work in works] for _ in range(7)
            ]
        finally:
            torch.set_num_threads(threads)
        # Usually 6 and 1.9, on one thread.
        assert median(loader / index for index, loader, _ in rounds) > 4
        assert median(loader / batches for _, loader, batches in rounds) > 1.3

    def test_evaluation_in_train_mode_does_the_damage_the_lesson_shows(self, trained):
        model, x, y = trained["model"], trained["val_x"], trained["val_y"]
        good = trained["accuracy"](model.eval(), x, y)
        state = {name: value.clone() for name, value in model.state_dict().items()}
        trained["accuracy"](model.train(), 255 - x, y, batch=25)
        spoiled = trained["accuracy"](model.eval(), x, y)
        model.load_state_dict(state)
        assert spoiled < good - 0.2

    def test_count_weighted_pieces_equal_the_large_batch_without_batch_norm(self, trained):
        net, x, y, pieces = (trained[name] for name in ("net", "x", "y", "pieces"))
        entropy, gradient = torch.nn.functional.cross_entropy, trained["gradient"]
        net.eval()
        large = gradient([entropy(net(x), y)])
        counted = gradient(entropy(net(a), b) * len(b) / len(y) for a, b in pieces)
        naive = gradient(entropy(net(a), b) / len(pieces) for a, b in pieces)
        assert (counted - large).norm() < 1e-5 * large.norm()
        assert (naive - large).norm() > 0.05 * large.norm()


@pytest.fixture(scope="module")
def lesson() -> dict:
    """Return the names that the training script's cells define."""
    names: dict = {"random": random, "Path": Path, "__name__": "lesson03_script"}
    exec(CELLS[0].source.split("device = get_device()")[0], names)
    for cell in CELLS:
        if cell.metadata.get("course", {}).get("script"):
            exec(cell.source, names)
    return names


@pytest.fixture
def run(lesson):
    states = random.getstate(), torch.get_rng_state()
    yield lesson["new_run"](torch.device("cpu"), steps=60)
    random.setstate(states[0])
    torch.set_rng_state(states[1])


def digits(lesson, n=60):
    data = lesson["load_digits"]()
    return data.train_x[:n], data.train_y[:n]


def draws() -> tuple:
    return random.random(), float(torch.rand(()))


def test_a_checkpoint_holds_every_part_and_every_generator(lesson, run, tmp_path):
    x, y = digits(lesson)
    lesson["train"](run, x, y, epochs=1, folder=tmp_path, batch=10, every=4)
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    assert {"model", "optimizer", "scheduler", "epoch", "step", "order"} <= set(saved)
    assert {"torch_rng", "python_rng"} <= set(saved)
    assert saved["optimizer"]["state"] and saved["scheduler"]["last_epoch"] == 6
    expected = draws()

    other = lesson["new_run"](torch.device("cpu"), steps=60, seed=5)
    assert lesson["load_checkpoint"](other, tmp_path) == "last.pt"
    assert draws() == expected
    assert (other.epoch, other.step) == (1, 0)
    assert torch.equal(other.order, run.order)


@pytest.fixture(params=["cpu", "sim"])
def device(request):
    if request.param == "cpu":
        return torch.device("cpu")
    return request.getfixturevalue("simulated").first()


def finished(lesson, device, folder, stop_at=None):
    """Train for two short epochs; if ``stop_at`` is set, stop at that save and resume in a new run."""
    x, y = (part.to(device) for part in digits(lesson))
    folder.mkdir()
    saves, save = [], lesson["save_checkpoint"]

    def stopping(run, folder):
        save(run, folder)
        saves.append(run.step)
        if len(saves) == stop_at:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(lesson, "save_checkpoint", stopping)
        for seed in (0, 1):  # what is not in the checkpoint is another in the second run
            try:
                run = lesson["new_run"](device, steps=12, seed=seed)
                lesson["train"](run, x, y, epochs=2, folder=folder, batch=10, every=2)
                break
            except KeyboardInterrupt:
                continue
    return run.model.state_dict()


def equal(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.slow
def test_a_stopped_run_ends_with_the_same_bits(lesson, run, device, tmp_path):
    alone = finished(lesson, device, tmp_path / "alone")
    assert all(value.device == device for value in alone.values())
    assert equal(alone, finished(lesson, device, tmp_path / "stopped", stop_at=4))


@pytest.mark.slow
def test_on_a_device_its_own_generator_is_part_of_the_checkpoint(lesson, run, device, tmp_path):
    lesson["save_checkpoint"](lesson["new_run"](device, steps=12), tmp_path)
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    kept = {name for name in saved if name.endswith("_rng")}
    assert kept == {"torch_rng", "python_rng", f"{device.type}_rng"} - {"cpu_rng"}
    alone = finished(lesson, device, tmp_path / "alone")
    without = f"{device.type}_rng" if device.type != "cpu" else "torch_rng"
    save = lesson["save_atomic"]

    def forgetful(state, path):
        states = {"torch_rng": torch.Generator().get_state()} if without == "torch_rng" else {}
        save({name: part for name, part in state.items() if name != without} | states, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(lesson, "save_atomic", forgetful)
        stopped = finished(lesson, device, tmp_path / "stopped", stop_at=4)
    assert not equal(alone, stopped)


def test_a_checkpoint_of_another_kind_of_device_loads(lesson, run, device, tmp_path):
    lesson["save_checkpoint"](run, tmp_path)
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    saved.pop(f"{device.type}_rng", None)
    saved["another_rng"] = torch.zeros(16, dtype=torch.uint8)  # CUDA's state has 16 bytes
    torch.save(saved, tmp_path / "last.pt")
    lesson["load_checkpoint"](lesson["new_run"](device, steps=12), tmp_path)


@pytest.mark.parametrize("call", ["copy", "save", "fsync", "replace"])
def test_a_save_that_fails_anywhere_leaves_a_whole_checkpoint(lesson, run, tmp_path, monkeypatch, call):
    save, load = lesson["save_checkpoint"], lesson["load_checkpoint"]
    for step in (1, 2):
        run.step = step
        save(run, tmp_path)
    run.step = 3

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    def half_copied(source, target):
        target.write_bytes(source.read_bytes()[:100])
        fail()

    with monkeypatch.context() as patch:
        if call == "copy":
            patch.setattr(shutil, "copyfile", half_copied)
        elif call == "save":
            patch.setattr(torch, "save", lambda state, file: (file.write(b"half"), fail()))
        else:
            patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space"):
            save(run, tmp_path)
    assert load(run, tmp_path) in ("last.pt", "previous.pt")
    assert run.step == 2
    run.step = 4
    save(run, tmp_path)
    load(run, tmp_path)
    assert run.step == 4
    assert not (tmp_path / "last.pt.new").exists()


def cut(length):
    return lambda data, content: data[:length]


def flip(data, content):
    """Flip a bit in the middle of ``content`` within the data."""
    where = data.index(content) + len(content) // 2
    return data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :]


@pytest.mark.parametrize(
    ("damage", "part"),
    [(cut(length), "data.pkl") for length in (0, 1, 4, 20, 100, 5000, -22, -1)]
    + [(flip, part) for part in ("data.pkl", "data/0", "data/1", "data/20", "data/30")],
)
def test_a_damaged_checkpoint_is_refused(lesson, run, tmp_path, capsys, damage, part):
    x, y = digits(lesson)
    lesson["train"](run, x, y, epochs=1, folder=tmp_path, batch=10, every=2)
    last = tmp_path / "last.pt"
    with zipfile.ZipFile(last) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(f"/{part}"))
        content = archive.read(name)
    last.write_bytes(damage(last.read_bytes(), content))
    good = torch.load(tmp_path / "previous.pt", weights_only=True)
    capsys.readouterr()
    assert lesson["load_checkpoint"](run, tmp_path) == "previous.pt"
    assert (run.epoch, run.step) == (good["epoch"], good["step"])
    said = capsys.readouterr().out
    assert said == "last.pt is cut short or damaged: put aside as last.pt.damaged.\n"
    run.step = 3
    lesson["save_checkpoint"](run, tmp_path)  # must not push the damaged one over the good one
    assert torch.load(tmp_path / "last.pt", weights_only=True)["step"] == 3
    assert torch.load(tmp_path / "previous.pt", weights_only=True)["step"] == good["step"]


def test_without_any_good_checkpoint_the_run_does_not_begin_anew(lesson, run, tmp_path):
    (tmp_path / "last.pt").write_bytes(b"")
    with pytest.raises(RuntimeError, match=r"No checkpoint in .* can be read"):
        lesson["load_checkpoint"](run, tmp_path)
    assert (tmp_path / "last.pt.damaged").exists()


def test_a_file_that_carries_code_is_not_run(lesson, run, tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "trapped",)

    torch.save({"model": Trap()}, tmp_path / "last.pt")
    with pytest.raises(RuntimeError, match="No checkpoint"):
        lesson["load_checkpoint"](run, tmp_path)
    assert not (tmp_path / "trapped").exists()
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "last.pt.damaged", weights_only=True)


def test_the_whole_loop_in_one_cell_is_plain_pytorch(capsys):
    (cell,) = (cell.source for cell in CELLS if "train_loader = DataLoader(" in cell.source)
    assert len(cell.splitlines()) <= 25 and "course" not in cell and "test" not in cell
    torch.manual_seed(0)
    names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "digits": load_digits()}
    exec(cell, names | {"device": torch.device("cpu")})
    said = [float(share) for share in re.findall(r"accuracy ([0-9.]+)%", capsys.readouterr().out)]
    assert len(said) == 3 and said[-1] > 85


def test_the_constants_of_prepare_are_those_of_the_training_images(lesson):
    prepared = lesson["prepare"](load_digits().train_x[:7000])
    assert prepared.shape == (7000, 1, 28, 28)
    assert abs(prepared.mean()) < 1e-3 and abs(prepared.std() - 1) < 1e-3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("v.sum().item()", "waits"),
        ("v[v > 0]", "waits"),
        ("v.nonzero()", "waits"),
        ("torch.tensor([1.0], device=v.device)", "waits"),
        ("v[torch.tensor([0, 1])]", "waits"),
        ("torch.ones(64, 784).to(v.device)", "waits"),
        ("torch.ones(64, 784).pin_memory().to(v.device, non_blocking=True)", "runs on"),
        ("[x.item() for x in v[:3]]", "waits 3 times"),
        ("torch.where(v > 0, v, 0)", "runs on"),
        ("v * 2", "runs on"),
    ],
)
def test_hidden_waits_are_seen_without_a_gpu(simulated, line, said):
    assert waits(line, torch.device("cpu")) == said


@pytest.mark.filterwarnings(f"ignore:{SYNCHRONISED}")
def test_on_cuda_hidden_waits_are_what_its_debug_mode_warns_of(monkeypatch):
    """PyTorch's side is played: its mode is set for the line alone, and put back."""
    modes = []
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device: self)
    monkeypatch.setattr(torch.Tensor, "item", lambda self: warnings.warn(SYNCHRONISED, stacklevel=2))
    assert waits("v.sum().item()", torch.device("cuda")) == "waits"
    assert modes == ["warn", 0]
    assert waits("v * 2", torch.device("cuda")) == "runs on"


def measured(seconds):
    machine = ("cpu", "a CPU", "2.13", 2, "2026-11-21")
    return Measurement("", seconds, 0.9 * seconds, 1.2 * seconds, 5, *machine)


@pytest.fixture
def drawn(monkeypatch):
    """Return a list that fills with the figures drawn and their alternative texts."""
    shown = []
    monkeypatch.setattr(drawings, "present", lambda fig, alt: shown.append((fig, alt)))
    yield shown
    plots.plt.close("all")


def test_loading_is_drawn_on_a_linear_axis_beside_the_time_of_the_training(drawn):
    times = {"indexing": measured(1e-3), "a loader": measured(9e-3)}
    drawings.loading_times(times, measured(0.1))
    ((fig, alt),) = drawn
    (ax,) = fig.axes
    assert ax.get_xscale() == "linear" and "measured on cpu" in ax.get_xlabel()
    assert [text.get_text().strip() for text in ax.texts] == [
        "1 ms, 1% of the training",
        "9 ms, 9% of the training",
    ]
    assert "takes 100 ms" in alt and "a loader 9 ms" in alt


def test_the_digits_it_got_wrong_are_drawn_with_label_and_guess(drawn):
    labels, guesses = torch.tensor([1, 2, 3, 4]), torch.tensor([1, 7, 3, 9])
    drawings.wrong_digits(torch.zeros(4, 28, 28, dtype=torch.uint8), labels, guesses)
    drawings.wrong_digits(torch.zeros(4, 28, 28, dtype=torch.uint8), labels, labels)
    assert [alt for _, alt in drawn] == [
        "2 of 4 digits were read wrongly. Drawn: 2 as 7, 4 as 9.",
        "0 of 4 digits were read wrongly. Drawn: .",
    ]


def process(first, *losses):
    """Return a stand-in for a training process that saved every 5 steps, with 20 steps in an epoch."""
    points = [divmod(step, 20) for step in range(first - 5, first + 5 * len(losses) - 5, 5)]
    lines = [f"saved epoch {e}, step {s + 5}: loss {x:.4f}" for (e, s), x in zip(points, losses, strict=True)]
    made = TrainingProcess.__new__(TrainingProcess)
    made.output = ["start", *lines]
    return made


def test_a_run_that_goes_on_elsewhere_is_seen_in_the_picture(drawn):
    alone, killed = process(5, 2.5, 2.0, 1.5, 1.0, 0.8), process(5, 2.5, 2.0, 1.5)
    drawings.killed_and_resumed(alone, killed, process(20, 1.0, 0.8))
    drawings.killed_and_resumed(alone, killed, process(20, 1.0, 0.3))
    alike, apart = (alt for _, alt in drawn)
    assert "killed at step 15" in alike and "at most 0." in alike
    assert "at most 0.5." in apart


def test_other_pictures_say_what_they_show(drawn):
    drawings.training([2.0, 0.5, 0.1, 0.05], 25, [0.9, 0.98], 100)
    drawings.running_means(torch.zeros(4), torch.tensor([0.0, 1.0, -3.0, 2.0]))
    drawings.gradient_errors({"divided by 4": 1.3, "weighted\nby count": 4e-7})
    loss, means, errors = (alt for _, alt in drawn)
    assert "from 2 to 0.05" in loss and "90.0%, 98.0%" in loss
    assert "4 channels" in means and "change is 3." in means
    assert "divided by 4: 1.3; weighted by count: 4e-07" in errors
    assert [text.get_text().strip() for text in drawn[2][0].axes[0].texts] == [
        "130 %",
        "0 %, but for rounding",
    ]


def test_of_three_pairs_of_shuffles_the_first_and_the_last_are_equal(capsys):
    (cell,) = (cell.source for cell in CELLS if "def shuffle(" in cell.source)
    exec(cell.replace("lines_true.reveal", "str"), {"torch": torch})
    said = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert said == ["True", "False", "True"]


# The exercises: answers beyond the known wrong ones.


_END = "torch.stack(losses).tolist()"


def _in_buffer(buffer):
    """Return edits that write the losses to a buffer and read it immediately."""
    return {
        "losses = []": f"losses = {buffer}",
        "for x, y in batches": "for i, (x, y) in enumerate(batches)",
        "losses.append(loss.detach())": "losses[i] = loss.detach()",
        _END: "losses.tolist()",
    }


def judged(edits):
    result = exercises("03").step_losses.result(edited(step_losses, edits, np=np))
    return result.diagnosis or result.outcome, result.bundle().text


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (_END, "right"),
        ("torch.stack(losses).cpu().numpy().tolist()", "right"),
        ("torch.tensor(losses).tolist()", "reads-at-the-end"),
        ("torch.as_tensor([losses]).flatten().tolist()", "reads-at-the-end"),
        ("torch.FloatTensor(losses).tolist()", "reads-at-the-end"),
        ("[float(loss) for loss in losses]", "reads-at-the-end"),
    ],
)
def test_reads_are_counted_however_they_are_written(monkeypatch, end, outcome):
    for problem in (simgpu.unavailable_reason(), "This torch is too old."):
        monkeypatch.setattr(simgpu, "problem", lambda problem=problem: problem)
        diagnosis, text = judged({_END: end})
        assert diagnosis == outcome, text


@pytest.mark.parametrize(
    ("edits", "outcome"),
    [
        (_in_buffer("torch.zeros(len(batches))"), "reads-each-step"),
        (_in_buffer("torch.zeros(len(batches), device=batches[0][0].device)"), "right"),
        ({_END: "[float(loss) for loss in torch.stack(losses).cpu()]"}, "right"),
        ({_END: "[float(loss) for loss in torch.stack(losses)]"}, "reads-at-the-end"),
        ({_END: "np.array(losses).tolist()"}, "TypeError"),  # as on a GPU
    ],
)
def test_only_what_leaves_the_device_is_a_read(simulated, edits, outcome):
    diagnosis, text = judged(edits)
    assert diagnosis == outcome, text


def test_training_validation_and_test_digits_are_apart():
    names: dict = {"__name__": "lesson03_cells"}
    exec(CELLS[0].source, names)
    data = load_digits()
    together = [names[f"{part}_x"].cpu() for part in ("train", "val", "test")]
    assert [len(x) for x in together] == [7000, 1000, 2000]
    assert torch.equal(torch.cat(together), torch.cat([data.train_x, data.test_x]))


def test_the_test_digits_are_looked_at_in_one_cell_alone():
    looked = [cell.id for cell in CELLS if re.search(r"\btest_[xy]\b", cell.source)]
    assert looked == [CELLS[0].id, "test-once"]
