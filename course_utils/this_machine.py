"""The platform and the machine that the course runs on."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

from course_language import _

OLDEST_TORCH = (2, 10)  # the minimum in pyproject.toml; a test compares

CLICKS = {
    "colab": "Runtime > Change runtime type > T4 GPU",
    "kaggle": "Settings > Accelerator > GPU T4 x2",
}
"""The menu path that enables a GPU for a notebook, on each cloud platform."""


def old_torch(version: str) -> str | None:
    """Return an error message if a version of PyTorch is older than the course needs, else None.

    Parameters
    ----------
    version
        Such as ``torch.__version__``.
    """
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= OLDEST_TORCH:
        return None
    oldest = ".".join(map(str, OLDEST_TORCH))
    return _(
        "This is PyTorch {version}, and the course needs {oldest} or newer: update it with  "
        "python -m pip install --upgrade torch  (in Colab and Kaggle, start a fresh runtime)."
    ).format(version=version, oldest=oldest)


def where() -> str:
    """Return the platform that the course runs on: ``"colab"``, ``"kaggle"`` or ``"local"``."""
    if "COLAB_RELEASE_TAG" in os.environ or "google.colab" in sys.modules:
        return "colab"
    return "kaggle" if "KAGGLE_KERNEL_RUN_TYPE" in os.environ else "local"


def python_path(given: str | None = None) -> str:
    """Return PYTHONPATH for a process of its own, which is to find the course: with the clone's folder.

    Parameters
    ----------
    given
        The value to begin with; by default this process's.

    Returns
    -------
    str
        The value; unchanged if the course is installed, or its folder is in it.
    """
    paths = (os.environ.get("PYTHONPATH", "") if given is None else given).split(os.pathsep)
    folder = Path(__file__).resolve().parents[1]
    if folder.name not in ("site-packages", "dist-packages"):  # else Python finds it by itself
        paths.append(str(folder))
    return os.pathsep.join(dict.fromkeys(filter(None, paths)))


def usable_cores() -> int:
    """Return how many CPU cores this process may use, by its affinity mask if there is one."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def cpu_name() -> str:
    """Return the processor's name as reported by the system, or "CPU"."""
    return _cpu_info("model name") or platform.processor() or platform.machine() or "CPU"


def cpu_flags() -> frozenset[str]:
    """Return the processor's feature flags, such as "avx2", from /proc/cpuinfo; empty on other systems."""
    return frozenset(_cpu_info("flags", "Features").split())


def _cpu_info(*names: str) -> str:
    """Return the first value in /proc/cpuinfo whose name begins with one of these; "" if there is none."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8", errors="replace") if info.is_file() else ""
    lines = (line for line in text.splitlines() if line.startswith(names))
    return next(lines, "").partition(":")[2].strip()


def ipython_shell() -> Any:
    """Return the InteractiveShell, whose ``user_ns`` is the notebook's namespace; None in plain Python."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def in_notebook() -> bool:
    """Return whether the code runs in a Jupyter kernel, not in plain Python or a terminal's IPython."""
    return hasattr(ipython_shell(), "kernel")
