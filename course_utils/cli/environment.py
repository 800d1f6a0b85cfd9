"""One virtual environment: how it is made and used, what is in it, and the course's note of that."""

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
NOTE = "course-env.json"  # in the environment: what was installed

# An environment's Python prints its version, if it is new enough, and the course's folder, if all is there.
_STATE = """
import importlib.util as u, os, sys
if sys.version_info < (3, 10): sys.exit()
print("%d.%d" % sys.version_info[:2])
course = u.find_spec("course_utils")
if course and all(map(u.find_spec, ("torch", "ipykernel", "pip"))):
    print(os.path.dirname(os.path.dirname(course.origin)))
"""


def venv_python(venv: Path) -> Path:
    """Return where the Python of a virtual environment is, on this system."""
    return venv / ("Scripts/python.exe" if WINDOWS else "bin/python")


def child_environment(venv: Path) -> dict[str, str]:
    """Return the environment variables for a program that is to use one environment and nothing else.

    A kernel named ``python3`` in the user's home must not win over the one of the environment, another
    Python's packages must not be seen, and bytecode is kept, or each kernel compiles PyTorch anew.
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


def inside(venv: Path) -> bool:
    """Return whether the Python that runs is the environment's own."""
    return venv.is_dir() and os.path.realpath(sys.prefix) == os.path.realpath(venv)


def state(venv: Path) -> tuple[str, bool]:
    """Return an environment's Python version ("" where it does not run), and whether it is complete."""
    version, _, found = (ask(venv, _STATE) or "").partition("\n")
    return version, os.path.isdir(found) and os.path.samefile(found, venv.parent)


def ask(venv: Path, code: str) -> str | None:
    """Run code in the environment's Python, apart from this folder; return what it printed."""
    try:
        done = subprocess.run(
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
    return done.stdout.strip()


def read_note(venv: Path) -> dict[str, Any]:
    """Return the note in an environment; empty where there is none that can be read."""
    try:
        note = json.loads((venv / NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def write_note(venv: Path, note: dict[str, Any]) -> None:
    """Write a note that is there whole or not at all."""
    part = venv / f"{NOTE}.part"
    part.write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
    os.replace(part, venv / NOTE)


def clear(venv: Path, ours: bool) -> None:
    """Make room for a new environment; never delete what the course did not make."""
    if not os.path.lexists(venv) or (venv.is_dir() and not any(venv.iterdir())):
        return
    if not ours:
        raise SetupError(
            _(
                "There is a {venv} here that the course did not make and cannot use (its Python does "
                "not run, is older than 3.10, has no pip, or is of another kind): rename or remove it, then "
                "call this again."
            ).format(venv=venv.name)
        )
    if inside(venv):
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


def make(venv: Path, note: dict[str, Any], uv: Any, python: str, keep: bool) -> None:
    """Make an environment with uv; with `keep` it sees the packages of the Python that runs."""
    venv.mkdir(exist_ok=True)
    write_note(venv, note)
    words = ["--quiet", "--no-project", "--allow-existing", "--python", python, str(venv)]
    uv.run("venv", *(["--system-site-packages"] if keep else []), *words)
    if keep and sys.prefix != sys.base_prefix:  # what runs is an environment too: it has the torch
        folders = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
        lines = [f"import site; site.addsitedir({folder!a})\n" for folder in folders]
        # By its name it is read after course_utils.pth: the clone's own course_utils comes first.
        (_packages(venv) / "torch_to_keep.pth").write_text("".join(lines), encoding="ascii")


def link_course(venv: Path) -> None:
    """Make the clone importable through a relative path, which outlives a move of the clone."""
    packages = _packages(venv)
    link = os.path.relpath(os.path.realpath(venv.parent), os.path.realpath(packages))
    (packages / "course_utils.pth").write_text(link + "\n", encoding="utf-8")


def _packages(venv: Path) -> Path:
    return Path(ask(venv, "import sysconfig; print(sysconfig.get_path('purelib'))") or "")
