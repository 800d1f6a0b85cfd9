"""Makes a script from the functions in the lesson's cells, and runs it in a process."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_language import _

_BEFORE = """
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from course_lessons.lesson03.checkpoint import generators
from course_lessons.shared.checkpoint import newest_whole
from course_utils import load_digits
"""
_PARTS = (
    *("prepare", "small_cnn", "shifted", "new_run"),
    *("save_checkpoint", "load_checkpoint", "train"),
)
_AFTER = """
torch.set_num_threads(1)  # equal bits need the same number of threads
digits = load_digits()
run = new_run(torch.device("cpu"), steps=60)
train(run, digits.train_x[:1000], digits.train_y[:1000], epochs=3, folder=Path(sys.argv[1]))
"""


def source(names: Mapping[str, Any]) -> str:
    """Return the script: imports, the lesson's functions with their source, and a short training.

    ``names`` are the notebook's globals.
    """
    return "\n\n".join([_BEFORE, *(inspect.getsource(names[name]) for name in _PARTS), _AFTER])


def start(work: Path, name: str) -> subprocess.Popen[str]:
    """Start the script ``work/train.py`` in a process, with ``work/name`` as the folder of its checkpoints.

    That folder is made if there is none; the working directory and standard error are this process's.

    Returns
    -------
    subprocess.Popen
        The process, with its standard output as a pipe.
    """
    (work / name).mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-u", work / "train.py", work / name],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def kill_at(process: subprocess.Popen[str], words: str) -> None:
    """Print the process's output, and kill it at the first line that contains ``words``.

    Returns when it is dead; without such a line, when its output has ended. Its pipe is closed.
    """
    for line in process.stdout:
        print(line, end="")
        if words in line:
            process.kill()
            print(_("killed: exit code {wait}").format(wait=process.wait()))
            break
    process.stdout.close()
