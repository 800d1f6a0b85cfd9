"""Compute it twice instead of keeping it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course_lessons.shared.checking import Alive, how_far_off, one_thread
from course_utils.exercises import Exercise, Judge

from .checking import Block


def checkpointed(blocks, x):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


_DEPTH = 6


@one_thread()
def _check_checkpointed(answer: Callable[..., Any], judge: Judge) -> None:
    for wanted, dropout in ((True, 0.0), (False, 0.5)):
        right = _chain(in_order, wanted, dropout)
        got = _chain(answer, wanted, dropout, judge)
        if not torch.allclose(got["output"], right["output"], atol=1e-6):
            judge.no("other-output", seen=got["output"][0], expected=right["output"][0])
        if any(g is None for g in got["gradients"]):
            judge.no("no-gradient", seen="parameters without a gradient", expected="none")
        if wanted and got["input"] is None:
            judge.no("no-input-gradient", seen="x.grad is None", expected="a gradient")
        if how_far_off(got["gradients"], right["gradients"]) > 1e-4 or (
            wanted and how_far_off([got["input"]], [right["input"]]) > 1e-4
        ):
            diagnosis = "other-dropout" if dropout else "other-gradients"
            off = how_far_off(got["gradients"], right["gradients"])
            judge.no(diagnosis, seen=f"gradients {off:.0%} off", expected="the same gradients")
        _judge_recomputation(got, right, judge)


def _judge_recomputation(got: dict[str, Any], right: dict[str, Any], judge: Judge) -> None:
    calls, peak, usual = got["calls"], got["peak"], right["peak"]
    seen = f"at most {peak:,} bytes of activations at once, without checkpoints {usual:,}"
    if calls <= _DEPTH:
        judge.no("kept", seen=f"{seen}; every block ran once", expected="most run twice")
    if peak > 0.4 * usual:
        diagnosis = "some-kept" if calls < 2 * _DEPTH else "one-piece"
        judge.no(diagnosis, seen=seen, expected=f"at most {0.4 * usual:,.0f} bytes")
    if calls > 2 * _DEPTH:
        judge.no("too-often", seen=f"{calls} runs of {_DEPTH} blocks", expected="two runs a block")


def in_order(blocks: Sequence[nn.Module], x: Tensor) -> Tensor:
    return functools.reduce(lambda value, block: block(value), blocks, x)


def _chain(
    run: Callable[..., Any], wanted: bool, dropout: float, judge: Judge | None = None
) -> dict[str, Any]:
    """Run blocks forward and backward; return output, gradients, calls and the most activations alive."""
    torch.manual_seed(0)
    watch, calls = Alive(), []
    blocks = [Block(8, 32, dropout) for _ in range(_DEPTH)]
    for block in blocks:
        block.watch = watch
        block.register_forward_pre_hook(lambda *_: calls.append(1))
    x = torch.randn(16, 8, requires_grad=wanted)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # PyTorch's, about use_reentrant: the diagnosis says it shorter
        output = run(blocks, x)
    if judge is not None:
        if x.requires_grad != wanted:
            judge.no("changed-input", seen="x requires a gradient now", expected="x as it was")
        judge.is_a(output, Tensor, "a tensor")
        if output.shape != x.shape:
            judge.no("other-output", seen=tuple(output.shape), expected=tuple(x.shape))
        if not output.requires_grad:
            judge.no("no-gradient", seen="an output without a graph", expected="one with")
    (output * torch.randn(16, 8)).sum().backward()
    parameters = [p for block in blocks for p in block.parameters()]
    return {
        "output": output.detach(),
        "input": x.grad,
        "gradients": [p.grad for p in parameters],
        "calls": len(calls),
        "peak": watch.peak,
    }


EXERCISE = Exercise(
    id="06.checkpointed",
    title="Compute it twice instead of keeping it",
    level=2,
    minutes=10,
    task="""
Write `checkpointed(blocks, x)`: run `x` through a list of modules, one after the other, so that autograd
keeps little more than what goes **into** each block, and computes the inside again when backward comes to it.
Output and gradients must be those of the plain run, with dropout too, and also where `x` itself needs no
gradient. `torch.utils.checkpoint.checkpoint` is imported as `checkpoint`.
""",
    hints=(
        "`checkpoint(function, *arguments, use_reentrant=False)` calls the function and keeps only its "
        "arguments.",
        "One checkpoint around everything frees nothing when it counts: backward would compute all of it "
        "again before it can begin.",
        "One line in a loop: `x = checkpoint(...)`, with the block as the function.",
    ),
    reference=checkpointed,
    check_answer=_check_checkpointed,
    why="Activations are most of the memory of many trainings. One more forward pass, a third more "
    "arithmetic, buys most of them back, the more the deeper the network.",
    diagnoses={
        "kept": "Every block ran once: nothing was computed again, so all activations were kept.",
        "some-kept": "Some blocks keep their inside: they ran only once.",
        "one-piece": "Too many blocks are computed again at once, and then all their activations are in "
        "memory together. Make the pieces smaller.",
        "other-dropout": "The second run of a block drew other random numbers than the first, so the "
        "gradients belong to another forward pass.",
        "no-gradient": "Parameters came out without gradients. The graph was cut, or the reentrant form of "
        "checkpointing saw an input that needs no gradient and built none.",
        "no-input-gradient": "A detached copy of `x` went through the blocks, so whatever made `x` would learn "
        "nothing.",
        "other-gradients": "The gradients are not those of the plain run. (A lambda in a loop sees the last "
        "block when backward comes: hand over `block` itself.)",
        "other-output": "The output is not that of the blocks in their order.",
        "too-often": "A block was computed more than twice.",
    },
)
