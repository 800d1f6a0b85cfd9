"""Clip the true gradient."""

import math

import torch
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise

from ..shared.checking import made_batches
from .checking import REFUSED, judge_scaler, over_runs
from .runs import Run, watched


def clipped_step(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


def _case_runner(step, judge=None):
    """Return a function that runs a case and returns what one step did, with the norm.

    With a ``judge`` it also judges use of the scaler, and whether an overflow skips the step.
    The reference and the known mistakes are run without one.
    """
    (x, y), *__ = made_batches((8,))

    def run_case(use_scaler, max_norm, factor):
        run = Run(use_scaler=use_scaler, interval=1)  # each good step doubles the scale
        loss = F.cross_entropy(run.model(x), y) * factor
        with watched(run, judge):
            norm = step(loss, run.model, run.optimizer, run.scaler, max_norm)
        if judge:
            judge_scaler(run, judge)
            if factor == math.inf and "made step" in run.log:
                judge.no(seen=_("a step"), expected=_("a step that is left out"))
            norm = norm if factor == math.inf else judge.number(norm)
        return [run.step_made(float(norm))]

    return run_case


def _describe_case(use_scaler, max_norm, factor):
    """Return the case in words; ``factor`` is what the loss is multiplied by."""
    words = _("max_norm={max_norm:g}, a loss times {factor:g}").format(max_norm=max_norm, factor=factor)
    return words if use_scaler else _("{words}, a disabled scaler").format(words=words)


_UNSCALE, _RETURN = "scaler.unscale_(optimizer)", "return norm"
_CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)"
_NORM = "torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])"
_DIVIDE = "for parameter in model.parameters():\n    parameter.grad /= scaler.get_scale()"
_BY_VALUE = f"{_NORM}\ntorch.nn.utils.clip_grad_value_(model.parameters(), max_norm)"
MISTAKES = known_mistakes_of(
    clipped_step,
    {
        "clips-scaled": ({_UNSCALE: ""}, {_UNSCALE: "", _CLIP: f"{_CLIP} / scaler.get_scale()"}),
        "divided-twice": {_UNSCALE: _DIVIDE},
        "by-value": {_CLIP: _BY_VALUE},
        "norm-after": ({_RETURN: f"return {_NORM}"}, {_RETURN: "return min(norm, max_norm)"}),
    },
)
_CASES = (
    (True, 10.0, 1.0),  # only scaled gradients are above the limit
    (True, 0.1, 1.0),
    (True, 1e4, 1.0),
    (True, 0.1, math.inf),  # the gradients overflow: this step is to be left out
    (True, 2.0, 30.0),
    (False, 0.1, 1.0),
)
_check_answer = over_runs(_case_runner, clipped_step, _CASES, MISTAKES, _describe_case)


EXERCISE = Exercise(
    id="05.clipped_step",
    title="Clip the true gradient",
    level=2,
    minutes=8,
    task="""
Write `clipped_step(loss, model, optimizer, scaler, max_norm)`. It gets a loss that isn't scaled yet. It
makes the backward pass and one optimiser step, with the gradients clipped to the norm `max_norm`. It returns
the norm of the true gradients, before clipping. If gradients overflow, the step must be skipped, as always.
Gradients of an earlier step may still be there.
""",
    hints=(
        "Look at the gradients right after the backward pass. They're the true gradients times the scale, "
        "which can be 65536. If you clipped them now, what would a limit of 1 mean for the true ones?",
        "So you undo the scale before you clip. `scaler.unscale_(optimizer)` divides the gradients in "
        "place, and the scaler remembers it. Then `scaler.step` doesn't divide again, and it still leaves "
        "out a step whose gradients overflowed. `torch.nn.utils.clip_grad_norm_` clips, and it returns the "
        "norm that it found before.",
        "Here somebody scales by 1000 and divides by hand before clipping, so the limit of 2.5 is one for "
        "the true gradient:\n\n"
        """```python
w = torch.nn.Parameter(torch.zeros(2))
w.grad = 1000 * torch.tensor([3.0, 4.0])  # a true norm of 5
w.grad /= 1000
found = torch.nn.utils.clip_grad_norm_([w], 2.5)
print(found, w.grad)  # tensor(5.) tensor([1.5000, 2.0000])
```""",
    ),
    reference=clipped_step,
    check_answer=_check_answer,
    why="If you clip gradients while they're still scaled, nearly all of them are above the limit, and they "
    "come out tens of thousands of times too small. With plain SGD the loss then hardly falls, and "
    "nothing looks broken.",
    diagnoses={
        "steps-anyway": REFUSED["steps-anyway"],
        "clips-scaled": "What came to the step was clipped to `max_norm` divided by the scale. So it goes "
        "where gradients are clipped while they are still multiplied by the scale.",
        "divided-twice": "The gradients were divided twice: `scaler.step` does not know that it is done. Use "
        "`scaler.unscale_`.",
        "by-value": "Each single value was cut to the limit. The limit is one for the norm of all gradients "
        "together.",
        "norm-after": "That is the norm after clipping: it can never be above the limit, so it tells "
        "nothing.",
    },
)
