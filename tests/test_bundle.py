"""`bundle`: one zip, from which the course starts without GitHub and without a network."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from harness import command, executed_problems, git, working_copy
from support import skip
from test_bootstrap import PYPROJECT, make_clone, make_wheel, make_wheels, run, variables

from course_utils.cli.bootstrap import venv_python
from course_utils.cli.faults import SetupError
from course_utils.course import load_course
from tools.authoring.cells import fetch_cell, setup_cell
from tools.commands import bundle

WHEEL = "pytorch_gpu_course-0.1.0-py3-none-any.whl"
# Builds a wheel with the standard library alone, so that no build tool is fetched.
BACKEND = """
import pathlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "pytorch_gpu_course-0.1.0"
    info = f"{name}.dist-info"
    content = {
        "course_utils/__init__.py": pathlib.Path("course_utils/__init__.py").read_text(),
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: pytorch-gpu-course\\nVersion: 0.1.0\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(pathlib.Path(folder) / f"{name}-py3-none-any.whl", "w") as wheel:
        for path, text in content.items():
            wheel.writestr(zipfile.ZipInfo(path), text)
    return f"{name}-py3-none-any.whl"
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return a clone of a small course whose wheel needs no build tool."""
    folder = make_clone(tmp_path_factory.mktemp("bundle") / "my course 课程")
    system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (folder / "pyproject.toml").write_text(system + PYPROJECT, encoding="utf-8")
    (folder / "backend.py").write_text(BACKEND, encoding="utf-8")
    (folder / "notebooks" / "course.yml").write_text("lessons: []\n", encoding="utf-8")
    (folder / "tests" / "notebooks").mkdir(parents=True)
    (folder / "tests" / "notebooks" / "01_tiny.ipynb").write_text("{}", encoding="utf-8")
    (folder / ".ci").mkdir()
    (folder / ".ci" / "run").write_text("#!/bin/sh\n", encoding="utf-8", newline="\n")
    (folder / ".ci" / "run").chmod(0o755)
    (folder / ".gitignore").write_text("/dist/\n__pycache__/\n", encoding="utf-8")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "update-index", "--chmod=+x", ".ci/run")
    git(folder, "commit", "-qm", "one")
    return folder


def call(folder, *words):
    return command(bundle, *words, root=folder)


@pytest.mark.slow
def test_the_zip_holds_the_committed_course_and_its_wheel_the_same_each_time(small, tmp_path, capsys):
    notebook = small / "notebooks" / "00_start_here.ipynb"
    committed = notebook.read_text(encoding="utf-8")
    notebook.write_text("my answers", encoding="utf-8")
    try:
        assert call(small) == 0
    finally:
        notebook.write_text(committed, encoding="utf-8")
    assert "1 file not committed: left out." in capsys.readouterr().out
    output = small / "dist" / "pytorch-gpu-course.zip"
    assert not output.with_name(output.name + ".part").exists()
    with zipfile.ZipFile(output) as packed:
        names = packed.namelist()
        text = {
            name: packed.read(f"pytorch-gpu-course/{name}")
            for name in (
                "START.txt",
                "notebooks/00_start_here.ipynb",
                "course_utils/notebooks/00_start_here.ipynb",
            )
        }
        modes = {i.filename: i.external_attr >> 16 & 0o777 for i in packed.infolist()}
    assert names == sorted(names) and all(name.startswith("pytorch-gpu-course/") for name in names)
    wanted = {f"pytorch-gpu-course/{n}" for n in (WHEEL, "pyproject.toml", "notebooks/course.yml")}
    assert wanted <= set(names)
    carried = [name for name in names if "course_utils/notebooks/" in name]
    assert carried == ["pytorch-gpu-course/course_utils/notebooks/00_start_here.ipynb"]
    assert b"needs a network" in text["START.txt"] and WHEEL.encode() in text["START.txt"]
    assert text["notebooks/00_start_here.ipynb"].decode() == committed
    assert text["course_utils/notebooks/00_start_here.ipynb"].decode() == committed
    assert modes["pytorch-gpu-course/.ci/run"] == 0o755
    assert modes["pytorch-gpu-course/pyproject.toml"] == 0o644

    again = tmp_path / "stick" / "course.zip"
    assert call(small, "--output", again) == 0
    assert again.read_bytes() == output.read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--torch", "cuda"], "go with --wheelhouse"),
        (["--extra", "test"], "go with --wheelhouse"),
        (["--wheelhouse", "w", "--torch", "keep"], "holds its own PyTorch"),
        (["--output", __file__], "is no zip: name another file"),
    ],
)
def test_a_mistake_in_the_call_is_one_sentence(small, capsys, words, said):
    before = Path(__file__).read_bytes()
    assert call(small, *words) == 2
    err = capsys.readouterr().err
    assert said in err and len(err.splitlines()) == 1
    assert Path(__file__).read_bytes() == before


def test_no_torch_of_that_name_and_no_git_are_refused(small, tmp_path):
    with pytest.raises(SetupError, match="--torch best is no choice"):
        call(small, "--wheelhouse", tmp_path, "--torch", "best")
    with pytest.raises(SetupError, match="copy the zip it came from"):
        call(tmp_path)


def test_a_place_that_takes_no_file_is_named(small, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert call(small, "--output", tmp_path / "file" / "course.zip") == 1
    err = capsys.readouterr().err
    assert "The zip was not written" in err and "--output FILE" in err


@pytest.mark.everywhere
def test_without_a_network_the_packages_are_one_sentence(small, tmp_path, monkeypatch):
    for name, text in variables(None, PIP_INDEX_URL="http://127.0.0.1:9/").items():
        monkeypatch.setenv(name, text)
    with pytest.raises(SetupError, match="connect to the network"):
        call(small, "--wheelhouse", tmp_path / "w", "--torch", "torch==2.13.0")
    assert list((tmp_path / "w").iterdir()) == []


@pytest.mark.everywhere
def test_the_small_course_starts_from_its_wheelhouse(small, tmp_path, monkeypatch):
    """As the next test, in seconds, with tiny packages; and a second call fetches nothing."""
    wheels = make_wheels(tmp_path)
    make_wheel(wheels, "uv", "9.0", {"uv.py": ""})
    for name, text in variables(wheels).items():
        monkeypatch.setenv(name, text)
    monkeypatch.delenv("COURSE_CONSTRAINTS", raising=False)  # they are of the real packages
    wheelhouse = tmp_path / "wheelhouse"
    words = ("--wheelhouse", wheelhouse, "--torch", "torch==2.13.0", "--output", tmp_path / "a.zip")
    assert call(small, *words) == 0
    names = {path.name.split("-")[0] for path in wheelhouse.iterdir()}
    assert names == {"torch", "tqdm", "jupyterlab", "ipykernel", "pip", "uv"}
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert call(small, *words) == 0, "what the folder holds is enough"
    with zipfile.ZipFile(tmp_path / "a.zip") as packed:
        packed.extractall(tmp_path / "desk")
    env = variables(None)
    del env["COURSE_TORCH"]
    done = run(tmp_path / "desk" / bundle.FOLDER, env, "lab", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch 2.13.0" in done.stdout


SETUP = """
import sys
from IPython.core.interactiveshell import InteractiveShell
result = InteractiveShell.instance().run_cell(open(sys.argv[1], encoding="utf-8").read())
result.raise_error()
print(__import__("course_utils").__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the path of the course's own wheel, as in the zip."""
    folder = tmp_path_factory.mktemp("whole")
    assert call(working_copy(folder / "clone"), "--output", folder / "a.zip") == 0
    with zipfile.ZipFile(folder / "a.zip") as packed:
        return packed.read(f"{bundle.FOLDER}/{WHEEL}")


@pytest.mark.everywhere
@pytest.mark.parametrize("place", ["working", "input/datasets/me/course"])
def test_a_wheel_uploaded_by_hand_stands_in_for_github(wheel, tmp_path, place):
    """In Colab the file lies beside the notebook, in Kaggle in a data set under ../input."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "cloud"], check=True)
    python = venv_python(tmp_path / "cloud")
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True)
    seen = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (Path(own.stdout.strip()) / "base.pth").write_text("\n".join(seen), encoding="utf-8")
    course = load_course()
    cells = fetch_cell(course, source="git+file:///nowhere.git"), setup_cell(course.lesson("01"))
    setup = "\n".join(cell.source for cell in cells)
    (tmp_path / "setup.py").write_text(setup, encoding="utf-8")
    (tmp_path / "working").mkdir()

    def start():
        env = variables(None, PYTHONIOENCODING="utf-8", COURSE_PROGRESS=str(tmp_path / "p"))
        words = [python, "-c", SETUP, tmp_path / "setup.py"]
        return subprocess.run(words, cwd=tmp_path / "working", env=env, capture_output=True, text=True)

    without = start()
    assert without.returncode and "upload the wheel from the course's zip" in without.stderr
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / place / WHEEL).write_bytes(wheel)
    done = start()
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(tmp_path / "cloud") in done.stdout
    say = "import course_language; print(course_language.translation('zh').gettext('Seen'))"
    env = variables(None, PYTHONUTF8="1")
    chinese = subprocess.run(
        [python, "-c", say], cwd=tmp_path, env=env, capture_output=True, encoding="utf-8"
    )
    assert chinese.stdout == "看到的\n"


OFFLINE = """
ip link set lo up
"$1" -c 'import socket; socket.create_connection(("example.org", 443), 3)' 2>/dev/null && exit 9
set -e
"$1" -m course_utils lab --check
"$1" -m course_utils reset 00
cd notebooks
"$2" -m jupyter nbconvert --to notebook --execute 00_start_here.ipynb --output done.ipynb
"""


@pytest.mark.everywhere
def test_the_whole_course_starts_with_the_network_off(tmp_path):
    """Packed on this machine with PyTorch and JupyterLab, unpacked, set up and used in a dark room."""
    alone = ["unshare", "--net", "true"]
    if not shutil.which("unshare") or subprocess.run(alone, capture_output=True).returncode:
        skip("the network cannot be taken away from a program here", until="2027-11-30")
    clone = working_copy(tmp_path / "clone")
    keep = ("COURSE_", "PYTHON", "VIRTUAL_ENV", "JUPYTER_")
    env = {name: text for name, text in os.environ.items() if not name.startswith(keep)}
    env |= {"COURSE_PROGRESS": str(tmp_path / "progress.jsonl"), "OMP_NUM_THREADS": "1"}
    words = ["-m", "course_utils", "bundle", "--wheelhouse", "--output", str(tmp_path / "a.zip")]
    if build := os.environ.get("COURSE_TORCH"):  # a pair's, from where CI has it
        words += ["--torch", build]
    packed = subprocess.run([sys.executable, *words], cwd=clone, env=env, capture_output=True, text=True)
    if "cannot reach the package index" in packed.stderr:
        skip("the packages cannot be fetched here", until="2027-11-30", missing=True)
    assert packed.returncode == 0, packed.stdout + packed.stderr
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(tmp_path / "desk")
    desk = tmp_path / "desk" / bundle.FOLDER
    (desk / "notebooks" / "00_start_here.ipynb").write_text("mine", encoding="utf-8")
    python = venv_python(desk / ".venv")
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", OFFLINE, "bash", sys.executable, str(python)],
        cwd=desk,
        env=env | {"PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch: wheelhouse" in done.stdout and "All is ready" in done.stdout
    assert "00_start_here.ipynb is fresh. Yours is kept as" in done.stdout
    nb = nbformat.read(desk / "notebooks" / "done.ipynb", as_version=4)
    assert list(executed_problems(nb)) == []
    (mine,) = (desk / "notebooks").glob("*_mine_*.ipynb")
    assert mine.read_text(encoding="utf-8") == "mine"
