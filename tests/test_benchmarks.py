"""`benchmark`: its loops train the same, its turns are fair, its tables and records are right."""

import argparse
import ast
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from statistics import mean, median

import pytest
import torch
from harness import ROOT, command

from course_utils import evidence
from tools import records
from tools.commands import benchmark
from tools.records import EXPERIMENTS, LeftOut, Point, Unsuitable, checks, lesson09, run_points
from tools.records.benchmarks import comparison, ladder, loops, mlp, peers

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _short():
    """Take short turns: these tests judge what is done, not how fast."""
    with comparison.measuring(scale=0.005):
        yield


def run(*words):
    return command(benchmark, *words, "--device", "cpu")


def found_for(experiment, **parameters):
    ((_, found),) = run_points([Point(EXPERIMENTS[experiment], parameters, CPU)])
    return found


# --- turns ------------------------------------------------------------------------------------


def test_two_things_take_turns_and_the_first_round_is_not_counted():
    order = []

    def a():
        order.append("a")
        return 100.0 if len(order) < 3 else 2.0

    def b():
        order.append("b")
        return 100.0 if len(order) < 3 else 0.5

    with comparison.measuring(rounds=5):
        found = comparison.in_turns(a, b)
    assert "".join(order) == "ba" + "ab" + "ba" + "ab" + "ba" + "ab"
    assert (found.ratios, found.rates) == ([4.0] * 5, [2.0] * 5)
    assert comparison.setting().rounds == 5 and comparison.setting().scale == 0.005


def test_the_setting_is_put_back_also_after_an_error():
    before = comparison.setting()
    with pytest.raises(KeyError), comparison.measuring(rounds=9, scale=3.0):
        raise KeyError
    assert comparison.setting() == before


@pytest.mark.parametrize("steps", [3, 8])
def test_a_loop_that_makes_fewer_or_more_steps_is_not_timed(steps):
    tick = comparison.Ticker(CPU, warm_up=2, steps=4)
    for _ in range(steps):
        tick()
    with pytest.raises(RuntimeError, match=f"made {steps} steps of 6"):
        _ = tick.seconds


def test_only_the_steps_after_the_warm_up_are_timed(monkeypatch):
    now = iter([10.0, 13.5])
    monkeypatch.setattr(comparison, "perf_counter", lambda: next(now))
    tick = comparison.Ticker(CPU, warm_up=2, steps=4)
    for _ in range(6):
        tick()
    assert tick.seconds == 3.5


def test_a_turn_has_as_many_steps_as_fill_its_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(comparison, "perf_counter", lambda: clock[0])

    def step():
        clock[0] += 0.01

    with comparison.measuring(scale=1.0):
        turn = comparison.calibrated(step, CPU, seconds=0.5)
    begin = clock[0]
    assert turn() == pytest.approx(0.01)
    assert clock[0] - begin == pytest.approx(0.5)


# --- the loops --------------------------------------------------------------------------------


def weights(loop, task="mlp", data="device"):
    model = peers.trained(loop, task, data, CPU).model
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=[pytest.mark.slow] * (task == "cnn")) for task in loops.TASKS]
)
def test_every_loop_ends_with_the_weights_of_the_barest_one_to_the_bit(task):
    """Other packages are tested where they are installed, and named where they are not."""
    for data in ("loader", "device"):
        wanted = weights("bare", task, data)
        own_order = {"capstone", *(["lesson 03"] if data == "loader" else [])}
        for loop in peers.LOOPS:
            try:
                got = weights(loop, task, data)
            except Unsuitable as why:
                assert re.search("pip install [a-z-]+$|installed but does not load", str(why)), why
                continue
            assert torch.equal(got, wanted) is (loop not in own_order), loop


def test_the_loop_of_lesson_03_is_that_of_its_notebook():
    cells = json.loads((ROOT / "notebooks/03_training_loop.ipynb").read_text(encoding="utf-8"))
    sources = ["".join(cell["source"]) for cell in cells["cells"] if cell["cell_type"] == "code"]
    (notebook,) = (source for source in sources if "plots.LivePlot" in source)
    twin = textwrap.dedent(inspect.getsource(loops.lesson03))

    def inner(source):
        (loop,) = (
            node
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.For) and "randperm" in ast.unparse(node.iter)
        )
        return ast.unparse(loop)

    assert inner(twin) == f"{inner(notebook)}\n    job.tick()"


@pytest.mark.slow
def test_the_loops_learn_the_seeds_task():
    with comparison.measuring(scale=1.0):
        for loop in ("bare", "lesson 03", "capstone"):
            job = peers.trained(loop, "mlp", "device", CPU)
            with torch.inference_mode():
                right = (job.model(job.x).argmax(1) == job.y).float().mean().item()
            assert right > 0.97, loop


