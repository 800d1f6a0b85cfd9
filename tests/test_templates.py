"""The handbook's programs: they learn, survive a kill and a wrong bit, and run on ranks and on ``sim``.

A process that has imported torch once forks most of the runs: a start then costs no import. What torchrun
restarts, and the batch script, start as a user starts them.
"""

import ast
import json
import multiprocessing
import operator
import os
import random
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
import torch.distributed as dist
from harness import ROOT, execute, executed_problems
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from support import skip
from test_checkpoints import spoilt
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import simgpu
from course_lessons.shared import launch
from course_utils.cli import main as course_utils
from tools.authoring.handbook import AS_NOTEBOOKS

FOLDER = ROOT / "handbook" / "templates"
ONE = ["train_single", "train_amp", "train_accumulate", "train_resume"]
LOOK = ["profile_step", "memory_report"]
SEVERAL = ["train_ddp", "train_fsdp"]
PROGRAMS = [*ONE, *SEVERAL, *LOOK]
METHODS = multiprocessing.get_all_start_methods()
context = multiprocessing.get_context("forkserver" if "forkserver" in METHODS else "spawn")
LIMIT = 120  # seconds; what hangs is killed then


def source(name):
    return (FOLDER / f"{name}.py").read_text(encoding="utf-8")


def functions(name, **given):
    """Execute a program without running it as main; return its namespace, with ``given`` defined before."""
    program = {"__name__": name, **given}
    exec(source(name), program)
    return program


# --- runs


def child(program, words, folder, environment, sim, most):
    """Run a program in a child as from a command line, with its output in a file."""
    os.chdir(folder)
    os.environ.update(environment)
    with open("said.txt", "a", encoding="utf-8") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
            stream.reconfigure(line_buffering=True)
    if most:
        import resource  # no file may grow beyond it, as on a full disk

        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    if sim:
        simgpu.enable()
    torch.set_num_threads(1)
    sys.argv = [program, *words]
    runpy.run_path(program, run_name="__main__")


@pytest.fixture(scope="module", autouse=True)
def _imported_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        if "forkserver" in METHODS:
            modules = ["torch._dynamo", "torch.distributed.fsdp", "torch.distributed.checkpoint"]
            context.set_forkserver_preload([*modules, __name__])
        yield


class Run:
    """A program running in one or several processes, which join their group without torchrun."""

    def __init__(self, folder, name, *words, ranks=0, sim=False, most=0, program=None):
        self.said = folder / "said.txt"
        self.said.unlink(missing_ok=True)
        words = [str(word) for word in words]
        program = str(program or FOLDER / f"{name}.py")
        self.processes = []
        for rank, found in enumerate(environments(ranks)):
            args = (program, words, str(folder), found, sim, most if rank == 0 else 0)
            self.processes.append(context.Process(target=child, args=args, daemon=True))
        for process in self.processes:
            process.start()

    def until(self, pattern):
        """Wait until the output matches a pattern."""
        end = time.monotonic() + LIMIT
        while not re.search(pattern, self.text):
            assert time.monotonic() < end and self.processes[0].is_alive(), self.text
            time.sleep(0.005)

    def kill(self):
        for process in self.processes:
            process.kill()
            process.join()

    def end(self, status=0):
        """Wait for the end, assert the exit status, and return the output."""
        for process in self.processes:
            process.join(LIMIT)
        hung = any(process.is_alive() for process in self.processes)
        found = self.processes[0].exitcode
        self.kill()
        assert not hung, f"it hangs: {self.text}"
        assert found == status, self.text
        return self.text

    @property
    def text(self):
        return self.said.read_text(encoding="utf-8") if self.said.exists() else ""


