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
from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several
from course_utils.exercises.values import agree, nearly

from .checking import Block


def checkpointed(blocks, x):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


_DEPTH = 6


@one_thread()
def _check_checkpointed(answer: Callable[..., Any], judge: Judge) -> None:
    for case in ((True, 0.0), (False, 0.0), (False, 0.5), (True, 0.5)):
        wanted, dropout = case
        right = _chain(in_order, *case)
        got = _chain(answer, *case, judge)
        if not _alike(got, right, "output"):
            judge.no(
                _like(got, right, case, "output")
                or ("other-random" if dropout else "other-output"),
                seen=got["output"],
                expected=right["output"],
            )
        if any(g is None for g in got["gradients"]):
            judge.no("cut", seen="parameters without a gradient", expected="none")
        if wanted and got["input"] is None:
            judge.no("no-input-gradient", seen="x.grad is None", expected="a gradient")
        off = how_far_off(got["gradients"], right["gradients"])
        if off > 1e-4 or (wanted and how_far_off([got["input"]], [right["input"]]) > 1e-4):
            diagnosis = _like(got, right, case, "gradients") or (
                "other-dropout" if dropout else "other-gradients"
            )
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


def _each_of_the_first(blocks: Sequence[nn.Module], x: Tensor) -> Tensor:
    return [block(x) for block in blocks][-1]


_MISTAKES = {
    "left-out": ({"in blocks": "in blocks[:-1]"}, {"in blocks": "in blocks[1:]"}),
    "backwards": {"in blocks": "in reversed(blocks)"},
    "first-x": _each_of_the_first,
    "late-binding": {"(block, x,": "(lambda value: block(value), x,"},
}
TWINS: dict[str, Any] = twins_of(checkpointed, _MISTAKES)
"""What gives another output, and other gradients."""


def _alike(a: dict[str, Any], b: dict[str, Any], what: str) -> bool:
    return agree(nearly(1e-4, 1e-6), a[what], b[what])


def _like(
    got: dict[str, Any], right: dict[str, Any], case: tuple[bool, float], what: str
) -> str | None:
    """Return the name of the twin that gives the same wrong output or gradients."""
    for name, twins in TWINS.items():
        for twin in several(twins):
            made = _chain(twin, *case)
            if not _alike(made, right, what) and _alike(made, got, what):
                return name
    return None


def _chain(
    run: Callable[..., Any], wanted: bool, dropout: float, judge: Judge | None = None
) -> dict[str, Any]:
    """Run blocks forward and backward; return output, gradients, calls and the most activations alive."""
    torch.manual_seed(0)
    watch, calls = Alive(), []
    blocks = [Block(8, 32, dropout) for _ in range(_DEPTH)]
    for block in blocks:
        block.watch = watch
        block.calls = calls
    x, weights = torch.randn(16, 8, requires_grad=wanted), torch.randn(16, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, about use_reentrant: a diagnosis is shorter
        output = run(blocks, x)
    if judge is not None:
        if x.requires_grad != wanted:
            judge.no("changed-input", seen="x requires a gradient now", expected="x as it was")
        if not all(block.training for block in blocks):
            judge.no("mode", seen="a block in eval mode", expected="all in training mode, as given")
        judge.is_a(output, Tensor, "a tensor")
        if output.shape != x.shape:
            judge.no("other-output", seen=tuple(output.shape), expected=tuple(x.shape))
        if not output.requires_grad:
            judge.no(
                "no-graph" if wanted else "needs-input-gradient",
                seen="an output without a graph",
                expected="one with",
            )
    (output * weights).sum().backward()
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
keeps little more than what goes **into** each block. Output and gradients must be those of the plain run,
with dropout too, and also where `x` itself needs no gradient. `torch.utils.checkpoint.checkpoint` is imported as `checkpoint`.
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
    why="Activations are most of the memory of many trainings. At most one more forward pass, a third more "
    "arithmetic, buys most of them back, the more the deeper the network.",
    diagnoses={
        "kept": "Every block ran once: nothing was computed again, so all activations were kept.",
        "some-kept": "Some blocks keep their inside: they ran only once.",
        "one-piece": "Too many blocks are computed again at once, and then all their activations are in "
        "memory together. Make the pieces smaller.",
        "other-dropout": "The second run of a block drew other random numbers than the first, so the "
        "gradients belong to another forward pass.",
        "no-graph": "The output has no graph, so nothing can learn.",
        "needs-input-gradient": "Where `x` needs no gradient, the output has no graph, and no block would learn. The reentrant "
        "form of checkpointing does that: use the other.",
        "cut": "Parameters came out without gradients: the graph is cut on the way to them.",
        "mode": "Your function changed the mode of a block. Dropout is to work as in the plain run.",
        "no-input-gradient": "A detached copy of `x` went through the blocks, so whatever made `x` would learn "
        "nothing.",
        "late-binding": "Each block is computed again as if it were the last: a lambda in a loop looks up its names when it is "
        "called, in backward. Hand over `block` itself.",
        "other-gradients": "The output is right, and the gradients are not those of the plain run.",
        "left-out": "A block at one end is left out.",
        "backwards": "The blocks come in the opposite order.",
        "first-x": "Each block is given the first `x`, and not what the block before it made.",
        "other-random": "Without dropout the output is right, and with it it is not: other random numbers are drawn than in the "
        "plain run.",
        "other-output": "The output is not that of the blocks in their order.",
        "too-often": "A block was computed more than twice.",
    },
)