def test_each_loop_sees_every_sample_once():
    job = loops.Job("mlp", "device", CPU)
    seen = torch.cat([x for x, _ in job.batches])
    assert len(seen) == len(job.x) == job.steps * job.batch
    assert torch.equal(seen.sort(0).values, job.x.sort(0).values) and not torch.equal(seen, job.x)


def test_the_learning_rate_rises_in_a_line_and_falls_in_a_line():
    rates = list(loops.one_cycle(10, 1.0, rise=0.4))
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7])
    assert list(loops.one_cycle(1, 2.0)) == [2.0]


@pytest.mark.parametrize("loop", ["Lightning", "accelerate", "Ignite", "fastai", "HF Trainer"])
def test_a_package_that_is_missing_is_named_with_its_remedy(loop, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unsuitable, match=r"^it needs ([a-z-]+): pip install \1$"):
        peers.trained(loop, "mlp", "device", CPU)


def test_what_a_package_prints_is_kept_away(capsys):
    with comparison.quiet():
        print("hello")
    peers.trained("tutorial", "mlp", "device", CPU)
    assert capsys.readouterr() == ("", "")


# --- the ladder -------------------------------------------------------------------------------


def test_a_rung_keeps_those_below_it_that_the_device_has(monkeypatch):
    monkeypatch.setattr(
        ladder, "abilities", lambda device: argparse.Namespace(tf32=False, bf16=True)
    )
    assert ladder.climbed(CPU, "none") == ladder.Parts()
    assert ladder.climbed(CPU, "no .item()") == ladder.Parts(on_device=True, ask=False)
    top = ladder.climbed(CPU, "16 bits")
    assert top.half and top.channels_last and top.large_batch and top.fused and not top.ask
    assert not top.tf32 and not top.compiled
    for rung, why in (
        ("TF32", "TF32 units"),
        ("CUDA graphs", "no CUDA graphs"),
        ("compiled", "accelerators only"),
    ):
        with pytest.raises(Unsuitable, match=why):
            ladder.climbed(CPU, rung)


def test_16_bits_need_units_for_them(monkeypatch):
    monkeypatch.setattr(
        ladder, "abilities", lambda device: argparse.Namespace(tf32=False, bf16=False)
    )
    with pytest.raises(Unsuitable, match="no units for 16 bits"):
        ladder.climbed(CPU, "16 bits")
    assert not ladder.lacks(torch.device("cuda"), "16 bits")  # float16 with a scaler


def test_the_networks_cost_what_the_records_say():
    assert ladder.flops_an_image("airbench") == pytest.approx(0.708e9, rel=0.01)
    assert ladder.flops_an_image("tutorial") == pytest.approx(3.2e6, rel=0.01)


def test_each_image_is_shifted_and_flipped_on_its_own():
    torch.manual_seed(0)
    one = torch.arange(2 * 12 * 12, dtype=torch.int32).reshape(1, 2, 12, 12)
    out = ladder.shift(one.expand(2000, -1, -1, -1), side=8)
    assert out.shape == (2000, 2, 8, 8) and out.dtype == torch.int32
    windows = {
        (top, left, flip): (one[0, :, top : top + 8, left : left + 8].flip(-1 if flip else ()))
        for top in range(5)
        for left in range(5)
        for flip in (False, True)
    }
    seen = [
        next(place for place, window in windows.items() if torch.equal(window, image))
        for image in out
    ]
    assert set(seen) == set(windows)
    assert all(20 <= seen.count(place) <= 70 for place in windows)


@pytest.mark.parametrize("shifted", [False, True])
def test_a_slow_and_a_fast_loop_get_the_same_images(shifted, monkeypatch):
    monkeypatch.setattr(ladder, "MARGIN", 0)  # then a shift changes nothing but the side
    network = ladder.Network(loops.tutorial_cnn, 32, 8, shifted, small=4, large=4, larger=4)
    x, y = loops.images(8)

    def one_pass(batches):
        found = torch.cat([images for images, _ in (next(batches), next(batches))])
        return sorted(images.sum((1, 2)).tolist() for images in found.double())

    slow = one_pass(ladder.loaded(network, x, y, 4, CPU))
    fast = one_pass(ladder.sliced(network, x, y, 4, CPU, torch.channels_last))
    assert torch.tensor(slow).sub(torch.tensor(fast)).abs().max() < 1e-3


@pytest.mark.parametrize("rung", ["none", "channels_last"])
def test_a_step_of_the_ladder_trains(rung):
    model = loops.tutorial_cnn()
    network = ladder.Network(lambda: model, 32, 64, False, small=4, large=16, larger=16)
    step, batch = ladder.training(network, ladder.climbed(CPU, rung), CPU)
    assert batch == (4 if rung == "none" else 16)
    before = [p.detach().clone() for p in model.parameters()]
    step()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    fast = rung == "channels_last"
    assert model[3].weight.is_contiguous(memory_format=torch.channels_last) is fast


