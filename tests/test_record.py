"""`record`: what it measures, keeps, leaves out and refuses."""

import functools
import inspect
import json
import os
import re
import subprocess
import sys

import pytest
import torch
from harness import ROOT, command

import simgpu
from course_utils import evidence
from course_utils.timing import measure
from simgpu import profiles
from tools.commands import record
from tools.fidelity import Row, compare_row, read
from tools.fidelity import __main__ as fidelity
from tools.fidelity.compare import interpret
from tools.fidelity.stepping import workspace
from tools.fidelity.table import Unsupported
from tools.records import checks, experiments, files, lesson01, table
from tools.records.experiments import Point, Samples, Unsuitable, points, run_points

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
WORKING_DEVICES = files.working_devices
MACHINE_FIELDS = {"device", "memory", "driver", "torch", "cuda", "os", "cpu", "cores"}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Shorten measurements: these tests check the bookkeeping, not the numbers."""
    monkeypatch.setattr(experiments, "measure", functools.partial(measure, min_seconds=0.001))
    monkeypatch.setattr(files, "working_devices", lambda: [CPU])


@pytest.fixture
def define(monkeypatch):
    """Register an experiment for one test."""
    monkeypatch.setattr(experiments, "REGISTRY", registry := {})

    def define(function, **options):
        experiments.experiment(**options)(function)
        return registry[function.__name__]

    return define


def run(*words):
    return command(record, *words)


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def content(folder):
    return json.loads(only_file(folder).read_text(encoding="utf-8"))


def results(folder):
    return content(folder)["results"]


def well(device):
    """Wait."""
    return lambda: None


# --- what is measured and kept ----------------------------------------------------------------


def test_what_is_recorded_can_be_looked_up(tmp_path):
    assert run("--only", "add", "--quick", "--output", tmp_path) == 0
    assert checks.problems(only_file(tmp_path)) == []
    assert set(content(tmp_path)["machine"]) == MACHINE_FIELDS
    assert content(tmp_path)["machine"]["torch"] == torch.__version__
    sizes = [p["numbers"] for p in experiments.REGISTRY["add"].quick]
    assert [result["parameters"]["numbers"] for result in results(tmp_path)] == sizes
    (found,) = evidence.recorded("add", folder=tmp_path, numbers=sizes[-1])
    assert (found.kind, found.device, found.unit) == ("recorded", "cpu", "s")
    assert found.label == f"add numbers {sizes[-1]}"
    assert 0 < found.q1 <= found.median <= found.q3
    smallest = evidence.recorded("add", folder=tmp_path, numbers=sizes[0])[0]
    assert smallest.median < found.median


def test_an_experiment_may_measure_by_itself(define, tmp_path):
    def digits(device, precision="float32"):
        return {
            "time": Samples([3.0, 1.0, 2.0], "s"),
            "test accuracy": Samples([0.97, 0.98, 0.99], "1"),
        }

    define(digits, sweep=[{"precision": "float32"}])
    assert run("--output", tmp_path) == 0
    (accuracy,) = evidence.recorded("digits", "test accuracy", folder=tmp_path)
    assert (accuracy.q1, accuracy.median, accuracy.q3, accuracy.n) == (0.975, 0.98, 0.985, 3)
    assert accuracy.parameters == {"precision": "float32"}
    assert evidence.recorded("digits", folder=tmp_path)[0].median == 2.0


def test_a_second_run_measures_only_what_is_missing(tmp_path, capsys):
    run("--only", "launch", "--note", "a shared machine", "--output", tmp_path)
    before = only_file(tmp_path).read_bytes()
    run("--only", "launch", "--output", tmp_path)
    assert only_file(tmp_path).read_bytes() == before
    assert "1 of 1 are in" in capsys.readouterr().out
    run("--only", "copy", "--only", "launch", "--quick", "--output", tmp_path)
    assert results(tmp_path)[0] == json.loads(before)["results"][0]
    assert [result["experiment"] for result in results(tmp_path)] == ["launch", "copy"]
    assert content(tmp_path)["note"] == "a shared machine"


def test_again_replaces_and_keeps_the_rest(tmp_path, monkeypatch):
    run("--only", "launch", "--only", "copy", "--quick", "--output", tmp_path)
    old = {result["experiment"]: result for result in results(tmp_path)}
    slow = functools.partial(measure, lambda: sum(range(200_000)), min_seconds=0.001)
    monkeypatch.setattr(experiments, "measure", lambda work, label, device: slow(label, device=device))
    run("--only", "launch", "--again", "--output", tmp_path)
    new = {result["experiment"]: result for result in results(tmp_path)}
    assert new["copy"] == old["copy"]
    assert new["launch"]["median"] > old["launch"]["median"]


def test_an_interruption_loses_nothing_that_is_finished(tmp_path, monkeypatch):
    real, calls = experiments._run_point, []

    def interrupted(point):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(point)
        return real(point)

    monkeypatch.setattr(experiments, "_run_point", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("--only", "add", "--quick", "--output", tmp_path)
    finished = results(tmp_path)
    assert len(finished) == 2

    measured = []
    monkeypatch.setattr(experiments, "_run_point", lambda point: measured.append(point) or real(point))
    assert run("--only", "add", "--quick", "--output", tmp_path) == 0
    assert results(tmp_path)[:2] == finished
    assert len(results(tmp_path)) == len(finished) + len(measured) == 5
    assert not list(tmp_path.glob("*.part"))


def test_switches_and_seed_are_the_same_for_every_experiment(define):
    drawn = []

    def switching(device, size):
        """Change what others would feel."""
        drawn.append(torch.rand(1).item())
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("medium")
        torch.set_num_threads(1)
        return lambda: None

    before = torch.get_num_threads()
    define(switching, sweep=[{"size": 1}, {"size": 2}])
    list(run_points(points(list(experiments.REGISTRY.values()), [CPU])))
    assert len(drawn) == 2 and drawn[0] == drawn[1]
    assert not torch.backends.cudnn.benchmark and torch.backends.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_num_threads() == before


# --- what is left out -------------------------------------------------------------------------


def sizes(device, dtype, size):
    return lambda: None


SWEEP = [{"dtype": dtype, "size": size} for dtype in ("a", "b") for size in (1, 2, 3)]


def test_a_point_that_takes_too_long_ends_its_sweep_but_not_another(define, tmp_path, capsys):
    tried = []

    def sizes(device, dtype, size):
        tried.append((dtype, size))
        if (dtype, size) == ("a", 2):
            raise experiments._TooLong("one call takes 9.0 s, and 2 s is the limit")
        return lambda: None

    define(sizes, sweep=SWEEP)
    assert run("--output", tmp_path) == 0
    assert tried == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3)]
    said = capsys.readouterr().out
    assert "Left out: sizes dtype a size 2 on cpu and 1 more: one call takes 9.0 s, and 2 s" in said
    assert len(results(tmp_path)) == 4


def test_a_call_is_limited_by_what_the_experiment_says(define):
    ((_, outcome),) = run_points([Point(define(sizes, longest=-1.0), SWEEP[0], CPU)])
    assert outcome.reason.startswith("one call takes 0.0 s")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("no"), RuntimeError("you tried to allocate 9 bytes")],
)
def test_what_does_not_fit_into_memory_is_left_out(define, error, tmp_path, capsys):
    def huge(device, size):
        raise error

    define(huge, sweep=[{"size": 1}, {"size": 2}])
    assert run("--output", tmp_path) == 0
    assert "huge size 1 on cpu and 1 more: it does not fit into the" in capsys.readouterr().out


def test_what_lacks_a_package_or_declines_a_device_is_left_out(define, tmp_path, capsys):
    def lacking(device):
        """Wait."""
        pytest.fail("it ran")

    def picky(device, size):
        """Wait."""
        if size == 1:
            raise Unsuitable("a size of 1 says nothing")
        return lambda: None

    define(lacking, needs=("no_such_package",))
    define(picky, sweep=[{"size": 1}, {"size": 2}], needs=("torch",))
    assert run("--output", tmp_path) == 0
    said = capsys.readouterr().out
    assert "lacking on cpu: it needs no_such_package: pip install" in said
    assert "Left out: picky size 1 on cpu: a size of 1 says nothing." in said
    assert [result["parameters"] for result in results(tmp_path)] == [{"size": 2}]
    run("--list")
    assert "needs no_such_package (missing: no_such_package)" in capsys.readouterr().out


def test_what_fails_or_would_be_refused_does_not_lose_the_rest(define, tmp_path, capsys):
    def broken(device):
        raise RuntimeError("a kernel is wrong\nand more")

    def odd(device):
        return {"time": Samples([float("nan")])}

    for function in (broken, odd, well):
        define(function)
    assert run("--output", tmp_path) == 1
    said = capsys.readouterr().out
    assert re.search(r"Failed: broken on cpu: RuntimeError: a kernel is wrong \(test_rec.*, line", said)
    assert re.search("Failed: odd on cpu: machine_.* is not a finite number", said)
    assert [result["experiment"] for result in results(tmp_path)] == ["well"]


# --- what is refused --------------------------------------------------------------------------


def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path, capsys):
    path, text = tmp_path / files.file_name(files.machine([CPU])), '{"results": [{}]}'
    path.write_text(text, encoding="utf-8")
    assert run("--only", "launch", "--output", tmp_path) == 1
    assert path.read_text(encoding="utf-8") == text
    said = capsys.readouterr().err
    assert path.name in said and "Move it away" in said and "Traceback" not in said


def test_a_file_of_another_torch_is_refused_and_kept_beside_a_new_one(tmp_path, capsys):
    run("--only", "launch", "--only", "copy", "--quick", "--output", tmp_path)
    path = only_file(tmp_path)
    old = path.read_text(encoding="utf-8").replace(torch.__version__, "1.0")
    path.write_text(old, encoding="utf-8")
    assert run("--only", "launch", "--output", tmp_path) == 1
    said = capsys.readouterr().err
    assert f"torch 1.0 (now {torch.__version__})" in said and "--again" in said
    assert path.read_text(encoding="utf-8") == old

    assert run("--only", "launch", "--again", "--output", tmp_path) == 0
    assert [m.torch for m in evidence.read_records(path)] == [torch.__version__]
    assert path.with_name(f"{path.name}.old").read_text(encoding="utf-8") == old
    path.write_text(old, encoding="utf-8")
    assert run("--only", "launch", "--again", "--output", tmp_path) == 0
    assert len(list(tmp_path.glob("*.old*"))) == 2
    assert len(evidence.recorded("launch", folder=tmp_path)) == 1


def test_a_place_that_cannot_be_written_is_refused_before_measuring(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(experiments, "_run_point", lambda point: pytest.fail("it measured"))
    assert run("--only", "launch", "--output", tmp_path / "file" / "folder") == 1
    assert "--output" in capsys.readouterr().err


def test_an_unknown_name_is_answered_with_the_known_ones_and_list_measures_nothing(tmp_path, capsys):
    assert run("--only", "matmull", "--output", tmp_path) == 2
    assert "matmul, add, copy, launch" in capsys.readouterr().err
    assert run("--list", "--output", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[::2]] == list(experiments.REGISTRY)
    points = len(experiments.REGISTRY["matmul"].sweep)
    assert f"{points} points; about {points} s a device" in lines[0]
    assert lines[1].strip().startswith("Multiply two float32 matrices")
    assert not list(tmp_path.iterdir())


def test_check_says_what_is_wrong_with_a_colleagues_file(tmp_path, capsys):
    run("--only", "launch", "--output", tmp_path)
    good = only_file(tmp_path)
    capsys.readouterr()
    bad = tmp_path / "machine_bad.json"
    text = good.read_text(encoding="utf-8")
    bad.write_text(re.sub(r'"n": \d+', '"n": 0', text), encoding="utf-8")
    strange = tmp_path / "machine_strange.json"
    strange.write_text(text.replace('"launch"', '"lunch"'), encoding="utf-8")
    assert run("--check", good) == 0
    assert f"{good.name}: 1 results in the right form." in capsys.readouterr().out
    assert run("--check", good, bad, strange, tmp_path / "nowhere.json") == 1
    said = capsys.readouterr().err
    assert "machine_bad.json, result 1 (launch, time): n: 0 is less" in said
    assert "machine_strange.json: this copy of the course has no experiment lunch." in said
    assert "nowhere.json cannot be read" in said


# --- as a table for tools.fidelity ---


def held(path, capsys, card=None):
    """Return the output of ``tools.fidelity`` for a table, as if measured on a card."""
    if card:
        text = path.read_text(encoding="utf-8").replace(files.cpu_name(), card)
        path.write_text(text.replace("Simulated NVIDIA T4", card), encoding="utf-8")
    capsys.readouterr()
    assert fidelity.main([str(path)]) == 0
    return capsys.readouterr().out


def test_what_is_recorded_is_written_as_a_table_that_the_report_reads(tmp_path, capsys):
    path, words = tmp_path / "points.csv", ("--only", "add", "--only", "accumulation", "--quick")
    assert run(*words, "--output", tmp_path / "records", "--points", path) == 0
    count = len(experiments.REGISTRY["add"].quick)
    assert f"{count} of them in {path}; without a row: accumulation" in capsys.readouterr().out
    out = held(path, capsys)
    assert f"0 rows modelled, {count} not" in out and "no profile stands for the card" in out
    out = held(path, capsys, "Tesla T4")
    assert f"{count} rows modelled, 0 not" in out and "T4    elementwise  below 0.1 ms" in out
    assert run(*words, "--output", tmp_path, "--points", tmp_path / "no" / "p.csv") == 2
    assert "There is no folder" in capsys.readouterr().err


def test_a_step_in_the_table_is_the_step_that_was_run(tmp_path, capsys):
    path = tmp_path / "points.csv"
    table.write(evidence.FOLDER / "modelled_nvidia_t4.json", path)
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if re.match("step:.*batch=64 .*(False|size=32)[;,]", line)]
    path.write_text("\n".join([head, *lines]), encoding="utf-8")
    held(path, capsys, "Tesla T4")
    found = [compare_row(row) for row in read(path)]
    assert len(found) == 8
    # A real card's peak has cuBLAS's block in it, which the simulated one has not.
    for each in found:
        block = workspace(profiles.load("T4")) if each.quantity == "bytes" else 0
        assert each.modelled - block == pytest.approx(each.measured, rel=0.02), each


@pytest.mark.parametrize("name", table.ROWS)
def test_every_row_of_the_table_is_understood(name):
    workload, params = table.ROWS[name]
    for parameters in experiments.REGISTRY[name].sweep:
        written = params.format(**parameters)
        dtype = parameters.get("precision", "fp32")
        row = Row("", 2, workload, f"{written}; torch 2", "T4", dtype, "time", "1", "ms")
        if "on the spot" in written:
            with pytest.raises(Unsupported, match="source="):
                interpret(row)
        else:
            assert interpret(row).kind in ("product", "elementwise", "copy") or "step" in workload


# --- the simulated device ---------------------------------------------------------------------


@pytest.fixture
def sim(simulated, monkeypatch):
    """Return a simulated device, enabled and selected by name."""
    monkeypatch.setenv("COURSE_DEVICE", "sim")
    device = simgpu.enable()
    yield device
    simgpu.enable()


def test_the_simulated_device_is_no_hardware_to_record(sim, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "working_devices", WORKING_DEVICES)
    assert run("--only", "launch", "--output", tmp_path) == 0
    assert "sim" not in content(tmp_path)["machine"]["device"].lower()
    devices = [result["device"] for result in results(tmp_path)]
    assert devices[0] == "cpu" and not any(name.startswith("sim") for name in devices)


def test_modelled_numbers_have_a_file_of_their_own_and_are_the_same_twice(define, sim, tmp_path):
    def product(device, size):
        x = torch.ones(size, size, device=device)
        return lambda: x @ x

    define(product, sweep=[{"size": 32}, {"size": 512}], quick=[{"size": 512}])
    define(lesson01.launch)
    words = ("--only", "product", "--only", "launch", "--quick", "--modelled")
    for folder in ("one", "two"):
        assert run(*words, "T4", "--output", tmp_path / folder) == 0
    first, second = (only_file(tmp_path / folder) for folder in ("one", "two"))
    assert first.name == "modelled_nvidia_t4.json" and checks.problems(first) == []
    assert first.read_text(encoding="utf-8") == second.read_text(encoding="utf-8")
    (launch,) = evidence.recorded("launch", folder=tmp_path / "one")
    assert (launch.kind, launch.machine) == ("modelled", "Simulated NVIDIA T4")
    (memory,) = evidence.recorded("product", "peak memory", folder=tmp_path / "one", size=512)
    assert memory.median >= 2 * 512 * 512 * 4 and memory.unit == "B"

    assert run(*words, "H200", "--output", tmp_path / "three") == 0
    (path,) = (tmp_path / "three").iterdir()
    assert path.name == "modelled_nvidia_h200_sxm.json"
    t4, h200 = (
        evidence.recorded("product", folder=tmp_path / folder, size=512)[0].median
        for folder in ("one", "three")
    )
    assert h200 < t4


def test_what_the_host_does_is_not_modelled(define, sim, tmp_path, capsys):
    def loading(device):
        pytest.fail("it ran")

    def training(device):
        return {"time": Samples([1.0]), "test accuracy": Samples([0.9], "1")}

    define(loading, modelled=False)
    define(training)
    assert run("--modelled", "T4", "--output", tmp_path) == 0
    assert [result["quantity"] for result in results(tmp_path)] == ["time"]
    assert run("--modelled", "T4", "--only", "loading", "--output", tmp_path / "x") == 0
    assert "Nothing to do: what the host does" in capsys.readouterr().out
    assert not (tmp_path / "x").exists()


def test_memory_is_empty_before_each_point(define, sim):
    held, seen = [], []

    def filling(device, size):
        seen.append(torch.sim.memory_reserved(device))
        x = torch.zeros(size, device=device)
        held.append(x) if size == 3 else None
        return lambda: x.add_(1)

    experiment = define(filling, sweep=[{"size": 2**20}, {"size": 2**19}])
    todo = points([experiment], [sim])
    found = {point.parameters["size"]: measured for point, measured in run_points(todo)}
    assert seen[1] <= seen[0]
    peaks = [next(m.median for m in found[n] if m.unit == "B") for n in (2**20, 2**19)]
    assert peaks[0] - peaks[1] == 2**19 * 4


# --- the experiments themselves ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "cpu", "name"),
    [
        ("NVIDIA H200", "AMD EPYC", "machine_nvidia_h200.json"),
        ("AMD EPYC", "AMD EPYC", "machine_amd_epyc_2_cores.json"),
        ("Intel(R) Core(TM) i7 @ 2.8GHz", "x", "machine_intel_r_core_tm_i7_2_8ghz.json"),
        ("Simulated NVIDIA T4", "x", "modelled_nvidia_t4.json"),
    ],
)
def test_the_file_is_named_after_the_machine(device, cpu, name):
    assert files.file_name({"device": device, "cpu": cpu, "cores": 2}) == name


def test_two_experiments_of_one_name_are_refused(define):
    define(sizes)
    with pytest.raises(ValueError, match="two experiments named sizes"):
        define(sizes)


@pytest.mark.parametrize("experiment", experiments.REGISTRY.values(), ids=lambda each: each.name)
def test_an_experiment_says_what_it_tests_and_its_sweep_rises(experiment):
    doc = inspect.getdoc(experiment.prepare)
    assert experiment.about.endswith((".", ":"))
    claimed, refuted = doc.find("\nClaimed: "), doc.find("\nRefuted by: ")
    assert 0 < claimed < refuted and doc.endswith(".")
    assert not experiment.takes({**experiment.sweep[0], "no such": 1})
    assert all(parameters in experiment.sweep for parameters in experiment.quick)
    todo = points([experiment], [CPU])
    for i, earlier in enumerate(todo):
        assert not any(earlier.is_as_large_as(later) for later in todo[i + 1 :])
    for parameters in experiment.sweep:
        assert experiment.takes(parameters)
        assert all(rate(parameters) > 0 for rate in (experiment.flops, experiment.bytes) if rate)


def test_record_from_end_to_end_on_the_command_line(tmp_path):
    words = ("--only", "launch", "--only", "copy", "--quick", "--output", str(tmp_path / "out é"))
    done = subprocess.run(
        [sys.executable, "-m", "course_utils", "record", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COURSE_DEVICE": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    path = only_file(tmp_path / "out é")
    assert "Keep the machine quiet" in done.stdout and f"results in {path}" in done.stdout
    assert "launch on cpu" in done.stderr and "Traceback" not in done.stderr
    assert run("--check", path) == 0
