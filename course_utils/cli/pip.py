"""Run pip: one line that says what it does, its own words in a file, its failures in one sentence."""

from __future__ import annotations

import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_utils.cli import remedies
from course_utils.cli.remedies import COMMAND, SetupError


class Pip:
    """The pip of an environment.

    Parameters
    ----------
    python
        The environment's Python.
    env
        The environment variables it runs with.
    log
        The file that gets all that pip prints.
    root
        The clone, for what is said about disk and rights.
    constraints
        A constraints file for every installation.
    """

    def __init__(
        self, python: Path, env: dict[str, str], log: Path, root: Path, constraints: Path | None
    ) -> None:
        self.call = [str(python), "-u", "-X", "utf8", "-m", "pip", "--disable-pip-version-check"]
        self.env = env
        self.log = log
        self.root = root
        self.constraints = ["-c", str(constraints)] if constraints else []
        log.write_text("", encoding="utf-8")

    def install(self, what: Sequence[str], extra: str) -> None:
        """Install; raise `SetupError` with the reason and the remedy where pip fails.

        Parameters
        ----------
        what
            Requirements and options of ``pip install``.
        extra
            The command the user called, for the remedy.
        """
        self._do("install", what, extra)

    def wheels(self, what: Sequence[str], folder: Path, extra: str) -> None:
        """Put the wheels of requirements, and of all they need, into a folder; fail as `install` does.

        Parameters
        ----------
        what
            Requirements and options of ``pip wheel``.
        folder
            Where the wheels go.
        extra
            The command the user called, for the remedy.
        """
        self._do("wheel", ["--wheel-dir", str(folder), *what], extra)

    def _do(self, command: str, what: Sequence[str], extra: str) -> None:
        status, said = self.run([command, *self._bar(), *self.constraints, *what])
        if status == 0:
            return
        if "--index-url" in what and remedies.no_network(said):
            reason = self._about_index(what[what.index("--index-url") + 1], extra)
        else:
            reason = remedies.of_output(said, self.root)
        reason = (
            reason or f"pip stopped: {remedies.last_words(said)}. Call this again to try once more."
        )
        raise SetupError(f"{reason} Details: {self.log}")

    def run(self, args: Sequence[str]) -> tuple[int, str]:
        """Run pip; return its exit status and what it printed."""
        process = subprocess.Popen(
            [*self.call, *args],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_pump, args=(process.stdout, lines), daemon=True).start()
        said = []
        status = _Status()
        with self.log.open("a", encoding="utf-8", buffering=1) as log:
            log.write(f"$ pip {subprocess.list2cmdline(args)}\n")
            try:
                while (line := _next(lines, status)) is not None:
                    if not line.startswith("Progress "):
                        log.write(line)
                        said.append(line)
                    status.read(line)
                return process.wait(), "".join(said)
            except BaseException:
                process.terminate()
                process.wait()
                raise
            finally:
                status.end()

    def _bar(self) -> list[str]:
        """Ask for progress in numbers, of a pip that can give it."""
        shown = subprocess.run(
            [*self.call, "install", "--help"],
            env=self.env,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        options = re.search(r"--progress-bar(.*?)\n\s+--", shown.stdout, flags=re.DOTALL)
        return ["--progress-bar", "raw" if options and "raw" in options[1] else "off"]

    def _about_index(self, index: str, extra: str) -> str:
        """Say what to do where one of PyTorch's own indexes cannot be reached: does PyPI answer?"""
        with tempfile.TemporaryDirectory() as folder:
            status, _ = self.run(["download", "--no-deps", "-d", folder, "tqdm"])
        if status:
            return remedies.NETWORK
        return (
            f"{index} cannot be reached from here, but PyPI can: call  {COMMAND} {extra} --torch torch  "
            "to take PyPI's build (on Linux it is larger, because it carries CUDA)."
        )


def _pump(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _next(lines: queue.Queue[str | None], status: _Status) -> str | None:
    while True:
        try:
            return lines.get(timeout=0.5)
        except queue.Empty:
            status.show()


class _Status:
    """What pip does now and for how long: a line that is rewritten, or without a terminal one at times."""

    def __init__(self) -> None:
        self.started = self.shown = time.monotonic()
        self.packages = 0
        self.doing = "starting pip"
        self.share = ""
        self.live = sys.stdout.isatty()

    def read(self, line: str) -> None:
        """Take in a line of pip's."""
        if found := re.match(r"Progress (\d+) of (\d+)", line):
            self.share = f" {int(found[1]) / max(int(found[2]), 1):.0%}"
        elif found := re.match(r"\s*Downloading (\S+)(.*)", line):
            name = found[1].rsplit("/", 1)[-1].split("-")[0]
            self.doing, self.share = f"downloading {name}{found[2]}", ""
        elif line.startswith(("Collecting ", "Processing ")):  # from an index, from a folder
            self.packages += 1
            self.doing, self.share = f"looking at {Path(line.split()[1]).name}", ""
        elif line.startswith("Installing collected packages"):
            self.doing = f"unpacking {line.count(',') + 1} packages (this takes a while)"
            self.share = ""
        self.show()

    def show(self) -> None:
        """Show the line, at most five times a second; without a terminal every ten seconds."""
        now = time.monotonic()
        if now - self.shown < (0.2 if self.live else 10):
            return
        self.shown = now
        minutes, seconds = divmod(int(now - self.started), 60)
        text = f"  {minutes}:{seconds:02d}  {self.packages} packages  {self.doing}{self.share}"
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            print("\r" + text[:width].ljust(width), end="", flush=True)
        else:
            print(text, flush=True)

    def end(self) -> None:
        """Leave an empty line behind."""
        if self.live:
            print("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r", end="", flush=True)
