"""Runs a program in real processes, as ``torchrun`` does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch.distributed as dist
from support import skip

ROOT = Path(__file__).parents[1]


def run_on_ranks(program: str, ranks: int, folder: Path) -> None:
    """Run a program on several ranks from ``folder``; each must end with the line ``rank N is through``."""
    if not (dist.is_available() and dist.is_gloo_available()):
        skip("this PyTorch comes without gloo", until="2027-11-30")
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    through = re.findall(r"rank \d is through", done.stdout)  # lines of two ranks may run together
    assert sorted(through) == [f"rank {rank} is through" for rank in range(ranks)]
