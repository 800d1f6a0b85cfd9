"""`preflight`: check that a workshop's machine can run the course, one check for each requirement."""

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

from course_language import _

NEEDS = ("torch", "jupyter_client")
KERNEL_SECONDS = 60
DISK_GB = 1.0  # notebooks, checkpoints and traces of one learner
_MODULES = "torch numpy matplotlib tqdm yaml jupyterlab ipykernel ipywidgets"
_IN_KERNEL = "import torch, course_utils; print(course_utils.__version__)"
_SETUP = "py -m course_utils lab" if os.name == "nt" else "python3 -m course_utils lab"


class NotReady(Exception):
    """Raised by a check that fails; the message says what was found, and what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def main(args: argparse.Namespace) -> int:
    """Run all checks and print their results; return 0 if all passed, else 1."""
    failed = False
    for name, check in checks():
        try:
            print(f"✓ {name:<12} {check()}")
        except NotReady as error:
            failed = True
            print(f"✗ {name:<12} {error}")
    print(_("\nNot ready: do what stands beside each ✗, and call this again.") if failed else _("\nReady."))
    return int(failed)


def checks() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield (name, check) pairs; a check returns a text of what was found, or raises `NotReady`."""
    yield "memory", _memory
    yield "disk", _disk
    yield "packages", _packages
    yield "device", _device
    yield "data", _data
    yield _("this folder"), lambda: _writable(Path.cwd(), _("start from a folder of your own"))
    yield "progress", _progress
    yield "lessons", _lessons
    yield "kernel", _kernel


def _memory() -> str:
    """Return the machine's memory, as text; `NotReady` if it is less than `ENOUGH_MEMORY`.

    Memory of unknown size passes.
    """
    from course_utils.doctor import ENOUGH_MEMORY
    from course_utils.machine_facts import memory_gb

    size_gb = memory_gb()
    if size_gb is not None and size_gb < ENOUGH_MEMORY:
        raise NotReady(
            _("{found:.1f} GB in all. Have {enough_memory:.0f} GB, or use Colab.").format(
                found=size_gb, enough_memory=ENOUGH_MEMORY
            )
        )
    return _("unknown") if size_gb is None else _("{found:.1f} GB in all").format(found=size_gb)


def _disk() -> str:
    """Return the free space of the working directory's disk, as text; `NotReady` below `DISK_GB`."""
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    if free < DISK_GB:
        raise NotReady(
            _("{free:.1f} GB free here. Make room for {disk_gb:.0f} GB.").format(free=free, disk_gb=DISK_GB)
        )
    return _("{free:.1f} GB free here").format(free=free)


def _packages() -> str:
    """Return how many packages were found, as text; `NotReady`, with the names, if some aren't installed.

    They are looked for, not imported.
    """
    missing = [name for name in _MODULES.split() if importlib.util.find_spec(name) is None]
    if missing:
        raise NotReady(
            _("{missing} cannot be imported. Set up with  {setup}").format(
                missing=", ".join(missing), setup=_SETUP
            )
        )
    return _("all {n__MODULES} can be imported").format(n__MODULES=len(_MODULES.split()))


def _device() -> str:
    """Return the advice of `examine`; `NotReady`, with it, if torch doesn't work."""
    from course_utils.doctor import examine

    report = examine()
    if not report.can_run:
        raise NotReady(report.advice)
    return _("{advice} The lessons run without a GPU too.").format(advice=report.advice)


def _data() -> str:
    """Return how many training digits load, as text; `NotReady`, with the error, if they don't."""
    from course_utils.data import load_digits

    try:
        return _("{n_train_x} training digits load").format(n_train_x=len(load_digits().train_x))
    except (OSError, ValueError, RuntimeError) as error:
        raise NotReady(
            _("the digits do not load ({error}). Get the course again.").format(error=error)
        ) from error


def _progress() -> str:
    """Return a text that the progress file's folder can be written; `NotReady` if it can't."""
    from course_utils.progress_file import progress_file

    return _writable(progress_file().parent, _("set COURSE_PROGRESS to a file that can be written"))


def _writable(folder: Path, fix: str) -> str:
    """Return a text that files can be created in a folder; `NotReady`, with ``fix``, what to do, if not.

    The folder is created if it is not there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"1")
    except OSError as error:
        raise NotReady(
            _("{folder} cannot be written ({strerror}): {fix}.").format(
                folder=folder, strerror=error.strerror, fix=fix
            )
        ) from error
    return _("{folder} can be written").format(folder=folder)


def _lessons() -> str:
    """Return the number of lessons' notebooks beside course.yml, as text.

    `NotReady`, with the files' names, if some are missing or not valid JSON, or course.yml can't be read.
    Translations aren't checked.
    """
    from course_utils.course import CourseFileError, load_course
    from course_utils.files import parse, read_text

    try:
        course = load_course()
    except CourseFileError as error:
        raise NotReady(str(error)) from error
    damaged = []
    for lesson in course.ready:
        try:
            parse(read_text(course.path.parent / lesson.file))
        except ValueError:
            damaged.append(lesson.file)
    if damaged:
        fix = f"python3 -m course_utils reset {damaged[0][:2]}"
        raise NotReady(
            _("missing or damaged: {damaged}. Bring them back with  {fix}").format(
                damaged=", ".join(damaged), fix=fix
            )
        )
    return _("{n_ready} notebooks").format(n_ready=len(course.ready))


def _kernel() -> str:
    """Return how long a Jupyter kernel takes to start and import the course and torch, as text.

    `NotReady`, with what the kernel said, if it can't, or if either takes over `KERNEL_SECONDS`.
    """
    from jupyter_client.manager import run_kernel

    start, outputs = perf_counter(), []

    def listen(message: dict) -> None:
        content = message["content"]
        outputs.append(str(content.get("evalue") or content.get("text") or "").strip())

    try:
        options = {"startup_timeout": KERNEL_SECONDS, "kernel_name": "python3"}
        with run_kernel(**options, stderr=subprocess.DEVNULL) as client:
            reply = client.execute_interactive(_IN_KERNEL, timeout=KERNEL_SECONDS, output_hook=listen)
        works = reply["content"]["status"] == "ok"
    except (TimeoutError, OSError, RuntimeError, KeyError) as error:
        works, outputs = False, [f"{type(error).__name__}: {error}"]
    if not works:
        raise NotReady(
            _("the kernel of {executable} says: {said}. Set up with  {setup}").format(
                executable=sys.executable, said=" ".join(outputs), setup=_SETUP
            )
        )
    return _("a notebook kernel and torch start in {rest:.0f} s").format(rest=perf_counter() - start)
