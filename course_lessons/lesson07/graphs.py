"""How many graphs `torch.compile` made of a function: a backend that counts, and needs no C++ compiler."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_CAPTURED: list[int] = []


def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    """Be a backend of ``torch.compile``: note how many operations a graph has, and run it as it stands."""
    _CAPTURED.append(sum(node.op.startswith("call_") for node in graph.graph.nodes))
    return graph.forward


def captured(compiled: Callable[[Tensor], object], *inputs: Tensor) -> list[int]:
    """Call a function or module that was compiled with ``backend=count``, once for each input.

    Return for each graph that was captured how many operations it has; earlier graphs are forgotten.
    """
    torch.compiler.reset()
    _CAPTURED.clear()
    log = logging.getLogger("torch._dynamo")
    level = log.level
    log.setLevel(logging.ERROR)  # it says where a graph breaks: TORCH_LOGS shows that better
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for x in inputs:
                compiled(x)
    finally:
        log.setLevel(level)
    return list(_CAPTURED)
