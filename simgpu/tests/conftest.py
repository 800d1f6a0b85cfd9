"""Fixtures and markers of the simulated device's tests."""

import pytest
import torch
from support import skip

import simgpu
from simgpu import named


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


@pytest.fixture
def without_a_real_gpu():
    """Skip where ``"cuda"`` means a real GPU."""
    if torch.cuda.is_available() and not named.enabled():
        skip("'cuda' means the real GPU here", until="2027-12-31")
