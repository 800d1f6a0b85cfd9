"""Make `.venv` and install in it what the course needs, with the standard library, and uv.

A start that finds the note of a finished set-up starts no installer and needs no network. The note says which
requirements and which torch were installed; where others are asked for, uv installs again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_language import _
from course_utils.cli import environment, faults, installer, torch_build
from course_utils.cli.environment import child_environment, venv_python
from course_utils.cli.faults import COMMAND, SetupError
from course_utils.cli.installer import Installer
from course_utils.cli.torch_build import torch_choice
from course_utils.this_machine import old_torch

__all__ = ["COMMAND", "SetupError", "child_environment", "venv_python"]  # for the commands

ROOT = Path(__file__).absolute().parents[2]
EXTRAS = ("lab", "test", "everywhere")  # each includes the one before
MAKER = "course_utils"  # only an environment whose note names it is ever deleted
WHEELHOUSE = "wheelhouse"  # packages beside the course: `bundle --wheelhouse` puts them there


def prepare(
    extra: str,
    torch: str | None = None,
    root: Path = ROOT,
    name: str = ".venv",
    python: str | None = None,
) -> Path:
    """Return the Python of an environment with what an extra of pyproject.toml needs; set it up if need be.

    It is the folder `name` of the clone `root`, made with `python`, by default the one that runs. `torch`
    is as `--torch`; by default the variable ``COURSE_TORCH``, then what is installed, then ``auto``. What
    stands in the way is raised as `SetupError`.
    """
    if not (root / "pyproject.toml").is_file():
        raise SetupError(
            _(
                "lab and test work in a clone of the course: git clone its repository, go into the "
                "folder, and call them there."
            )
        )
    venv, work = root / name, root / ".venv.setup"
    choice = torch or os.environ.get("COURSE_TORCH") or ""
    if choice == "keep" and environment.inside(venv):
        choice = ""  # what is there stays
    choice = choice and torch_choice(choice)  # refuses nonsense before anything is made
    try:
        if not _is_ready(venv, extra, choice):
            work.mkdir(exist_ok=True)
            with _lock(work / "lock"):
                if not _is_ready(venv, extra, choice):
                    _set_up(venv, extra, choice, work, python)
    except BrokenPipeError:  # whoever read our output has left
        raise
    except OSError as error:
        sentence = _("The set-up stopped: {error}. Call this again to try once more.").format(error=error)
        raise SetupError(faults.of_output(str(error), root) or sentence) from error
    return venv_python(venv)


def other_python() -> Path | None:
    """Return the Python of the course's `.venv` if it was set up and is not the one running."""
    venv = ROOT / ".venv"
    finished = "wanted" in environment.read_note(venv) and not environment.inside(venv)
    return venv_python(venv) if finished and environment.state(venv)[0] else None


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
    """Return what pyproject.toml lists for an extra and for those it includes, core first.

    Python 3.10 has no reader of TOML, so the lists are read as this project writes them; a test compares.
    """
    path = root / "pyproject.toml"
    lists = re.findall(r"(?ms)^([\w-]+) = \[(.*?)\]$", path.read_text(encoding="utf-8"))
    items = {name: re.findall(r'"([^"]+)"', body) for name, body in lists}
    if not {"dependencies", extra} <= items.keys():
        raise SetupError(
            _("{path} does not list what {extra} needs: take a fresh copy of that file.").format(
                path=path, extra=extra
            )
        )

    def expand(name: str) -> Iterator[str]:
        for item in items[name]:
            included = re.match(r"pytorch-gpu-course\[([\w-]+)\]$", item)
            yield from expand(included[1]) if included else [item]

    return list(dict.fromkeys([*items["dependencies"], *expand(extra)]))


