"""What a seat of a workshop, or the server of a room, must have: one check a thing, none that raises."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Any

from course_utils import __version__
from course_utils.doctor import ENOUGH_MEMORY, Report, examine
from course_utils.files import clean, parse, read_text
from course_utils.machine_facts import memory_gb

FORMAT = "gpu-training-with-pytorch preflight 1"
SEAT_GB = 1.0  # a Jupyter server, a kernel with torch, and two ranks of lesson 05
SYSTEM_GB = 2.0
DISK_GB = 1.0  # notebooks, checkpoints and traces of one learner
KERNEL_SECONDS = 60
OLDEST_PYTHON = (3, 10)
_MODULES = "torch numpy matplotlib tqdm yaml jupyterlab ipykernel ipywidgets"
NEEDED = {module: module for module in _MODULES.split()} | {"yaml": "pyyaml"}
_SETUP = "py -m course_utils lab" if os.name == "nt" else "python3 -m course_utils lab"
_IN_KERNEL = "import torch, course_utils; print(course_utils.__version__)"


@dataclass(frozen=True)
class Check:
    """One thing a seat needs.

    ``state`` is ``"ok"``, ``"look"`` (the course runs, and the instructor should know) or ``"fail"``;
    ``seen`` is what was found, and ``remedy`` what to do where it is not ``"ok"``.
    """

    name: str
    state: str
    seen: str
    remedy: str = ""


def checks(seats: int = 1) -> Iterator[Check]:
    """Try a machine, thing by thing; each check is given out as it is done.

    Parameters
    ----------
    seats
        How many learners will work on this machine at once.
    """
    yield _python()
    yield _memory(memory_gb(), seats)
    yield _disk(seats)
    yield _packages()
    if importlib.util.find_spec("torch") is not None:
        yield from _device(examine())
    for part in (_data, _folder, _progress, _ports, _lessons, _kernel):
        yield part()


def as_json(found: list[Check], name: str, seats: int) -> dict[str, Any]:
    """Return what was found as JSON can hold it; nothing in it names a person or an account."""
    return {
        "format": FORMAT,
        "name": name,
        "seats": seats,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "course": __version__,
        "system": f"{platform.system()} {platform.machine()}",
        "state": worst(found),
        "checks": [asdict(check) for check in found],
    }


def worst(found: list[Check]) -> str:
    """Return the worst state of all checks."""
    return max((check.state for check in found), key=("ok", "look", "fail").index, default="ok")


def read_seat(path: Path) -> tuple[str, list[Check]]:
    """Read what a seat wrote with ``--json``: its name, and its checks.

    Raises
    ------
    ValueError
        With one sentence, where the file is none of those.
    """
    try:
        raw = parse(read_text(path, below=path.parent))
        if raw["format"] != FORMAT:
            raise KeyError("format")
        entries = [{k: clean(str(v)) for k, v in entry.items()} for entry in raw["checks"][:50]]
        found = [Check(**entry) for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{clean(path.name)} was not written by preflight --json") from None
    if not found or any(check.state not in ("ok", "look", "fail") for check in found):
        said = "holds no checks, or a state that preflight does not know"
        raise ValueError(f"{clean(path.name)} {said}")
    return clean(str(raw.get("name") or path.stem), 40), found


# ---------------------------------------------------------------------------------------------------
# The checks


def _python() -> Check:
    seen = f"{platform.python_version()}, {_short(Path(sys.executable))}"
    if sys.version_info >= OLDEST_PYTHON:
        return Check("python", "ok", seen)
    return Check("python", "fail", seen, "install Python 3.10 or newer")


def _memory(found: float | None, seats: int) -> Check:
    need = ENOUGH_MEMORY if seats == 1 else SYSTEM_GB + SEAT_GB * seats
    if found is None:
        return Check("memory", "look", "unknown", f"make sure that there are {need:.0f} GB")
    seen = f"{found:.1f} GB in all, for {seats} learner{'s' * (seats > 1)}"
    if found >= need:
        return Check("memory", "ok", seen)
    state = "fail" if found < ENOUGH_MEMORY else "look"
    return Check("memory", state, seen, f"have {need:.0f} GB")


def _disk(seats: int) -> Check:
    free, need = shutil.disk_usage(Path.cwd()).free / 1e9, DISK_GB * seats
    seen = f"{free:.1f} GB free here"
    if free >= need:
        return Check("disk", "ok", seen)
    return Check("disk", "fail", seen, f"make room: {need:.0f} GB are wanted")


def _packages() -> Check:
    missing = [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]
    if not missing:
        return Check("packages", "ok", f"{len(NEEDED)} of {len(NEEDED)} are here")
    return Check("packages", "fail", f"missing: {', '.join(missing)}", f"set up with  {_SETUP}")


def _device(report: Report) -> Iterator[Check]:
    if not report.can_run:
        yield Check("device", "fail", report.doors[0].seen, report.advice)
        return
    if all(door.state != "shut" for door in report.doors[:4]):
        yield Check("device", "ok", report.advice)
    else:
        remedy = "the lessons run as they are; a GPU is not needed"
        yield Check("device", "look", report.advice, remedy)


def _short(path: Path) -> str:
    """Write a path without the account's name: reports are collected."""
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):  # elsewhere, or an account without a home
        return str(path)


