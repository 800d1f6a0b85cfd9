"""One message a step."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import on_ranks
from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several
from course_utils.exercises.values import apart, nearly
from simgpu import cluster

from .checking import words


def accumulate(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)

    def add_gradient(x, y):
        (loss_fn(model(x), y) * len(x) / rows).backward()

    optimizer.zero_grad()
    with model.no_sync():
        for part in parts[:-1]:
            add_gradient(*part)
    add_gradient(*parts[-1])
    optimizer.step()


class _Noting(cluster.DistributedDataParallel):
    """A DDP model that notes the passes through its inner model in order, and which were to be sent."""

    def __init__(self, model: nn.Module, dist: Any) -> None:
        super().__init__(model, dist)
        self.rows: list[int] = []
        self.passes: list[tuple[str, bool]] = []
        self.wrapped = False
        model.register_forward_hook(self._note)

    def forward(self, x: Tensor) -> Tensor:
        """Make the pass, which the inner model notes."""
        self.wrapped = True
        try:
            return super().forward(x)
        finally:
            self.wrapped = False

    def _note(self, _: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        sends = self.wrapped and self.require_backward_grad_sync
        self.rows.append(len(args[0]))
        self.passes.append(("forward", sends))

        def backward(_: Tensor) -> None:
            self.passes.append(("backward", self.require_backward_grad_sync))

        if output.requires_grad:
            output.register_hook(backward)


_PARTS = (
    ((5, 3, 2), (4, 4, 2)),
    ((2, 5, 3), (2, 5, 3)),
    ((6, 1, 1), (3, 5)),
    ((1, 3, 2, 4), (4, 6)),
    ((4, 4), (4, 4)),
    ((7,), (7,)),
)
"""For each case and rank, how many rows each part has."""


def _check_accumulate(answer: Callable[..., Any], judge: Judge) -> None:
    got = []
    for sizes in _PARTS:
        run = on_ranks(_program(sizes), answer, len(sizes), judge, "ranks-wait")
        for rank, (model, steps) in enumerate(run.results):
            sent = sum(s.rank == rank and s.name == "all_reduce" for s in run.spans)
            _judge_passes(model, steps, sent, sizes[rank], judge)
        got.append(_weights(run.results[0][0]))
    right = _outcomes(accumulate)
    if _ALIKE(got, right):
        return

    def say(at: int) -> tuple[str, str]:
        seen, expected = apart(got[at], right[at], _ALIKE)
        return f"weights {seen}, after parts of {words(_PARTS[at][0])} rows", expected

    twins = {name: [_outcomes(one) for one in several(twin)] for name, twin in TWINS.items()}
    judge.closest(got, right, twins, alike=_ALIKE, otherwise="other-gradient", say=say)


def _program(sizes: Sequence[Sequence[int]]) -> Callable[..., tuple[_Noting, int]]:
    """Return what each rank runs: a step with its parts, which have so many rows."""

    def program(dist: Any, call: Callable[..., Any]) -> tuple[_Noting, int]:
        model, optimizer, steps = _stale_model(dist)
        rank = dist.get_rank()
        call(model, _parts(sizes[rank], rank), F.cross_entropy, optimizer)
        return model, len(steps)

    return program


@functools.cache
def _outcomes(function: Callable[..., Any]) -> list[Tensor]:
    """Return the weights that a function leaves on rank 0, for each case."""
    runs = (cluster.run(_program(sizes), len(sizes), arguments=(function,)) for sizes in _PARTS)
    return [_weights(run.results[0][0]) for run in runs]


_ALIKE = nearly(1e-4, 1e-6)


def _weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def _parts(sizes: Sequence[int], rank: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(7 + rank)
    return [
        (torch.randn(n, 3, generator=generator), (torch.arange(n) + i) % 3)
        for i, n in enumerate(sizes)
    ]


def _stale_model(dist: Any) -> tuple[_Noting, torch.optim.Optimizer, list[int]]:
    """Return a model with gradients left over, its optimiser, and a list that grows with its steps."""
    torch.manual_seed(0)
    model = _Noting(nn.Linear(3, 3), dist)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: steps.append(1))
    return model, optimizer, steps


def _judge_passes(
    model: _Noting, steps: int, sent: int, sizes: Sequence[int], judge: Judge
) -> None:
    """Refuse passes that do not go through the parts one by one, or send at the wrong one."""
    order = [name for name, _ in model.passes]
    forward, backward = (
        [flag for name, flag in model.passes if name == which] for which in ("forward", "backward")
    )
    parts = f"{len(sizes)} parts of {words(sizes)} rows"
    passes = (
        f"{parts}: forward passes with {words(model.rows)} rows, {len(backward)} backward passes"
    )
    if len(sizes) > 1 and max(model.rows, default=0) > max(sizes):
        judge.no("larger-part", seen=passes, expected="a forward and a backward pass for each part")
    if len(model.rows) > len(sizes):
        judge.no("other-parts", seen=passes, expected="each part once")
    if order[:2] == ["forward"] * 2 and len(backward) and len(sizes) > 1:
        judge.no("all-at-once", seen=passes, expected="one part after the other")
    if Counter(model.rows) != Counter(sizes):
        few = not Counter(model.rows) - Counter(sizes)
        judge.no("part-left-out" if few else "other-parts", seen=passes, expected="each part once")
    if len(backward) != len(sizes):
        judge.no("no-backward", seen=passes, expected="one backward pass for each part")
    if steps != 1:
        judge.no(
            "no-step" if not steps else "steps",
            seen=f"{steps} steps for {parts}",
            expected="one step, at the end",
        )
    seen = f"{sent} × all_reduce for {parts}"
    if not sent:
        judge.no("never-sends", seen=seen, expected="one, for the last part")
    if not forward[-1]:
        judge.no("not-the-last", seen=f"{seen}, none of them for the last", expected="for the last")
    if sent > 1:
        outside = any(f and not b for f, b in zip(forward, backward, strict=True))
        judge.no(
            "forward-outside" if outside else "every-part",
            seen=seen,
            expected="one, for the last part",
        )


_SHARE, _PART = " * len(x) / rows", "def add_gradient(x, y):"
_SHARES = {
    "unweighted": " / len(parts)",
    "not-divided": "",
    "by-rows": " * len(x)",
    "divided-twice": " * len(x) / rows / len(parts)",
    "by-ranks": " * len(x) / rows / 2",
    "rows-alone": " / rows",
    "own-rows": " / len(x)",
    "last-unweighted": " * (1 if x is parts[-1][0] else len(x) / rows)",
    "first-size": " * len(x) / (len(parts[0][0]) * len(parts))",
}


def _with_any_share(old: str, new: str) -> tuple[dict[str, str], ...]:
    return tuple({old: new, _SHARE: share} for share in (_SHARE, *_SHARES.values()))


_MISTAKES = {
    **{name: {_SHARE: share} for name, share in _SHARES.items()},
    "not-zeroed": _with_any_share("optimizer.zero_grad()", ""),
    "only-last": _with_any_share(_PART, _PART + "\n    optimizer.zero_grad()"),
}
TWINS: dict[str, Any] = twins_of(accumulate, _MISTAKES)


EXERCISE = Exercise(
    id="05.accumulate",
    title="One message a step",
    level=2,
    minutes=12,
    task="""
