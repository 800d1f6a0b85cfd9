"""`preflight`: try what a seat of a workshop must be able to do, one check a thing."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

NEEDS = ("torch", "jupyter_client")
KERNEL_SECONDS = 60
DISK_GB = 1.0  # notebooks, checkpoints and traces of one learner
_MODULES = "torch numpy matplotlib tqdm yaml jupyterlab ipykernel ipywidgets"
_IN_KERNEL = "import torch, course_utils; print(course_utils.__version__)"
_SETUP = "py -m course_utils lab" if os.name == "nt" else "python3 -m course_utils lab"


class NotReady(Exception):
    """What was found, and what to do about it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no options."""


def main(args: argparse.Namespace) -> int:
    """Check, and say what is to be done; 0 where the course can run, else 1."""
    failed = False
    for name, check in checks():
        try:
            print(f"✓ {name:<12} {check()}")
        except NotReady as error:
            failed = True
            print(f"✗ {name:<12} {error}")
    print(
        "\nNot ready: do what stands beside each ✗, and call this again." if failed else "\nReady."
    )
    return int(failed)


def checks() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield each check by its name; it returns what was found, or raises `NotReady`."""
    yield "memory", _memory
    yield "disk", _disk
    yield "packages", _packages
    yield "device", _device
    yield "data", _data
    yield "this folder", lambda: _writable(Path.cwd(), "start from a folder of your own")
    yield "progress", _progress
    yield "lessons", _lessons
    yield "kernel", _kernel


def _memory() -> str:
    from course_utils.doctor import ENOUGH_MEMORY
    from course_utils.machine_facts import memory_gb

    found = memory_gb()
    if found is not None and found < ENOUGH_MEMORY:
        raise NotReady(f"{found:.1f} GB in all. Have {ENOUGH_MEMORY:.0f} GB, or use Colab.")
    return "unknown" if found is None else f"{found:.1f} GB in all"


def _disk() -> str:
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    if free < DISK_GB:
        raise NotReady(f"{free:.1f} GB free here. Make room for {DISK_GB:.0f} GB.")
    return f"{free:.1f} GB free here"


def _packages() -> str:
    missing = [name for name in _MODULES.split() if importlib.util.find_spec(name) is None]
    if missing:
        raise NotReady(f"{', '.join(missing)} cannot be imported. Set up with  {_SETUP}")
    return f"all {len(_MODULES.split())} can be imported"


def _device() -> str:
    from course_utils.doctor import examine

    report = examine()
    if not report.can_run:
        raise NotReady(report.advice)
    return f"{report.advice} The lessons run without a GPU too."


def _data() -> str:
    from course_utils.data import load_digits

    try:
        return f"{len(load_digits().train_x)} training digits load"
    except (OSError, ValueError, RuntimeError) as error:
        raise NotReady(f"the digits do not load ({error}). Get the course again.") from error


def _progress() -> str:
    from course_utils.progress_file import progress_file

    return _writable(progress_file().parent, "set COURSE_PROGRESS to a file that can be written")


def _writable(folder: Path, fix: str) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"1")
    except OSError as error:
        raise NotReady(f"{folder} cannot be written ({error.strerror}): {fix}.") from error
    return f"{folder} can be written"


def _lessons() -> str:
    from course_utils.course import load_course
    from course_utils.files import parse, read_text

    course = load_course()
    damaged = []
    for lesson in course.ready:
        try:
            parse(read_text(course.path.parent / lesson.file))
        except ValueError:
            damaged.append(lesson.file)
    if damaged:
        fix = f"python3 -m course_utils reset {damaged[0][:2]}"
        raise NotReady(f"missing or damaged: {', '.join(damaged)}. Bring them back with  {fix}")
    return f"{len(course.ready)} notebooks"


def _kernel() -> str:
    """Start a kernel as JupyterLab does, and import the course in it."""
    from jupyter_client.manager import run_kernel

    start, said = perf_counter(), []

    def listen(message: dict) -> None:
        content = message["content"]
        said.append(str(content.get("evalue") or content.get("text") or "").strip())

    try:
        how = {"startup_timeout": KERNEL_SECONDS, "kernel_name": "python3"}
        with run_kernel(**how, stderr=subprocess.DEVNULL) as client:
            reply = client.execute_interactive(
                _IN_KERNEL, timeout=KERNEL_SECONDS, output_hook=listen
            )
        works = reply["content"]["status"] == "ok"
    except (TimeoutError, OSError, RuntimeError, KeyError) as error:
        works, said = False, [f"{type(error).__name__}: {error}"]
    if not works:
        raise NotReady(
            f"the kernel of {sys.executable} says: {' '.join(said)}. Set up with  {_SETUP}"
        )
    return f"a notebook kernel and torch start in {perf_counter() - start:.0f} s"
