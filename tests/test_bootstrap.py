"""The two commands on a fresh clone: set-up, and each thing that can stop it.

The slow tests make real environments in a small copy of the course, of tiny wheels that are made here.
"""

from __future__ import annotations

import argparse
import ast
import ensurepip
import errno
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest
from support import skip

from course_utils.cli import bootstrap, environment, faults, installer, lab, torch_build
from course_utils.cli.bootstrap import SetupError
from tools.commands import changed, pairs, test

ROOT = Path(__file__).parents[1]
EARLY = ("__init__.py", "__main__.py", "doctor.py", "machine_facts.py", "this_machine.py")
TORCH = "torch==2.13.0"
MANY = 3000  # modules of a package that takes a while to install

FAKE_TORCH = """
__version__ = {version!r}
class version: cuda = hip = None
class backends:
    class mps: is_built = staticmethod(lambda: False)
"""
FAKE_LAB = """
import json, os, sys
if "--version" in sys.argv:
    print("4.9.9")
else:
    told = {"argv": sys.argv[1:], "cwd": os.getcwd(), "python": sys.executable, "env": dict(os.environ)}
    open(os.environ["FAKE_LAB"], "w").write(json.dumps(told))
"""
FAKE_CLIENT = """
import sys
class KernelManager:
    def __init__(self, kernel_name): pass
    def format_kernel_cmd(self): return [sys.executable]
"""
PYPROJECT = """
[project]
name = "pytorch-gpu-course"
requires-python = ">=3.10"
dependencies = ["torch>=2.6", "tqdm>=4.65"]
[project.optional-dependencies]
lab = ["jupyterlab>=4.2,<5", "ipykernel>=6"]
test = ["pytorch-gpu-course[lab]", "nbval>=0.11"]
"""


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    info = f"{name}-{version}.dist-info"
    content = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in content.items():
            info = zipfile.ZipInfo(path)
            info.external_attr = 0o100755 << 16  # for a script among them
            wheel.writestr(info, text)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    return make_wheels(tmp_path_factory.mktemp("wheels"))


def make_wheels(folder: Path) -> Path:
    """Build minimal wheels with the names of the packages that the course needs."""
    for version, comment in (("2.13.0", ""), ("2.14.0", "# newer\n")):
        # Of different sizes: Python takes a compiled file for that of a source with the same size and second.
        make_wheel(folder, "torch", version, {"torch.py": FAKE_TORCH.format(version=version) + comment})
    make_wheel(folder, "jupyterlab", "4.9.9", {"jupyterlab/__main__.py": FAKE_LAB})
    client = {"jupyter_client/__init__.py": "", "jupyter_client/manager.py": FAKE_CLIENT}
    make_wheel(folder, "ipykernel", "7.0", {"ipykernel.py": "", **client})
    (pip,) = Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")
    shutil.copy(pip, folder)  # an environment of uv's has no pip of its own
    make_wheel(folder, "many", "1.0", {f"many/m{n}.py": "whole = True" for n in range(MANY)})
    for name, version in (("tqdm", "4.69"), ("tqdm", "4.70"), ("nbval", "0.11"), ("extra", "1.0")):
        make_wheel(folder, name, version, {f"{name}.py": f"__version__ = {version!r}"})
    return folder


