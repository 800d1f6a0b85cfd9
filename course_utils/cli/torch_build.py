"""The choice of PyTorch's build: the option ``--torch``, and the arguments for uv."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from pathlib import Path

from course_language import _
from course_utils.cli.faults import SetupError

PACKAGES = ("torch", "torchvision")  # must be of the same build
INDEX = "https://download.pytorch.org/whl/"
WINDOWS_CUDA = "cu130"  # for `cuda` on Windows, where PyPI's torch has no CUDA; checked 2026-11


def add_torch_argument(parser: argparse.ArgumentParser) -> None:
    """Add the options `--torch`, the build of PyTorch, and `--index`, a mirror for pip and uv.

    `--index` sets PIP_INDEX_URL and UV_DEFAULT_INDEX in ``os.environ`` while the arguments are parsed;
    ``args.index`` stays None.
    """
    parser.add_argument(
        "--torch",
        metavar="auto|cpu|cuda|keep|SPEC",
        help=_(
            "the build of PyTorch: auto looks for a GPU driver; keep uses the torch of the Python "
            "you call; SPEC is a version (2.15.0), a pip requirement, a wheel, or the name of one of "
            "PyTorch's own indexes (cu126). Without it, what is installed stays; COURSE_TORCH sets it too"
        ),
    )
    words = _("a mirror of PyPI that uv and pip ask, as with PIP_INDEX_URL and UV_DEFAULT_INDEX")
    where = lambda url: os.environ.update(PIP_INDEX_URL=url, UV_DEFAULT_INDEX=url)  # noqa: E731
    parser.add_argument("--index", metavar="URL", type=where, help=words)


def torch_choice(asked: str) -> str:
    """Return the normalized value of the option `--torch`; raise `SetupError` if it is invalid.

    It is ``"auto"``, ``"cpu"``, ``"cuda"``, an index of PyTorch (``"cu126"``), a requirement, a wheel's path,
    or ``"keep PREFIX"`` with the running Python's prefix.
    """
    asked = asked.strip()
    if asked in ("auto", "cpu", "cuda") or _is_index(asked):
        return asked
    if asked == "keep":
        return f"keep {sys.prefix}"
    if re.fullmatch(r"\d+(\.\d+)*\w*(\+\w+)?", asked):
        return f"torch=={asked}"
    if "://" in asked or (asked.startswith("torch") and not asked.endswith(".whl")):
        return asked
    if asked.endswith(".whl"):
        wheel = Path(asked).expanduser().absolute()
        if wheel.is_file():
            return str(wheel)
        raise SetupError(
            _("--torch names a wheel that is not there: {wheel}. Check the path.").format(wheel=wheel)
        )
    raise SetupError(
        _(
            "--torch {asked} is no choice: use auto, cpu, cuda, keep, a version such as 2.15.0, a pip "
            "requirement such as torch==2.15.0, or a wheel."
        ).format(asked=asked)
    )


def uv_install_arguments(choice: str, work: Path) -> list[str]:
    """Return the arguments of ``uv pip install`` for a choice as `torch_choice` returns it.

    For ``"keep"`` it writes a file of overrides to ``work``.
    """
    choice = _resolve_on_windows(choice)
    if choice in ("auto", "cpu") or _is_index(choice):
        return ["--torch-backend", choice]
    if choice.startswith("keep "):  # a marker that is never true, so that no other torch is installed
        overrides = work / "kept.txt"
        lines = [f"{package}; python_version < '0'\n" for package in PACKAGES]
        overrides.write_text("".join(lines), encoding="utf-8")
        return ["--overrides", str(overrides)]
    return [] if choice == "cuda" else [choice]


def index_url(choice: str) -> str | None:
    """Return the URL of PyTorch's own index that has the build of a choice; None if PyPI has it.

    ``"auto"`` means CUDA if nvidia-smi is on the PATH, else the CPU.
    """
    if choice == "auto":
        choice = "cuda" if shutil.which("nvidia-smi") else "cpu"
    choice = _resolve_on_windows(choice)
    if _is_index(choice) or (choice == "cpu" and sys.platform != "darwin"):
        return INDEX + choice
    return None


def _resolve_on_windows(choice: str) -> str:
    """Return the index's name for ``"cuda"`` on Windows, else the choice itself."""
    return WINDOWS_CUDA if choice == "cuda" and sys.platform == "win32" else choice


def _is_index(choice: str) -> bool:
    """Return whether a choice is the name of one of PyTorch's own indexes."""
    return re.fullmatch(r"cu\d{3}|rocm[\d.]+|xpu", choice) is not None
