"""What every test gets: the markers, and a progress file that is not the learner's."""

import pytest
from harness import pytest_terminal_summary  # noqa: F401  (a hook: prints recorded tables)


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes seconds; left out by test --quick")
    config.addinivalue_line("markers", "serial: measures or runs notebooks; never two at once")


@pytest.fixture(autouse=True)
def _own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.jsonl"))
