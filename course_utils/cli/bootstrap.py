"""Make `.venv` and put in it what the course needs, with the standard library only.

A start that finds the stamp of an earlier, finished set-up starts no installer and needs no network.
The stamp says for which requirements and which torch it was written; anything else is set up again.
"""

from __future__ import annotations

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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_utils.cli import environment, installer, remedies, torch_build
from course_utils.cli.environment import MARKER, child_environment, venv_python
from course_utils.cli.remedies import COMMAND, SetupError
from course_utils.cli.torch_build import torch_choice
from course_utils.this_machine import old_torch

__all__ = ["COMMAND", "SetupError", "child_environment", "venv_python"]  # for the commands

ROOT = Path(__file__).absolute().parents[2]
EXTRAS = ("lab", "test", "everywhere")  # each holds the one before
SCHEMA = 2
STAMP = "course-stamp.json"  # the set-up was finished
WHEELHOUSE = "wheelhouse"  # packages beside the course: `bundle --wheelhouse` puts them there


def prepare(extra: str, torch: str | None = None, root: Path = ROOT, name: str = ".venv") -> Path:
    """Return the Python of an environment that has what `extra` needs, setting it up where it is missing.

    Parameters
    ----------
    extra
        An extra of pyproject.toml, of those in `EXTRAS`.
    torch
        As `--torch`; by default the variable ``COURSE_TORCH``, then what is installed, then ``auto``.
    root
        The clone.
    name
        The environment's folder in it.

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
    venv = root / name
    choice = torch or os.environ.get("COURSE_TORCH") or ""
    if choice == "keep" and environment.inside(venv):
        choice = ""  # what is there stays
    choice = choice and torch_choice(choice)  # refuses nonsense before anything is made
    if _ready(venv, extra, choice):
        return venv_python(venv)
    work = root / ".venv.setup"
    try:
        work.mkdir(exist_ok=True)
        with _one_at_a_time(work / "lock"):
            if not _ready(venv, extra, choice):
                _set_up(venv, extra, choice, work)
    except BrokenPipeError:  # whoever read our words has left
        raise
    except OSError as error:
        raise SetupError(remedies.of_error(error, root)) from error
    return venv_python(venv)


def other_python() -> Path | None:
    """Return the Python of the course's `.venv` if it was set up and is not the one running."""
    venv = ROOT / ".venv"
    there = environment.read(venv / STAMP) and environment.version(venv)
    return venv_python(venv) if there and not environment.inside(venv) else None


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


def requirements(root: Path, extra: str) -> list[str]:
    """Return what pyproject.toml lists for an extra, core first, as pip requirements.

    Python 3.10 has no reader of TOML, so the lists are read as this project writes them; a test compares.

    Parameters
    ----------
    root
        The folder of pyproject.toml.
    extra
        The extra; an extra that names another one of the same project includes it.
    """
    path = root / "pyproject.toml"
    lists = re.findall(r"(?ms)^([\w-]+) = \[(.*?)\]$", path.read_text(encoding="utf-8"))
    items = {name: re.findall(r'"([^"]+)"', body) for name, body in lists}
    if not {"dependencies", extra} <= items.keys():
        raise SetupError(
            f"{path} does not list what {extra} needs: take a fresh copy of that file."
        )

    def expand(name: str) -> Iterator[str]:
        for item in items[name]:
            inner = re.match(r"pytorch-gpu-course\[([\w-]+)\]$", item)
            yield from expand(inner[1]) if inner else [item]

    return list(dict.fromkeys([*items["dependencies"], *expand(extra)]))


