"""What lesson 04 claims, checked on the notebook's own cells."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import zipfile
from pathlib import Path

import nbformat
import pytest
import torch
from harness import NOTEBOOKS, code_cells

from course_lessons.lesson04 import drawings
from course_lessons.lesson04.training_script import TrainingProcess
from course_utils import plots

CELLS = [
    cell
    for cell in code_cells(nbformat.read(NOTEBOOKS / "04_checkpoints.ipynb", as_version=4))
    if not {"generated", "exercise"} & set(cell.metadata.get("tags", []))
]


@pytest.fixture(scope="module")
def lesson() -> dict:
    """Return the names that the training script's cells define."""
    names: dict = {"random": random, "Path": Path, "__name__": "lesson04_script"}
    exec(CELLS[0].source, names)
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


def test_the_network_is_that_of_lesson_03():
    (before,) = (
        cell.source
        for cell in nbformat.read(NOTEBOOKS / "03_training_loop.ipynb", as_version=4).cells
        if cell.cell_type == "code" and "def small_cnn(" in cell.source
    )
    (cell,) = (cell for cell in CELLS if "def small_cnn(" in cell.source)
    assert before.startswith(cell.source)


@pytest.fixture
def drawn(monkeypatch):
    """Return a list that fills with the figures drawn and their alternative texts."""
    shown = []
    monkeypatch.setattr(drawings, "present", lambda fig, alt: shown.append((fig, alt)))
    yield shown
    plots.plt.close("all")


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


def test_of_three_pairs_of_shuffles_the_first_and_the_last_are_equal(capsys):
    (cell,) = (cell.source for cell in CELLS if "def shuffle(" in cell.source)
    exec(cell.replace("lines_true.reveal", "str"), {"torch": torch})
    said = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert said == ["True", "False", "True"]
