"""Lesson 04's promise: a training run that is killed at any moment goes on as if nothing had been.

The script is made by the notebook's own cells, those with ``metadata.course.script``. A process that
has imported torch once forks the runs, so that forty starts do not cost forty imports.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
import torch
from harness import NOTEBOOKS

KILLS = 20
# torch imports torch._dynamo when the first optimiser is made; imported before the fork, it costs once.
PRELOAD = ["torch", "torch._dynamo", "course_utils.data", __name__]
METHODS = multiprocessing.get_all_start_methods()
context = multiprocessing.get_context("forkserver" if "forkserver" in METHODS else "spawn")
pytestmark = pytest.mark.slow

MAKE = """
import sys
from pathlib import Path
import nbformat
from IPython.core.interactiveshell import InteractiveShell
notebook, target = sys.argv[1:]
shell = InteractiveShell(history_length=0)
for cell in nbformat.read(notebook, as_version=4).cells:
    if cell.metadata.get("course", {}).get("script"):
        shell.run_cell(cell.source).raise_error()
    if "script = TrainingScript(" in cell.source:
        making = cell.source.partition("alone, killed")[0]
        shell.run_cell(making).raise_error()
Path(target).write_text(shell.user_ns["script"].source, encoding="utf-8")
"""


def child(script: str, folder: str, ready) -> None:
    """Run the script in a child as ``python train.py FOLDER``, with its output in a file."""
    sys.argv = [script, folder]
    with open(Path(folder) / "output.txt", "a", encoding="utf-8", buffering=1) as file:
        ready.set()
        with redirect_stdout(file):
            runpy.run_path(script, run_name="__main__")


@dataclass
class Trainer:
    """Starts the notebook's training script."""

    script: Path

    def start(self, folder: Path):
        """Start a run; return its process once it is about to begin training."""
        folder.mkdir(exist_ok=True)
        ready = context.Event()
        process = context.Process(target=child, args=(str(self.script), str(folder), ready))
        process.start()
        assert ready.wait(60)
        return process

    def finish(self, folder: Path) -> dict[str, torch.Tensor]:
        """Run to the end and return the final weights."""
        process = self.start(folder)
        process.join(120)
        assert process.exitcode == 0, (folder / "output.txt").read_text(encoding="utf-8")
        return torch.load(folder / "last.pt", weights_only=True)["model"]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory) -> Iterator[Trainer]:
    script = tmp_path_factory.mktemp("script") / "train.py"
    lesson = NOTEBOOKS / "04_checkpoints.ipynb"
    subprocess.run([sys.executable, "-c", MAKE, lesson, script], check=True, cwd=script.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        if context.get_start_method() == "forkserver":
            context.set_forkserver_preload(PRELOAD)
        yield Trainer(script)


@pytest.fixture(scope="module")
def left(trainer, tmp_path_factory) -> Path:
    """Return the folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("left")
    trainer.finish(folder)
    return folder


@pytest.fixture(scope="module")
def whole(trainer, left, tmp_path_factory) -> tuple[dict[str, torch.Tensor], float]:
    """Return the uninterrupted run's weights, and its seconds from its first line of output."""
    folder = tmp_path_factory.mktemp("whole")
    process, begun = trainer.start(folder), time.monotonic()
    process.join(120)
    duration = time.monotonic() - begun
    return trainer.finish(folder), duration


@pytest.fixture
def finished(left, tmp_path) -> Path:
    """Return a copy of an uninterrupted run's folder without its output, for a test to damage."""
    return shutil.copytree(left, tmp_path / "run", ignore=shutil.ignore_patterns("output.txt"))


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def killed_run(trainer: Trainer, folder: Path, delay: float, saving: bool = False) -> bool:
    """Start a run and kill it after ``delay`` seconds; return whether it was still running.

    If ``saving`` is true, wait in addition until it has begun to write a checkpoint.
    """
    process = trainer.start(folder)
    process.join(delay)
    while saving and process.is_alive() and not (folder / "last.pt.new").exists():
        time.sleep(0.0002)
    process.kill()
    process.join(60)
    return process.exitcode != 0


def epochs(resumed: list[str]) -> set[str]:
    """Return the epochs from which runs resumed."""
    return {text.split("epoch ")[1][0] for text in resumed}


@pytest.mark.serial  # it kills by the time that a run takes alone
def test_killed_at_twenty_random_moments(trainer, whole, tmp_path, capsys, record_property):
    weights, duration = whole
    dice = random.Random(20)
    same, torn, resumed = 0, 0, []
    kills = 0
    # The moments are spread over a run as long as the first; where it takes longer, more come near its end.
    while kills < KILLS or (epochs(resumed) < {"0", "1", "2"} and kills < KILLS + 10):
        late = kills >= KILLS
        delay = 1.3 * duration if late else duration * (kills + dice.random()) / KILLS
        folder = tmp_path / f"run{kills}"
        # Where it had finished before, kill it sooner.
        while not killed_run(trainer, folder, delay, saving=kills % 2 == 1):
            folder, delay = tmp_path / f"run{kills}_{delay:.4f}", (0.9 if late else 0.8) * delay
        torn += (folder / "last.pt.new").exists()
        same += equal(trainer.finish(folder), weights)
        output = (folder / "output.txt").read_text(encoding="utf-8").splitlines()
        resumed += [line for line in output if line.startswith("resume")]
        assert not (folder / "last.pt.new").exists(), "rubbish of a killed save is left"
        assert not list(folder.glob("*.damaged")), "a killed save left a checkpoint that is not whole"
        kills += 1
    line = (
        f"{same} of {kills} killed runs end in the weights of the uninterrupted run, bit for bit; "
        f"{len(resumed)} resumed from a checkpoint, {torn} were killed while they saved"
    )
    record_property("=lesson 04, killed training", line)
    with capsys.disabled():
        print(f"\n{line}")
    assert same == kills
    assert torn, "no run was killed while it wrote a checkpoint"
    # The moments are spread: some runs were killed in each epoch, and not all at its start.
    assert epochs(resumed) >= {"0", "1", "2"}
    assert len({text.split(": ")[1] for text in resumed}) >= 6


@pytest.mark.serial  # it kills by the time that a run takes alone
def test_killed_again_and_again(trainer, whole, tmp_path):
    folder, (weights, duration) = tmp_path / "run", whole
    kills = 0
    while kills < 3 and killed_run(trainer, folder, 0.4 * duration):
        kills += 1
    assert kills >= 1
    assert equal(trainer.finish(folder), weights)


@pytest.mark.parametrize("fault", ["a cut", "a wrong bit"])
def test_a_damaged_checkpoint_is_put_aside_and_the_one_before_used(trainer, whole, finished, fault):
    last = finished / "last.pt"
    if fault == "a cut":
        damaged = last.read_bytes()[: last.stat().st_size // 5]
        last.write_bytes(damaged)
    else:
        weight = whole[0]["0.weight"].numpy().tobytes()
        flipped = bytes([weight[0] ^ 1]) + weight[1:]
        damaged = last.read_bytes().replace(weight, flipped)
        last.write_bytes(damaged)
        loaded = torch.load(last, weights_only=True)["model"]
        assert not equal(loaded, whole[0]), "torch sees nothing"
    assert equal(trainer.finish(finished), whole[0])
    output = (finished / "output.txt").read_text(encoding="utf-8")
    assert "last.pt is cut short or damaged" in output
    assert "resume from previous.pt" in output
    assert (finished / "last.pt.damaged").read_bytes() == damaged, "nothing is thrown away unasked"


def test_where_no_checkpoint_can_be_read_the_run_stops_and_says_so(trainer, finished):
    for name in ("last.pt", "previous.pt"):
        (finished / name).write_bytes(b"PK")
    process = trainer.start(finished)
    process.join(60)
    assert process.exitcode == 1
    assert not (finished / "last.pt").exists(), "it went on from nothing"


def test_the_script_is_made_of_the_cells_the_learner_reads(trainer):
    cells = nbformat.read(NOTEBOOKS / "04_checkpoints.ipynb", as_version=4).cells
    script = trainer.script.read_text(encoding="utf-8")
    shown = [cell.source for cell in cells if cell.cell_type == "code"]
    for name in ("save_checkpoint", "load_checkpoint", "train", "new_run", "prepare"):
        start = script.index(f"def {name}(")
        body = script[start:].split("\n\n\n")[0].rstrip()
        assert any(body in source for source in shown), f"{name} is not the notebook's"
