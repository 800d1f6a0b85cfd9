"""What a checkpoint needs beside the idea: the generators of a device."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch


def generators(
    device: torch.device | str,
) -> dict[str, tuple[Callable[[], Any], Callable[[Any], None]]]:
    """Return for each source of random numbers how to read its state and how to set it.

    Parameters
    ----------
    device
        Where the training runs: an accelerator has a generator of its own.
    """
    sources: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
        "torch": (torch.get_rng_state, torch.set_rng_state),
        "python": (random.getstate, random.setstate),
    }
    module = torch.get_device_module(device)
    if hasattr(module, "get_rng_state"):
        sources[torch.device(device).type] = (module.get_rng_state, module.set_rng_state)
    return sources
