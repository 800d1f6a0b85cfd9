"""The lessons where Colab and Kaggle run them: an empty folder, an old IPython, no clone.

The kernel is a fresh environment that sees this Python's torch, numpy and the rest, but not the
course, and carries the IPython, ipykernel and ipywidgets that Colab carries.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
import support
from harness import CELL_TIMEOUT, NOTEBOOKS, ROOT, code_cells, executed_problems, kernel_env

from course_utils.authoring.cells import setup_cell
from course_utils.course import load_course

pytestmark = [pytest.mark.slow, pytest.mark.serial]

COLAB = ("ipython==7.34.0", "ipykernel==6.17.1", "ipywidgets==7.7.1")  # Colab, 2026-08
THEIR_NEEDS = ("backcall", "decorator", "ipython_genutils", "nest_asyncio", "pickleshare")
VERSIONS = (
    "import importlib.metadata as m, json\n"
    "print(json.dumps({d.name.lower(): m.version(d.name) for d in m.distributions()}))"
)


def _call(*command: object, cwd: Path | None = None) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def colab_python(tmp_path_factory):
    """A Python with an old IPython and with this one's other packages, course excepted."""
    folder = tmp_path_factory.mktemp("colab")
    _call(sys.executable, "-m", "venv", folder)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    own = Path(
        _call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )
    # A path in a .pth file is only added to the import path: the .pth files in it are not read, so
    # what makes the course itself importable here does not leak.
    seen = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    (own / "base.pth").write_text("\n".join(seen) + "\n", encoding="utf-8")
    try:
        _call(python, "-m", "pip", "install", "-q", "--no-deps", *COLAB, *THEIR_NEEDS)
    except AssertionError as error:
        support.skip(f"pip cannot fetch Colab's IPython: {error}", "2027-11-30", missing=True)
    return python


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A git repository of the working tree, as pip finds it on GitHub."""
    folder = tmp_path_factory.mktemp("repository")
    listed = _call("git", "ls-files", "-co", "--exclude-standard", "-z", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    identity = (
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@localhost",
        "-c",
        "commit.gpgsign=false",
    )
    _call("git", "init", "-q", "-b", "main", cwd=folder)
    _call("git", "add", "-A", cwd=folder)
    _call("git", *identity, "commit", "-q", "-m", "copy", cwd=folder)
    return f"git+{folder.as_uri()}@main"


@pytest.fixture
def run(colab_python, repository, tmp_path, monkeypatch):
    """Return a function that runs a lesson in an empty folder, its setup cell twice."""
    spec = tmp_path / "jupyter" / "kernels" / "colab-like"
    spec.mkdir(parents=True)
    argv = [str(colab_python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "Colab-like", "language": "python"}),
        encoding="utf-8",
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))

    def run(lesson_id, cells=None, **extra):
        course = load_course()
        lesson = course.lesson(lesson_id)
        nb = nbformat.read(NOTEBOOKS / lesson.file, as_version=4)
        setup = setup_cell(course, lesson, source=repository)
        again = nbformat.v4.new_code_cell(setup.source)
        rest = [cell for cell in code_cells(nb) if cell.id != "setup"]
        nb.cells = [setup, again, *(rest if cells is None else map(_code, cells))]
        empty = tmp_path / "content" / "folder"
        empty.mkdir(parents=True)
        nbformat.write(nb, empty / lesson.file)
        env = kernel_env(tmp_path, **extra)
        env.pop("PYTHONPATH")  # pip needs the network, as it does in Colab
        client = nbclient.NotebookClient(
            nb,
            timeout=CELL_TIMEOUT,
            kernel_name="colab-like",
            resources={"metadata": {"path": str(empty)}},
        )
        client.execute(env=env)
        return nb

    return run


def _code(source):
    return nbformat.v4.new_code_cell(source)


def _shown(nb):
    outputs = [output for cell in code_cells(nb) for output in cell.outputs]
    texts = [o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in outputs]
    return "\n".join(texts)


def test_lesson_runs_as_in_colab(run, colab_python, tmp_path):
    probe = "import importlib.util as u; print(u.find_spec('course_utils'))"
    assert _call(colab_python, "-c", probe, cwd=tmp_path).strip() == "None"
    before = json.loads(_call(colab_python, "-c", VERSIONS, cwd=tmp_path))
    assert [before[spec.split("==")[0]] for spec in COLAB] == [s.split("==")[1] for s in COLAB]

    nb = run("01", COLAB_RELEASE_TAG="release-colab_20260819", COURSE_DEVICE="cpu")

    after = json.loads(_call(colab_python, "-c", VERSIONS, cwd=tmp_path))
    assert set(after) - set(before) == {"pytorch-gpu-course"}
    assert {name: after[name] for name in before} == before
    assert list(executed_problems(nb)) == []
    assert "Runtime > Change runtime type" in _shown(nb)


def test_setup_in_kaggle_says_where_the_gpu_is(run):
    cells = ["from course_utils import course_map, get_device\n\nget_device()", "course_map()"]
    nb = run("00", cells, KAGGLE_KERNEL_RUN_TYPE="Interactive", COURSE_DEVICE="cpu")
    assert list(executed_problems(nb, least=4)) == []
    assert "Settings > Accelerator" in _shown(nb)
    assert "Start here" in _shown(nb), "the installed package carries the table of contents"