def name_of(requirement: str) -> str:
    """Return the package that a requirement names, in lower case."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def constraints_file(root: Path) -> Path | None:
    """Return the file of exact versions that ``COURSE_CONSTRAINTS`` names, if it names one."""
    name = os.environ.get("COURSE_CONSTRAINTS")
    if name and not os.access(root / name, os.R_OK):
        raise SetupError(
            f"COURSE_CONSTRAINTS names a file that cannot be read: {root / name}. Correct it, or unset it."
        )
    return root / name if name else None


def pythons(wheelhouse: Path) -> list[str]:
    """Return the Pythons and systems that a folder of wheels is for, by its wheels of PyTorch."""
    names = sorted(path.stem for path in wheelhouse.glob("torch-*.whl"))
    tags = [re.fullmatch(r"torch-[^-]+-cp(\d)(\d+)-[^-]+-(.+)", name) for name in names]
    return list(dict.fromkeys(f"Python {tag[1]}.{tag[2]} on {tag[3]}" for tag in tags if tag))


def _ready(venv: Path, extra: str, choice: str) -> bool:
    """Return whether a finished set-up serves what is asked now, without starting anything."""
    stamp = environment.read(venv / STAMP)
    if stamp is None or stamp.get("schema") != SCHEMA or choice not in ("", stamp["torch"]):
        return False
    if EXTRAS.index(stamp["extra"]) < EXTRAS.index(extra):
        return False
    if stamp["wanted"] != _digest(requirements(venv.parent, stamp["extra"])):
        return False
    if (exact := constraints_file(venv.parent)) and stamp["constraints"] != _digest(_text(exact)):
        return False
    return stamp["python"] == environment.version(venv) and environment.finds_course(venv)


def _set_up(venv: Path, extra: str, choice: str, work: Path) -> None:
    started, root = time.monotonic(), venv.parent
    stamp, marker = environment.read(venv / STAMP), environment.read(venv / MARKER)
    installed = (stamp or marker or {}).get("torch", "")
    if stamp:  # keep up to date all that is there
        extra = max(extra, stamp.get("extra", extra), key=EXTRAS.index)
        choice = choice or installed
    choice = choice or (WHEELHOUSE if (root / WHEELHOUSE).is_dir() else installed or "auto")
    keep = choice.startswith("keep ")
    _warn_of_little_disk(choice, root)
    offline = ["--no-index", "--find-links", str(root / WHEELHOUSE)]
    source = offline if choice == WHEELHOUSE else []
    uv = None if keep else installer.get_uv(work / "uv", sys.executable, source)
    note = {"made_by": "course_utils", "torch": choice}
    version = environment.version(venv)
    usable = version is not None and (stamp is None or stamp["python"] == version)
    usable = usable and (uv is not None or environment.ask(venv, "import pip") is not None)
    usable = usable and (installed == choice if keep else not installed.startswith("keep "))
    if not usable:
        installed = ""
        if keep and importlib.util.find_spec("torch") is None:
            raise SetupError(
                f"--torch keep uses the torch of the Python you call, and {sys.executable} has none: "
                "install it there, or leave --torch away."
            )
        environment.clear(venv, ours=marker is not None)
        python = sys.version.split()[0]
        _say(f"Setting up the course in {venv}, once: Python {python}, torch: {choice}")
        environment.make(venv, note, uv, keep=keep)
        if uv is None and not keep:  # this Python's pip may be in its environments only
            uv = installer.get_uv(work / "uv", venv_python(venv), source)
    elif marker is None and stamp is None:
        _say(f"Using the {venv.name} that is already here; the course did not make it.")
    elif stamp is None:
        _say("An earlier set-up did not finish; it resumes.")
    if not usable or marker is not None:
        environment.write(venv / MARKER, note)
    (venv / STAMP).unlink(missing_ok=True)

    wanted, exact = requirements(root, extra), constraints_file(root)
    env, log = child_environment(venv), work / "install.log"
    install = installer.Installer(venv_python(venv), uv, env, log, root, exact)
    if installed not in ("", choice) and not installed.startswith("keep "):
        _say(f"Taking out the torch of the earlier choice ({installed}).")
        install.uninstall("torch")
    _say(f"Installing with {install.name}.")
    everything = [*wanted, "pip"] if uv else wanted
    if choice == WHEELHOUSE:
        try:
            install.install([*offline, *everything])
        except SetupError as error:
            made_for = ", ".join(pythons(root / WHEELHOUSE)) or "nothing that has PyTorch"
            _say(f"The packages in {WHEELHOUSE} are for {made_for}, and do not serve here: {error}")
            _say("Asking the network instead.")
            choice = "auto"
    if choice != WHEELHOUSE:
        to_pip = [] if uv else torch_build.for_pip(choice, wanted)
        for words in to_pip or [torch_build.for_uv(choice, everything)]:
            install.install(words)
    environment.link_course(venv)
    if keep:
        _check_kept_torch(venv)
    if not environment.finds_course(venv):
        raise SetupError(
            f"{install.name} finished, but {venv.name} does not find torch, ipykernel and the course: "
            f"remove {venv.name} and call this again. Details: {log}"
        )
    done = {"schema": SCHEMA, "python": environment.version(venv), "torch": choice, "extra": extra}
    done |= {"wanted": _digest(wanted), "constraints": _digest(_text(exact) if exact else "")}
    environment.write(venv / STAMP, done)
    _say(f"Set up in {time.monotonic() - started:.0f} s.")


def _check_kept_torch(venv: Path) -> None:
    version = environment.ask(venv, "import torch; print(torch.__version__)")
    if not version:
        raise SetupError(
            "The torch to keep does not import here: repair it where it is installed, or leave --torch away."
        )
    if old := old_torch(version):
        raise SetupError(old)


def _warn_of_little_disk(choice: str, root: Path) -> None:
    free = shutil.disk_usage(root).free / 1e9
    wanted = 3 if choice in ("cpu", WHEELHOUSE) or choice.startswith("keep ") else 10
    if free < wanted:
        _say(f"Only {free:.1f} GB are free here; the set-up may want {wanted} GB.")


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


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _say(sentence: str) -> None:
    print(sentence, flush=True)