def _data() -> Check:
    try:
        from course_utils.data import load_digits

        images = load_digits().train_x
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        return Check("data", "fail", f"the digits do not load: {error}", "get the course anew")
    return Check("data", "ok", f"{len(images)} training digits load")


def _folder() -> Check:
    return _writable(
        "this folder", Path.cwd(), "start from a folder of your own, such as your home"
    )


def _progress() -> Check:
    from course_utils.progress_file import progress_file

    remedy = "set COURSE_PROGRESS to a file in a folder that can be written"
    return _writable("progress", progress_file().parent, remedy)


def _writable(name: str, folder: Path, remedy: str) -> Check:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"1")
    except OSError as error:
        return Check(name, "fail", f"{_short(folder)} cannot be written: {error.strerror}", remedy)
    return Check(name, "ok", f"{_short(folder)} can be written")


def _ports() -> Check:
    """Talk to itself over a free port: notebooks and the ranks of lesson 05 do no more than that."""
    remedy = "allow connections to 127.0.0.1 in the firewall"
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5) as client,
            server.accept()[0] as other,
        ):
            client.sendall(b"1")
            answer = other.recv(1)
    except OSError as error:
        seen = f"a connection to itself failed: {error.strerror or error}"
        return Check("ports", "fail", seen, remedy)
    if answer != b"1":
        return Check("ports", "fail", "a connection to itself is cut off", remedy)
    return Check("ports", "ok", "a connection to itself works")


def _lessons() -> Check:
    try:
        from course_utils.course import load_course

        course = load_course()
        folder, files = course.path.parent, [lesson.file for lesson in course.ready]
        missing = [file for file in files if not _is_notebook(folder / file)]
    except (ImportError, ValueError) as error:
        return Check("lessons", "fail", f"the table of contents: {error}", "get the course anew")
    if not missing:
        return Check("lessons", "ok", f"{len(files)} notebooks, in {_short(folder)}")
    remedy = f"bring them back, one by one: python -m course_utils reset {missing[0][:2]}"
    return Check("lessons", "fail", f"missing or damaged: {', '.join(missing)}", remedy)


def _is_notebook(path: Path) -> bool:
    try:
        return bool(parse(read_text(path))["cells"])
    except (ValueError, KeyError, TypeError):
        return False


def _kernel() -> Check:
    """Start a kernel as JupyterLab does, and import the course in it."""
    remedy = f"set up with  {_SETUP}  and look at what it says"
    try:
        from jupyter_client.manager import run_kernel
    except ImportError:
        return Check("kernel", "fail", "Jupyter is not here", remedy)
    start = perf_counter()
    said: list[str] = []
    how = {"startup_timeout": KERNEL_SECONDS, "kernel_name": "python3"}
    try:
        with run_kernel(**how, stderr=subprocess.DEVNULL) as client:
            reply = client.execute_interactive(
                _IN_KERNEL,
                timeout=KERNEL_SECONDS,
                output_hook=lambda message: said.append(_words(message)),
            )
            works = reply["content"]["status"] == "ok"
    except TimeoutError:
        works = False
    except (OSError, RuntimeError, KeyError) as error:
        return Check("kernel", "fail", f"no notebook kernel starts: {error}", remedy)
    seen = f"a notebook kernel and torch start in {perf_counter() - start:.0f} s"
    if works:
        return Check("kernel", "ok", seen)
    return Check("kernel", "fail", f"the kernel cannot import the course: {' '.join(said)}", remedy)


def _words(message: dict[str, Any]) -> str:
    content = message["content"]
    return str(content.get("evalue") or content.get("text") or "").strip()