def test_resnet50_is_left_to_accelerators():
    why = found_for("ladder", network="resnet50", rung="none")
    assert isinstance(why, LeftOut) and "needs an accelerator" in why.reason and not why.failed


def test_a_rung_is_measured_against_the_slow_script(monkeypatch):
    monkeypatch.setattr(
        ladder, "turn", lambda network, parts, device: lambda: 1e-3 if parts.ask else 2.5e-4
    )
    monkeypatch.setattr(lesson09, "best_flops", lambda device, unit: 1e11)
    found = found_for("ladder", network="tutorial", rung="no .item()")
    by_name = {m.quantity: m for m in found}
    assert by_name["speed-up"].median == pytest.approx(4.0) and by_name["speed-up"].n == 5
    assert by_name["rate"].median == pytest.approx(4000)
    done = 4000 * ladder.flops_an_image("tutorial")
    assert by_name["share of the matmul rate"].median == pytest.approx(done / 1e11)


# --- time to an accuracy ----------------------------------------------------------------------


def test_training_validation_and_test_rows_are_separate_for_every_seed():
    parts = [
        mlp.rows(seed, part, CPU)[0][0, 0].item()
        for seed in (1, 2, 1000)
        for part in (mlp.TRAIN, mlp.VALIDATION, mlp.TEST)
    ]
    assert len(set(parts)) == 9
    x, y = mlp.rows(1, mlp.TRAIN, CPU)
    assert x.shape == (10_000, 20) and torch.equal(y[:, 0], (x.sum(1) > 0).float())


@pytest.mark.slow
def test_the_fast_recipe_is_as_accurate_as_the_seeds_loop():
    slow, fast = (
        mean(mlp.run(seed, recipe, CPU)[1] for seed in range(20, 24))
        for recipe in (None, mlp.TUNED)
    )
    assert fast > slow - 0.002 > 0.97


def test_tuning_looks_at_validation_rows_only_and_counts_the_worst_seed(monkeypatch):
    asked = []

    def run(seed, recipe, device, part):
        asked.append((seed, part))
        return 1.0, 0.9 + (0.01 if recipe else 0.0) - (0.02 if recipe and seed == 1001 else 0.0)

    monkeypatch.setattr(mlp, "run", run)
    monkeypatch.setattr(mlp, "GRID", [mlp.TUNED])
    ((recipe, seconds, above),) = mlp.tune(CPU, seeds=4)
    assert (recipe, seconds) == (mlp.TUNED, 1.0) and above == pytest.approx(-0.01)
    assert {part for _, part in asked} == {mlp.VALIDATION}
    assert not {seed for seed, _ in asked} & set(range(200))


def test_time_to_accuracy_takes_seven_seeds_at_least(monkeypatch):
    seeds = []

    def run(seed, recipe, device):
        seeds.append(seed)
        return (0.01, 0.99) if recipe else (0.3, 0.98)

    monkeypatch.setattr(mlp, "run", run)
    threads = torch.get_num_threads()
    found = found_for("mlp_to_accuracy", **EXPERIMENTS["mlp_to_accuracy"].sweep[0])
    assert torch.get_num_threads() == threads
    by_name = {m.quantity: m for m in found}
    assert by_name["speed-up"].median == pytest.approx(30) and by_name["speed-up"].n == 7
    assert by_name["speed-up"].threads == 1
    assert by_name["test accuracy"].median == 0.99
    assert len(set(seeds)) == 8  # one to warm up


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def fixed(monkeypatch):
    """Replace the turns of loops by known times."""

    class Peer:
        def __init__(self, loop, task, data, device):
            self.weights = torch.zeros(4)
            self.seconds = 1e-4 if loop == "bare" else 2e-4

        def __call__(self):
            return self.seconds

    monkeypatch.setattr(peers, "Peer", Peer)


def test_a_table_gives_ratios_quartiles_n_device_versions_and_date(fixed, capsys):
    assert run("peers", "--loop", "tutorial", "--rounds", 6) == 0
    said = capsys.readouterr().out
    assert said.count("### Loops: ") == 4
    assert (
        "| Loop | Speed-up | Quartiles | n | Rate | Share of equal weights |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| tutorial | 0.50× | 0.50 to 0.50 | 6 | 5,000 samples/s | 100 % |\n"
    ) in said
    assert f"torch {torch.__version__}" in said and records.machine([CPU])["device"] in said
    assert re.search(r"Measured on cpu: .*\d CPU threads?, \d{4}-\d\d-\d\d", said)