def environments(ranks):
    if not ranks:
        return [{}]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    return [meet | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def accuracies(said):
    return [float(share) for share in re.findall(r"accuracy ([\d.]+)%", said)]


def epochs(said):
    """Return the output lines of epochs without their seconds."""
    return re.findall(r"epoch \d: loss [\d.]+, accuracy [\d.]+%", said)


def weights(folder):
    return torch.load(folder / "checkpoints" / "model.pt", weights_only=True)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Return the output of each single-device program on the CPU, and its folder."""
    found = {}
    for name in ONE:
        folder = tmp_path_factory.mktemp(name)
        words = ("--batch-size", 32, "--accumulate", 4) if name == "train_accumulate" else ()
        found[name] = folder, Run(folder, name, "--device", "cpu", "--epochs", 3, *words).end()
    return found


# --- one device


def test_each_is_plain_and_in_the_table():
    page = (ROOT / "handbook" / "templates.md").read_text(encoding="utf-8")
    assert sorted(PROGRAMS) == sorted(path.stem for path in FOLDER.glob("*.py"))
    for path in [*FOLDER.glob("*.py"), FOLDER / "train.slurm"]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"course_|simgpu", text), path.name
        assert text.isascii(), f"{path.name}: > train.py would spoil it on Windows"
        assert re.search(rf"\| `{re.escape(path.name)}` \| \[\d\d\]", page), path.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE)
def test_it_learns_on_the_cpu_and_says_how_it_goes(learned, name):
    folder, said = learned[name]
    assert len(accuracies(said)) == 3
    assert accuracies(said)[-1] > 80
    assert re.search(r"epoch 2, (batch|step) 50/79: loss 0\.\d", said)
    assert list(folder.rglob("model.pt"))


@pytest.mark.slow
def test_a_step_of_several_batches_is_a_step_of_a_large_one(learned):
    """10,000 samples are 313 batches of 32: the last stands in a group alone, and weighs as it should."""
    large, small = (
        [float(loss) for loss in re.findall(r"\d: loss ([\d.]+),", learned[name][1])]
        for name in ("train_amp", "train_accumulate")
    )
    assert len(large) == 3
    assert small == pytest.approx(large, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ONE, *LOOK])
def test_it_runs_on_the_simulated_device(name, simulated, tmp_path):
    words = [] if name in LOOK else ["--epochs", 1]
    said = Run(tmp_path, name, "--device", "sim", *words, sim=True).end()
    assert re.search(r"(training|profiling|looking) (on|at) sim", said)
    if name == "memory_report":
        kept = float(re.search(r"activations kept +([\d.]+)", said)[1])
        before, after = (
            float(re.search(rf"{moment} +([\d.]+)", said)[1])
            for moment in ("before the step", "after forward")
        )
        assert after - before == pytest.approx(kept, abs=0.02)
    elif name == "profile_step":
        assert "The profiler does not see sim" in said
    else:
        assert accuracies(said)[0] > 50


@pytest.mark.slow
def test_a_profile_is_a_table_and_a_trace(tmp_path):
    said = Run(tmp_path, "profile_step", "--device", "cpu", "--steps", 4).end()
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    names = [event.get("name") for event in trace["traceEvents"]]
    for part in ("data", "forward", "backward", "optimizer"):
        assert names.count(part) == 4
        assert re.search(rf"{part} +[\d.]+ ms a step", said)
    assert "aten::addmm" in said and "does not see" not in said


@pytest.mark.slow
def test_the_memory_of_a_step_is_counted_and_a_cpu_says_what_it_cannot(tmp_path):
    said = Run(tmp_path, "memory_report", "--device", "cpu", "--batch-size", 1024).end()
    found = dict(re.findall(r"  ([a-z ]+?) +([\d.]+) MiB", said))
    parameters = (32 * 512 + 512 + 512 * 10 + 10) * 4 / 2**20
    assert float(found["parameters"]) == pytest.approx(parameters, abs=0.01)
    assert float(found["optimiser"]) == pytest.approx(2 * parameters, abs=0.01)
    assert float(found["activations kept"]) == pytest.approx(1024 * (512 + 10) * 4 / 2**20, abs=0.02)
    assert "Nothing counts what is allocated on cpu" in said and "peak of the step" not in said


# --- kills


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_weights(learned, tmp_path):
    draw, words = random.Random(0), ("--device", "cpu", "--epochs", 3, "--log-every", 1)
    for epoch in (0, 0, 1, 1, 2):
        run = Run(tmp_path, "train_resume", *words)
        run.until(rf"epoch {epoch}, batch {draw.randrange(1, 79)}/79")
        run.kill()
    said = Run(tmp_path, "train_resume", *words).end()
    assert re.search("[23] epochs are done", said)  # a late kill comes after the epoch's end
    assert same(weights(tmp_path), weights(learned["train_resume"][0]))


@pytest.mark.slow
def test_one_rank_is_killed_under_torchrun_and_the_weights_are_the_same(tmp_path, monkeypatch):
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    alone.mkdir(), killed.mkdir()
    words = ("--epochs", 3, "--log-every", 5)
    whole = Run(alone, "train_ddp", *words, ranks=2)
    monkeypatch.chdir(killed)
    kill = launch.Kill(rank=1, after="epoch 1, batch 10/79")
    threads = {"OMP_NUM_THREADS": "1"}  # as of the run that is not killed
    how = {"ranks": 2, "restarts": 1, "kill": kill, "environment": threads, "quiet": True}
    done = launch.run(FOLDER / "train_ddp.py", *words, seconds=LIMIT, **how)
    said = "\n".join(done.lines[0])
    assert done.ok and done.attempts == 2, said
    assert re.search("[12] epochs are done", said)  # torchrun started both again
    assert said.count("training on 2 x cpu") == 2
    again = epochs(said.rpartition("epochs are done")[2])
    assert epochs(whole.end())[-len(again) :] == again != []
    assert accuracies(said)[-1] > 80
    assert same(weights(alone), weights(killed))


# --- several ranks


def changed(tmp_path, name, *changes):
    """Return a program with some text replaced."""
    text = source(name)
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    program = tmp_path / f"changed_{len(list(tmp_path.glob('changed_*')))}.py"
    program.write_text(text, encoding="utf-8")
    return program


UNEVEN = ("12_000", "11_998")  # a test set that four ranks cannot share evenly
STILL = ("rate * (1 - epoch / args.epochs)", "0.0")  # nothing is learned: the weights stay


@pytest.mark.slow
def test_a_sharded_model_is_killed_goes_on_and_loads_at_one_and_four_ranks(tmp_path):
    program = changed(tmp_path, "train_fsdp", UNEVEN)
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    alone.mkdir(), killed.mkdir()
    words = ("--epochs", 2, "--log-every", 5)
    said = Run(alone, "", *words, ranks=2, program=program).end()
    run = Run(killed, "", *words, ranks=2, program=program)
    run.until("epoch 1, batch 10/79")
    run.kill()
    (killed / "checkpoints" / "unfinished").mkdir(exist_ok=True)
    (killed / "checkpoints" / "unfinished" / "__7_0.distcp").write_bytes(b"of a save that was killed")
    again = Run(killed, "", *words, ranks=2, program=program).end()
    done = int(re.search("([12]) epochs are done", again)[1])
    assert epochs(said)[done:] == epochs(again)
    left = list((killed / "checkpoints").glob("epoch-*/__7_0.distcp"))
    assert not left  # what the killed save left is no part of a later checkpoint
    still = changed(tmp_path, "train_fsdp", UNEVEN, STILL)
    for ranks in (1, 4):
        shutil.copytree(alone, tmp_path / str(ranks))
        found = Run(tmp_path / str(ranks), "", "--epochs", 3, ranks=ranks, program=still).end()
        assert f"training on {ranks} x cpu, 2 epochs are done" in found
        assert accuracies(found) == pytest.approx(accuracies(said)[-1:], abs=0.11)


@pytest.mark.slow
def test_what_two_ranks_saved_another_number_takes_and_counts_each_sample_once(tmp_path):
    two = tmp_path / "2"
    two.mkdir()
    said = Run(two, "train_ddp", "--epochs", 1, ranks=2).end()
    still = changed(tmp_path, "train_ddp", STILL)
    for ranks in (1, 3):
        folder = shutil.copytree(two, tmp_path / str(ranks))
        found = Run(folder, "", "--epochs", 2, ranks=ranks, program=still).end()
        assert f"training on {ranks} x cpu, 1 epochs are done" in found
        assert accuracies(found) == accuracies(said)


@pytest.mark.slow
def test_each_rank_draws_weights_of_its_own(tmp_path):
    """Where ranks draw with one seed on a CPU, half of the units are copies of the other half."""
    Run(tmp_path, "train_fsdp", "--epochs", 1, "--lr", 0, ranks=2).end()
    (saved,) = (tmp_path / "checkpoints").iterdir()
    dcp_to_torch_save(saved, tmp_path / "one.pt")
    weight = torch.load(tmp_path / "one.pt", weights_only=True)["model"]["0.weight"]
    assert weight.shape == (512, 32)
    assert len(weight.unique(dim=0)) == 512


# --- wrong bits


@pytest.mark.slow
def test_a_wrong_bit_or_a_cut_is_never_loaded(tmp_path):
    program = functions("train_resume")
    save, newest = program["save"], program["newest"]
    state = {"model": {"w": torch.arange(300.0)}, "epochs": 1}
    save(state, tmp_path)
    last = tmp_path / "epoch-0001.ckpt"
    whole = last.read_bytes()
    for data in spoilt(whole):
        last.write_bytes(data)
        assert newest(tmp_path) is None
    last.write_bytes(whole)
    for epoch in (2, 3):
        save(state | {"epochs": epoch}, tmp_path)
    assert newest(tmp_path) == tmp_path / "epoch-0003.ckpt"
    (tmp_path / "epoch-0003.ckpt").write_bytes(whole[:-1])
    assert newest(tmp_path) == tmp_path / "epoch-0002.ckpt"
    assert torch.equal(torch.load(newest(tmp_path))["model"]["w"], state["model"]["w"])
    assert not last.exists() and not Path(f"{last}.sha256").exists()  # two are kept


@pytest.mark.parametrize("spoil", ["empty", "garbage", "a folder", "no sum", "an empty sum", "no text"])
def test_what_is_no_checkpoint_is_put_aside_and_the_one_before_is_taken(spoil, tmp_path):
    program = functions("train_resume")
    for epoch in (1, 2):
        program["save"]({"epochs": epoch}, tmp_path)
    last = tmp_path / "epoch-0002.ckpt"
    listed = Path(f"{last}.sha256")
    if spoil in ("empty", "garbage"):
        last.write_bytes(b"garbage" * (spoil == "garbage"))
    elif spoil == "a folder":
        last.unlink()
        (last / "below").mkdir(parents=True)
    elif spoil == "no sum":
        listed.unlink()
    else:
        listed.write_bytes(b"\xff\xfe" * (spoil == "no text"))
    assert program["newest"](tmp_path) == tmp_path / "epoch-0001.ckpt"
    assert Path(f"{last}.damaged").exists()


@pytest.mark.slow
def test_a_checkpoint_is_a_plain_file_and_the_memory_for_it_is_small(tmp_path):
    """Once a save took three times the state more, in memory, and a load four times."""
    if sys.platform != "linux":
        skip("the peak is read from /proc", "2027-11-30")
    code = f"""
import runpy, threading, torch
from pathlib import Path
program = runpy.run_path({str(FOLDER / "train_resume.py")!r})
def of(name):
    return int(Path("/proc/self/status").read_text().partition(name)[2].split()[0]) / 1024
def grown(work):
    Path("/proc/self/clear_refs").write_text("5")
    before = of("VmRSS:")
    work()
    return of("VmHWM:") - before
class Part:
    def __init__(self): self.w = torch.ones(25, 2**20)
    def state_dict(self): return {{"w": self.w}}
    def load_state_dict(self, state): self.w.copy_(state["w"])
part = Part()
state = {{"part": part.state_dict(), "epochs": 1, "arguments": {{}}}}
print(grown(lambda: program["save"](state, Path("."))))
path = program["newest"](Path("."))
print(grown(lambda: program["newest"](Path("."))))
print(grown(lambda: program["load"](path, {{"part": part}}, {{}})))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    saving, looking, loading = (float(line) for line in done.stdout.split())
    assert saving < 30 and looking < 30, done.stdout  # MiB, of a state of 100
    assert loading < 130, done.stdout
    assert torch.load(tmp_path / "epoch-0001.ckpt")["part"]["w"].shape == (25, 2**20)


def test_the_checkpoint_of_epoch_10000_is_the_newest(tmp_path):
    program = functions("train_resume")
    for epoch in (9998, 9999, 10000):
        program["save"]({"epochs": epoch}, tmp_path)
    assert program["newest"](tmp_path) == tmp_path / "epoch-10000.ckpt"
    assert not (tmp_path / "epoch-9998.ckpt").exists()
    for name in ("epoch-10000-ab", "epoch-9999-cd"):
        (tmp_path / name).mkdir()
    names = [path.name for path in functions("train_fsdp")["checkpoints"](tmp_path)]
    assert names == ["epoch-9999-cd", "epoch-10000-ab"]


def test_the_programs_for_one_and_several_save_and_load_alike():
    one, several = source("train_resume"), source("train_ddp")
    part = one[one.index("def sha256(") : one.index("def evaluate(")]
    assert part in several


@pytest.fixture
def alone(monkeypatch):
    """Make this process a single rank without creating a process group."""
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 1)
    monkeypatch.setattr(dist, "broadcast_object_list", lambda objects: None)
    monkeypatch.setattr(dist, "all_gather_object", lambda objects, one: operator.setitem(objects, 0, one))