Write `accumulate(model, parts, loss_fn, optimizer)`: one training step of a DDP model whose batch comes in parts, a
list of pairs `(x, y)` of different sizes. `loss_fn` gives the mean over a part; all ranks have equally many rows in all.
Afterwards the weights are those after one step with the whole batch, and the gradients have crossed the network
once. Gradients may be left over from before. Keep the memory of one part: one forward and one backward pass for each.
""",
    hints=(
        "What must travel after the first part? When do the gradients hold the whole batch?",
        "`with model.no_sync():` keeps gradients on the rank. DDP looks at it in the **forward** pass. The next pair of passes "
        "outside it sends all that has been added up.",
        "All parts but the last go within `model.no_sync()`, forward and backward. Weigh each loss with the part's share of "
        "the rows, `len(x) / rows`.",
    ),
    reference=accumulate,
    check_answer=_check_accumulate,
    limit=30.0,  # the first optimiser of a session takes seconds to import
    why="Without `no_sync` the result is the same, and each part pays for a message as large as the model. On a slow network "
    "that is most of the step.",
    diagnoses={
        "every-part": "The gradients travel more than once. All but the last journey are for nothing.",
        "forward-outside": "The gradients still travel more than once. DDP decides in the forward pass whether the next "
        "backward pass sends: forward belongs within `no_sync` too.",
        "never-sends": "The gradients never travel, so each rank goes its own way. The last part must go through `model` "
        "itself, outside `no_sync`.",
        "not-the-last": "The gradients travel before the last part. What is added later stays on its rank.",
        "all-at-once": "A second forward pass comes before the first backward pass, so more than one part is in memory at a time.",
        "larger-part": "More rows than a part has go through the model at once. The parts were to avoid that.",
        "part-left-out": "A part does not go through the model.",
        "other-parts": "A part goes through the model more than once.",
        "no-backward": "There is not one backward pass for each forward pass.",
        "no-step": "The optimiser makes no step.",
        "steps": "The optimiser makes more than one step for the batch.",
        "unweighted": "Each part counts the same here. A small part's rows then weigh more than a large one's.",
        "not-divided": "The losses of the parts are added up as they are. The gradient is as many times too large as there are parts.",
        "by-rows": "Each loss is multiplied by its rows, and nothing divides by the rows of all parts.",
        "divided-twice": "The loss has its share of the rows, and is divided by the number of parts as well.",
        "by-ranks": "The gradient is half as large as it should be, with two ranks. DDP divides by the number of ranks itself.",
        "rows-alone": "Each loss is divided by the rows of all parts, and never multiplied by its own.",
        "own-rows": "Each loss is divided by its own rows. It is their mean already.",
        "last-unweighted": "The last part's loss counts whole, and not by its share of the rows.",
        "first-size": "The rows are counted as if every part were as large as the first.",
        "only-last": "Only the last part is in the gradient. What cleared the others?",
        "not-zeroed": "The gradients from before are still in it.",
        "other-gradient": "The gradients have travelled as they should, and the weights are not those after one step with the whole batch.",
        "ranks-wait": "The ranks do not make the same collective calls.",
    },
)
