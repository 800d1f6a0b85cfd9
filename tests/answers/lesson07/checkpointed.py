"""Known answers to 07.checkpointed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from course_lessons.lesson07.checkpointed import _LATE, checkpointed, in_order
from course_lessons.shared.edited import edited


def _checkpointed_whole(blocks, x):
    return checkpoint(lambda value: in_order(blocks, value), x, use_reentrant=False)


_checkpointed_reentrant = edited(checkpointed, {"use_reentrant=False": "use_reentrant=True"})


def _in_segments(segments: int) -> Callable[..., Any]:
    """Return an answer that checkpoints so many segments of blocks."""

    def checkpointed(blocks, x):
        return checkpoint_sequential(nn.Sequential(*blocks), segments, x, use_reentrant=False)

    return checkpointed


WRONG = {
    "kept": {"checkpoint(block, x, use_reentrant=False)": "block(x)"},
    "one-piece": _checkpointed_whole,
    "other-dropout": {"use_reentrant=False": "use_reentrant=False, preserve_rng_state=False"},
    "late-binding": _LATE,
    "needs-input-gradient": _checkpointed_reentrant,
    "wrong-value": ({"x = checkpoint": "block(x)\nx = checkpoint"}, _in_segments(2)),
}
RIGHT = {
    "by forward": {"(block, x,": "(block.forward, x,"},
    "three segments": _in_segments(3),
    "six segments": _in_segments(6),
}
