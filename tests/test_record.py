"""`record`: what it measures, keeps, leaves out and refuses."""

from __future__ import annotations

import argparse
import functools
import json

import pytest
import torch
from support import skip

from course_utils import evidence, experiments, simgpu
from course_utils.cli import record
from course_utils.timing import measure

CPU = torch.device("cpu")
FOUND = experiments.working_devices
MACHINE_FIELDS = {"device", "memory", "driver", "torch", "cuda", "os", "cpu", "cores"}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Measure for a moment only: these tests judge the bookkeeping, not the numbers."""
    monkeypatch.setattr(experiments, "measure", functools.partial(measure, min_seconds=0.001))
    monkeypatch.setattr(experiments, "working_devices", lambda: [CPU])


def run(*words):
    parser = argparse.ArgumentParser()
    record.add_arguments(parser)
    return record.main(parser.parse_args(list(map(str, words))))


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def results(folder):
    return json.loads(only_file(folder).read_text(encoding="utf-8"))["results"]


def test_what_is_recorded_can_be_looked_up(tmp_path):
    assert run("--only", "add", "--quick", "--output", tmp_path) == 0
    content = json.loads(only_file(tmp_path).read_text(encoding="utf-8"))
    assert content["schema"] == 1
    assert set(content["machine"]) == MACHINE_FIELDS
    assert content["machine"]["torch"] == torch.__version__
    sizes = [p["numbers"] for p in experiments.EXPERIMENTS["add"].quick]
    assert [entry["parameters"]["numbers"] for entry in content["results"]] == sizes
    (found,) = evidence.recorded("add", folder=tmp_path, numbers=sizes[-1])
    assert (found.kind, found.device) == ("recorded", "cpu")
    assert 0 < found.q1 <= found.median <= found.q3
    smallest = evidence.recorded("add", folder=tmp_path, numbers=sizes[0])[0]
    assert smallest.median < found.median


def test_a_second_run_measures_only_what_is_missing(tmp_path, capsys):
    run("--only", "launch", "--output", tmp_path)
    before = only_file(tmp_path).read_bytes()
    run("--only", "launch", "--output", tmp_path)
    assert only_file(tmp_path).read_bytes() == before
    assert "1 of 1 are in" in capsys.readouterr().out
    run("--only", "copy", "--only", "launch", "--quick", "--output", tmp_path)
    assert results(tmp_path)[0] == json.loads(before)["results"][0]
    assert [entry["experiment"] for entry in results(tmp_path)] == ["launch", "copy"]


def test_again_replaces_and_keeps_the_rest(tmp_path, monkeypatch):
    run("--only", "launch", "--only", "copy", "--quick", "--output", tmp_path)
    old = {entry["experiment"]: entry for entry in results(tmp_path)}
    slow = functools.partial(measure, lambda: sum(range(200_000)), min_seconds=0.001)
    monkeypatch.setattr(
        experiments, "measure", lambda work, label, device: slow(label, device=device)
    )
    run("--only", "launch", "--again", "--output", tmp_path)
    new = {entry["experiment"]: entry for entry in results(tmp_path)}
    assert new["copy"] == old["copy"]
    assert new["launch"]["measurement"]["median"] > old["launch"]["measurement"]["median"]


def test_an_interruption_loses_nothing_that_is_finished(tmp_path, monkeypatch):
    real, calls = experiments._run, []

    def interrupted(point):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(point)
        return real(point)

    monkeypatch.setattr(experiments, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("--only", "add", "--quick", "--output", tmp_path)
    finished = results(tmp_path)
    assert len(finished) == 2

    measured = []
    monkeypatch.setattr(experiments, "_run", lambda point: measured.append(point) or real(point))
    assert run("--only", "add", "--quick", "--output", tmp_path) == 0
    assert results(tmp_path)[:2] == finished
    assert len(results(tmp_path)) == len(finished) + len(measured) == 5
    assert not list(tmp_path.glob("*.part"))


def test_two_devices_share_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "working_devices", lambda: [CPU, torch.device("cpu", 0)])
    run("--only", "launch", "--output", tmp_path)
    assert [entry["measurement"]["device"] for entry in results(tmp_path)] == ["cpu", "cpu:0"]
    assert run("--only", "launch", "--output", tmp_path) == 0
    assert len(results(tmp_path)) == 2


@pytest.fixture
def sim(monkeypatch):
    """A simulated device, switched on and asked for by name."""
    if problem := simgpu.problem():
        skip(problem, until="2027-11-30")
    monkeypatch.setenv("COURSE_DEVICE", "sim")
    return simgpu.first()


def test_the_simulated_device_is_no_hardware_to_record(sim, tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "working_devices", FOUND)
    assert run("--only", "launch", "--output", tmp_path) == 0
    content = json.loads(only_file(tmp_path).read_text(encoding="utf-8"))
    assert "sim" not in content["machine"]["device"].lower()
    devices = [entry["measurement"]["device"] for entry in content["results"]]
    assert devices[0] == "cpu" and not any(name.startswith("sim") for name in devices)


def test_a_modelled_time_is_not_written_as_a_record(sim, tmp_path):
    point = experiments.Point(experiments.EXPERIMENTS["launch"], {}, sim)
    ((_, found),) = experiments.run_points([point])
    kept = experiments.Record(tmp_path / "machine_x.json")
    with pytest.raises(ValueError, match=r"modelled, on Simulated .*nothing to record"):
        kept.add(point, found, experiments.machine([CPU]))
    assert not list(tmp_path.iterdir())


def test_a_size_that_takes_too_long_ends_its_sweep(tmp_path, monkeypatch, capsys):
    tried = []
    real = experiments._run
    monkeypatch.setattr(experiments, "_run", lambda point: tried.append(point) or real(point))
    monkeypatch.setattr(experiments, "LONGEST_CALL", 0.0)
    assert run("--only", "matmul", "--quick", "--output", tmp_path) == 0
    assert [dict(point.parameters) for point in tried] == [{"size": 32}]
    said = capsys.readouterr().out
    assert said.count("Left out: matmul") == len(experiments.EXPERIMENTS["matmul"].quick)
    assert results(tmp_path) == []


def test_what_does_not_fit_into_memory_is_left_out(tmp_path, monkeypatch, capsys):
    huge = experiments.Experiment(experiments.add, ({"numbers": 2**50},), ({"numbers": 2**50},))
    monkeypatch.setattr(experiments, "EXPERIMENTS", {"add": huge})
    assert run("--output", tmp_path) == 0
    assert "does not fit into the memory" in capsys.readouterr().out


def test_an_error_of_another_kind_is_not_hidden(monkeypatch):
    def broken(device):
        raise RuntimeError("a kernel is wrong")

    point = experiments.Point(experiments.Experiment(broken, ({},), ({},)), {}, CPU)
    with pytest.raises(RuntimeError, match="a kernel is wrong"):
        list(experiments.run_points([point]))


@pytest.mark.parametrize("content", ["{", '{"results": [{}]}', "[]"])
def test_a_file_of_another_kind_is_refused_and_left_alone(content, tmp_path, capsys):
    path = tmp_path / experiments.file_name(experiments.machine([CPU]))
    path.write_text(content, encoding="utf-8")
    assert run("--only", "launch", "--output", tmp_path) == 1
    assert path.read_text(encoding="utf-8") == content
    said = capsys.readouterr().err
    assert path.name in said and "Move it away" in said and "Traceback" not in said


def test_a_place_that_cannot_be_written_is_refused_before_measuring(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(experiments, "_run", lambda point: pytest.fail("it measured"))
    assert run("--only", "launch", "--output", tmp_path / "file" / "folder") == 1
    assert "--output" in capsys.readouterr().err


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path, capsys):
    assert run("--only", "matmull", "--output", tmp_path) == 2
    assert "matmul, add, copy, launch" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_list_says_what_is_measured_and_measures_nothing(tmp_path, capsys):
    assert run("--list", "--output", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(experiments.EXPERIMENTS)
    assert not list(tmp_path.iterdir())


def test_a_note_stays_until_another_is_given(tmp_path):
    run("--only", "launch", "--note", "a shared machine", "--output", tmp_path)
    run("--only", "copy", "--quick", "--output", tmp_path)
    content = json.loads(only_file(tmp_path).read_text(encoding="utf-8"))
    assert content["note"] == "a shared machine"
    assert len(content["results"]) == 2


@pytest.mark.parametrize(
    ("device", "cpu", "name"),
    [
        ("NVIDIA H200", "AMD EPYC", "machine_nvidia_h200.json"),
        ("AMD EPYC", "AMD EPYC", "machine_amd_epyc_2_cores.json"),
        ("Intel(R) Core(TM) i7 @ 2.8GHz", "x", "machine_intel_r_core_tm_i7_2_8ghz.json"),
    ],
)
def test_the_file_is_named_after_the_machine(device, cpu, name):
    assert experiments.file_name({"device": device, "cpu": cpu, "cores": 2}) == name


def test_the_work_is_what_its_description_says():
    product = experiments.matmul(CPU, 8)()
    assert product.shape == (8, 8) and product.dtype == torch.float32
    assert experiments.add(CPU, 5)().shape == experiments.copy(CPU, 5)().shape == (5,)
    once = experiments.launch(CPU)
    assert once().item() == 1.0 and once().item() == 2.0


def test_each_sweep_rises_and_its_quick_variant_is_a_part_of_it():
    for experiment in experiments.EXPERIMENTS.values():
        values = [tuple(parameters.values()) for parameters in experiment.sweep]
        assert values == sorted(set(values))
        assert all(parameters in experiment.sweep for parameters in experiment.quick)
        assert experiment.about.endswith(".")


def test_the_shipped_records_are_whole():
    for path in evidence.FOLDER.glob("machine_*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        assert content["schema"] == 1
        assert set(content["machine"]) == MACHINE_FIELDS
        assert path.name == experiments.file_name(content["machine"])
        for entry in evidence.read_records(path):
            assert entry["experiment"] in experiments.EXPERIMENTS
            assert entry["parameters"] in experiments.EXPERIMENTS[entry["experiment"]].sweep
