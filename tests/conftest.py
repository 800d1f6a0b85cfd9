"""What every test gets: the markers, and a progress file that is not the learner's."""

import gc
import os

import pytest


def pytest_configure(config):
    config.pluginmanager.import_plugin("support")  # prints recorded tables
    config.addinivalue_line("markers", "slow: takes seconds; left out by test --quick")
    config.addinivalue_line("markers", "notebook: runs a whole lesson; two at once at most")
    config.addinivalue_line(
        "markers", "everywhere: platforms, hub, site, browser, endurance; run by test --everywhere"
    )
    config.addinivalue_line("markers", "serial: measures, or needs the machine; never two at once")


_unfreeze, _loose = gc.unfreeze, [True]


def _let_go():
    _loose[0] = True
    _unfreeze()


gc.unfreeze = _let_go


def pytest_unconfigure():
    """Let the end of the process find everything."""
    _unfreeze()


@pytest.fixture(autouse=True, scope="module")
def _imported():
    _loose[0] = True


@pytest.fixture(autouse=True)
def _quick_collection(_imported):
    """What stands imported is no garbage: ``gc.collect()``, which checks and devices call, passes it by."""
    if _loose[0]:
        gc.collect()
        gc.freeze()
        _loose[0] = False


@pytest.fixture(autouse=True)
def _own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.jsonl"))


@pytest.fixture(autouse=True)
def _same_process(monkeypatch):
    """A command that hands over to another program would take the place of the test run."""

    def refuse(*call):
        raise AssertionError(f"a test wanted to become {call[0]}")

    monkeypatch.setattr(os, "execve", refuse)


@pytest.fixture
def two_devices():
    """Two simulated T4s, in a process that may hold more or fewer from the test before."""
    from support import skip

    import simgpu

    if problem := simgpu.problem():
        skip(problem, until="2027-11-30")
    simgpu.enable(devices=2)
