"""Known wrong answers to 06.checkpointed, by the diagnosis that each must get."""

from __future__ import annotations

from torch.utils.checkpoint import checkpoint

from course_lessons.lesson06.checkpointed import checkpointed, in_order
from course_utils.exercises.edited import edited


def _checkpointed_whole(blocks, x):
    return checkpoint(lambda value: in_order(blocks, value), x, use_reentrant=False)


def _checkpointed_new_dropout(blocks, x):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
    return x


_checkpointed_reentrant = edited(
    checkpointed, {"(block, x, use_reentrant=False)": "(block, x, use_reentrant=True)"}
)


def _checkpointed_first_half(blocks, x):
    half = len(blocks) // 2
    return in_order(blocks[half:], checkpointed(blocks[:half], x))


def _checkpointed_late(blocks, x):
    for block in blocks:
        x = checkpoint(lambda value: block(value), x, use_reentrant=False)  # noqa: B023
    return x


def _checkpointed_forcing_a_graph(blocks, x):
    return _checkpointed_reentrant(blocks, x.requires_grad_())


def _checkpointed_detached(blocks, x):
    return _checkpointed_reentrant(blocks, x.detach().requires_grad_())


WRONG = {
    "kept": edited(checkpointed, {"x = checkpoint(block, x, use_reentrant=False)": "x = block(x)"}),
    "some-kept": _checkpointed_first_half,
    "one-piece": _checkpointed_whole,
    "other-dropout": _checkpointed_new_dropout,
    "no-gradient": _checkpointed_reentrant,
    "no-input-gradient": _checkpointed_detached,
    "changed-input": _checkpointed_forcing_a_graph,
    "other-gradients": _checkpointed_late,
}
