"""Clip the true gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn import functional as F

from course_lessons.shared.edited import twins_of, variants
from course_utils.exercises import Exercise, Judge

from ..shared.checking import made_batches, one_thread
from .checking import REFUSED, Play, judge_back, judge_runs, judge_scaler
from .runs import Run, watched


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
_CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)"
_NORM = "torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])"


_clips = variants(clipped_step, _CLIP)
_gives = variants(clipped_step, "return norm", "return {}")
_MISTAKES = {
    "clips-scaled": {_UNSCALE: ""},
    "divided-twice": {_UNSCALE: _DIVIDE},
    "by-value": _clips(f"{_NORM}\ntorch.nn.utils.clip_grad_value_(model.parameters(), max_norm)"),
}
TWINS = twins_of(clipped_step, _MISTAKES)
BACK = {
    "norm-after": _gives(_NORM, "min(norm, max_norm)"),
}


def _play(use_scaler: bool, max_norm: float, factor: float) -> Play:
    (x, y), *_ = made_batches((8,))

    def play(step: Callable[..., Any], watch: bool) -> Iterator[tuple[Run, Any]]:
        run = Run(use_scaler=use_scaler, interval=1)  # each good step doubles the scale
        loss = F.cross_entropy(run.model(x), y) * factor
        with watched(run) if watch else nullcontext():
            got = step(loss, run.model, run.optimizer, run.scaler, max_norm)
        yield run, got

    return play


@one_thread()
def _check_clipped_step(answer: Callable[..., Any], judge: Judge) -> None:
    plays = [
        _play(*case)
        for case in (
            (True, 10.0, 1.0),  # only scaled gradients are above the limit
            (True, 0.1, 1.0),
            (True, 1e4, 1.0),
            (True, 0.1, float("inf")),  # the gradients overflow: this step is to be left out
            (True, 2.0, 30.0),
            (False, 0.1, 1.0),
        )
    ]

    def look(run: Run, got: Any) -> Any:
        judge_scaler(run, judge)
        return got

    back = judge_runs(answer, judge, clipped_step, TWINS, plays, look)
    judge_back(judge, back, BACK, plays, "wrong-norm")


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
    "thousands of times too small. With plain SGD the loss then hardly falls, and nothing looks broken.",
    diagnoses={
        "steps-anyway": REFUSED["steps-anyway"],
        "clips-scaled": "What came to the step was clipped to `max_norm` divided by the scale. So it goes where gradients "
        "are clipped while they are still multiplied by the scale.",
        "divided-twice": "The gradients were divided twice: `scaler.step` does not know that it is done. Use "
        "`scaler.unscale_`.",
        "by-value": "Each single value was cut to the limit. The limit is one for the norm of all gradients together.",
        "norm-after": "That is the norm after clipping: it can never be above the limit, so it tells "
        "nothing.",
    },
)