@pytest.mark.slow
def test_a_wrong_bit_in_a_shard_is_never_loaded(tmp_path, alone):
    program = functions("train_fsdp")
    newest, digest = program["newest"], program["digest"]
    names = (".metadata", "__0_0.distcp", "__1_0.distcp", "arguments.json")
    draw = random.Random(1)
    parts = {name: draw.randbytes(1000) for name in names}

    def checkpoint(epoch):
        folder = tmp_path / f"epoch-{epoch:04}"
        folder.mkdir()
        for name, content in parts.items():
            (folder / name).write_bytes(content + bytes([epoch]))
        return folder.rename(f"{folder}-{digest(folder)}")

    older = checkpoint(1)
    bad = [(n, data) for n in names for data in (None, *spoilt(parts[n] + b"\2", 125, 25))]
    for name, data in bad:
        last = checkpoint(2)
        if data is None:
            (last / name).unlink()
        else:
            (last / name).write_bytes(data)
        assert newest(tmp_path) == older
        shutil.rmtree(next(tmp_path.glob("damaged-*")))
    (tmp_path / "epoch-0009-no-folder").touch()
    last = checkpoint(2)
    assert newest(tmp_path) == last


# --- errors


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("train_single", ["--device", "meta-x"], r"Nothing runs on meta-x: .*\n?.*Try --device cpu\."),
        ("train_single", ["--lr", 1e30, "--device", "cpu"], r"The loss is (nan|inf) in epoch 0\. Try a sm"),
        ("train_ddp", [], r"Use torchrun --standalone --nproc-per-node \d+ train_ddp\.py"),
        ("train_fsdp", [], r"Use torchrun --standalone --nproc-per-node \d+ train_fsdp\.py"),
        ("profile_step", ["--batch-size", 5000, "--device", "cpu"], r"The data ends after 2 steps\."),
        ("memory_report", ["--snapshot", "x", "--device", "cpu"], "Only CUDA, ROCm and XPU write a snapshot"),
        ("train_resume", ["--folder", "said.txt"], r"^No folder for checkpoints: .*said\.txt"),
        ("train_resume", ["--folder", "/proc/no"], r"^No folder for checkpoints: .*/proc/no"),
        ("profile_step", ["--trace", "no/x.json", "--device", "cpu"], r"^No trace can be written: .*x\.json"),
        ("train_single", ["--output", "no/model.pt"], r"^no/model\.pt cannot be written: .*"),
        ("train_amp", ["--output", ".", "--device", "cpu"], r"^\. cannot be written: it is a folder"),
        ("train_accumulate", ["--output", "/proc/x.pt", "--device", "cpu"], r"^/proc/x\.pt cannot be"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_an_error_is_one_clear_sentence(name, words, said, tmp_path):
    text = Run(tmp_path, name, *words).end(status=1)
    assert re.search(said, text, re.MULTILINE)
    assert "Traceback" not in text and "epoch 0:" not in text


WRONG = {
    "--epochs": (0, -3, 1.5, "x"),
    "--batch-size": (0,),
    "--lr": ("nan", "inf", -1),
    "--workers": (-1,),
    "--seed": (-1, 2**32),
    "--log-every": (0,),
    "--clip": ("nan", -1),
    "--accumulate": (0,),
    "--steps": (0,),
    "--warmup": (-1,),
    "--rows": (0,),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_argument_is_refused_by_name_with_status_2(name, tmp_path, monkeypatch, capsys):
    main = functions(name, __doc__="A program.", __file__=f"{name}.py")["main"]
    monkeypatch.chdir(tmp_path)
    if name in SEVERAL:
        monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: pytest.fail("it starts"))
    for option, values in WRONG.items():
        for value in values if f'"{option}"' in source(name) else ():
            monkeypatch.setattr(sys, "argv", [name, f"{option}={value}"])
            with pytest.raises(SystemExit) as ended:
                main()
            last = capsys.readouterr().err.splitlines()[-1]
            assert ended.value.code == 2 and "error: " in last and option in last
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("wrong", ["file", "loss"])
def test_rank_0_alone_says_what_is_wrong_on_all_ranks(name, wrong, tmp_path):
    words = ("--folder", "said.txt") if wrong == "file" else ("--lr", 1e30, "--log-every", 5)
    said = Run(tmp_path, name, *words, ranks=2).end(status=1)
    sentence = "No folder for checkpoints: " if wrong == "file" else r"The loss is (nan|inf) in epoch 0\."
    assert len(re.findall(sentence, said)) == 1
    assert "Traceback" not in said and "epoch 0: loss" not in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train_resume", "train_fsdp"])
def test_a_checkpoint_of_other_arguments_is_refused_and_epochs_may_change(name, tmp_path):
    ranks, cpu = (2, ()) if name in SEVERAL else (0, ("--device", "cpu"))
    said = Run(tmp_path, name, *cpu, "--epochs", 1, "--lr", 0.002, ranks=ranks).end()
    assert "'lr': 0.002" in said and torch.__version__ in said
    words = ("--epochs", 2, "--seed", 1, "--lr", 0.002)
    said = Run(tmp_path, name, *cpu, *words, ranks=ranks).end(status=1)
    assert len(re.findall("was made with seed = 0, and now it is 1. Give the same, or", said)) == 1
    assert "Traceback" not in said
    words = ("--epochs", 2, "--lr", 0.002, "--log-every", 7, "--workers", 0)
    assert "1 epochs are done" in Run(tmp_path, name, *cpu, *words, ranks=ranks).end()
    said = Run(tmp_path, name, *cpu, *words, ranks=ranks).end()
    assert "Nothing is left to train" in said


TWO_GROUPS = (
    "torch.optim.AdamW(model.parameters(), lr=args.lr)",
    "torch.optim.AdamW([{'params': [p for p in model.parameters() if p.ndim > 1], 'lr': 0.004},"
    " {'params': [p for p in model.parameters() if p.ndim == 1]}], lr=args.lr)",
)
SHOWN = (
    "        model.train()\n",
    "        rates = [g['lr'] for g in optimizer.param_groups]\n"
    "        print(f'rates {rates}\\n', end='')  # one write: two ranks share the pipe\n"
    "        model.train()\n",
)


JUDGED = (
    "    for epoch in range(",
    "    evaluate(model, test_loader, device{})\n    for epoch in range(",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ONE, *SEVERAL])
