"""One virtual environment: make it, ask it, link the course into it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from course_utils.cli import installer, remedies
from course_utils.cli.remedies import SetupError

WINDOWS = os.name == "nt"
MARKER = "course-env.json"  # the course made this folder: only such a folder is ever deleted


def venv_python(venv: Path) -> Path:
    """Return where the Python of a virtual environment is, on this system."""
    return venv / ("Scripts/python.exe" if WINDOWS else "bin/python")


def child_environment(venv: Path) -> dict[str, str]:
    """Return the environment variables for a program that is to use one environment and nothing else.

    A kernel named ``python3`` in the user's home must not win over the one of the environment, another
    Python's packages must not be seen, and bytecode is kept, or each kernel compiles PyTorch anew.
    """
    env = dict(os.environ)
    python = "PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE __PYVENV_LAUNCHER__"
    for name in f"{python} PIP_TARGET PIP_PREFIX".split():
        env.pop(name, None)
    kernels = str(venv / "share" / "jupyter")
    env["VIRTUAL_ENV"] = str(venv)
    env["PATH"] = os.pathsep.join([str(venv_python(venv).parent), env.get("PATH", os.defpath)])
    env["JUPYTER_PREFER_ENV_PATH"] = "1"
    env["JUPYTER_PATH"] = os.pathsep.join(filter(None, [kernels, env.get("JUPYTER_PATH")]))
    env["PIP_USER"] = "0"
    return env


def inside(venv: Path) -> bool:
    """Return whether the Python that runs is the environment's own."""
    return venv.is_dir() and os.path.realpath(sys.prefix) == os.path.realpath(venv)


def ask(venv: Path, code: str) -> str | None:
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


def version(venv: Path) -> str | None:
    """Return ``"3.12"`` for an environment whose Python runs and is new enough."""
    code = "import sys; sys.version_info < (3, 10) and sys.exit(3)"
    return ask(venv, code + "; print('%d.%d' % sys.version_info[:2])")


def finds_course(venv: Path) -> bool:
    """Return whether the environment has PyTorch, a kernel and pip, and the course of its own clone."""
    code = (
        "import importlib.util as u, os; print(all(map(u.find_spec, ('torch', 'ipykernel', 'pip')))"
    )
    code += " and os.path.dirname(os.path.dirname(u.find_spec('course_utils').origin)))"
    found = ask(venv, code)
    return found is not None and os.path.isdir(found) and os.path.samefile(found, venv.parent)


def make(venv: Path, marker: dict[str, Any], uv: str | None, *, keep: bool) -> None:
    """Make an environment, which notes `marker`: by uv, without pip, which then comes with the packages, or by `venv`.

    With `keep` it sees the packages of the Python that runs.
    """
    if not uv and not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        raise SetupError(remedies.no_venv())
    venv.mkdir(exist_ok=True)
    write(venv / MARKER, marker)
    base = getattr(sys, "_base_executable", None) or sys.executable
    call, env = [base, "-m", "venv", *(["--system-site-packages"] if keep else [])], None
    if uv:
        call = [uv, "venv", "--quiet", "--no-project", "--allow-existing", "--python", base]
        env = installer.uv_variables(os.environ)
    done = subprocess.run([*call, str(venv)], env=env, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode and "ensurepip" in said:
        raise SetupError(remedies.no_venv())
    if done.returncode:
        raise SetupError(
            remedies.of_output(said, venv.parent)
            or f"{venv.name} was not made: {remedies.last_words(said)}. Remove it and call this again."
        )
    if keep and sys.prefix != sys.base_prefix:  # show it the packages of that virtual environment
        places = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
        lines = [f"import site; site.addsitedir({place!a})\n" for place in places]
        # By its name it is read after course_utils.pth: the clone's own course_utils comes first.
        (_packages(venv) / "torch_to_keep.pth").write_text("".join(lines), encoding="ascii")


def clear(venv: Path, *, ours: bool) -> None:
    """Make room for a new environment; never delete what the course did not make."""
    if not os.path.lexists(venv) or (venv.is_dir() and not any(venv.iterdir())):
        return
    if not ours:
        raise SetupError(
            f"There is a {venv.name} here that the course did not make and cannot use (its Python does "
            "not run, is older than 3.10, has no pip, or is of another kind): rename or remove it, then "
            "call this again."
        )
    if inside(venv):
        raise SetupError(
            f"The {venv.name} must be made anew, and you call its own Python: type  deactivate  and "
            "call this again."
        )
    print(f"The {venv.name} here does not fit (broken, or of another Python): making it anew.")
    shutil.rmtree(venv)


def link_course(venv: Path) -> None:
    """Make the clone importable through a relative path, which outlives a move of the clone."""
    packages = _packages(venv)
    link = os.path.relpath(os.path.realpath(venv.parent), os.path.realpath(packages))
    (packages / "course_utils.pth").write_text(link + "\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any] | None:
    """Return a note that the course wrote, None where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a note that is there whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def _packages(venv: Path) -> Path:
    return Path(ask(venv, "import sysconfig; print(sysconfig.get_path('purelib'))") or "")