def name_of(requirement: str) -> str:
    """Return the package that a requirement names, in lower case."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def constraints(root: Path, work: Path, *, hashes: bool) -> list[str]:
    """Return the installer's options for the exact versions in the file that ``COURSE_CONSTRAINTS`` names.

    The hashes in it are those for Linux, x86-64; elsewhere, or without `hashes`, a copy in `work` has none.
    """
    exact = _constraints_file(root)
    if exact is None:
        return []
    if not hashes or sysconfig.get_platform() != "linux-x86_64":
        versions = re.sub(r" --hash=\S+", "", exact.read_text(encoding="utf-8"))
        exact = work / "versions.txt"
        exact.write_text(versions, encoding="utf-8")
    return ["-c", str(exact)]


def pythons(wheelhouse: Path) -> list[str]:
    """Return the Pythons and systems that a folder of wheels is for, by its wheels of PyTorch."""
    names = sorted(path.stem for path in wheelhouse.glob("torch-*.whl"))
    tags = [re.fullmatch(r"torch-[^-]+-cp(\d)(\d+)-[^-]+-(.+)", name) for name in names]
    return list(
        dict.fromkeys(
            _("Python {second_tag}.{third_tag} on {tag}").format(
                second_tag=tag[1], third_tag=tag[2], tag=tag[3]
            )
            for tag in tags
            if tag
        )
    )


def _is_ready(venv: Path, extra: str, choice: str) -> bool:
    """Return whether a finished set-up serves what is asked for now, without starting an installer."""
    note, root = environment.read_note(venv), venv.parent
    exact = _constraints_file(root)
    return (
        note.get("extra") in EXTRAS[EXTRAS.index(extra) :]
        and choice in ("", note.get("torch"))
        and note.get("wanted") == _digest(requirements(root, note["extra"]))
        and (exact is None or note.get("constraints") == _digest(exact.read_text("utf-8")))
        and environment.state(venv)[1]
    )


def _set_up(venv: Path, extra: str, choice: str, work: Path, python: str | None) -> None:
    """Make the environment if need be, install with uv, and write the note."""
    started, root = time.monotonic(), venv.parent
    note = environment.read_note(venv)
    finished, earlier, ours = "wanted" in note, note.get("torch", ""), note.get("made_by") == MAKER
    extra = max(extra, note.get("extra", extra), key=EXTRAS.index)  # keep all that is there
    if not choice and not finished and (root / WHEELHOUSE).is_dir():
        choice = WHEELHOUSE
    choice = choice or earlier or "auto"
    keep = choice.startswith("keep ")

    offline = ["--no-index", "--find-links", str(root / WHEELHOUSE)]
    program = installer.find_uv(work, [offline, []] if choice == WHEELHOUSE else [[]])
    log = work / "install.log"
    log.write_text("", encoding="utf-8")
    uv = Installer("uv", [program], installer.uv_variables(child_environment(venv)), log, root)

    fits = earlier == choice if keep else not earlier.startswith("keep ")
    if not (fits and environment.state(venv)[0]):
        if keep and importlib.util.find_spec("torch") is None:
            raise SetupError(
                _(
                    "--torch keep uses the torch of the Python you call, and {executable} has none: "
                    "install it there, or leave --torch away."
                ).format(executable=sys.executable)
            )
        environment.clear(venv, ours)
        base = python or getattr(sys, "_base_executable", None) or sys.executable
        version = python or sys.version.split()[0]
        print(
            _("Setting up the course in {venv}, once: Python {version}, torch: {choice}").format(
                venv=venv, version=version, choice=choice
            ),
            flush=True,
        )
        ours, earlier, note = True, "", {}
        environment.make(venv, {"made_by": MAKER, "torch": choice}, uv, base, keep)
    elif not ours and not finished:
        print(_("Using the {venv} that is already here; the course did not make it.").format(venv=venv.name))
    elif not finished:
        print(_("An earlier set-up did not finish; it resumes."))
    interrupted = bool(note) and not finished
    note = {"made_by": MAKER if ours else "", "torch": earlier if finished and earlier else choice}
    environment.write_note(venv, note)

    print(_("Installing with uv."))
    wanted, exact = requirements(root, extra), _constraints_file(root)
    install = ["pip", "install", "--python", str(venv_python(venv))]
    install += constraints(root, work, hashes=True)
    if interrupted:  # a package whose files are there by half would count as installed
        install.append("--reinstall")
    elif earlier not in ("", choice):  # what is there may be of another build of the same version
        install += [f"--reinstall-package={package}" for package in torch_build.PACKAGES]
    if choice == WHEELHOUSE:
        try:
            uv.run(*install, *offline, *wanted, "pip")
        except SetupError as error:
            systems = ", ".join(pythons(root / WHEELHOUSE)) or _("nothing that has PyTorch")
            print(
                _("The packages in {wheelhouse} are for {systems}, and do not serve here: {error}").format(
                    wheelhouse=WHEELHOUSE, systems=systems, error=error
                )
            )
            print(_("Asking the network instead."))
            choice = "auto"
    if choice != WHEELHOUSE:
        closed = installer.pip_settings().get("no-index", "0").lower() in ("1", "true", "yes")
        index = ["--no-index"] if closed else []
        uv.run(*install, *index, *torch_build.for_uv(choice, work), *wanted, "pip")
    environment.link_course(venv)
    if keep:
        _check_kept_torch(venv)
    if not environment.state(venv)[1]:
        raise SetupError(
            _(
                "uv finished, but {venv} does not find torch, ipykernel and the course: "
                "remove {venv} and call this again. Details: {log}"
            ).format(venv=venv.name, log=log)
        )
    note |= {"torch": choice, "extra": extra, "wanted": _digest(wanted)}
    note["constraints"] = _digest(exact.read_text("utf-8")) if exact else ""
    environment.write_note(venv, note)
    print(_("Set up in {rest:.0f} s.").format(rest=time.monotonic() - started))


def _check_kept_torch(venv: Path) -> None:
    version = environment.ask(venv, "import torch; print(torch.__version__)")
    if not version:
        raise SetupError(
            _(
                "The torch to keep does not import here: repair it where it is installed, or leave "
                "--torch away."
            )
        )
    if old := old_torch(version):
        raise SetupError(old)


def _constraints_file(root: Path) -> Path | None:
    name = os.environ.get("COURSE_CONSTRAINTS")
    if name and not os.access(root / name, os.R_OK):
        raise SetupError(
            _(
                "COURSE_CONSTRAINTS names a file that cannot be read: {share}. Correct it, or unset it."
            ).format(share=root / name)
        )
    return root / name if name else None


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock; where another start holds it, say so and wait. A crash releases it."""
    with path.open("a+b") as file:
        announced = 0.0
        while not _is_locked(file):
            if time.monotonic() - announced > 30:
                print(
                    _("Another start is setting up .venv; waiting for it (Ctrl-C stops waiting)."),
                )
                announced = time.monotonic()
            time.sleep(0.3)
        yield


def _is_locked(file: Any) -> bool:
    """Try to lock a file; False where another process holds the lock."""
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # else it is a file system without locks: go on without
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
    return True


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
