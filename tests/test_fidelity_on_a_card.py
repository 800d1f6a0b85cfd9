"""The comparison with a real card: both sides' figures, what is off, and a machine without a card."""

import json

import pytest
import torch
from support import skip
from torch import nn

import simgpu
from course_utils.timing import measure
from tools.records import fidelity
from tools.records.fidelity import Case, compare, report

pytestmark = pytest.mark.slow

CASE = Case("MLP", "fp32", 8)
REAL = {"memory": 1000, "held": 0, "seconds": 1e-3}


class Inline:
    """Stands for a process of its own: does the work at once, in this one."""

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, function, *args):
        self.result = lambda: function(*args)
        return self

    map = staticmethod(map)


@pytest.fixture
def tiny(monkeypatch):
    """Compare one small model at one batch size, in this process."""
    if problem := simgpu.problem():
        skip(problem, until="2027-11-30")
    made = {"MLP": (lambda: nn.Linear(4, 10), (4,))}
    monkeypatch.setattr(fidelity, "MODELS", made)
    monkeypatch.setattr(fidelity, "QUICK", (2,))
    monkeypatch.setattr(fidelity, "ProcessPoolExecutor", Inline)


@pytest.fixture
def card(monkeypatch, tiny):
    """Pretend that there is a card, which finds what the simulated one finds, times a factor."""

    def pretend(memory=1.0, seconds=1.0, name="NVIDIA H200"):
        def measured(case):
            found = fidelity.modelled("H200", case)
            return {
                "memory": found["memory"] * memory,
                "held": 3 * 2**20,
                "seconds": found["seconds"] * seconds,
            }

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(fidelity, "measured", measured)
        monkeypatch.setattr(fidelity, "machine", lambda devices: {"device": name})

    return pretend


def scaled(**factors):
    return {what: value * factors.get(what, 1) for what, value in REAL.items()}


@pytest.mark.parametrize(
    ("what", "factor", "good"),
    [
        ("memory", 1.04, True),
        ("memory", 0.96, True),
        ("memory", 1.06, False),
        ("memory", 0.94, False),
        ("seconds", 1.29, True),
        ("seconds", 0.71, True),
        ("seconds", 1.31, False),
        ("seconds", 0.69, False),
    ],
)
def test_memory_may_be_5_percent_off_and_time_30(what, factor, good):
    entry = compare(CASE, scaled(**{what: factor}), REAL)
    other = "memory" if what == "seconds" else "seconds"
    assert entry["within"] == {what: good, other: True}
    assert entry["ratio"] == {what: factor, other: 1}


def test_the_report_names_what_is_off_and_how_far():
    entries = [
        compare(CASE, REAL, {**REAL, "held": 8519680}),
        compare(CASE._replace(batch=32), scaled(memory=0.5), REAL),
        compare(Case("CNN", "bf16", 8), scaled(memory=0.25, seconds=2), REAL),
        compare(Case("CNN", "bf16", 32), scaled(memory=0.75), REAL),
    ]
    lines = report(entries).splitlines()
    assert [line.split().count("off") for line in lines[1:5]] == [0, 1, 2, 1]
    assert lines[5:] == [
        "Peak memory: 1 of 4 within 5%.",
        "  off: CNN, 2 cases, ratio 0.25 to 0.75",
        "  off: MLP, 1 cases, ratio 0.50 to 0.50",
        "Step time: 3 of 4 within 30%.",
        "  off: CNN, 1 cases, ratio 2.00 to 2.00",
        "CUDA's libraries kept up to 8.1 MiB of the measured memory.",
    ]


def test_a_machine_without_a_card_is_told_so_in_one_sentence(monkeypatch, tiny, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert fidelity.main([]) == 2
    out = capsys.readouterr().out
    assert "nothing to compare with" in out and len(out.splitlines()) == 1


def test_without_a_card_the_modelled_column_can_be_had(tiny, tmp_path, capsys):
    path = tmp_path / "figures.json"
    words = ["--modelled-only", "--quick", "--profile", "A100", "--output", str(path)]
    assert fidelity.main(words) == 0
    out = capsys.readouterr().out
    assert "modelled" in out and "measured" not in out and "within" not in out
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["schema"], content["kind"], content["profile"]) == (1, "modelled", "A100")
    assert content["machine"]["torch"] == torch.__version__
    found = content["results"]
    assert [(f["model"], f["precision"], f["batch"]) for f in found] == [
        ("MLP", precision, 2) for precision in ("fp32", "fp16", "bf16")
    ]
    assert all("measured" not in f and f["modelled"]["seconds"] > 0 for f in found)


