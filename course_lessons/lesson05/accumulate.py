"""One message a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import on_ranks, values_of
from course_utils.exercises import Exercise, Judge
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
    """A DDP model that notes its passes in order: which, and whether it ran as in ``no_sync``."""

    def __init__(self, model: nn.Module, dist: Any) -> None:
        super().__init__(model, dist)
        self.rows: list[int] = []
        self.passes: list[tuple[str, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        """Note the pass, then make it."""
        self.rows.append(len(x))
        self._note_pass("forward")
        output = super().forward(x)
        output.register_hook(lambda _: self._note_pass("backward"))
        return output

    def _note_pass(self, name: str) -> None:
        self.passes.append((name, not self.require_backward_grad_sync))


_PARTS = (
    ((5, 3, 2), (4, 4, 2)),
    ((2, 5, 3), (2, 5, 3)),
    ((6, 1, 1), (3, 5)),
    ((4, 4), (4, 4)),
    ((7,), (7,)),
)
"""For each case and rank, how many rows each part has."""


def _check_accumulate(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes in _PARTS:
        shards = [_parts(part_sizes, rank) for rank, part_sizes in enumerate(sizes)]

        def program(dist: Any, call: Callable[..., Any], shards: Any = shards) -> tuple[Any, ...]:
            model, optimizer, steps = _stale_model(dist)
            call(model, shards[dist.get_rank()], F.cross_entropy, optimizer)
            return model, len(steps)

        run = on_ranks(program, answer, len(sizes), judge, "ranks-wait")
        for rank, (model, steps) in enumerate(run.results):
            sent = sum(s.rank == rank and s.name == "all_reduce" for s in run.spans)
            _judge_passes(model, steps, sent, sizes[rank], judge)
        _judge_weights(run.results[0][0], sizes, judge)


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
    inside = {name: [flag for which, flag in model.passes if which == name] for name in {*order}}
    parts = f"{len(sizes)} parts of {words(sizes)} rows"
    if len(sizes) > 1 and (max(model.rows, default=0) > max(sizes) or order[:2] == ["forward"] * 2):
        judge.no(
            "all-at-once",
            seen=f"{parts}, and {order.count('forward')} forward passes before a backward pass",
            expected="a forward and a backward pass for each part, one part after the other",
        )
    if sorted(model.rows) != sorted(sizes) or order.count("backward") != len(sizes):
        judge.no(
            "other-parts",
            seen=f"{parts}; forward passes with {words(model.rows)} rows, "
            f"{order.count('backward')} backward passes",
            expected="each part once",
        )
    if steps != 1:
        judge.no("steps", seen=f"{steps} steps for {parts}", expected="one step, at the end")
    seen = f"{sent} × all_reduce for {parts}"
    if not sent:
        judge.no("never-sends", seen=seen, expected="one, for the last part")
    if inside["forward"][-1]:
        judge.no("not-the-last", seen=f"{seen}, none of them for the last", expected="for the last")
    if sent > 1:
        pairs = zip(inside["forward"], inside["backward"], strict=True)
        outside = any(backward and not forward for forward, backward in pairs)
        judge.no(
            "forward-outside" if outside else "every-part",
            seen=seen,
            expected="one, for the last part",
        )
    if not all(inside["forward"][:-1]):
        judge.no("not-the-last", seen="it was not the last part that sent", expected="the last")


def _judge_weights(model: nn.Module, sizes: Sequence[Sequence[int]], judge: Judge) -> None:
    """Compare the weights with those after one step of the whole batch of all ranks."""
    shards = [_parts(part_sizes, rank) for rank, part_sizes in enumerate(sizes)]
    right = _stepped(shards, lambda n, rows, parts: n / rows)
    got = nn.utils.parameters_to_vector(model.parameters()).detach()
    if torch.allclose(got, right, rtol=1e-4, atol=1e-6):
        return
    whole = sum(sizes[0])
    known = {
        "not-zeroed": right - 0.1 * 0.5,
        "unweighted": _stepped(shards, lambda n, rows, parts: 1 / parts),
        "not-divided": _stepped(shards, lambda n, rows, parts: 1),
        "by-rows": _stepped(shards, lambda n, rows, parts: n),
        "only-last": _stepped([parts[-1:] for parts in shards], lambda n, rows, parts: n / whole),
    }
    like = [name for name, value in known.items() if torch.allclose(got, value, atol=1e-5)]
    judge.no(
        like[0] if like else "other-gradient",
        seen=f"weights {values_of(got)} after parts of {words(sizes[0])} rows",
        expected=f"{values_of(right)}, as after the large batch",
    )


def _stepped(
    shards: Sequence[Sequence[tuple[Tensor, Tensor]]], weight: Callable[[int, int, int], float]
) -> Tensor:
    """Return the weights after a step with the weighted losses of all parts, averaged over ranks."""
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    for parts in shards:
        rows = sum(len(x) for x, _ in parts)
        for x, y in parts:
            loss = F.cross_entropy(model(x), y) * weight(len(x), rows, len(parts))
            (loss / len(shards)).backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


EXERCISE = Exercise(
    id="05.accumulate",
    title="One message a step",
    level=2,
    minutes=12,
    task="""
Write `accumulate(model, parts, loss_fn, optimizer)`: one training step of a DDP model whose batch comes in parts, a
list of pairs `(x, y)`. The parts differ in size, `loss_fn` gives the mean over a part, and all ranks have equally many rows in all.
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
    may_change=True,
    why="Without `no_sync` the result is the same, and each part pays for a message as large as the model. On a slow network "
    "that is most of the step.",
    diagnoses={
        "every-part": "The gradients travel more than once. All but the last journey are for nothing.",
        "forward-outside": "The gradients still travel more than once. DDP decides in the forward pass whether the next "
        "backward pass sends: forward belongs within `no_sync` too.",
        "never-sends": "The gradients never travel, so each rank goes its own way. One part must run outside "
        "`no_sync`.",
        "not-the-last": "The gradients travel before the last part. What is added later stays on its rank.",
        "all-at-once": "More than one part is kept in memory at a time. That is what the parts were to avoid.",
        "other-parts": "Each part needs one forward and one backward pass.",
        "steps": "The optimiser must make one step for the whole batch.",
        "unweighted": "Each part counts the same here. A small part's rows then weigh more than a large one's.",
        "not-divided": "The losses of the parts are added up as they are. The gradient is as many times too large as there are parts.",
        "by-rows": "Each loss is multiplied by its rows, and nothing divides by the rows of all parts.",
        "only-last": "Only the last part is in the gradient. What cleared the others?",
        "not-zeroed": "The gradients from before are still in it.",
        "other-gradient": "The weights are not those after a step with the whole batch.",
        "ranks-wait": "The ranks do not make the same collective calls.",
    },
)