def test_the_rates_of_all_groups_follow_the_schedule_of_a_model_that_was_judged_before(name, tmp_path):
    """A sharded model could not be trained after its judgement, once; clipping at 0 is off."""
    has_clip = name in ("train_amp", "train_accumulate")
    judged = JUDGED[0], JUDGED[1].format(", dtype" if has_clip else "")
    program = changed(tmp_path, name, TWO_GROUPS, SHOWN, judged)
    words = ("--epochs", 2, "--batch-size", 500, *(["--clip", 0] if has_clip else []))
    ranks = 2 if name in SEVERAL else 0
    said = Run(tmp_path, "", *words, ranks=ranks, program=program).end()
    rates = re.findall(r"rates .*", said)
    assert sorted(set(rates)) == ["rates [0.002, 0.0005]", "rates [0.004, 0.001]"]
    assert len(rates) == 2 * max(ranks, 1) and accuracies(said)[-1] > 30


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_the_run_early_and_leaves_the_weights_before(tmp_path):
    spoilt_later = ("loss.backward()", "(loss * (1 if epoch == 0 else math.nan)).backward()")
    program = changed(tmp_path, "train_single", spoilt_later)
    said = Run(tmp_path, "", "--device", "cpu", "--log-every", 10, program=program).end(status=1)
    assert "epoch 1, batch 10/79: loss nan" in said and "batch 20" not in said.partition("epoch 1")[2]
    assert "The loss is nan in epoch 1." in said and "earlier epochs is still there" in said
    saved = torch.load(tmp_path / "model.pt")
    assert all(value.isfinite().all() for value in saved.values())


