"""Makes a program of the functions in the lesson's cells, runs it in processes, and kills one of them."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from course_language import _

_BEFORE = """
import os
import random
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from course_lessons.shared.checkpoint import newest_whole
from course_utils import load_digits
"""
_AFTER = """
torch.set_num_threads(1)  # equal bits need the same number of threads
digits = load_digits()
run = new_run(torch.device("cpu"), steps=60)
train(run, digits.train_x[:1000], digits.train_y[:1000], epochs=3, folder=Path(sys.argv[1]))
"""
_POINT = re.compile(r"epoch (\d+), step (\d+): loss ([\d.]+)")


class TrainingScript:
    """A program ``train.py`` in a temporary ``folder``: imports, functions with their source, a training.

    The training takes three epochs of 20 steps, on the CPU, with one thread.

    Parameters
    ----------
    functions
        ``new_run``, ``train``, and all that they call.
    """

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self.source = "\n\n".join([_BEFORE, *map(inspect.getsource, functions), _AFTER])
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "train.py").write_text(self.source, encoding="utf-8")

    def start(self, name: str) -> TrainingProcess:
        """Start the program in a process of its own, with checkpoints in the folder ``name``."""
        return TrainingProcess(self.folder / "train.py", self.folder / name)


class TrainingProcess:
    """A running training: its ``folder``, and the lines that it has printed so far, in ``output``."""

    def __init__(self, script: Path, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.output: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-u", script, folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # Jupyter doesn't show a child's errors
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def kill_at(self, words: str) -> None:
        """Print what the process prints, and kill it at the first line that contains ``words``.

        Without such a line it returns when the process has ended.
        """
        for line in self._lines():
            print(line)
            if words in line:
                self._process.kill()
                print(_("killed: exit code {wait}").format(wait=self._process.wait()))
                break
        self._process.stdout.close()

    def finish(self, *, show: bool = False) -> None:
        """Wait for the end of the process; print its lines if ``show`` is true, or if it failed."""
        for line in self._lines():
            if show:
                print(line)
        if self._process.wait() and not show:
            print("\n".join(self.output))
        self._process.stdout.close()

    def _lines(self) -> Iterator[str]:
        """Yield each line that the process prints, and keep it in ``output``."""
        for line in self._process.stdout:
            self.output.append(line.rstrip("\n"))
            yield self.output[-1]

    def losses(self, steps_per_epoch: int = 20) -> dict[int, float]:
        """Return the losses that were printed, by the number of steps since the start of the training."""
        points = [match.groups() for line in self.output if (match := _POINT.search(line))]
        return {steps_per_epoch * int(epoch) + int(step): float(loss) for epoch, step, loss in points}
