"""The lessons where Colab and Kaggle run them: an empty folder, an old IPython, no clone.

The kernel is a fresh environment that sees this Python's torch and the rest, but not the course, nbval or
papermill, and carries the versions of Colab, or of Kaggle, of what the notebooks touch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import nbclient
import nbformat
import pytest
import support
from harness import (
    CELL_TIMEOUT,
    EACH_LESSON,
    NOTEBOOKS,
    TABLE,
    code_cells,
    executed_problems,
    kernel_env,
    working_copy,
)
from nbclient.exceptions import DeadKernelError

from course_utils.course import load_course
from tools.authoring.cells import fetch_cell

pytestmark = pytest.mark.everywhere

COMMON = (
    "ipython==7.34.0",
    "ipykernel==6.17.1",
    "matplotlib==3.10.0",
    "numpy==2.1.3",
    "tqdm==4.67.3",
)
THEIR_NEEDS = ("backcall", "decorator", "ipython_genutils", "nest_asyncio", "pickleshare")
HIDDEN = """\
import sys


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("nbval", "papermill"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hidden())
"""
VERSIONS = (
    "import importlib.metadata as m, json\n"
    "print(json.dumps({d.name.lower(): m.version(d.name) for d in m.distributions()}))"
)


@dataclass(eq=False)
class Platform:
    """Colab or Kaggle as of 2026-08: the packages installed there, and how the course recognises it."""

    name: str
    pins: tuple[str, ...]
    variables: dict[str, str]
    click: str
    python: Path = field(default=Path())

    def versions(self) -> dict[str, str]:
        """The installed versions by distribution name."""
        return json.loads(_call(self.python, "-c", VERSIONS, cwd=self.python.parent))

    def forget_the_course(self) -> None:
        """Uninstall the course, so that the next lesson starts on a new machine."""
        _call(self.python, "-m", "pip", "uninstall", "-q", "-y", "pytorch-gpu-course")


COLAB = Platform(
    "colab",
    (*COMMON, "ipywidgets==7.7.1"),
    {"COLAB_RELEASE_TAG": "release-colab_20260819"},
    "Runtime > Change runtime type",
)
KAGGLE = Platform(
    "kaggle",
    (*COMMON, "ipywidgets==8.1.5"),
    {"KAGGLE_KERNEL_RUN_TYPE": "Interactive"},
    "Settings > Accelerator",
)


def _call(*command: object, cwd: Path | None = None) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module", params=[COLAB, KAGGLE], ids=lambda platform: platform.name)
def platform(request, tmp_path_factory):
    """Return a virtual environment with the platform's versions, and this Python's other packages."""
    folder = tmp_path_factory.mktemp(request.param.name)
    _call(sys.executable, "-m", "venv", folder)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    own = Path(_call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # A path in a .pth file is only added to the import path: the .pth files in it are not read, so
    # what makes the course itself importable here does not leak.
    seen = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    (own / "base.pth").write_text("\n".join(seen) + "\nimport hidden_here\n", encoding="utf-8")
    (own / "hidden_here.py").write_text(HIDDEN, encoding="utf-8")
    try:
        _call(python, "-m", "pip", "install", "-q", "--no-deps", *request.param.pins, *THEIR_NEEDS)
    except AssertionError as error:
        support.skip(f"pip cannot fetch the old versions: {error}", "2027-11-30", missing=True)
    request.param.python = python
    return request.param


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Return a git repository of the working tree, in place of the one on GitHub."""
    folder = working_copy(tmp_path_factory.mktemp("repository"))
    return f"git+{folder.as_uri()}@main"


@pytest.fixture
def run(platform, repository, tmp_path, monkeypatch):
    """Return a function that runs a lesson, or other cells, after running its first two cells twice."""
    spec = tmp_path / "jupyter" / "kernels" / "as-in-the-cloud"
    spec.mkdir(parents=True)
    argv = [str(platform.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "As in the cloud", "language": "python"}),
        encoding="utf-8",
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))

    def run(lesson_id, cells=None, folder="content"):
        course = load_course()
        lesson = course.lesson(lesson_id)
        nb = nbformat.read(NOTEBOOKS / lesson.file, as_version=4)
        _, setup, *rest = code_cells(nb)
        first = [fetch_cell(course, source=repository).source, setup.source]
        nb.cells = [*map(_code, first + first), *(rest if cells is None else map(_code, cells))]
        empty = tmp_path / folder / "sample data"
        empty.mkdir(parents=True)
        nbformat.write(nb, empty / lesson.file)
        env = kernel_env(tmp_path, **platform.variables)
        env.pop("PYTHONPATH")  # pip needs the network, as it does there
        env.pop("COURSE_WORK")
        client = nbclient.NotebookClient(
            nb,
            timeout=5 * CELL_TIMEOUT,
            kernel_name="as-in-the-cloud",
            resources={"metadata": {"path": str(empty)}},
        )
        client.execute(env=env)
        return nb

    yield run
    platform.forget_the_course()


