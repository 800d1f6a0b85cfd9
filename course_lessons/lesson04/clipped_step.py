"""Clip the true gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited

from ..shared.checking import one_thread
from .checking import REFUSED, Run, judge_result, judge_scaler, made_batches, watched


def clipped_step(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


_UNSCALE = "scaler.unscale_(optimizer)"
_DIVIDE = "for parameter in model.parameters():\n    parameter.grad /= scaler.get_scale()"
_CLIP = "clip_grad_norm_(model.parameters(), max_norm)"
TWINS = {
    "piles-up": edited(clipped_step, {"optimizer.zero_grad()": ""}),
    "clips-scaled": edited(clipped_step, {_UNSCALE: ""}),
    "never-clips": edited(
        clipped_step, {_CLIP: "get_total_norm([p.grad for p in model.parameters()])"}
    ),
    "divided-twice": edited(clipped_step, {_UNSCALE: _DIVIDE}),
}


@one_thread()
def _check_clipped_step(answer: Callable[..., Any], judge: Judge) -> None:
    (x, y), *_ = made_batches((8,))
    for use_scaler, max_norm, factor in (
        (True, 10.0, 1.0),  # only scaled gradients are above the limit
        (True, 0.1, 1.0),
        (True, 1e4, 1.0),
        (True, 0.1, float("inf")),  # the gradients overflow: this step is to be left out
        (True, 2.0, 30.0),
        (False, 0.1, 1.0),
    ):
        run, right, *others = (Run(use_scaler=use_scaler) for _ in range(2 + len(TWINS)))
        loss, loss_right, *losses = (
            F.cross_entropy(r.model(x), y) * factor for r in (run, right, *others)
        )
        with watched(run):
            got = answer(loss, run.model, run.optimizer, run.scaler, max_norm)
        norm = float(clipped_step(loss_right, right.model, right.optimizer, right.scaler, max_norm))
        for other, other_loss, twin in zip(others, losses, TWINS.values(), strict=True):
            twin(other_loss, other.model, other.optimizer, other.scaler, max_norm)
        judge_scaler(run, judge)
        names = [
            "unscale-late" if n == "clips-scaled" and "unscale" in run.log else n for n in TWINS
        ]
        judge_result(run, right, judge, dict(zip(names, others, strict=True)))
        if not math.isfinite(norm):
            continue
        got = judge.number(got)
        if not math.isclose(got, norm, rel_tol=1e-3):
            diagnosis = "wrong-norm"
            if math.isclose(got, norm * 1024.0, rel_tol=1e-3):
                diagnosis = "scaled-norm"
            elif math.isclose(got, min(norm, max_norm), rel_tol=1e-3):
                diagnosis = "norm-after"
            judge.no(diagnosis, seen=got, expected=f"{norm:g}")


EXERCISE = Exercise(
    id="04.clipped_step",
    title="Clip the true gradient",
    level=2,
    minutes=8,
    task="""
Write `clipped_step(loss, model, optimizer, scaler, max_norm)`: from a loss that is not scaled yet, make
the backward pass and one optimiser step with the gradients clipped to the norm `max_norm`. Return the norm
of the true gradients, before clipping. Where gradients overflow, the step must be left out as ever.
Gradients of an earlier step may still be there.
""",
    hints=(
        "After the backward pass the gradients are the true ones times the scale. What does a limit of 1 "
        "mean to them?",
        "`scaler.unscale_(optimizer)` divides the gradients by the scale, in place and once. "
        "`scaler.step` then knows that it is done.",
        "Zero, scale and backward, unscale, `torch.nn.utils.clip_grad_norm_` (it returns the norm it "
        "found), step, update.",
    ),
    reference=clipped_step,
    check_answer=_check_clipped_step,
    why="Clipped while they are scaled, nearly all gradients are above the limit and come out tens of "
    "thousands of times too small. The loss goes down slowly and nothing looks broken.",
    diagnoses={
        "clips-scaled": "The gradients were clipped while they were still multiplied by the scale.",
        "unscale-late": "The gradients were unscaled only after the clipping: the limit was held "
        "against scaled ones.",
        "never-clips": "A large gradient made the step in its full length.",
        "divided-twice": "The gradients were divided twice: `scaler.step` does not know that it is done. Use "
        "`scaler.unscale_`.",
        "step-bypassed": "`optimizer.step()` also steps when the gradients overflowed. Leave the step "
        "to the scaler.",
        "not-scaled": "The backward pass went without the scale, and then the gradients were unscaled.",
        "no-update": "The scaler was never told that the step is over: its scale can neither fall nor grow.",
        "piles-up": "The gradient of the step before is still in this one: it must go before `backward()`.",
        "weights": "The weights are not those of a right step.",
        **REFUSED,
        "scaled-norm": "That is the norm of the scaled gradients. With each change of the scale it "
        "would jump.",
        "norm-after": "That is the norm after clipping: it can never be above the limit, so it tells "
        "nothing.",
        "wrong-norm": "That is not the norm of all gradients together.",
    },
)
