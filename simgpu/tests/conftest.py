"""What the tests of the simulated device share."""

import pytest

import simgpu


def pytest_configure(config):
    config.pluginmanager.import_plugin("support")  # prints recorded tables
    config.addinivalue_line("markers", "slow: takes seconds")
    config.addinivalue_line("markers", "everywhere: takes minutes")
    config.addinivalue_line("markers", "serial: measures; never two at once")


@pytest.fixture
def two_devices():
    """Two simulated T4s, in a process that may hold more or fewer from the test before."""
    if problem := simgpu.unavailable_reason():
        pytest.fail(problem)
    simgpu.enable(devices=2)