def _code(source):
    return nbformat.v4.new_code_cell(source)


def _shown(cells):
    outputs = [output for cell in cells for output in cell.outputs]
    texts = [o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in outputs]
    return "\n".join(texts)


def test_the_platform_is_as_old_as_it_says(platform):
    have = platform.versions()
    assert [f"{pin.split('==')[0]}=={have[pin.split('==')[0]]}" for pin in platform.pins] == list(
        platform.pins
    )
    probe = (
        "import importlib.util as u\nprint(u.find_spec('course_utils'))\n"
        "for name in ('nbval', 'papermill'):\n"
        "    try:\n        __import__(name)\n"
        "    except ModuleNotFoundError as error:\n        print(error)"
    )
    said = _call(platform.python, "-c", probe, cwd=platform.python.parent).splitlines()
    assert said == ["None", "No module named 'nbval'", "No module named 'papermill'"]


@pytest.mark.parametrize("lesson", EACH_LESSON)
def test_lesson_runs_in_an_empty_folder(run, platform, lesson, record_property):
    before = platform.versions()
    assert "pytorch-gpu-course" not in before
    nb = run(lesson.id)
    after = platform.versions()
    assert set(after) - set(before) == {"pytorch-gpu-course"}
    assert {name: after[name] for name in before} == before, "nothing preinstalled was changed"
    assert list(executed_problems(nb)) == []
    assert platform.click in _shown(nb.cells[1:2]), "a CPU runtime is noticed at the start"
    assert f"Lesson {lesson.id} is ready." in _shown(nb.cells[1:2])
    record_property(
        f"{TABLE}lessons as in Colab and Kaggle: cells run, versions unchanged",
        f"{platform.name:6} {lesson.file:32} {len(code_cells(nb)):4} {len(before):4}",
    )


def test_the_map_comes_with_the_package(run):
    nb = run("00", ["from course_utils import course_map\n\ncourse_map()"])
    assert list(executed_problems(nb, least=3)) == []
    assert "Start here" in _shown(nb.cells)


FAKE_DRIVE = """\
import os
import sys
from types import ModuleType

from course_utils import storage

google, colab, drive = (ModuleType(n) for n in ("google", "google.colab", "google.colab.drive"))
google.colab, colab.drive = colab, drive
drive.mount = lambda place: os.makedirs(os.path.join(place, "MyDrive"), exist_ok=True)
sys.modules.update({module.__name__: module for module in (google, colab, drive)})
storage.DRIVE = storage.Path(%r)
"""
CUT_OFF = """\
import os
import signal
import threading
import time

from course_utils import keep


def cut_off():
    while not (keep("04") / "previous.pt").exists():
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGKILL)


threading.Thread(target=cut_off, daemon=True).start()
"""


@pytest.mark.parametrize("platform", [COLAB], ids=["colab"], indirect=True)
def test_a_session_dies_and_another_goes_on_from_its_checkpoint(platform, run, tmp_path):
    """Lesson 04's training is cut off; a new machine mounts the Drive, catches up and goes on."""
    nb = nbformat.read(NOTEBOOKS / load_course().lesson("04").file, as_version=4)
    training = next(cell.source for cell in nb.cells if cell.get("id") == "kept-run")
    assert "epochs=1," in training
    training = training.replace("epochs=1,", "epochs=3,")  # as the text asks
    needed = [code_cells(nb)[2].source]  # imports and digits
    needed += [c.source for c in code_cells(nb) if c.metadata.get("course", {}).get("script")]
    drive = FAKE_DRIVE % str(tmp_path / "drive")
    note = "from course_utils import progress_file\n\nprogress_file.record_attempt('04.full_state', 'right')"
    start = 'course_utils.keep("04", drive=True)'
    with pytest.raises(DeadKernelError):
        run("04", [note, drive, start, *needed, CUT_OFF, training], "first")
    kept = tmp_path / "drive" / "MyDrive" / "pytorch-gpu-course"
    assert (kept / "04" / "last.pt").is_file()

    platform.forget_the_course()
    (tmp_path / "progress.jsonl").unlink()
    look = "print(course_utils.progress_file.solved())"
    start += '\ncourse_utils.catch_up("04", "disk")'
    nb = run("04", [drive, start, training, look], "second")
    caught_up, trained, solved = (_shown([cell]) for cell in nb.cells[-3:])
    assert "Kept in your Drive" in caught_up
    assert f"Checkpoint: {kept / '04' / 'last.pt'}, saved " in caught_up
    assert trained.startswith("resume from last.pt: epoch 0, step ")
    assert "steps in all: 420" in trained
    assert solved.strip() == "{'04.full_state'}"
