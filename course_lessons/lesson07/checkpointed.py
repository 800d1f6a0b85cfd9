"""Compute it twice instead of keeping it."""

import functools
import warnings

import torch
from torch.utils.checkpoint import checkpoint

from course_language import _
from course_lessons.shared.checking import LiveTensors, one_thread, relative_error
from course_lessons.shared.edited import edited
from course_utils.exercises import Exercise
from course_utils.exercises.values import nearly

from .checking import Block


def checkpointed(blocks, x):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


_DEPTH = 6


@one_thread()
def _check_answer(answer, judge):
    """Check output, gradients, calls of the blocks and peak of the activations, with and without dropout."""
    close = nearly(1e-4, 1e-6)
    for x_requires_grad, dropout in ((True, 0.0), (False, 0.0), (False, 0.5), (True, 0.5)):
        right = _forward_and_backward(in_order, x_requires_grad, dropout)
        got = _forward_and_backward(answer, x_requires_grad, dropout, judge)
        judge.expect("output", got["output"], right["output"], alike=close)
        judge.expect(_("parameters without a gradient"), sum(g is None for g in got["gradients"]), 0)
        judge.expect(_("x.grad is None"), got["input"] is None, not x_requires_grad)
        off = relative_error(got["gradients"], right["gradients"])
        if off > 1e-4 or (x_requires_grad and relative_error([got["input"]], [right["input"]]) > 1e-4):
            late = _forward_and_backward(_LATE, x_requires_grad, dropout)["gradients"]
            diagnosis = "other-dropout" if dropout else "wrong-value"
            if relative_error(got["gradients"], late) < 1e-4:
                diagnosis = "late-binding"
            seen = _("gradients {off:.0%} off").format(off=off)
            judge.no(diagnosis, seen=seen, expected=_("the same gradients"))
        calls, peak, most = got["calls"], got["peak"], 0.4 * right["peak"]
        seen = _("{calls} runs of {depth} blocks, and at most {peak:,} bytes of activations at once").format(
            calls=calls, depth=_DEPTH, peak=peak
        )
        if calls <= _DEPTH:
            judge.no("kept", seen=seen, expected=_("most blocks run twice"))
        if peak > most:
            diagnosis = "one-piece" if calls >= 2 * _DEPTH else "wrong-value"
            judge.no(diagnosis, seen=seen, expected=_("at most {most:,.0f} bytes").format(most=most))
        if calls > 2 * _DEPTH:
            judge.no(seen=seen, expected=_("two runs a block"))


def in_order(blocks, x):
    """Return ``x`` after all blocks, in order and without checkpointing."""
    return functools.reduce(lambda value, block: block(value), blocks, x)


_LATE = edited(checkpointed, {"(block, x,": "(lambda value: block(value), x,"})
"""Every block is computed again as if it were the last."""


def _forward_and_backward(run, x_requires_grad, dropout, judge=None):
    """Run ``run(blocks, x)`` and its backward pass on new blocks; ``judge`` checks the output, if given.

    Returns a dict: ``"output"``, detached; ``"input"``, ``x.grad`` or None; ``"gradients"``, one for each
    parameter; ``"calls"``, how many block forward passes ran, recomputation included; ``"peak"``, the peak of
    the blocks' activations in bytes.
    """
    torch.manual_seed(0)
    watch, calls = LiveTensors(), []
    blocks = [Block(8, 32, dropout) for _ in range(_DEPTH)]
    for block in blocks:
        block.watch, block.calls = watch, calls
    x, weights = torch.randn(16, 8, requires_grad=x_requires_grad), torch.randn(16, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, about use_reentrant: a diagnosis is shorter
        output = run(blocks, x)
    if judge is not None:
        if x.requires_grad != x_requires_grad:
            judge.no("changed-input", seen=_("x requires a gradient now"), expected=_("x as it was"))
        judge.expect(_("blocks in training mode"), sum(b.training for b in blocks), _DEPTH)
        judge.is_a(output, torch.Tensor, _("a tensor"))
        judge.expect(_("shape of the output"), tuple(output.shape), tuple(x.shape))
        if not output.requires_grad:
            diagnosis = "wrong-value" if x_requires_grad else "needs-input-gradient"
            judge.no(diagnosis, seen=_("an output without a graph"), expected=_("one with"))
    (output * weights).sum().backward()
    return {
        "output": output.detach(),
        "input": x.grad,
        "gradients": [p.grad for block in blocks for p in block.parameters()],
        "calls": len(calls),
        "peak": watch.peak,
    }


EXERCISE = Exercise(
    id="07.checkpointed",
    title="Compute it twice instead of keeping it",
    level=2,
    minutes=10,
    task="""
Write `checkpointed(blocks, x)`: run `x` through a list of modules, one after the other, so that autograd
keeps little more than what goes **into** each block. Output and gradients must be those of the plain run,
with dropout too, and also where `x` itself needs no gradient. `torch.utils.checkpoint.checkpoint` is imported
as `checkpoint`.
""",
    hints=(
        "What may autograd keep, and what should it compute again? Between two blocks there's only one "
        "small tensor, and inside a block there are several large ones. So which piece of the network "
        "should run a second time in backward?",
        "`checkpoint(function, *arguments, use_reentrant=False)` calls the function and keeps only its "
        "arguments. Backward then calls it once more. If you put one checkpoint around everything, backward "
        "has to compute all the activations before it can begin, and you've saved nothing. A module is a "
        "function too, so you can hand over a block as it is.",
        """Here you see that a function under a checkpoint runs twice, once forward and once in backward:

```python
from torch.utils.checkpoint import checkpoint

def wave(x, speed):
    print("computing")  # is printed twice
    return (speed * x.exp()).sin().sum()

x = torch.ones(3, requires_grad=True)
checkpoint(wave, x, 2.0, use_reentrant=False).backward()
```""",
    ),
    reference=checkpointed,
    check_answer=_check_answer,
    why="In many trainings, activations take most of the memory. For at most one more forward pass, which "
    "is about a third more arithmetic, you get most of that memory back, and you gain more the deeper the "
    "network is.",
    diagnoses={
        "kept": "Every block ran once: nothing was computed again, so all activations were kept.",
        "one-piece": "Too many blocks are computed again at once, and then all their activations are in "
        "memory together. Make the pieces smaller.",
        "other-dropout": "The second run of a block drew other random numbers than the first, so the "
        "gradients belong to another forward pass.",
        "needs-input-gradient": "Where `x` needs no gradient, the output has no graph, and no block would "
        "learn. The reentrant form of checkpointing does that: use the other.",
        "late-binding": "Each block is computed again as if it were the last: a lambda in a loop looks up "
        "its names when it is called, in backward. Hand over `block` itself.",
    },
)
