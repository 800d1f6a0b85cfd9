"""Fixtures and markers of the simulated device's tests."""

import pytest

import simgpu


def pytest_configure(config):
    """Import the plugin `support`, and register the markers."""
    config.pluginmanager.import_plugin("support")  # prints recorded tables
    config.addinivalue_line("markers", "slow: takes seconds")
    config.addinivalue_line("markers", "everywhere: takes minutes")
    config.addinivalue_line("markers", "serial: measures; never two at once")


@pytest.fixture
def two_devices():
    """Enable exactly two simulated T4s, whatever the previous test enabled."""
    if problem := simgpu.unavailable_reason():
        pytest.fail(problem)
    simgpu.enable(devices=2)
