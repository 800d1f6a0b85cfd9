"""One virtual environment: create it, use it, ask what is in it, and record what was installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from course_language import _
from course_utils.cli.faults import SetupError

WINDOWS = os.name == "nt"
RECORD_FILE = "course-env.json"  # in the environment: the record of what was installed

# Run in an environment: print Python's version, if new enough, and the course's folder, if it is complete.
_STATE = """
import importlib.util as u, os, sys
if sys.version_info < (3, 10): sys.exit()
print("%d.%d" % sys.version_info[:2])
course = u.find_spec("course_utils")
if course and all(map(u.find_spec, ("torch", "ipykernel", "pip"))):
    print(os.path.dirname(os.path.dirname(course.origin)))
"""


def venv_python(venv: Path) -> Path:
    """Return the path of a virtual environment's Python executable on this system."""
    return venv / ("Scripts/python.exe" if WINDOWS else "bin/python")


def child_environment(venv: Path) -> dict[str, str]:
    """Return all environment variables for a program that uses only one virtual environment.

    They are this process's, changed so that a kernel named ``python3`` in the user's home does not take
    precedence over the environment's, other Pythons' packages are not imported, no variable makes pip install
    elsewhere, and bytecode is cached, or each kernel would byte-compile PyTorch again.
    """
    dropped = "PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE __PYVENV_LAUNCHER__ PIP_TARGET PIP_PREFIX"
    env = {name: value for name, value in os.environ.items() if name not in dropped.split()}
    kernels = str(venv / "share" / "jupyter")
    return env | {
        "VIRTUAL_ENV": str(venv),
        "PATH": os.pathsep.join([str(venv_python(venv).parent), env.get("PATH", os.defpath)]),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_PATH": os.pathsep.join(filter(None, [kernels, env.get("JUPYTER_PATH")])),
        "PIP_USER": "0",
    }


def is_running_in(venv: Path) -> bool:
    """Return whether the running Python is the virtual environment's own."""
    return venv.is_dir() and os.path.realpath(sys.prefix) == os.path.realpath(venv)


def state(venv: Path) -> tuple[str, bool]:
    """Return an environment's Python version, such as ``"3.12"``, and whether it is complete.

    The version is "" if it does not run or is older than 3.10. It is complete if it has torch, ipykernel
    and pip, and imports the course from the clone it is in.
    """
    version, _, course_folder = (run_code(venv, _STATE) or "").partition("\n")
    return version, os.path.isdir(course_folder) and os.path.samefile(course_folder, venv.parent)


def run_code(venv: Path, code: str) -> str | None:
    """Run code in the environment's Python; return its stripped output, or None if it fails or takes 60 s."""
    try:
        completed = subprocess.run(
            [str(venv_python(venv)), "-E", "-X", "utf8", "-c", code],
            cwd=venv,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return completed.stdout.strip()


def read_record(venv: Path) -> dict[str, Any]:
    """Return the record of an environment (``course-env.json``); empty if there is none that can be read.

    Its keys: ``made_by``, ``torch`` (the choice), and after a finished set-up ``extra``, ``wanted`` and
    ``constraints`` (SHA-256 of the requirements and of the constraints file).
    """
    try:
        record = json.loads((venv / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(venv: Path, record: dict[str, Any]) -> None:
    """Write the record of an environment atomically; it replaces the earlier one."""
    part = venv / f"{RECORD_FILE}.part"
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(part, venv / RECORD_FILE)


def remove_unusable(venv: Path, made_by_course: bool) -> None:
    """Delete an unusable environment, if the course made it, so that a new one can be created.

    Nothing is done if there is none, or an empty folder; a deletion is announced by a printed line.
    ``made_by_course`` is what its record says. `SetupError` if the course did not make it, or if its own
    Python is running.
    """
    if not os.path.lexists(venv) or (venv.is_dir() and not any(venv.iterdir())):
        return
    if not made_by_course:
        raise SetupError(
            _(
                "There is a {venv} here that the course did not make and cannot use (its Python does "
                "not run, is older than 3.10, has no pip, or is of another kind): rename or remove it, then "
                "call this again."
            ).format(venv=venv.name)
        )
    if is_running_in(venv):
        raise SetupError(
            _(
                "The {venv} must be made anew, and you call its own Python: type  deactivate  and "
                "call this again."
            ).format(venv=venv.name)
        )
    print(
        _("The {venv} here does not fit (broken, or of another Python): making it anew.").format(
            venv=venv.name
        )
    )
    shutil.rmtree(venv)


def create(venv: Path, record: dict[str, Any], uv: Any, python: str, keep: bool) -> None:
    """Create an environment with uv, and its record; with `keep`, it sees the running Python's packages.

    ``uv`` has the method ``run``; ``python`` is the interpreter, in the words of uv's option ``--python``.
    """
    venv.mkdir(exist_ok=True)
    write_record(venv, record)
    words = ["--quiet", "--no-project", "--allow-existing", "--python", python, str(venv)]
    uv.run("venv", *(["--system-site-packages"] if keep else []), *words)
    if keep and sys.prefix != sys.base_prefix:  # the running Python is an environment too, and has the torch
        folders = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
        lines = [f"import site; site.addsitedir({folder!a})\n" for folder in folders]
        # Read after course_utils.pth, in alphabetical order: the clone's own course_utils takes precedence.
        (_site_packages(venv) / "torch_to_keep.pth").write_text("".join(lines), encoding="ascii")


def link_course(venv: Path) -> None:
    """Make the clone importable by a .pth file; its path is relative, so it outlives a move of the clone."""
    packages = _site_packages(venv)
    link = os.path.relpath(os.path.realpath(venv.parent), os.path.realpath(packages))
    (packages / "course_utils.pth").write_text(link + "\n", encoding="utf-8")


def _site_packages(venv: Path) -> Path:
    """Return an environment's site-packages folder; the current folder if its Python does not run."""
    return Path(run_code(venv, "import sysconfig; print(sysconfig.get_path('purelib'))") or "")