NET = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Linear(4, 16)
        self.place = nn.Parameter(torch.randn(8, 16))
        self.register_buffer("scale", torch.full((1,), 0.5), persistent=False)
        self.register_buffer("order", torch.arange(8))
        self.register_buffer("used", torch.ones(8, 1, dtype=torch.bool))
        layers = (nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True) for _ in range(2))
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(16, 10)
INIT
    def forward(self, x):
        x = (self.tokens(x.view(-1, 8, 4)) + self.place[self.order] * self.used) * self.scale
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def make_model():
    return Net()


def start():"""
INIT = """
    def init_weights(self):
        for part in self.modules():
            if isinstance(part, (nn.Linear, nn.LayerNorm)):
                part.reset_parameters()
        for part in self.modules():
            if isinstance(part, nn.MultiheadAttention):
                part._reset_parameters()
        nn.init.normal_(self.place)
        self.scale.fill_(0.5)
        self.order = torch.arange(8)
        self.used.fill_(True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("init", "left"),
    [
        ("", "order, place, scale, used"),
        (INIT, ""),
        (INIT.replace("nn.init.normal_(self.place)", "self.place.to_local()[:2] = 0"), "place"),
        (INIT.replace("self.order = torch.arange(8)", "self.order[:4] = 0"), "order"),
        (INIT.replace("part._reset_parameters()", "pass"), "layers.0.self_attn.in_proj_bias, "),
    ],
)
def test_a_sharded_model_is_trained_only_where_all_its_numbers_were_written(init, left, tmp_path):
    program = changed(tmp_path, "train_fsdp", ("def start():", NET.replace("INIT\n", init)))
    said = Run(tmp_path, "", "--epochs", 1, "--batch-size", 500, ranks=2, program=program)
    if left:
        said = said.end(status=1)
        assert len(re.findall(f"Nothing has written {left}", said)) == 1
        assert "init_weights()" in said and "Traceback" not in said and "epoch 0" not in said
    else:
        assert accuracies(said.end())[0] > 5


