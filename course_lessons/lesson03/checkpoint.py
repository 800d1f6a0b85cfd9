"""The random number generators whose state a checkpoint needs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch


def generators(
    device: torch.device | str,
) -> dict[str, tuple[Callable[[], Any], Callable[[Any], None]]]:
    """Return the functions that get and set the state of each random number generator.

    The keys are ``"torch"`` (the CPU's), ``"python"`` and, for an accelerator, the device's type.

    Parameters
    ----------
    device
        The device of the training: an accelerator has a generator of its own.
    """
    sources: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
        "torch": (torch.get_rng_state, torch.set_rng_state),
        "python": (random.getstate, random.setstate),
    }
    module = torch.get_device_module(device)
    if hasattr(module, "get_rng_state"):
        sources[torch.device(device).type] = (module.get_rng_state, module.set_rng_state)
    return sources
