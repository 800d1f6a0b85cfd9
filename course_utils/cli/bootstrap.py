"""Create the virtual environment `.venv` and install the course's requirements, with uv.

A finished set-up is recorded in ``course-env.json`` in the environment, with the requirements and the torch
that were installed. If the record matches what is asked for, no installer starts and no network is needed;
otherwise uv installs again. Only the standard library is imported.
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
MAKER = "course_utils"  # only an environment whose record names it is ever deleted
FIRST_USE = "import course_utils as c; c.start('00'); c.get_device(quiet=True)"  # as the first cells do
WHEELHOUSE = "wheelhouse"  # packages beside the course: `bundle --wheelhouse` puts them there


def prepare(
    extra: str,
    torch: str | None = None,
    root: Path = ROOT,
    name: str = ".venv",
    python: str | None = None,
) -> Path:
    """Return the Python of a virtual environment with the requirements of an extra; set it up if needed.

    Parameters
    ----------
    extra
        One of `EXTRAS`: the optional dependencies in pyproject.toml.
    torch
        As ``--torch``; by default the variable ``COURSE_TORCH``, then what is installed, then ``"auto"``.
    root, name
        The clone's folder, and the environment's folder in it.
    python
        The interpreter for a new environment, by default the running one.

    Raises
    ------
    SetupError
        If the environment cannot be set up.
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
    if choice == "keep" and environment.is_running_in(venv):
        choice = ""  # keep what is installed
    choice = choice and torch_choice(choice)  # refuses an invalid choice before anything is created
    try:
        if not _is_ready(venv, extra, choice):
            work.mkdir(exist_ok=True)
            with _file_lock(work / "lock"):
                if not _is_ready(venv, extra, choice):
                    _create_or_update_venv(venv, extra, choice, work, python)
    except BrokenPipeError:  # the reader of our output has exited
        raise
    except OSError as error:
        sentence = _("The set-up stopped: {error}. Call this again to try once more.").format(error=error)
        raise SetupError(faults.explain_output(str(error), root) or sentence) from error
    return venv_python(venv)


def other_python() -> Path | None:
    """Return the Python of the course's `.venv`; None if it is not set up, or is already running."""
    venv = ROOT / ".venv"
    finished = "wanted" in environment.read_record(venv) and not environment.is_running_in(venv)
    return venv_python(venv) if finished and environment.state(venv)[0] else None


