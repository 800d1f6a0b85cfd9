"""What lesson 03 claims, checked on the notebook's own cells."""

from __future__ import annotations

import re
import warnings
from statistics import median

import nbformat
import numpy as np
import pytest
import torch
from harness import NOTEBOOKS, code_cells

import simgpu
from course_lessons.lesson03 import drawings
from course_lessons.lesson03.step_losses import step_losses
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


def test_the_whole_loop_in_one_cell_is_plain_pytorch(capsys):
    (cell,) = (cell.source for cell in CELLS if "train_loader = DataLoader(" in cell.source)
    assert len(cell.splitlines()) <= 25 and "course" not in cell and "test" not in cell
    torch.manual_seed(0)
    names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "digits": load_digits()}
    exec(cell, names | {"device": torch.device("cpu")})
    said = [float(share) for share in re.findall(r"accuracy ([0-9.]+)%", capsys.readouterr().out)]
    assert len(said) == 3 and said[-1] > 85


def test_the_constants_of_prepare_are_those_of_the_training_images():
    (cell,) = (cell for cell in CELLS if "def prepare(" in cell.source)
    names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    exec(cell.source, names)
    prepared = names["prepare"](load_digits().train_x[:7000])
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