def test_a_card_that_agrees(card, tmp_path, capsys):
    card(memory=1.01, seconds=0.8)
    path = tmp_path / "figures.json"
    assert fidelity.main(["--quick", "--output", str(path)]) == 0
    out = capsys.readouterr().out
    assert "Peak memory: 3 of 3" in out and "Step time: 3 of 3" in out and "off" not in out
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["kind"], content["profile"]) == ("recorded", "H200")
    assert content["machine"] == {"device": "NVIDIA H200"}
    first = content["results"][0]
    assert first["ratio"] == {"memory": 0.9901, "seconds": 1.25}
    assert first["within"] == {"memory": True, "seconds": True}


def test_a_card_that_disagrees(card, capsys):
    card(seconds=3)
    assert fidelity.main(["--quick"]) == 1
    out = capsys.readouterr().out
    assert "Peak memory: 3 of 3" in out and "Step time: 0 of 3" in out
    assert "off: MLP, 3 cases, ratio 0.33 to 0.33" in out


def test_a_card_of_which_there_is_no_profile(card, capsys):
    card(name="NVIDIA L40S")
    assert fidelity.main(["--quick"]) == 2
    assert "NVIDIA L40S: name the nearest with --profile" in capsys.readouterr().out
    assert fidelity.main(["--quick", "--profile", "H200"]) == 0
    assert "The profile is H200 and the card NVIDIA L40S" in capsys.readouterr().out


def test_a_card_that_is_full(card, monkeypatch, capsys):
    card()

    def full(case):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 MiB.\nMore.")

    monkeypatch.setattr(fidelity, "measured", full)
    assert fidelity.main(["--quick"]) == 2
    out = capsys.readouterr().out
    assert "too little free memory: CUDA out of memory. Tried to allocate 2 MiB.\n" in out
    assert "More." not in out


def test_a_folder_that_is_not_there_is_refused_before_the_work(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        fidelity.main(["--modelled-only", "--output", str(tmp_path / "no" / "figures.json")])
    assert stop.value.code == 2
    assert "There is no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("Tesla T4", "T4"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-40GB"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", None),
        ("NVIDIA T400", None),
        ("NVIDIA L40S", None),
        ("NVIDIA GH200 480GB", None),
    ],
)
def test_a_card_finds_its_profile(name, profile):
    assert fidelity.profile_of(name) == profile


@pytest.mark.slow
def test_each_side_has_a_process_of_its_own(capfd, monkeypatch):
    if problem := simgpu.problem():
        skip(problem, until="2027-11-30")
    monkeypatch.setattr(fidelity, "PRECISIONS", {"fp32": None})
    monkeypatch.setattr(fidelity, "MODELS", {"MLP": fidelity.MODELS["MLP"]})
    before = simgpu.enabled() and torch.sim.memory_stats()["allocation.all.allocated"]
    assert fidelity.main(["--modelled-only", "--quick"]) == 0
    assert "MLP    fp32       128    13.2 MiB" in capfd.readouterr().out
    after = simgpu.enabled() and torch.sim.memory_stats()["allocation.all.allocated"]
    assert before == after


def test_the_mlps_peak_is_what_one_works_out_by_hand(tiny, monkeypatch):
    monkeypatch.setattr(fidelity, "MODELS", {"MLP": (fidelity._mlp, (784,))})
    numbers = sum(p.numel() for p in fidelity._mlp().parameters())
    batch = 64
    # At the peak there are parameters, gradients, Adam's two averages and the square root of one;
    # the batch, its labels and the loss; the activations are gone.
    expected = 4 * 5 * numbers + batch * (784 * 4 + 8)
    found = fidelity.modelled("T4", Case("MLP", "fp32", batch))
    assert found["memory"] == pytest.approx(expected, rel=0.005)
    assert found["held"] == 0


def test_a_step_takes_what_measure_says_and_a_peak_is_of_its_own_case(tiny):
    def figures(batch):
        return fidelity.modelled("T4", Case("MLP", "fp32", batch))

    small = figures(2)
    assert figures(50_000)["memory"] > 10 * small["memory"]
    assert figures(2) == pytest.approx(small)
    device = simgpu.enable("T4")
    step = fidelity.training_step(Case("MLP", "fp32", 2), device)
    assert small["seconds"] == pytest.approx(measure(step, device=device).median, rel=0.05)
