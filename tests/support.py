"""The one way to skip a test."""

from __future__ import annotations

import os
from datetime import date
from typing import NoReturn

import pytest


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