@pytest.mark.slow
def test_a_full_disk_is_named_and_the_checkpoint_before_is_whole(tmp_path):
    if os.name != "posix":
        skip("Windows has no limit on a file's size to try it with", "2027-11-30")
    Run(tmp_path, "train_resume", "--device", "cpu", "--epochs", 1).end()
    words = ("--device", "cpu", "--epochs", 2)
    said = Run(tmp_path, "train_resume", *words, most=100_000).end(status=1)
    assert re.search(r"No checkpoint: .*File too large. Those in checkpoints are whole\.", said)
    assert "Traceback" not in said
    assert "1 epochs are done" in Run(tmp_path, "train_resume", *words).end()
    said = Run(tmp_path, "train_single", *words, most=10_000).end(status=1)
    assert re.search(r"model\.pt cannot be written: .*File too large\.", said)
    sharded = tmp_path / "sharded"
    sharded.mkdir()
    said = Run(sharded, "train_fsdp", "--epochs", 1, ranks=2, most=20_000).end(status=1)
    assert len(re.findall(r"No checkpoint: .*\. Those in checkpoints are whole\.", said)) == 1
    assert "Traceback" not in said


@pytest.fixture(params=["cuda", "xpu"])
def two_gpus(request, monkeypatch):
    """Replace the GPU functions by fakes of two GPUs; return the kind, and the list of calls in order."""
    called = []
    accelerator = SimpleNamespace(
        current_accelerator=lambda check_available: torch.device(request.param),
        device_count=lambda: 2,
        set_device_index=lambda index: called.append(("current", index)),
    )
    monkeypatch.setattr(torch, "accelerator", accelerator)
    monkeypatch.setattr(
        dist, "init_process_group", lambda backend, device_id: called.append((backend, device_id))
    )
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    return request.param, called


