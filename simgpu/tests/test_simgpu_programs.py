"""Programs that choose their device as others' do, run as they stand: on the simulated device, too."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import HOME

import simgpu

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
RUN = """
import runpy, sys, torch
import simgpu
torch.set_num_threads(1)
program = sys.argv[1]
for device in ("cpu", "sim"):
    if device == "sim":
        simgpu.enable()
    sys.argv = [program, device]
    runpy.run_path(program, run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_that_chooses_its_device_prints_the_cpus_losses(program):
    assert not simgpu.unavailable_reason()
    call = [sys.executable, "-W", "ignore", "-c", RUN, str(program)]
    done = subprocess.run(call, cwd=HOME, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    losses, on_cpu = lines[: len(lines) // 2 - 1], lines[len(lines) // 2 - 1]
    assert on_cpu == "trained on cpu" and len(set(losses)) >= 6
    assert lines[len(lines) // 2 :] == [*losses, "trained on sim"]
