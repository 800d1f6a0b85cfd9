"""A pytest plugin: the fixture ``sim``, a simulated GPU for one test, and the marker ``simgpu``.

``@pytest.mark.simgpu(memory="300 MB")`` limits its memory, ``profile="A100"`` names the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``simgpu``."""
    config.addinivalue_line(
        "markers", "simgpu(memory=..., profile='T4'): the device that the fixture `sim` gives"
    )


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> Iterator[object]:
    """Yield an empty simulated GPU as a ``torch.device``, configured by the marker ``simgpu``."""
    import simgpu
    from simgpu.profiles import load

    if reason := simgpu.unavailable_reason():
        pytest.fail(reason, pytrace=False)
    mark = request.node.get_closest_marker("simgpu")
    arguments = {} if mark is None else dict(mark.kwargs)
    profile = arguments.pop("profile", "T4")
    memory = arguments.pop("memory", None) or load(profile).total_memory
    if arguments or (mark and mark.args):
        pytest.fail(
            "The marker simgpu takes memory=... and profile=..., by name, and nothing else.",
            pytrace=False,
        )
    with simgpu.temporary_device(memory, profile) as device:
        yield device
