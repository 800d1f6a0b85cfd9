"""Counts the graphs that `torch.compile` captures, with a backend that needs no C++ compiler."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from course_language import _

_CAPTURED: list[int] = []


@contextmanager
def compiler() -> Iterator[None]:
    """Hide the compiler's warnings in the block; if it can't compile, print why and leave the block."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (RuntimeError, ImportError, OSError) as problem:
        print(
            _("Not compiled ({problem}): often a C++ compiler is missing.").format(
                problem=type(problem).__name__
            )
        )


def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    """A backend for ``torch.compile``: record the graph's number of operations, and run it uncompiled."""
    _CAPTURED.append(sum(node.op.startswith("call_") for node in graph.graph.nodes))
    return graph.forward


def captured(compiled: Callable[[Tensor], object], *inputs: Tensor) -> list[int]:
    """Call a function or module that was compiled with ``backend=count`` once for each input.

    Return the number of operations of each graph that was captured. Resets ``torch.compiler`` first.
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