def make_clone(folder: Path) -> Path:
    """Create a small copy of the course with the command line and a list of requirements."""
    (folder / "course_utils").mkdir(parents=True)
    for name in EARLY:
        shutil.copy(ROOT / "course_utils" / name, folder / "course_utils")
    leave = shutil.ignore_patterns("record.py", "tests", "__pycache__", "*.po", "*.otf")
    for room in ("course_utils/cli", "tools/commands", "simgpu", "course_language"):
        shutil.copytree(ROOT / room, folder / room, ignore=leave)
    shutil.copy(ROOT / "tools" / "__init__.py", folder / "tools")
    (folder / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    (folder / "notebooks").mkdir()
    (folder / "notebooks" / lab.LESSON).write_text("{}", encoding="utf-8")
    return folder


def variables(wheels: Path | None, **more: str) -> dict[str, str]:
    """Return environment variables that restrict uv and pip to these wheels, or to nothing."""
    own = ("PIP_", "UV_", "COURSE_", "PYTHON", "JUPYTER_", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    env |= {"PIP_CONFIG_FILE": os.devnull, "COURSE_TORCH": TORCH}
    env |= {"UV_NO_CACHE": "1", "UV_HTTP_RETRIES": "0", "PIP_RETRIES": "1"}
    if "PIP_INDEX_URL" not in more and more.pop("network", None) is None:
        env["PIP_NO_INDEX"] = "1"
    return env | ({"PIP_FIND_LINKS": str(wheels)} if wheels else {}) | more


def without_uv() -> str:
    """Return the PATH without folders that contain uv."""
    places = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(place for place in places if not shutil.which("uv", path=place))


def start(clone: Path, env: dict[str, str], *words: str, code: str | None = None, python=None):
    call = ["-c", code] if code else ["-m", "course_utils", *words]
    return subprocess.Popen(
        [str(python or sys.executable), "-X", "utf8", *call],
        cwd=clone,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        # A job started in the background hands on that Ctrl-C is ignored; a learner's shell does not.
        preexec_fn=None if os.name == "nt" else lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def run(clone: Path, env: dict[str, str], *words: str, code: str | None = None, python=None):
    process = start(clone, env, *words, code=code, python=python)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def ready(clone: Path, env: dict[str, str], *words: str, python=None) -> str:
    """Call ``lab --check``, assert that it succeeds, and return its output."""
    done = run(clone, env, "lab", "--check", *words, python=python)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(clone: Path, env: dict[str, str], *words: str, python=None, code=None) -> str:
    """Call ``lab --check``, assert that it fails with one sentence, and return that."""
    done = run(clone, env, "lab", "--check", *words, python=python, code=code)
    assert done.returncode == 1, done.stdout + done.stderr
    return one_sentence(done.stderr)


def one_sentence(err: str) -> str:
    """Return stderr's text, after asserting that it is a single line."""
    assert "Traceback" not in err
    lines = err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def want(clone: Path, old: str, new: str) -> None:
    """Replace a string in the clone's requirements."""
    (clone / "pyproject.toml").write_text(PYPROJECT.replace(old, new), encoding="utf-8")


def unfinished(clone: Path) -> None:
    """Remove from course-env.json that the set-up was completed."""
    note = environment.read_record(clone / ".venv")
    del note["wanted"], note["extra"]
    environment.write_record(clone / ".venv", note)


def python_in(clone: Path, code: str, name: str = ".venv") -> str:
    call = [str(bootstrap.venv_python(clone / name)), "-X", "utf8", "-c", code]
    done = subprocess.run(call, cwd=clone.parent, env=variables(None), capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheels):
    """Return a clone after its first ``lab --check``; its path contains a space and Chinese characters."""
    if shutil.which("uv") is None:
        skip("uv is not installed here", "2027-11-30", missing=True)
    clone = make_clone(tmp_path_factory.mktemp("first") / "my course 课程")
    theirs = {"UV_SYSTEM_PYTHON": "1", "UV_PYTHON": "2.7", "UV_CONSTRAINT": "/not/there.txt"}
    said = ready(clone, variables(wheels, **theirs))
    assert "Setting up the course" in said and "All is ready" in said
    return clone


@pytest.fixture
def clone(installed, tmp_path):
    """Return a copy of the installed clone at another path, so that every test also tests a moved clone."""
    place = tmp_path / "moved 搬家"
    shutil.copytree(installed, place, symlinks=True)
    return place


# ---------------------------------------------------------------------------------------------------
# Set-up, for real


@pytest.mark.slow
def test_a_second_start_of_a_moved_clone_needs_no_network_and_no_installer(clone):
    shutil.rmtree(clone / ".venv.setup")
    said = ready(clone, variables(None, PATH=without_uv()))
    assert "Installing" not in said and not (clone / ".venv.setup").exists()
    assert "torch 2.13.0" in said and "4.9.9" in said
    found = python_in(clone, "import course_utils; print(course_utils.__file__)")
    assert Path(found).parent == clone / "course_utils"


@pytest.mark.slow
@pytest.mark.parametrize("module", ["pip", "venv"])
def test_uv_is_fetched_where_it_is_missing(tmp_path, wheels, module):
    clone = make_clone(tmp_path / "my course 课程")
    folder = shutil.copytree(wheels, tmp_path / "with uv")
    script = f'#!/bin/sh\nexec "{shutil.which("uv")}" "$@"\n'
    make_wheel(folder, "uv", "9.0", {"uv-9.0.data/scripts/uv": script})
    env = variables(None, PATH=without_uv(), PIP_FIND_LINKS=folder.as_uri())
    code = f"import sys; sys.modules[{module!r}] = None; from course_utils.cli import main; "
    done = run(clone, env, code=code + "sys.exit(main(['lab', '--check']))")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list((clone / ".venv").rglob("uv-9.0*")), "the environment holds what was asked for"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["pip's file", "--index"])
def test_a_mirror_serves_uv(tmp_path, wheels, way):
    index = tmp_path / "a mirror"
    for wheel in wheels.glob("*.whl"):
        name = wheel.name.split("-")[0]
        (index / name).mkdir(parents=True, exist_ok=True)
        with (index / name / "index.html").open("a", encoding="utf-8") as page:
            page.write(f'<a href="{wheel.as_uri()}">{wheel.name}</a>\n')
    clone, words, more = make_clone(tmp_path / "course"), ("--index", index.as_uri()), {}
    if way == "pip's file":
        conf = tmp_path / "pip.conf"
        conf.write_text(f"[global]\nindex-url = {index.as_uri()}\n", encoding="utf-8")
        words, more = (), {"PIP_CONFIG_FILE": str(conf)}
    assert "Installing with uv." in ready(clone, variables(None, network="yes", **more), *words)


@pytest.mark.slow
def test_lab_starts_jupyter_with_the_environment_of_the_clone(clone, tmp_path):
    told = tmp_path / "told.json"
    env = variables(None, FAKE_LAB=str(told), PYTHONPATH="/elsewhere", JUPYTER_PATH="/theirs")
    env["JUPYTER_CONFIG_PATH"] = "/mine"
    done = run(clone, env, "lab", "--no-browser", "--port", "9876", "--", "--ServerApp.x=1")
    assert done.returncode == 0, done.stderr
    lab_says = json.loads(told.read_text(encoding="utf-8"))
    assert "--no-browser" in lab_says["argv"] and "--port=9876" in lab_says["argv"]
    assert lab_says["argv"][-1] == "--ServerApp.x=1"
    assert f"--LabApp.default_url=/lab/tree/notebooks/{lab.LESSON}" in lab_says["argv"]
    assert f"--ServerApp.root_dir={clone}" in lab_says["argv"], "links lead out of notebooks/"
    assert Path(lab_says["cwd"]) == clone
    assert Path(lab_says["python"]) == bootstrap.venv_python(clone / ".venv")
    assert "PYTHONPATH" not in lab_says["env"]
    kernels = lab_says["env"]["JUPYTER_PATH"].split(os.pathsep)
    assert kernels == [str(clone / ".venv" / "share" / "jupyter"), "/theirs"]
    config = lab_says["env"]["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert config == [str(clone / "course_utils" / "cli" / "jupyter"), "/mine"]


ASK_JUPYTERLAB = """
import sys
from jupyterlab.commands import get_app_dir
from jupyterlab_server.settings_utils import get_settings
app = get_app_dir()
name = "@jupyterlab/apputils-extension:notification"
answer, _ = get_settings(f"{app}/settings", f"{app}/schemas", sys.argv[1], schema_name=name)
print(answer["schema"]["properties"]["fetchNews"]["default"], answer["settings"].get("fetchNews"))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ours", "own", "said"),
    [(False, "", "none None"), (True, "", "false None"), (True, '{"fetchNews": "true"}', "false true")],
    ids=["Jupyter's own", "in lab", "the learner's choice"],
)
def test_lab_asks_nothing_about_news_and_leaves_the_learners_settings_alone(ours, own, said, tmp_path):
    mine = tmp_path / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    if own:
        mine.parent.mkdir(parents=True)
        mine.write_text(own, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if name != "JUPYTER_CONFIG_PATH"}
    env["JUPYTER_CONFIG_DIR"] = str(tmp_path / "config")
    call = [sys.executable, "-c", ASK_JUPYTERLAB, tmp_path]
    done = subprocess.run(
        call, env=lab.with_defaults(env) if ours else env, capture_output=True, encoding="utf-8"
    )
    assert done.stdout.strip() == said, done.stderr
    assert mine.exists() is bool(own)


@pytest.mark.slow
def test_a_changed_requirement_and_another_torch_are_installed(clone, wheels):
    want(clone, '"tqdm>=4.65"', '"tqdm>=4.65", "extra"')
    env = variables(wheels)
    assert "Installing" in ready(clone, env)
    assert python_in(clone, "import extra; print(extra.__version__)") == "1.0"
    assert "There is no torch==9.9 for" in refused(clone, env, "--torch", "9.9")
    assert "torch 2.13.0" in ready(clone, variables(wheels, COURSE_TORCH="")), "the old one stays"
    ready(clone, env, "--torch", "2.14.0")
    assert python_in(clone, "import torch; print(torch.__version__)") == "2.14.0"
    del env["COURSE_TORCH"]  # who asks for nothing keeps what is there
    assert "Installing" not in ready(clone, env)
    torch = Path(python_in(clone, "import torch; print(torch.__file__)"))
    torch.write_text("raise ImportError('half a torch')", encoding="utf-8")
    done = run(clone, env, "lab", "--check")
    assert done.returncode == 1 and "half a torch" in done.stderr
    assert "remove .venv and call this again" in done.stderr


@pytest.mark.slow
def test_the_test_extra_covers_lab_and_constraints_with_hashes_hold(clone, wheels):
    exact = clone / "exact versions.txt"
    env = variables(wheels, COURSE_CONSTRAINTS=str(exact))
    exact.write_text(f"tqdm==4.69 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    assert "gave another file" in refused(clone, env)
    (wheel,) = wheels.glob("tqdm-4.69-*.whl")
    true = hashlib.sha256(wheel.read_bytes()).hexdigest()
    exact.write_text(f"tqdm==4.69 --hash=sha256:{true}\n", encoding="utf-8")
    code = "from course_utils.cli import bootstrap; bootstrap.prepare('test')"
    done = run(clone, env, code=code)
    assert done.returncode == 0, done.stderr
    assert python_in(clone, "import tqdm, nbval; print(tqdm.__version__)") == "4.69"
    assert "Installing" not in ready(clone, variables(None))
    env["COURSE_CONSTRAINTS"] = "not there.txt"
    assert "not there.txt" in refused(clone, env)


@pytest.mark.slow
def test_a_broken_environment_is_made_anew_if_the_course_made_it(clone, wheels):
    python = bootstrap.venv_python(clone / ".venv")
    python.unlink()
    assert "making it anew" in ready(clone, variables(wheels))
    python.unlink()
    python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    (clone / ".venv" / environment.RECORD_FILE).unlink()
    assert "rename or remove it" in refused(clone, variables(wheels))


@pytest.mark.slow
def test_a_working_environment_of_the_users_is_used_and_never_deleted(tmp_path, wheels):
    clone = make_clone(tmp_path / "course")
    call = [sys.executable, "-m", "venv", "--without-pip", str(clone / ".venv")]
    subprocess.run(call, check=True)
    (clone / ".venv" / "theirs.txt").write_text("keep me", encoding="utf-8")
    assert "the course did not make it" in ready(clone, variables(wheels))
    bootstrap.venv_python(clone / ".venv").unlink()
    assert "rename or remove it" in refused(clone, variables(wheels))
    assert (clone / ".venv" / "theirs.txt").exists()


@pytest.mark.slow
def test_two_starts_at_once_set_up_once(clone, wheels):
    unfinished(clone)
    both = [start(clone, variables(wheels), "lab", "--check") for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted("Installing" in text for text in said) == [False, True]
    waited = next(text for text in said if "Installing" not in text)
    assert "Another start is setting up .venv" in waited


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["SIGKILL", "SIGINT", "uv alone"])
def test_a_set_up_stopped_while_uv_installs_resumes_and_trusts_nothing_half_made(clone, wheels, stop):
    if os.name == "nt":
        skip("Windows has no SIGKILL and no process groups", "2027-11-30")
    want(clone, '"tqdm>=4.65"', '"tqdm>=4.65", "many"')
    packages = Path(python_in(clone, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    process, end = start(clone, variables(wheels), "lab", "--check"), time.monotonic() + 120
    while not (modules := list(packages.glob("many/*.py"))) and time.monotonic() < end:
        time.sleep(0.001)
    if stop == "uv alone":  # as the kernel does where memory runs out
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid), "-x", "uv"], check=True)
    else:
        os.killpg(process.pid, getattr(signal, stop))
    _, err = process.communicate(timeout=60)
    assert modules and process.returncode != 0
    assert stop == "SIGKILL" or one_sentence(err)
    assert len(list(packages.glob("many/*.py"))) < MANY
    metadata = packages / "many-1.0.dist-info" / "METADATA"  # uv writes files in the disk's order:
    metadata.parent.mkdir(exist_ok=True)  # had this one come first, uv would take all to be there
    metadata.write_text("Metadata-Version: 2.1\nName: many\nVersion: 1.0\n", encoding="utf-8")
    assert "An earlier set-up did not finish; it resumes." in ready(clone, variables(wheels))
    assert len(list(packages.glob("many/*.py"))) == MANY
    assert "Installing" not in ready(clone, variables(None))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "words", "sentence"),
    [
        ({"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}, [], "The package index cannot be reached: "),
        ({}, [], "There is no "),
        ({"network": "yes", "HTTPS_PROXY": "http://127.0.0.1:9"}, ["--torch", "cpu"],
         "PyTorch's own package index, download.pytorch.org, cannot be reached: "),
    ],
)  # fmt: skip
def test_an_index_that_fails_is_one_sentence_with_a_log(clone, wheels, more, words, sentence):
    if sys.platform == "darwin" and words:
        skip("macOS takes its CPU build from PyPI", "2027-11-30")
    want(clone, '"tqdm>=4.65"', '"tqdm>=4.65"' if words else '"absent"')
    unfinished(clone)
    others = shutil.copytree(wheels, clone.parent / "others", ignore=shutil.ignore_patterns("torch-*"))
    said = refused(clone, variables(others if words else None, **more), *words)
    assert said.startswith(sentence)
    assert "lab --torch torch " in said or not words
    log = Path(said.split("Details: ")[1]).read_text(encoding="utf-8")
    assert "$ uv pip install " in log
    want(clone, "", "")
    ready(clone, variables(wheels, COURSE_TORCH="torch"))  # it goes on from where it stopped


@pytest.mark.slow
def test_a_wheelhouse_beside_the_course_stands_in_for_the_network(clone, wheels):
    unfinished(clone)
    want(clone, "4.65", "4.70")
    env = variables(None)
    del env["COURSE_TORCH"]
    shutil.copytree(wheels, clone / "wheelhouse")
    assert "tqdm 4.70" in ready(clone, env)
    assert environment.read_record(clone / ".venv")["torch"] == bootstrap.WHEELHOUSE

    unfinished(clone)
    want(clone, "4.65", "4.71")
    done = run(clone, env, "lab", "--check")
    assert done.returncode == 1
    assert "do not serve here: There is no tqdm" in done.stdout
    assert "Asking the network instead." in done.stdout
    assert "There is no t" in one_sentence(done.stderr)


@pytest.mark.slow
def test_keep_uses_the_torch_of_the_python_that_was_called(tmp_path, wheels):
    theirs = tmp_path / "their venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(theirs)], check=True)
    python = bootstrap.venv_python(theirs)
    packages = Path(environment.run_code(theirs, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    with zipfile.ZipFile(next(wheels.glob("torch-2.13*"))) as wheel:
        wheel.extractall(packages)
    clone = make_clone(tmp_path / "kept 课程")
    env = variables(wheels, COURSE_TORCH="keep")
    ready(clone, env, python=python)
    found = Path(python_in(clone, "import torch; print(torch.__file__)"))
    assert found.parent == packages
    assert not list((clone / ".venv").rglob("torch-*.dist-info"))
    assert "Installing" not in ready(clone, variables(None, COURSE_TORCH="keep"), python=python)
    want(clone, "4.65", "4.66")
    found.write_text(FAKE_TORCH.format(version="2.8.0"), encoding="utf-8")
    said = refused(clone, env, python=python)
    assert "This is PyTorch 2.8.0, and the course needs 2." in said
    found.write_text("raise ImportError", encoding="utf-8")
    assert "The torch to keep does not import" in refused(clone, env, python=python)


@pytest.mark.slow
def test_a_python_that_lacks_torch_hands_over_to_the_environment(clone):
    code = "import sys; sys.path.insert(0, '.'); from course_utils.cli import main; "
    call = [sys.executable, "-S", "-c", code + "sys.exit(main(['doctor', '--json']))"]
    done = subprocess.run(call, cwd=clone, env=variables(None), capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["facts"]["torch"]["version"] == "2.13.0"
    done = run(clone, variables(None), "record")
    assert done.returncode == 1
    assert "record is not in this copy" in one_sentence(done.stderr)


@pytest.mark.slow
def test_the_kernel_is_ours_even_beside_another_python3_kernel(tmp_path):
    theirs = tmp_path / "kernels" / "python3"
    theirs.mkdir(parents=True)
    spec = {"argv": ["/not/ours", "{connection_file}"], "display_name": "x", "language": "python"}
    (theirs / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    # `test` itself runs in the course's environment, which would settle the question.
    plain = {name: value for name, value in os.environ.items() if name != "JUPYTER_PATH"}
    hostile = {"JUPYTER_DATA_DIR": str(tmp_path), "JUPYTER_PREFER_ENV_PATH": "0"}
    ours = bootstrap.child_environment(Path(sys.prefix)) | {"JUPYTER_DATA_DIR": str(tmp_path)}
    call = [sys.executable, "-c", lab.CHECK, "", ""]
    other = subprocess.run(call, env=plain | hostile, capture_output=True, text=True)
    assert other.returncode == 1 and "/not/ours" in other.stderr
    done = subprocess.run(call, env=ours, capture_output=True, text=True)
    assert done.returncode == 0 and f"kernel {sys.executable}" in done.stdout


@pytest.mark.slow
def test_a_pair_has_an_environment_of_its_own_with_its_versions(clone, wheels):
    folder = clone / ".ci" / "pairs"
    folder.mkdir(parents=True)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    lines = f"# Python {here}. Ours.\ntorch==2.14.0\ntqdm==4.69\n"
    (folder / "ours.txt").write_text(lines, encoding="utf-8")
    (folder / "other.txt").write_text(lines.replace(here, "3.6"), encoding="utf-8")
    env = variables(wheels, PYENV_ROOT="/not/there")
    del env["COURSE_TORCH"]
    done = run(clone, env, "test", "--pair", "all", "--quick")
    assert done.returncode == 1, "this small clone has neither tests nor ruff"
    code = "import torch, tqdm; print(torch.__version__, tqdm.__version__)"
    assert python_in(clone, code, ".venv.ours").split() == ["2.14.0", "4.69"]
    assert python_in(clone, code).split()[0] == "2.13.0", "the learner's own stays"
    rows = [line.split() for line in done.stdout.strip().splitlines()[-2:]]
    assert rows[0][:6] == ["other", "Python", "3.6", "torch==2.14.0", "0", "passed,"]
    assert rows[1][:4] == ["ours", "Python", here, "torch==2.14.0"]
    assert "Python 3.6 is not on this machine" in done.stderr


# ---------------------------------------------------------------------------------------------------
# What can stop it, simulated


def test_an_old_python_is_refused_in_one_sentence():
    code = "import runpy, sys; sys.version_info = (3, 8, 1); sys.path.insert(0, '.'); "
    code += "runpy.run_module('course_utils', run_name='__main__')"
    sentence = refused(ROOT, dict(os.environ), code=code)
    assert "needs Python 3.10 or newer, and this is Python 3.8" in sentence
    assert "https://www.python.org/downloads/" in sentence
    for name in ("__init__.py", "__main__.py"):  # an old Python reads them first
        text = (ROOT / "course_utils" / name).read_text(encoding="utf-8")
        ast.parse(text, feature_version=(3, 7))


@pytest.mark.parametrize("words", [["--help"], ["lab", "--help"], ["test", "--help"]])
def test_help_needs_the_standard_library_only(words):
    code = f"import sys; sys.path.insert(0, '.'); from course_utils.cli import main; main({words})"
    call = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout


def test_a_mistyped_command_gets_a_suggestion():
    done = run(ROOT, dict(os.environ), "docter")
    assert done.returncode == 2
    assert "did you mean doctor?" in one_sentence(done.stderr)


@pytest.mark.parametrize(
    ("missing", "choice", "sentence"),
    [
        ("ensurepip", TORCH, r"sudo apt install python3\.\d+-venv"),
        ("venv", TORCH, r"sudo apt install python3\.\d+-venv"),
        ("torch", "keep", "has none: install it there"),
        ("", "gpu", "--torch gpu is no choice: use auto, cpu"),
        ("", "no/t.whl", "--torch names a wheel that is not there"),
        ("pyproject.toml", TORCH, "work in a clone of the course: git clone"),
    ],
)
def test_what_is_missing_is_one_sentence(tmp_path, monkeypatch, missing, choice, sentence):
    clone = make_clone(tmp_path / "course")
    if missing == "pyproject.toml":
        (clone / missing).unlink()
    elif missing:
        monkeypatch.setitem(sys.modules, missing, None)
        if missing != "torch":
            monkeypatch.setitem(sys.modules, "pip", None)
            found = {"apt-get": "/usr/bin/apt-get"}
            monkeypatch.setattr(shutil, "which", lambda name, path=None: found.get(name))
    with pytest.raises(SetupError, match=sentence):
        bootstrap.prepare("lab", choice, clone)
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EROFS, "may not be written to: clone the course into a folder of your own"),
        (errno.EACCES, "may not be written to: clone the course into a folder of your own"),
        (errno.ENOSPC, r"The disk is full: 2\.0 GB are free"),
    ],
)
def test_a_folder_that_takes_no_file(tmp_path, monkeypatch, number, sentence):
    clone = make_clone(tmp_path / "course")

    def refuse(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(9e9, 7e9, 2e9))
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(SetupError, match=sentence):
        bootstrap.prepare("lab", TORCH, clone)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("ERROR: Could not install packages: [Errno 28] No space left", "The disk is full"),
        ("OSError: [WinError 112] There is not enough space on the disk", "The disk is full"),
        ("  cause: failed to copy file: No space left on device (os error 28)", "is full"),
        ("ERROR: [Errno 13] Permission denied: '/x'", "may not be written to"),
        ("  cause: Access is denied. (os error 5)", "may not be written to"),
        ("HINT: This error might have occurred since Windows Long Path support", "C:\\course"),
        ("WARNING: Retrying after connection broken by 'NewConnectionError(", "the network"),
        ("  cause: dns error\n  cause: failed to lookup address information", "the network"),
        ("https://download.pytorch.org/whl/cpu\nerror sending request for url", "--torch torch"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "PIP_CERT"),
        ("  cause: invalid peer certificate: UnknownIssuer", "PIP_CERT"),
        ("ERROR: No matching distribution found for uv", "The package index has no uv"),
        ("ERROR: No matching distribution found for torch>=2.6", "There is no torch>=2.6 for"),
        ("  cause: Because there is no version of torch==99 and", "There is no torch==99 for"),
        ("Because only a<=4.70 is available and you require a>=4.71, we", "There is no a>=4.71"),
        ("only the following versions of a are available:\n  a<1\nand you require a>=2", "no a>=2"),
        ("Because torch==2.2.0 has no wheels with a matching Python", "There is no torch==2.2.0"),
        ("ERROR: ResolutionImpossible: for help visit", "contradict each other"),
        ("Because you require a>=4 and a==3, your requirements are unsatisfiable", "contradict"),
    ],
)
def test_what_uv_or_pip_says_becomes_a_sentence(tmp_path, said, words):
    sentence = faults.explain_output(said, tmp_path)
    assert words in sentence and "\n" not in sentence


@pytest.mark.parametrize("terminal", [False, True])
def test_a_failure_that_is_not_known_names_its_log(tmp_path, monkeypatch, terminal, capfd):
    log = tmp_path / "install.log"
    code = "print('ERROR: the moon is full.'); raise SystemExit(1)"
    uv = installer.Installer("uv", [sys.executable, "-c", code], os.environ, log, tmp_path)
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: terminal)
    with pytest.raises(SetupError, match="uv stopped: the moon is full") as caught:
        uv.run("pip", "install", "torch")
    assert str(log) in str(caught.value)
    assert "the moon" in log.read_text(encoding="utf-8")
    shown = "ERROR: the moon is full.\n" in capfd.readouterr().out
    assert shown is terminal, "on a terminal the program draws by itself"


@pytest.mark.slow
def test_what_leads_uv_astray_is_taken_away_and_what_pip_was_told_is_handed_on(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "SSL_", "HTTPS_"))]:
        monkeypatch.delenv(name)
    told = {
        "PIP_INDEX_URL": ("https://mirror.example/simple", "UV_DEFAULT_INDEX"),
        "PIP_EXTRA_INDEX_URL": ("https://one.example https://two.example", "UV_INDEX"),
        "PIP_TRUSTED_HOST": ("mirror.example", "UV_INSECURE_HOST"),
        "PIP_CERT": ("/company.pem", "SSL_CERT_FILE"),
        "PIP_PROXY": ("http://proxy.example:3128", "HTTPS_PROXY"),
        "PIP_DEFAULT_TIMEOUT": ("180", "UV_HTTP_TIMEOUT"),
        "UV_CACHE_DIR": ("/large/disk", "UV_CACHE_DIR"),
    }
    for name, (text, _) in told.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", "/here /there")
    monkeypatch.setenv("UV_PROJECT", "/elsewhere")
    env = installer.uv_variables(os.environ)
    assert "UV_PROJECT" not in env and env["UV_FIND_LINKS"] == "/here,/there"
    assert env["UV_INDEX_STRATEGY"] == "unsafe-best-match", "as pip takes the best of all"
    assert {variable: env[variable] for _, variable in told.values()} == {
        variable: text for text, variable in told.values()
    }
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine.example/simple")
    env = installer.uv_variables(os.environ)
    assert env["UV_DEFAULT_INDEX"] == "https://mine.example/simple", "what uv was told itself wins"


@pytest.mark.slow
@pytest.mark.parametrize("text", ["uv 0.8.24 (a date)", "not a version", None])
def test_a_uv_that_is_too_old_or_does_not_run_is_not_used(tmp_path, monkeypatch, text):
    program = tmp_path / ("uv.bat" if os.name == "nt" else "uv")
    program.write_text(f"#!/bin/sh\necho '{text}'\n" if text else "\0", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(SetupError, match="The package index has no uv"):
        installer.find_or_install_uv(tmp_path / "work", [["--no-index", "--find-links", str(tmp_path)]])


@pytest.mark.parametrize(
    ("asked", "platform", "told", "index"),
    [
        ("auto", "linux", ["--torch-backend", "auto"], "cpu"),  # without a driver
        ("cpu", "linux", ["--torch-backend", "cpu"], "cpu"),
        ("cpu", "darwin", ["--torch-backend", "cpu"], None),
        ("rocm7.2", "linux", ["--torch-backend", "rocm7.2"], "rocm7.2"),
        ("cuda", "linux", [], None),  # PyPI's, which a mirror has too
        ("cuda", "win32", ["--torch-backend", "cu130"], "cu130"),
        ("2.16.0rc1", "linux", ["torch==2.16.0rc1"], None),
        ("torch==2.13.0", "linux", ["torch==2.13.0"], None),
        ("torch", "linux", ["torch"], None),
        ("https://x.org/torch-2.whl", "linux", ["https://x.org/torch-2.whl"], None),
    ],
)
def test_uv_and_the_bundles_pip_ask_for_the_right_build(monkeypatch, asked, platform, told, index):
    choice = torch_build.torch_choice(asked)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert torch_build.uv_install_arguments(choice, Path("work")) == told
    assert torch_build.index_url(choice) == (index and torch_build.INDEX + index)


def test_a_wheelhouse_says_for_which_python_it_is(tmp_path):
    torch = ("2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64", "2.13.0-cp312-none-macosx_14_0_arm64")
    for name in (*(f"torch-{tags}" for tags in torch), "torchvision-0.28.0-cp310-cp310-win_amd64"):
        (tmp_path / f"{name}.whl").touch()
    systems = ["Python 3.11 on manylinux_2_28_x86_64", "Python 3.12 on macosx_14_0_arm64"]
    assert bootstrap.pythons(tmp_path) == systems


def test_windows_has_its_python_in_scripts(monkeypatch):
    monkeypatch.setattr(environment, "WINDOWS", True)
    assert bootstrap.venv_python(Path("v")) == Path("v/Scripts/python.exe")


# ---------------------------------------------------------------------------------------------------
# `test`: its stages and its sum

GOOD, BAD = "def test_good(): pass\n", "def test_bad(): assert False\n"
SKIPPED = "import pytest\n@pytest.mark.skip(reason='x')\ndef test_skipped(): pass\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sources", "rest", "total"),
    [
        ([GOOD, GOOD + SKIPPED], [], "2 passed, 0 failed, 1 skipped"),
        ([GOOD, BAD], [], "1 passed, 1 failed"),
        ([GOOD, ""], [], "1 passed, 1 failed"),  # a stage without a test
        ([GOOD, "import no_such_module\n"], [], "1 passed, 1 failed"),
        ([GOOD, BAD], ["-k", "good"], "1 passed, 0 failed"),
        ([GOOD, BAD], ["-k", "absent"], "0 passed, 1 failed"),
    ],
)
def test_stages_are_summed(tmp_path, monkeypatch, capfd, sources, rest, total):
    plain = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    monkeypatch.setattr(bootstrap, "child_environment", lambda venv: plain)
    stages = []
    for number, source in enumerate(sources):
        path = tmp_path / f"test_{number}.py"
        path.write_text(source, encoding="utf-8")
        call = ("pytest", "-q", "-p", "no:cacheprovider", path.name)
        stages.append(test.Stage(f"stage {number}", call))
    found = test.run_stages(Path(sys.executable), stages, rest, tmp_path)
    said = capfd.readouterr().out.strip().splitlines()
    assert said[-1] == total and "== stage 0" in said
    assert found["failed"] == ("0 failed" not in total)


def options(*words: str):
    parser = argparse.ArgumentParser()
    test.add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "stages"),
    [
        ([], [*test.LINT, *test.QUICK, *test.FULL]),
        (["--quick"], [*test.LINT, *test.QUICK]),
        (["--everywhere"], [*test.EVERYWHERE]),
        (["--compat"], [*test.COMPAT]),
        (["--pair", "floor"], [*test.COMPAT]),
        (["--pair", "floor", "--lessons"], [*test.COMPAT[:2]]),
        (["--pair", "newest", "--full"], [*test.LINT, *test.QUICK, *test.FULL]),
    ],
)
def test_the_options_choose_the_stages(words, stages):
    args = options(*words)
    assert list(test.stages_of(args, args.pair)) == stages


def test_what_changed_chooses_the_tests(tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    def write(name, text=""):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    git("init", "-q", "-b", "main")
    write("tests/test_core.py", "from course_utils import timing\n")
    for name in ("lesson01", "links", "as_shipped", "other"):
        write(f"tests/test_{name}.py")
    write("course_utils/timing.py")
    git("add", "-A")
    git("commit", "-qm", "first")
    assert changed.changed_files(tmp_path) == []
    git("switch", "-qc", "mine")
    write("course_utils/timing.py", "more = 1\n")
    git("commit", "-qam", "second")
    write("course_lessons/lesson01/speedup.py", '"""Speed-up."""\n\nEXERCISE = None\n')
    write("course_lessons/lesson01/drawings.py")  # no exercise: it would choose no test
    write("notebooks/09_last.ipynb")
    files, ids = changed.select_tests(tmp_path, changed.changed_files(tmp_path))
    assert ids == ["01.speedup"]
    assert files == [
        f"{changed.LESSON}[09]",
        *(f"tests/test_{name}.py" for name in ("core", "lesson01", "links")),
    ]


def test_one_pair_runs_the_lessons_in_the_other_languages():
    calls = [stage.call[1] for stage in test.stages_of(options(), test.TRANSLATED)]
    assert "tests/test_translated_lessons.py" in calls and "tests/test_as_shipped.py" not in calls
    assert test.TRANSLATED in test.all_pairs(test.ROOT)
    with pytest.raises(SetupError, match=r"no pair old: choose from .*floor.*, or all\.$"):
        test.main(options("--pair", "floor,old"))


def test_a_python_that_does_not_run_is_passed_over(tmp_path, monkeypatch):
    if os.name == "nt":
        skip("the stand-in for a broken Python is a shell script", "2027-11-30")
    (tmp_path / "python3.6").write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    (tmp_path / "python3.6").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    with pytest.raises(SetupError, match=r"Python 3\.6 is not on this machine: install it"):
        pairs.find_python("3.6")
    theirs = tmp_path / "pyenv" / "versions" / "3.6.9" / "bin" / "python3"
    theirs.parent.mkdir(parents=True)
    theirs.write_text(f"#!/bin/sh\necho 3.6 {theirs}\n", encoding="utf-8")
    theirs.chmod(0o755)
    assert pairs.find_python("3.6") == str(theirs)


def test_every_test_is_in_exactly_one_stage():
    stages = (*test.QUICK, *test.FULL, *test.EVERYWHERE)
    chosen = [stage.call[stage.call.index("-m") + 1] for stage in stages]
    for marks in itertools.product((True, False), repeat=4):
        of = dict(zip(("slow", "notebook", "serial", "everywhere"), marks, strict=True))
        assert sum(eval(expression, {}, of) for expression in chosen) == 1, of
