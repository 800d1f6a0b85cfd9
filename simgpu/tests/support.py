"""Helpers of all tests, the course's too: `skip`, tables in pytest's summary, `python`."""

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
"""The folder that contains `simgpu`, the PYTHONPATH of new processes."""


def skip(reason: str, until: str, *, missing: bool = False) -> NoReturn:
    """Skip the running test until a date; after that date fail it.

    Parameters
    ----------
    reason
        Why it cannot run here, as a sentence.
    until
        The last day of the skip, as ``"2027-05-31"``.
    missing
        Whether something installable is missing, such as a browser. With ``CI=true`` the test then fails.

    Raises
    ------
    ValueError
        If there is no reason.
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
    """Print the tables that tests recorded (see `TABLE`); a hook of pytest."""
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
    """Run a program in a new Python process that can import `simgpu`, and return its standard output.

    Fail the test if its exit status is not 0, or if it writes to standard error.
    """
    completed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=HOME,
        env={**os.environ, "PYTHONPATH": HOME},
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert not completed.stderr, completed.stderr
    return completed.stdout
