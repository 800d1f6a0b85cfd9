"""A headless browser for the tests that look at pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import support
from playwright.sync_api import Browser, sync_playwright

from tools.authoring.sheets import FLAGS, find_browser

SECOND = 1000  # what playwright counts in


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a headless Chromium; skip the test if none is installed."""
    found = find_browser()
    with sync_playwright() as p:
        if found is None and not os.path.exists(p.chromium.executable_path):
            support.skip(
                "no Chromium is installed: apt install chromium, or python -m playwright install chromium",
                "2027-11-30",
                missing=True,
            )
        started = p.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        started.close()
