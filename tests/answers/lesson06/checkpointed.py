"""Known answers to 06.checkpointed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from course_lessons.lesson06.checkpointed import TWINS, checkpointed, in_order
from course_lessons.shared.edited import edited


def _checkpointed_whole(blocks, x):
    return checkpoint(lambda value: in_order(blocks, value), x, use_reentrant=False)


_checkpointed_reentrant = edited(checkpointed, {"use_reentrant=False": "use_reentrant=True"})


def _checkpointed_first_half(blocks, x):
    half = len(blocks) // 2
    return in_order(blocks[half:], checkpointed(blocks[:half], x))


def _checkpointed_forcing_a_graph(blocks, x):
    return _checkpointed_reentrant(blocks, x.requires_grad_())


def _checkpointed_detached(blocks, x):
    return _checkpointed_reentrant(blocks, x.detach().requires_grad_())


def _in_segments(segments: int) -> Callable[..., Any]:
    def checkpointed(blocks, x):
        return checkpoint_sequential(nn.Sequential(*blocks), segments, x, use_reentrant=False)

    return checkpointed


WRONG = {
    "kept": {"checkpoint(block, x, use_reentrant=False)": "block(x)"},
    "some-kept": (_checkpointed_first_half, _in_segments(2)),
    "one-piece": _checkpointed_whole,
    "other-dropout": {"use_reentrant=False": "use_reentrant=False, preserve_rng_state=False"},
    **TWINS,
    "needs-input-gradient": _checkpointed_reentrant,
    "no-graph": torch.no_grad()(checkpointed),
    "cut": {"(block, x,": "(block, x.detach().requires_grad_(),"},
    "mode": {"x = checkpoint": "block.eval()\nx = checkpoint"},
    "other-output": {"return x": "return 2 * x"},
    "other-random": {"x = checkpoint": "torch.manual_seed(0)\nx = checkpoint"},
    "too-often": {"x = checkpoint": "block(x)\nx = checkpoint"},
    "no-input-gradient": _checkpointed_detached,
    "changed-input": _checkpointed_forcing_a_graph,
    "other-gradients": {"return x": "return x.detach() + 2 * (x - x.detach())"},
}
RIGHT = {
    "by forward": {"(block, x,": "(block.forward, x,"},
    "three segments": _in_segments(3),
    "six segments": _in_segments(6),
}
