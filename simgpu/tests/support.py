"""What tests share, the course's too: the one way to skip, a table in the summary, a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from datetime import date
from pathlib import Path
from typing import NoReturn

import pytest

HOME = str(Path(__file__).resolve().parents[2])
"""Where `simgpu` lies, for a new process to find it."""


def skip(reason: str, until: str, *, missing: bool = False) -> NoReturn:
    """Skip the running test, for a reason and up to a date; fail it after that date.

    Parameters
    ----------
    reason
        Why it cannot run here, in a sentence.
    until
        The last day of the skip, as ``"2027-05-31"``.
    missing
        The reason is something that could be installed, such as a browser. Where ``CI=true`` that is a
        failure, because there it must be installed.
    """
    if not reason.strip():
        raise ValueError("a skip needs a reason")
    if date.today() > date.fromisoformat(until):
        pytest.fail(f"this skip ended on {until}: {reason}", pytrace=False)
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"missing in CI: {reason}", pytrace=False)
    pytest.skip(f"{reason} (until {until})")


TABLE = "table: "
"""A test's ``record_property(TABLE + title, line)`` adds a line to a table in the summary."""


def pytest_terminal_summary(terminalreporter: object) -> None:
    """Print the tables that the tests recorded; each conftest.py makes this file a plugin."""
    tables: dict[str, list[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, line in getattr(report, "user_properties", ()):
                if name.startswith(TABLE) and getattr(report, "when", "") == "call":
                    tables.setdefault(name.removeprefix(TABLE), []).append(line)
    for title, lines in tables.items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)


def python(code: str, *arguments: object) -> str:
    """Run a program in a new process that finds `simgpu`, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=HOME,
        env={**os.environ, "PYTHONPATH": HOME},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr, done.stderr
    return done.stdout
