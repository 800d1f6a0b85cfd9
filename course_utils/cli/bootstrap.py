"""Make `.venv` and install in it what the course needs, with the standard library only.

A start that finds the stamp of an earlier, finished set-up starts no pip and needs no network. The
stamp says for which requirements and which torch it was written; anything else is set up again.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from course_utils.cli import remedies
from course_utils.cli.pip import Pip
from course_utils.cli.remedies import COMMAND, SetupError

ROOT = Path(__file__).absolute().parents[2]
WINDOWS = os.name == "nt"
INDEX = "https://download.pytorch.org/whl/"
WINDOWS_CUDA = "cu130"  # PyPI's torch for Windows has no CUDA; checked 2026-11
SPACE_GB = {"cpu": 3, "cuda": 10}  # what a first set-up wants free on the disk
EXTRAS = ("lab", "test", "everywhere")  # each holds the one before
SCHEMA = 1
MARKER = "course-env.json"  # the course made this folder: only such a folder is ever deleted
STAMP = "course-stamp.json"  # the set-up was finished
WHEELHOUSE = "wheelhouse"  # packages beside the course: `bundle --wheelhouse` puts them there


# ---------------------------------------------------------------------------------------------------
# What the commands use


def add_torch_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--torch`, which chooses the build of PyTorch."""
    parser.add_argument(
        "--torch",
        metavar="auto|cpu|cuda|keep|SPEC",
        help="the build of PyTorch: auto looks for a GPU driver; keep uses the torch of the Python "
        "you call; SPEC is a version (2.13.0), a pip requirement, a wheel, or the name of one of "
        "PyTorch's own indexes (cu126). Without it, what is installed stays; COURSE_TORCH sets it too",
    )


def prepare(extra: str, torch: str | None = None, root: Path = ROOT) -> Path:
    """Return the Python of a `.venv` that has what `extra` needs, setting it up where it is missing.

    Parameters
    ----------
    extra
        An extra of pyproject.toml, of those in `EXTRAS`.
    torch
        As `--torch`; by default the variable ``COURSE_TORCH``, then what is installed, then ``auto``.
    root
        The clone.

    Raises
    ------
    SetupError
        With one sentence that says what is missing and what to do.
    """
    if not (root / "pyproject.toml").is_file():
        raise SetupError(
            "lab and test work in a clone of the course: git clone its repository, go into the "
            "folder, and call them there."
        )
    asked = torch or os.environ.get("COURSE_TORCH") or None
    if asked:
        torch_choice(asked)  # refuses nonsense before anything is made
    venv = root / ".venv"
    if _ready(root, extra, asked):
        return venv_python(venv)
    folder = root / ".venv.setup"
    try:
        folder.mkdir(exist_ok=True)
        with _one_at_a_time(folder / "lock"):
            if not _ready(root, extra, asked):
                _set_up(root, extra, asked, folder / "pip.log")
    except BrokenPipeError:  # whoever read our words has left
        raise
    except OSError as error:
        raise SetupError(remedies.of_error(error, root)) from error
    return venv_python(venv)


def venv_python(venv: Path) -> Path:
    """Return where the Python of a virtual environment is, on this system."""
    return venv / ("Scripts/python.exe" if WINDOWS else "bin/python")


def other_python() -> Path | None:
    """Return the Python of the course's `.venv` if it was set up and is not the one running."""
    venv = ROOT / ".venv"
    if _inside(venv) or _read(venv / STAMP) is None or _version(venv) is None:
        return None
    return venv_python(venv)


def child_environment(venv: Path) -> dict[str, str]:
    """Return the environment variables for a program that is to use `.venv` and nothing else.

    A kernel named ``python3`` in the user's home must not win over the one of `.venv`, and another
    Python's packages must not be seen.
    """
    env = dict(os.environ)
    for name in ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "__PYVENV_LAUNCHER__"):
        env.pop(name, None)
    kernels = str(venv / "share" / "jupyter")
    env["VIRTUAL_ENV"] = str(venv)
    env["PATH"] = os.pathsep.join([str(venv_python(venv).parent), env.get("PATH", os.defpath)])
    env["JUPYTER_PREFER_ENV_PATH"] = "1"
    env["JUPYTER_PATH"] = os.pathsep.join(filter(None, [kernels, env.get("JUPYTER_PATH")]))
    env["PIP_USER"] = "0"
    return env


