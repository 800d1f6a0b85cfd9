"""What the README shows is what a run shows; and the package works alone."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import python

import simgpu
from simgpu import profiles

HOME = Path(simgpu.__file__).parent
README = (HOME / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", README, re.DOTALL)


@pytest.mark.slow
def test_each_example_prints_what_the_readme_says():
    examples = [(code, expected) for code, expected in BLOCKS if not code.startswith(("# test_", "# train"))]
    assert len(examples) >= 4
    # A process of its own, as a reader's is: nothing else holds memory on the device.
    parts = [f"exec(compile({code!r}, 'README.md', 'exec'))" for code, _ in examples]
    output = python("\nprint('<end>')\n".join(parts))
    assert output.split("<end>\n") == [expected for _, expected in examples]


@pytest.mark.slow
def test_its_program_that_says_cuda_runs_on_the_card_asked_for(tmp_path):
    (program,) = (code for code, _ in BLOCKS if code.startswith("# train.py"))
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    (command,) = re.findall(r"```bash\npython -m (simgpu run .*)\n```", README)
    env = os.environ | {"PYTHONPATH": str(HOME.parent)}
    call = [sys.executable, "-m", *command.split()]
    done = subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "Report for the simulated NVIDIA A100" in done.stdout, done.stderr
    assert f"train.py:{len(program.splitlines())} waits" in done.stdout  # loss.item(), its last line


@pytest.mark.slow
def test_its_notebook_prints_what_the_readme_says(tmp_path):
    cells = re.findall(r"```ipython\n(.*?)```.*?```text\n(.*?)```", README, re.DOTALL)
    assert len(cells) == 2
    (tmp_path / "cells.json").write_text(json.dumps(["%load_ext simgpu", *(cell for cell, _ in cells)]))
    output = python(
        """
        import json, sys
        from pathlib import Path
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
        for cell in json.loads(Path(sys.argv[1]).read_text()):
            assert shell.run_cell(cell, store_history=True).success
            print("<end>")
        """,
        tmp_path / "cells.json",
    )
    for (_, expected), printed in zip(cells, output.split("<end>\n")[1:], strict=False):
        assert [line for line in expected.splitlines() if line not in printed.splitlines()] == []


def test_the_readme_names_every_card():
    *cards, last = profiles.names()
    assert f"{', '.join(cards)} or {last}:" in README


def run_pytest(folder: Path, text: str) -> str:
    """Run pytest with the plugin on a test file with this text; return its output."""
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    call = [sys.executable, "-m", "pytest", "-q", "-p", "simgpu.pytest_plugin", "--strict-markers"]
    env = os.environ | {
        "PYTHONPATH": str(HOME.parent),
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return subprocess.run(call, cwd=folder, env=env, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_the_plugins_tests_pass_and_those_that_should_fail_do(tmp_path):
    (text,) = (code for code, _ in BLOCKS if code.startswith("# test_"))
    wrong = {
        "memory='2 MB'": "torch.empty(2**20, device=sim)",
        "profile='A100'": "assert torch.ones(2, device=sim).sum() == 3",
        "size=3": "pass",
    }
    for number, (mark, body) in enumerate(wrong.items()):
        text += f"\n\n@pytest.mark.simgpu({mark})\ndef test_wrong_{number}(sim):\n    {body}\n"
    output = run_pytest(tmp_path, text)
    assert "2 passed" in output and "2 failed" in output and "1 error" in output
    assert "OutOfMemoryError" in output and "takes memory=... and profile=..., by name" in output


@pytest.mark.slow
def test_its_own_wheel_works_without_the_course(tmp_path):
    shutil.copytree(HOME, tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__"))
    call = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--out-dir", str(tmp_path)]
    done = subprocess.run([*call, "source"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("simgpu-*.whl")
    assert wheel.stat().st_size < 200_000
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        packed.extractall(tmp_path / "site")
    assert "simgpu/profiles.json" in names and not [n for n in names if "tests/" in n]
    code = (
        "import sys, torch, simgpu\n"
        "x = torch.ones(3, device=simgpu.enable('T4'))\n"
        "from simgpu import cluster, nodata, pytest_plugin\n"
        "ours = [m for m in sys.modules if m.startswith(('course_', 'tools'))]\n"
        "print(x.sum().item(), simgpu.__file__, ours)\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env["PYTHONPATH"] = str(tmp_path / "site")
    call = [sys.executable, "-c", code]
    output = subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, text=True).stdout
    assert output.startswith("3.0") and str(tmp_path / "site") in output and output.endswith("[]\n")
