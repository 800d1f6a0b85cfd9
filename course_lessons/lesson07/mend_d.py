"""Loop d."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_utils.exercises import Judge

from . import detective
from .checking import (
    faulty_run,
    judge_result,
    judge_waits,
    limit,
    mend,
    reference_run,
    times,
    twin_of,
    without_sim,
)


def mend_d(model, batches, optimizer):
    losses = []
    for x, y, weights in batches:
        each = F.cross_entropy(model(x), y, reduction="none")
        loss = (weights * each).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _check_d(answer: Callable[..., Any], judge: Judge) -> None:
    if without_sim("d", answer, judge):
        return
    got = detective.run("d", answer, facts=False)
    twins = {name: functools.partial(twin_of, "d", twin) for name, twin in _D_TWINS.items()}
    judge_result("d", got, judge, twins)
    if got.seconds > limit("d"):
        faulty, launches = faulty_run("d").counters.launches, got.counters.launches
        waits = got.steps[-1].synchronizations if got.steps else 0
        seen = {"seen": f"{launches} kernels; {times('d', got)['seen']}"}
        expected = (
            f"about {reference_run('d').counters.launches} kernels; {times('d', got)['expected']}"
        )
        if waits > len(got.steps):
            judge.no("waits", **seen, expected=expected)
        judge.no(
            "each-sample" if launches > 0.6 * faulty else "small-pieces", **seen, expected=expected
        )
    judge_waits(got, judge)


def d_with(loss_of: Callable[[Any, Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    def mend_d(model, batches, optimizer):
        losses = []
        for x, y, weights in batches:
            loss = loss_of(model, x, y, weights)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).tolist()

    return mend_d


def one_by_one(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, reduction="none")


d_unweighted = d_with(lambda model, x, y, w: F.cross_entropy(model(x), y))


d_mean = d_with(lambda model, x, y, w: (w * one_by_one(model, x, y)).mean())


_D_TWINS = {"unweighted": d_unweighted, "divided-by-count": d_mean}


EXERCISE = mend(
    "d",
    reference=mend_d,
    check_answer=_check_d,
    title="Loop d",
    level=2,
    minutes=10,
    task="""
Write `mend_d(model, batches, optimizer)`, the fourth loop without its fault. The batches are on the device: inputs,
labels, and a weight for each sample. A step's loss is the weighted mean over its samples. It returns the list of
losses.
""",
    hints=(
        "How many kernels run in a step, and how long is each? What does the host do all the time?",
        "A model takes a whole batch at once. How do you get one loss for each sample from it?",
        '`F.cross_entropy(..., reduction="none")` gives one loss a sample. Their weighted mean is the sum of '
        "weight times loss by the sum of the weights.",
    ),
    why="The device does a batch in about the time of one sample, because launching is what takes the time. A Python loop "
    "over samples, pixels, heads or parameters is nearly always such a case.",
    diagnoses={
        "each-sample": "The model still sees one sample at a time, so there are about as many kernels as before.",
        "small-pieces": "There are fewer kernels than before, and still many times more than one pass for the whole "
        "batch needs.",
        "unweighted": "That is the plain mean. The samples have weights.",
        "divided-by-count": "The weighted losses are divided by how many there are. A weighted mean divides by the sum "
        "of the weights.",
        "waits": "The host now waits for the device in the loop over the samples.",
    },
)
