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
sys.argv = sys.argv[1:]
if sys.argv[1] == "sim":
    simgpu.enable()
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_that_chooses_its_device_prints_the_cpus_losses(program):
    assert not simgpu.unavailable_reason()
    said = {}
    for device in ("cpu", "sim"):
        call = [sys.executable, "-W", "ignore", "-c", RUN, str(program), device]
        done = subprocess.run(call, cwd=HOME, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        *said[device], where = done.stdout.splitlines()
        assert where == f"trained on {device}"
    assert said["sim"] == said["cpu"] and len(set(said["cpu"])) >= 6
