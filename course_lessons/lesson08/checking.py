"""What several checks of this lesson share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

import simgpu
from course_lessons.shared import memory
from course_lessons.shared.edited import edited
from course_utils.exercises.judge import Todo


@contextmanager
def other_device() -> Iterator[torch.device]:
    """Give a device that is not the CPU: a simulated one of its own; ``meta``, without values, where there is none."""
    if simgpu.problem():
        yield torch.device("meta")
        return
    with memory.spare_device("1 GB") as device:
        yield device


def unguarded(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Return the learner's own function, whose errors a check wants to see; a stub is still not tried."""
    own = answer.__wrapped__

    def call(*args: Any) -> Any:
        got = own(*args)
        return answer(*args) if isinstance(got, Todo) else got

    return call


def without_this_frame(error: Exception) -> Exception:
    """Leave the check's own line out of an error's traceback, so that the learner's is shown."""
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


def plain(value: Any) -> Any:
    """Return a number of NumPy's, or a tensor of one element, as a number of Python's; other values as they are."""
    alone = hasattr(value, "item") and math.prod(value.shape) == 1
    return value.item() if alone else value


Edits = Mapping[str, str]


def combined(
    function: Callable[..., Any], *groups: Mapping[str, Edits | tuple[Edits, ...]]
) -> dict[str, tuple[Callable[..., Any], ...]]:
    """Return known mistakes with one fault, and with one of each of two groups.

    Each group maps diagnoses to edits of one place. Of two faults, that of the earlier group is told.
    """
    listed = [
        [
            (name, edits)
            for name, some in group.items()
            for edits in (some if isinstance(some, tuple) else (some,))
        ]
        for group in groups
    ]
    made: dict[str, tuple[Callable[..., Any], ...]] = {}
    for at, group in enumerate(listed):
        for (name, edits), (_, more) in itertools.product(
            group, [("", {}), *itertools.chain(*listed[at + 1 :])]
        ):
            made[name] = (*made.get(name, ()), edited(function, {**edits, **more}))
    return made