def hand_over(argv: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> int:
    """Replace this process by another program, as ``exec``; on Windows, run it and return its exit status."""
    if cwd is not None:
        os.chdir(cwd)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(argv[0], argv, os.environ if env is None else env)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that runs now
    return subprocess.run(argv, env=env, check=False).returncode


def requirements(root: Path, extra: str) -> list[str]:
    """Return the requirements in pyproject.toml: the dependencies, then an extra's with those it includes.

    Python 3.10 has no TOML parser, so the lists are parsed in the form that this project writes; a test
    compares. `SetupError` if the file does not list them.
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
        """Yield the requirements of an extra, with the extras that it includes."""
        for item in items[name]:
            included = re.match(r"pytorch-gpu-course\[([\w-]+)\]$", item)
            yield from expand(included[1]) if included else [item]

    return list(dict.fromkeys([*items["dependencies"], *expand(extra)]))


def name_of(requirement: str) -> str:
    """Return the package name of a requirement, in lower case: ``"torch"`` for ``"torch>=2.10"``."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def constraints(root: Path, work: Path, *, hashes: bool) -> list[str]:
    """Return the installer's options (``-c FILE``) for the file that ``COURSE_CONSTRAINTS`` names, or [].

    The file has exact versions with hashes for Linux on x86-64. On other systems, or with `hashes` false,
    the options name a copy without hashes, written to `work`.
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
    """Return the Pythons and platforms that a folder of wheels is for, as texts, by its PyTorch wheels."""
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
    """Return whether the recorded set-up has what is asked for now, so that no installer has to start."""
    record, root = environment.read_record(venv), venv.parent
    exact = _constraints_file(root)
    return (
        record.get("extra") in EXTRAS[EXTRAS.index(extra) :]
        and choice in ("", record.get("torch"))
        and record.get("wanted") == _sha256(requirements(root, record["extra"]))
        and (exact is None or record.get("constraints") == _sha256(exact.read_text("utf-8")))
        and environment.state(venv)[1]
    )


def _create_or_update_venv(venv: Path, extra: str, choice: str, work: Path, python: str | None) -> None:
    """Create or repair the virtual environment, install the requirements with uv, and record them.

    The record is ``course-env.json``. A broken environment is deleted and created again if the course made
    it, else `SetupError` is raised. If the record has an extra that includes more, that one is kept.

    Parameters
    ----------
    venv
        The environment's folder, in the clone's root.
    extra
        One of `EXTRAS`.
    choice
        The build of torch, as `torch_choice` returns it; with "" what is recorded, else ``"auto"``, but a
        first set-up takes the wheelhouse if there is one.
    work
        A folder for the log and for uv, which is kept.
    python
        The interpreter for a new environment, by default the running one.
    """
    started, root = time.monotonic(), venv.parent
    record = environment.read_record(venv)
    finished, earlier, made_by_course = (
        "wanted" in record,
        record.get("torch", ""),
        record.get("made_by") == MAKER,
    )
    extra = max(extra, record.get("extra", extra), key=EXTRAS.index)  # never remove what is installed
    if not choice and not finished and (root / WHEELHOUSE).is_dir():
        choice = WHEELHOUSE
    choice = choice or earlier or "auto"
    keep = choice.startswith("keep ")

    offline = ["--no-index", "--find-links", str(root / WHEELHOUSE)]
    program = installer.find_or_install_uv(work, [offline, []] if choice == WHEELHOUSE else [[]])
    log = work / "install.log"
    log.write_text("", encoding="utf-8")
    uv = Installer("uv", [program], installer.uv_variables(child_environment(venv)), log, root)

    kept_kind_matches = earlier == choice if keep else not earlier.startswith("keep ")
    if not (kept_kind_matches and environment.state(venv)[0]):
        if keep and importlib.util.find_spec("torch") is None:
            raise SetupError(
                _(
                    "--torch keep uses the torch of the Python you call, and {executable} has none: "
                    "install it there, or leave --torch away."
                ).format(executable=sys.executable)
            )
        environment.remove_unusable(venv, made_by_course)
        base = python or getattr(sys, "_base_executable", None) or sys.executable
        version = python or sys.version.split()[0]
        print(
            _("Setting up the course in {venv}, once: Python {version}, torch: {choice}").format(
                venv=venv, version=version, choice=choice
            ),
            flush=True,
        )
        made_by_course, earlier, record = True, "", {}
        environment.create(venv, {"made_by": MAKER, "torch": choice}, uv, base, keep)
    elif not made_by_course and not finished:
        print(_("Using the {venv} that is already here; the course did not make it.").format(venv=venv.name))
    elif not finished:
        print(_("An earlier set-up did not finish; it resumes."))
    interrupted = bool(record) and not finished
    record = {
        "made_by": MAKER if made_by_course else "",
        "torch": earlier if finished and earlier else choice,
    }
    environment.write_record(venv, record)

    print(_("Installing with uv."))
    wanted, exact = requirements(root, extra), _constraints_file(root)
    install = ["pip", "install", "--python", str(venv_python(venv))]
    install += constraints(root, work, hashes=True)
    if interrupted:  # a partly installed package would count as installed
        install.append("--reinstall")
    elif earlier not in ("", choice):  # the installed torch may be another build of the same version
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
        no_index = installer.pip_settings().get("no-index", "0").lower() in ("1", "true", "yes")
        index = ["--no-index"] if no_index else []
        uv.run(*install, *index, *torch_build.uv_install_arguments(choice, work), *wanted, "pip")
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
    print(_("Using PyTorch once, so that Python compiles its files now and not in the first lesson."))
    environment.run_code(venv, FIRST_USE)
    record |= {"torch": choice, "extra": extra, "wanted": _sha256(wanted)}
    record["constraints"] = _sha256(exact.read_text("utf-8")) if exact else ""
    environment.write_record(venv, record)
    print(_("Set up in {rest:.0f} s.").format(rest=time.monotonic() - started))


def _check_kept_torch(venv: Path) -> None:
    """Raise `SetupError` if the torch of ``--torch keep`` does not import in ``venv``, or is too old."""
    version = environment.run_code(venv, "import torch; print(torch.__version__)")
    if not version:
        raise SetupError(
            _(
                "The torch to keep does not import here: repair it where it is installed, or leave "
                "--torch away."
            )
        )
    if problem := old_torch(version):
        raise SetupError(problem)


def _constraints_file(root: Path) -> Path | None:
    """Return the file that ``COURSE_CONSTRAINTS`` names, relative to ``root``; None if it is not set."""
    name = os.environ.get("COURSE_CONSTRAINTS")
    if name and not os.access(root / name, os.R_OK):
        raise SetupError(
            _(
                "COURSE_CONSTRAINTS names a file that cannot be read: {share}. Correct it, or unset it."
            ).format(share=root / name)
        )
    return root / name if name else None


@contextlib.contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """Hold a lock on a file during the block; if another process holds it, print that and wait."""
    with path.open("a+b") as file:
        announced = 0.0
        while not _try_lock(file):
            if time.monotonic() - announced > 30:
                print(
                    _("Another start is setting up .venv; waiting for it (Ctrl-C stops waiting)."),
                )
                announced = time.monotonic()
            time.sleep(0.3)
        yield


def _try_lock(file: Any) -> bool:
    """Try to lock an open file; return False if another process holds the lock. A crash releases it."""
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # any other error: a file system without locks; go on without
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
    return True


def _sha256(value: Any) -> str:
    """Return the SHA-256 hex digest of a value's JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