@pytest.mark.parametrize("name", SEVERAL)
def test_more_ranks_than_gpus_are_told_how_many_there_are(name, two_gpus, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(SystemExit, match=r"--nproc-per-node 2 train_"):
        functions(name)["start"]()


@pytest.mark.parametrize("name", SEVERAL)
def test_a_rank_takes_its_own_gpu_before_it_joins_the_group(name, two_gpus, monkeypatch):
    """A collective of Python objects takes the current GPU, whatever device_id says."""
    kind, called = two_gpus
    monkeypatch.setenv("LOCAL_RANK", "1")
    device = torch.device(kind, 1)
    assert functions(name)["start"]() == (device, 1, 2)
    assert called == [("current", 1), ({"cuda": "nccl", "xpu": "xccl"}[kind], device)]


# --- as notebooks, as a batch script, as a command


@pytest.mark.slow
@pytest.mark.parametrize("name", AS_NOTEBOOKS)
def test_as_a_notebook_it_says_what_the_program_says(name, learned, tmp_path):
    nb = load_notebook_node(str(FOLDER / f"{name}.ipynb"))
    nbformat.validate(nb)
    nb = parameterize_notebook(nb, {"DEVICE": "cpu", "EPOCHS": 3, "BATCH_SIZE": 32 if "acc" in name else 128})
    done = execute(nb, tmp_path)
    assert not list(executed_problems(done, least=8))
    said = "".join(o.text for c in done.cells for o in c.get("outputs", ()) if o.name == "stdout")
    assert epochs(said) == epochs(learned[name][1])


@pytest.mark.parametrize("name", AS_NOTEBOOKS)
def test_a_notebook_has_the_code_of_its_program(name):
    """All but the command line: an option is a constant there, and an error ends no program."""
    program = source(name).replace("parser.error(", "raise ValueError(")
    program = re.sub(
        r"(?:\bargs\.|(?<![\w-])--)([a-z][a-z_-]*)",
        lambda option: option[1].replace("-", "_").upper(),
        program.replace("SystemExit", "RuntimeError").replace("import argparse\n", ""),
    )
    *body, main, _call = ast.parse(program).body[1:]
    for node in body:
        if isinstance(node, ast.FunctionDef):
            del node.body[0]  # the docstring, which is the prose above the cell
    parsed = [ast.unparse(node) for node in main.body].index("args = parser.parse_args()")
    body += main.body[parsed + 2 :]  # without the line that prints the arguments
    cells = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4).cells
    code = [c.source for c in cells if c.cell_type == "code" and c.id != "parameters"]
    assert [ast.unparse(node) for node in ast.parse("\n".join(code)).body] == [
        ast.unparse(node) for node in body
    ]


SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
trap 'kill $(jobs -p); wait; exit 143' TERM
echo $$ > srun.pid
for ((node = 0; node < SLURM_JOB_NUM_NODES; node++)); do "$@" & done
wait
"""
SCONTROL = """#!/bin/bash
if [[ $1 == show ]]; then for ((n = 0; n < SLURM_JOB_NUM_NODES; n++)); do echo localhost; done; exit; fi
echo "$@" >> scontrol.txt
kill "$(cat srun.pid)"
"""


@pytest.mark.slow
def test_a_job_of_two_nodes_goes_back_into_the_queue_and_on(tmp_path):
    if os.name != "posix" or not (bash := shutil.which("bash")):
        skip("there is no bash for a batch script", "2027-11-30")
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    shutil.copy(FOLDER / "train_ddp.py", tmp_path)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        job = s.getsockname()[1] % 20_000
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    slurm = {"SLURM_JOB_ID": str(job), "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}

    def start(**more):
        call = [bash, str(FOLDER / "train.slurm"), "--epochs", "3", "--log-every", "5"]
        env = os.environ | slurm | {"PATH": path} | more
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        return subprocess.Popen(call, cwd=tmp_path, env=env, start_new_session=True, **out)

    job = start()
    seen = []
    for line in job.stdout:
        seen.append(line)
        if "epoch 1, batch 10/79" in line:
            job.send_signal(signal.SIGUSR1)
    text = "".join(seen)
    assert job.wait(LIMIT) == 0, text
    assert "training on 2 x cpu, 0 epochs are done" in text
    assert "the time is up: back into the queue" in text and "epoch 2:" not in text
    assert (tmp_path / "scontrol.txt").read_text() == f"requeue {slurm['SLURM_JOB_ID']}\n"
    job = start(SLURM_RESTART_COUNT="1", SLURM_JOB_NUM_NODES="1", SLURM_GPUS_ON_NODE="2")
    text, _ = job.communicate(timeout=LIMIT)
    assert job.returncode == 0, text
    assert "start 1 on 1 nodes" in text and re.search("2 x cpu, [12] epochs are done", text)
    assert accuracies(text)[-1] > 80


def test_the_command_lists_writes_and_never_overwrites(tmp_path, capsys):
    assert course_utils(["template"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len([line for line in listed if re.search(r"\. Lesson \d\d(, \d\d)*\.$", line)]) == 9
    for name in ("ddp", "train_ddp", "train_ddp.py"):
        assert course_utils(["template", name]) == 0
        assert capsys.readouterr().out == source("train_ddp")
    file = tmp_path / "mine.py"
    assert course_utils(["template", "memory", "--output", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == source("memory_report")
    assert course_utils(["template", "ddp", "--output", str(file)]) == 1
    assert "File exists" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == source("memory_report")
    assert course_utils(["template", "slrum"]) == 2
    assert capsys.readouterr().err == "There is no template slrum: did you mean slurm?\n"


def test_the_command_needs_nothing_but_python():
    call = [sys.executable, "-S", "-m", "course_utils", "template", "single"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == source("train_single"), done.stderr