def hand_over(argv: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> int:
    """Let another program take this one's place (on Windows: run it, and return its exit status)."""
    if cwd is not None:
        os.chdir(cwd)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(argv[0], argv, os.environ if env is None else env)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that runs now
    return subprocess.run(argv, env=env, check=False).returncode


def requirements(root: Path, extra: str, python: Path | None = None) -> list[str]:
    """Return what pyproject.toml lists for an extra, core first, as pip requirements.

    Parameters
    ----------
    root
        The folder of pyproject.toml.
    extra
        The extra; an extra that names another one of the same project includes it.
    python
        A Python with pip, whose TOML reader stands in on Python 3.10, which has none.
    """
    project = _read_toml(root / "pyproject.toml", python)["project"]
    extras = project.get("optional-dependencies", {})
    own = re.compile(re.escape(project["name"]) + r"\[([\w-]+)\]$")

    def expand(name: str) -> Iterator[str]:
        for item in extras[name]:
            inner = own.match(item)
            if inner:
                yield from expand(inner[1])
            else:
                yield item

    return list(dict.fromkeys([*project["dependencies"], *expand(extra)]))


def name_of(requirement: str) -> str:
    """Return the package that a requirement names, in lower case."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


# ---------------------------------------------------------------------------------------------------
# Which torch


def torch_choice(asked: str) -> str:
    """Turn what was asked for into what is installed: a build, ``keep …``, or a pip requirement.

    Returns
    -------
    str
        ``"cpu"``, ``"cuda"``, the name of one of PyTorch's indexes, ``"keep PREFIX"``, or a
        requirement that pip takes.
    """
    asked = asked.strip()
    if asked == "auto":
        return "cuda" if gpu_driver() == "nvidia" else "cpu"
    if asked in ("cpu", "cuda") or re.fullmatch(r"cu\d{3}|rocm[\d.]+|xpu", asked):
        return asked
    if asked == "keep":
        return f"keep {sys.prefix}"
    if re.fullmatch(r"\d+(\.\d+)*(\+\w+)?", asked):
        return f"torch=={asked}"
    if asked.startswith("torch") and not asked.endswith(".whl"):
        return asked
    if "://" in asked:
        return asked
    if asked.endswith(".whl"):
        wheel = Path(asked).expanduser().absolute()
        if wheel.is_file():
            return str(wheel)
        raise SetupError(f"--torch names a wheel that is not there: {wheel}. Check the path.")
    raise SetupError(
        f"--torch {asked} is no choice: use auto, cpu, cuda, keep, a version such as 2.13.0, a pip "
        "requirement such as torch==2.13.0, or a wheel."
    )


def gpu_driver() -> str | None:
    """Return ``"nvidia"`` or ``"amd"`` where the driver of such a GPU is installed, else None."""
    if sys.platform == "darwin":
        return None
    windows = Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32"
    nvidia = [Path("/proc/driver/nvidia/version"), Path("/usr/lib/wsl/lib/nvidia-smi")]
    if WINDOWS:
        nvidia = [windows / "nvidia-smi.exe", windows / "nvcuda.dll"]
    if shutil.which("nvidia-smi") or any(map(os.path.exists, nvidia)):
        return "nvidia"
    return "amd" if os.path.exists("/dev/kfd") else None


def _index(choice: str) -> str | None:
    """Return the index a choice needs beside PyPI."""
    if choice == "cpu":
        return None if sys.platform == "darwin" else INDEX + "cpu"
    if choice == "cuda":
        return INDEX + WINDOWS_CUDA if WINDOWS else None
    return INDEX + choice if re.fullmatch(r"cu\d{3}|rocm[\d.]+|xpu", choice) else None


def pip_steps(choice: str, wanted: list[str]) -> list[list[str]]:
    """Return the arguments of each pip call that installs what is wanted, with a choice of torch."""
    torch = [item for item in wanted if name_of(item) == "torch"]
    others = [item for item in wanted if item not in torch]
    if choice.startswith("keep "):
        return [others]
    index = _index(choice)
    if index:
        return [["--index-url", index, *torch], wanted]
    return [wanted if choice in ("cpu", "cuda") else [choice, *wanted]]


# ---------------------------------------------------------------------------------------------------
# Is it there already?


def _ready(root: Path, extra: str, asked: str | None) -> bool:
    venv = root / ".venv"
    stamp = _read(venv / STAMP)
    version = _version(venv) if stamp else None
    if stamp is None or version is None or stamp.get("schema") != SCHEMA:
        return False
    same_torch = asked is None or _same_torch(asked, stamp["torch"], venv)
    if not same_torch or stamp["python"] != version:
        return False
    if os.environ.get("COURSE_CONSTRAINTS") and stamp["constraints"] != _digest(_constraints(root)):
        return False
    wanted = requirements(root, extra, venv_python(venv))
    return stamp["requirements"].get(extra) == _digest(wanted) and _finds_course(venv, root)


def _same_torch(asked: str, installed: str, venv: Path) -> bool:
    if asked == "keep" and _inside(venv):
        if installed.startswith("keep "):
            return True
        raise SetupError(
            "--torch keep uses the torch of the Python you call, and you call the one of .venv: type  "
            "deactivate  first, or call the other Python by its path."
        )
    return torch_choice(asked) == installed


def _version(venv: Path) -> str | None:
    """Return ``"3.12"`` for a virtual environment whose Python runs, is new enough and has pip."""
    code = "import sys, importlib.util as u; u.find_spec('pip') or sys.exit(3)"
    code += "; sys.version_info < (3, 10) and sys.exit(3); print('%d.%d' % sys.version_info[:2])"
    return _ask(venv, code)


def _finds_course(venv: Path, root: Path) -> bool:
    code = "import importlib.util as u, os; print(all(map(u.find_spec, ('torch', 'ipykernel')))"
    code += " and os.path.dirname(os.path.dirname(u.find_spec('course_utils').origin)))"
    found = _ask(venv, code)
    return found is not None and os.path.isdir(found) and os.path.samefile(found, root)


def _ask(venv: Path, code: str) -> str | None:
    """Run a line in the environment's Python, apart from this folder; return what it printed."""
    try:
        answer = subprocess.run(
            [str(venv_python(venv)), "-E", "-X", "utf8", "-c", code],
            cwd=venv,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def _inside(venv: Path) -> bool:
    return venv.is_dir() and os.path.realpath(sys.prefix) == os.path.realpath(venv)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def constraints_file(root: Path) -> Path | None:
    """Return the file of exact versions that ``COURSE_CONSTRAINTS`` names, if it names one."""
    name = os.environ.get("COURSE_CONSTRAINTS")
    return root / name if name else None


def _constraints(root: Path) -> str:
    """Return the text of the constraints file, empty where none is asked for."""
    path = constraints_file(root)
    try:
        return path.read_text(encoding="utf-8") if path else ""
    except OSError:
        raise SetupError(
            f"COURSE_CONSTRAINTS names a file that cannot be read: {path}. Correct it, or unset it."
        ) from None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write a file that is there whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def _read_toml(path: Path, python: Path | None) -> dict[str, Any]:
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        code = "import json, sys; from pip._vendor import tomli; "
        code += "print(json.dumps(tomli.load(open(sys.argv[1], 'rb'))))"
        done = subprocess.run(
            [str(python or sys.executable), "-I", "-c", code, str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SetupError(f"{path} cannot be read: {remedies.last_words(done.stderr)}") from None
        return json.loads(done.stdout)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SetupError(f"{path} cannot be read: {error}") from error


# ---------------------------------------------------------------------------------------------------
# Setting it up


def _set_up(root: Path, extra: str, asked: str | None, log: Path) -> None:
    started = time.monotonic()
    venv = root / ".venv"
    stamp, marker = _read(venv / STAMP), _read(venv / MARKER)
    installed = (stamp or marker or {}).get("torch")
    have = set(stamp["requirements"]) & set(EXTRAS) if stamp else set()
    extra = max(have | {extra}, key=EXTRAS.index)  # keep up to date all that is there
    if asked is None and stamp:
        choice = stamp["torch"]
    elif asked == "keep" and _inside(venv) and _same_torch(asked, installed or "", venv):
        choice = installed
    elif asked is None and (root / WHEELHOUSE).is_dir():
        choice = WHEELHOUSE
    else:
        choice = torch_choice(asked or "auto")
    keep = choice.startswith("keep ")
    python = venv_python(venv)
    version = _version(venv)
    usable = version is not None and (stamp is None or stamp.get("python") == version)
    usable = usable and _sees_system(venv) == keep and (not keep or choice == installed)
    if usable and marker is None and stamp is None:
        _say("Using the .venv that is already here; the course did not make it.")
    if not usable:
        installed = None
        if keep:
            choice = torch_choice("keep")
            _torch_to_keep()
        _clear(venv, ours=marker is not None)
        _make_venv(venv, choice, keep)
    elif stamp is None and marker is not None:
        _say("An earlier set-up did not finish; it resumes.")
    if not usable or marker is not None:
        _write(venv / MARKER, {"made_by": "course_utils", "schema": SCHEMA, "torch": choice})
    (venv / STAMP).unlink(missing_ok=True)

    wanted = requirements(root, extra, python)
    constraints = _digest(_constraints(root))
    pip = Pip(python, child_environment(venv), log, root, constraints_file(root))
    if installed not in (None, choice) and not installed.startswith("keep "):
        _say(f"Taking out the torch of the earlier choice ({installed}).")
        pip.run(["uninstall", "--yes", "torch"])
    _say(f"Installing with pip; its own words go to {log}")
    if choice == WHEELHOUSE and not _from_wheelhouse(pip, root / WHEELHOUSE, wanted, extra):
        choice = torch_choice("auto")
    if choice != WHEELHOUSE:
        for step in pip_steps(choice, wanted):
            pip.install(step, extra)
    _link_course(venv, root)
    if keep:
        _check_kept_torch(venv, next(item for item in wanted if name_of(item) == "torch"))
    if not _finds_course(venv, root):
        raise SetupError(
            f"pip finished, but .venv does not find torch, ipykernel and the course: remove .venv and "
            f"call this again. Details: {log}"
        )
    _write(
        venv / STAMP,
        {
            "schema": SCHEMA,
            "python": _version(venv),
            "torch": choice,
            "requirements": {
                name: _digest(requirements(root, name, python))
                for name in EXTRAS[: EXTRAS.index(extra) + 1]
            },
            "constraints": constraints,
            "date": date.today().isoformat(),
        },
    )
    _say(f"Set up in {time.monotonic() - started:.0f} s.")


def _from_wheelhouse(pip: Pip, wheelhouse: Path, wanted: list[str], extra: str) -> bool:
    """Install without the network; say so, and return False, where the wheelhouse does not serve."""
    try:
        pip.install(["--no-index", "--find-links", str(wheelhouse), *wanted], extra)
    except SetupError as error:
        made_for = ", ".join(pythons(wheelhouse)) or "nothing that has PyTorch"
        _say(f"The packages in {wheelhouse} are for {made_for}, and do not serve here: {error}")
        _say("Asking the network instead.")
        return False
    return True


def pythons(wheelhouse: Path) -> list[str]:
    """Return the Pythons and systems that a folder of wheels is for, by its wheels of PyTorch."""
    names = sorted(path.stem for path in wheelhouse.glob("torch-*.whl"))
    tags = [re.fullmatch(r"torch-[^-]+-cp(\d)(\d+)-[^-]+-(.+)", name) for name in names]
    return list(dict.fromkeys(f"Python {tag[1]}.{tag[2]} on {tag[3]}" for tag in tags if tag))


def _clear(venv: Path, *, ours: bool) -> None:
    """Make room for a new `.venv`; never delete what the course did not make."""
    if not os.path.lexists(venv) or (venv.is_dir() and not any(venv.iterdir())):
        return
    if not ours:
        raise SetupError(
            "There is a .venv here that the course did not make and cannot use (its Python does not "
            "run, is older than 3.10, has no pip, or is of another kind): rename or remove it, then call this again."
        )
    if _inside(venv):
        raise SetupError(
            "The .venv must be made anew, and you call its own Python: type  deactivate  and call "
            "this again."
        )
    _say("The .venv here does not fit (it is broken, or made for another Python): making it anew.")
    shutil.rmtree(venv)


def _make_venv(venv: Path, choice: str, keep: bool) -> None:
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise SetupError(remedies.no_ensurepip())
    kind = "cpu" if choice in ("cpu", WHEELHOUSE) or keep else "cuda"
    free = shutil.disk_usage(venv.parent).free / 1e9
    if free < SPACE_GB[kind]:
        _say(f"Only {free:.1f} GB are free here; the set-up may want {SPACE_GB[kind]} GB.")
    _say(
        f"Setting up the course in {venv}, once (minutes, and gigabytes): "
        f"Python {sys.version.split()[0]}, torch: {choice}"
    )
    if choice == "cpu" and gpu_driver() == "amd":
        _say(
            "An AMD GPU is here, whose build of PyTorch has an index of its own: find its name at "
            f"https://pytorch.org/get-started and call  {COMMAND} lab --torch rocmX.Y  later."
        )
    venv.mkdir(exist_ok=True)
    _write(venv / MARKER, {"made_by": "course_utils", "schema": SCHEMA, "torch": choice})
    base = getattr(sys, "_base_executable", None) or sys.executable
    flags = ["--system-site-packages"] if keep else []
    done = subprocess.run(
        [base, "-m", "venv", *flags, str(venv)], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        if keep and sys.prefix != sys.base_prefix:
            _link_torch(venv)
        return
    said = done.stdout + done.stderr
    if "ensurepip" in said:
        raise SetupError(remedies.no_ensurepip())
    raise SetupError(
        remedies.of_output(said, venv.parent)
        or f"python -m venv failed: {remedies.last_words(said)}. Remove .venv and call this again."
    )


def _sees_system(venv: Path) -> bool:
    try:
        text = (venv / "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return False
    return re.search(r"(?m)^include-system-site-packages\s*=\s*true", text) is not None


def _link_course(venv: Path, root: Path) -> None:
    """Make `course_utils` importable through a relative path, which outlives a move of the clone."""
    packages = _packages(venv)
    link = os.path.relpath(os.path.realpath(root), os.path.realpath(packages))
    (packages / "course_utils.pth").write_text(link + "\n", encoding="utf-8")


def _link_torch(venv: Path) -> None:
    """Show `.venv` the packages of the virtual environment that holds the torch to keep."""
    places = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    lines = [f"import site; site.addsitedir({place!a})\n" for place in places]
    # By its name it is read after course_utils.pth: the clone's own course_utils comes first.
    (_packages(venv) / "torch_to_keep.pth").write_text("".join(lines), encoding="ascii")


def _packages(venv: Path) -> Path:
    return Path(_ask(venv, "import sysconfig; print(sysconfig.get_path('purelib'))") or "")


def _torch_to_keep() -> None:
    if importlib.util.find_spec("torch") is None:
        raise SetupError(
            f"--torch keep uses the torch of the Python you call, and {sys.executable} has none: "
            "install it there, or leave --torch away."
        )


def _check_kept_torch(venv: Path, requirement: str) -> None:
    code = f"""
from importlib.metadata import version
from pip._vendor.packaging.requirements import Requirement
import torch
print(Requirement({requirement!r}).specifier.contains(version("torch"), prereleases=True))
"""
    answer = _ask(venv, code)
    if answer != "True":
        what = "is too old" if answer == "False" else "does not import there"
        raise SetupError(
            f"The torch to keep {what}: the course needs {requirement}. Update it where it is "
            "installed, or leave --torch away."
        )


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Hold the lock; where another start holds it, say so and wait. A crash lets go of it."""
    with path.open("a+b") as file:
        told = 0.0
        while not _locked(file):
            if time.monotonic() - told > 30:
                _say("Another start is setting up .venv; waiting for it (Ctrl-C stops waiting).")
                told = time.monotonic()
            time.sleep(0.3)
        yield


def _locked(file: Any) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
        return error.errno not in held  # a file system without locks: go on without
    return True


def _say(sentence: str) -> None:
    print(sentence, flush=True)
