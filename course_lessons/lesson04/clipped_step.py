"""Clip the true gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn import functional as F

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases, several

from ..shared.checking import made_batches, one_thread
from .checking import REFUSED, judge_scaler, last_step, same_steps
from .runs import Run, watched


def clipped_step(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


def _one_step(step: Callable[..., Any], judge: Judge | None = None) -> Callable[..., Any]:
    """Return what makes a step and says what came of it; a judge looks at how it is made."""
    (x, y), *_ = made_batches((8,))

    def run_case(use_scaler: bool, max_norm: float, factor: float) -> list[dict[str, Any]]:
        run = Run(use_scaler=use_scaler, interval=1)  # each good step doubles the scale
        loss = F.cross_entropy(run.model(x), y) * factor
        with watched(run) if judge else nullcontext():
            norm = step(loss, run.model, run.optimizer, run.scaler, max_norm)
        if judge:
            judge_scaler(run, judge)
            if factor == math.inf and "made step" in run.log:
                judge.no(seen="a step", expected="a step that is left out")
            norm = norm if factor == math.inf else judge.number(norm)
        return [run.step_made(float(norm))]

    return run_case


_UNSCALE, _RETURN = "scaler.unscale_(optimizer)", "return norm"
_CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)"
_NORM = "torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])"
_DIVIDE = "for parameter in model.parameters():\n    parameter.grad /= scaler.get_scale()"
_BY_VALUE = f"{_NORM}\ntorch.nn.utils.clip_grad_value_(model.parameters(), max_norm)"
TWINS = twins_of(
    clipped_step,
    {
        "clips-scaled": ({_UNSCALE: ""}, {_UNSCALE: "", _CLIP: f"{_CLIP} / scaler.get_scale()"}),
        "divided-twice": {_UNSCALE: _DIVIDE},
        "by-value": {_CLIP: _BY_VALUE},
        "norm-after": ({_RETURN: f"return {_NORM}"}, {_RETURN: "return min(norm, max_norm)"}),
    },
)
_FORM = OverCases(
    _one_step(clipped_step),
    (
        (True, 10.0, 1.0),  # only scaled gradients are above the limit
        (True, 0.1, 1.0),
        (True, 1e4, 1.0),
        (True, 0.1, math.inf),  # the gradients overflow: this step is to be left out
        (True, 2.0, 30.0),
        (False, 0.1, 1.0),
    ),
    {name: tuple(map(_one_step, several(twin))) for name, twin in TWINS.items()},
    read=lambda judge, got: got,
    alike=same_steps,
    situation=lambda use_scaler, max_norm, factor: (
        f"max_norm={max_norm:g}, a loss times {factor:g}{', a disabled scaler' * (not use_scaler)}"
    ),
    shown=last_step,
)


@one_thread()
def _check_clipped_step(answer: Callable[..., Any], judge: Judge) -> None:
    _FORM(_one_step(answer, judge), judge)


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