def test_records_are_written_and_can_be_looked_up(fixed, tmp_path, capsys):
    assert run("peers", "--loop", "tutorial", "--output", tmp_path) == 0
    (path,) = tmp_path.iterdir()
    assert checks.problems(path) == [] and path.name in capsys.readouterr().out
    (found,) = evidence.recorded(
        "peer_loop", "speed-up", folder=tmp_path, task="mlp", data="device", loop="tutorial"
    )
    assert (found.median, found.n, found.kind) == (0.5, 5, "recorded")
    assert run("peers", "--loop", "bare", "--output", tmp_path) == 0
    assert len(evidence.recorded("peer_loop", "speed-up", folder=tmp_path)) == 8


def test_a_missing_package_leaves_its_row_out_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run("peers", "--loop", "Ignite") == 0
    said = capsys.readouterr().out
    assert "Left out: Ignite: it needs pytorch-ignite: pip install pytorch-ignite." in said


def test_a_loop_that_fails_is_named_and_the_status_says_so(monkeypatch, capsys):
    def broken(job):
        raise ValueError("no such thing")

    monkeypatch.setattr(peers, "LOOPS", {**peers.LOOPS, "tutorial": broken})
    assert run("peers", "--loop", "tutorial") == 1
    assert "Left out: tutorial: ValueError: no such thing (test_ben" in capsys.readouterr().out


@pytest.mark.slow
def test_ladder_and_time_to_accuracy_print_tables(monkeypatch, capsys):
    monkeypatch.setattr(ladder, "turn", lambda network, parts, device: lambda: 1e-3)
    monkeypatch.setattr(mlp, "run", lambda seed, recipe, device: (0.1, 0.98))
    assert run("ladder", "mlp", "airbench", "resnet50", "--quick") == 0
    said = capsys.readouterr().out
    assert said.count("### ") == 4 and "Left out: TF32: it has no TF32 units." in said
    assert "AMX for bfloat16: " in said and "test-time augmentation" in said
    assert "| batch 1000, peak_rate 0.04, steps 16 | 1.00× |" in said
    assert "98 %" in said and "without --quick" in said


def test_the_tuning_can_be_seen(monkeypatch, capsys):
    other = mlp.Recipe(500, 0.01, 10)
    monkeypatch.setattr(
        mlp, "tune", lambda device: [(mlp.TUNED, 0.02, 0.001), (other, 0.01, -0.001)]
    )
    threads = torch.get_num_threads()
    try:
        assert run("mlp", "--tune") == 0
    finally:
        torch.set_num_threads(threads)
    said = capsys.readouterr().out
    assert "1000   0.04       16     20 ms        +0.10" in said
    assert "500 " not in said and f"The course takes {mlp.TUNED}." in said


@pytest.mark.parametrize(
    ("words", "says", "status"),
    [
        (("pears",), "There is no table pears: choose from peers, ladder", 2),
        (("--rounds", 4), "at least 5 rounds, not 4", 2),
        (
            ("--loop", "Lightening"),
            'There is no row "Lightening": choose from none, data on the',
            2,
        ),
        (("peers", "--loop", "Lightening"), "choose from bare, lesson 03", 2),
        (("--quick", "--output", "x"), "leave out --quick or --output", 2),
    ],
)
def test_a_mistake_in_the_call_is_answered_in_a_sentence(words, says, status, capsys):
    assert run(*words) == status
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_a_place_that_cannot_be_written_is_refused_before_measuring(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(records, "run_points", lambda points: pytest.fail("it measured"))
    assert run("mlp", "--output", tmp_path / "file" / "folder") == 1
    assert "cannot be written" in capsys.readouterr().err


def test_the_simulated_device_is_no_device_for_a_benchmark(simulated, capsys):
    assert command(benchmark, "mlp", "--device", "sim") == 1
    assert "name another one" in capsys.readouterr().err


@pytest.mark.slow
def test_benchmark_from_end_to_end_on_the_command_line(tmp_path):
    words = ["-m", "course_utils", "benchmark", "peers", "--device", "cpu", "--quick"]
    call = [sys.executable, *words, "--loop", "lesson 03"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("### ") == 4 and done.stdout.count("| lesson 03 |") == 4
    assert "Traceback" not in done.stderr and not list(tmp_path.iterdir())


# --- the one gate -----------------------------------------------------------------------------


@pytest.mark.serial
def test_the_loop_of_lesson_03_costs_next_to_nothing():
    """It is at two thirds of what was measured, 0.99: the goal is 0.98, on a quiet machine."""
    with comparison.measuring(rounds=7, scale=0.5):
        bare, lesson = (peers.Peer(loop, "mlp", "device", CPU) for loop in ("bare", "lesson 03"))
        assert median(comparison.in_turns(bare, lesson).ratios) > 0.66
