"""The handbook's programs: they learn, survive a kill and a wrong bit, and run on several ranks and on ``sim``."""

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from support import skip

import simgpu

FOLDER = Path(__file__).parents[1] / "handbook" / "templates"
ONE = ["train_single", "train_amp", "train_accumulate", "train_resume"]
SEVERAL = ["train_ddp", "train_fsdp"]
ON_SIM = "import runpy, sys, simgpu; simgpu.enable(); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"


def command(name, *arguments, ranks=0, sim=False):
    program = [str(FOLDER / f"{name}.py"), *arguments]
    if ranks:
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        return [sys.executable, *start, *program]
    return [sys.executable, *(["-c", ON_SIM] if sim else []), *program]


def run(folder, *args, **how):
    done = subprocess.run(
        command(*args, **how), cwd=folder, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def accuracies(said):
    return [float(share) for share in re.findall(r"accuracy ([\d.]+)%", said)]


def test_each_is_short_and_needs_nothing_of_the_course():
    for path in FOLDER.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert len(source.splitlines()) <= 150, path.name
        assert not re.search(r"course_|simgpu", source), path.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE)
def test_it_learns_on_the_cpu(name, tmp_path):
    said = accuracies(run(tmp_path, name, "--device", "cpu", "--epochs", "3"))
    assert len(said) == 3
    assert said[-1] > 80


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE)
def test_it_runs_on_the_simulated_device(name, tmp_path):
    if reason := simgpu.problem():
        skip(reason, "2027-11-30")
    said = run(tmp_path, name, "--device", "sim", "--epochs", "1", sim=True)
    assert "training on sim" in said
    assert accuracies(said)[0] > 50


@pytest.mark.slow
@pytest.mark.parametrize("name", SEVERAL)
def test_it_learns_on_two_ranks_and_goes_on(name, tmp_path):
    said = run(tmp_path, name, "--epochs", "2", ranks=2)
    assert said.count("training on 2") == 1
    assert accuracies(said)[-1] > 80
    said = run(tmp_path, name, "--epochs", "3", ranks=1)
    assert "going on after 2 epochs" in said
    assert accuracies(said)[-1] > 80


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_weights(tmp_path):
    how = ("--device", "cpu", "--epochs", "4")
    (tmp_path / "alone").mkdir()
    run(tmp_path / "alone", "train_resume", *how)
    (tmp_path / "killed").mkdir()
    for seconds in (2.5, 4.5, 5.5):
        process = subprocess.Popen(
            command("train_resume", *how), cwd=tmp_path / "killed", stdout=subprocess.DEVNULL
        )
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    run(tmp_path / "killed", "train_resume", *how)
    one, other = (
        torch.load(tmp_path / name / "checkpoints" / "model.pt") for name in ("alone", "killed")
    )
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_wrong_bit_or_a_cut_is_never_loaded(tmp_path, capsys):
    program = {}
    exec((FOLDER / "train_resume.py").read_text(encoding="utf-8"), program)
    state = {"model": {"w": torch.arange(300.0)}, "epochs": 1}
    program["save"](state, tmp_path)
    last, whole = tmp_path / "last.ckpt", (tmp_path / "last.ckpt").read_bytes()
    draw = random.Random(0)
    for turn in range(300):
        damaged = bytearray(whole)
        if turn % 3 == 0:
            del damaged[draw.randrange(len(whole)) :]
        else:
            damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        last.write_bytes(damaged)
        assert program["load"](tmp_path) is None
    last.write_bytes(whole)
    program["save"](state | {"epochs": 2}, tmp_path)
    assert program["load"](tmp_path)["epochs"] == 2
    last.write_bytes(whole[:-1])
    assert program["load"](tmp_path)["epochs"] == 1
    assert torch.equal(program["load"](tmp_path)["model"]["w"], state["model"]["w"])


def test_a_device_that_does_not_work_ends_in_one_sentence(tmp_path):
    done = subprocess.run(
        command("train_single", "--device", "meta-x"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Nothing runs on meta-x")
    assert "Try --device cpu." in done.stderr
    assert "Traceback" not in done.stderr
