"""Loop d."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Judge

from . import detective
from .checking import judge_waits, limit, mend, reference_run, times, usual_twins


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


def _judge_d(got: detective.Run, judge: Judge) -> None:
    launches, few = got.counters.launches, reference_run("d").counters.launches
    seen = {
        "seen": f"{launches} kernels, {got.calls} calls of the model; {times('d', got)['seen']}",
        "expected": f"about {few} kernels, {len(got.steps)} calls; {times('d', got)['expected']}",
    }
    steps = len(got.steps)
    if launches > 1.5 * few and got.calls > steps:
        judge.no("each-sample" if got.calls >= 10 * steps else "small-pieces", **seen)
    judge_waits(got, judge)
    if launches > 2.5 * few:
        judge.no("one-by-one-after", **seen)
    if got.seconds > limit("d"):
        judge.no("slow", **seen)


def _with(loss: str):
    return edited(mend_d, {"(weights * each).sum() / weights.sum()": loss})


_MISTAKES = {
    "unweighted": _with("each.mean()"),
    "divided-by-count": _with("(weights * each).mean()"),
    "not-divided": _with("(weights * each).sum()"),
    "means-multiplied": _with("each.mean() * weights.mean()"),
    "divided-twice": _with("(weights * each).mean() / weights.sum()"),
    "by-mean-weight": _with("(weights * each).sum() / weights.mean()"),
    "by-largest": (
        _with("(weights / weights.max() * each).mean()"),
        _with("(weights / weights.max() * each).sum()"),
    ),
    "unweighted-sum": _with("each.sum() / weights.sum()"),
    "inverse": (
        _with("(each / weights).sum() / weights.sum()"),
        _with("(each / weights).sum() / (1 / weights).sum()"),
    ),
    "squared": (
        _with("(weights**2 * each).sum() / weights.sum()"),
        _with("(weights**2 * each).sum() / (weights**2).sum()"),
    ),
    "softmax": _with("(weights.softmax(0) * each).sum()"),
    "all-pairs": (
        _with("(weights[:, None] * each).sum() / weights.sum()"),
        _with("(weights[:, None] * each).mean() / weights.sum()"),
    ),
    "reports-unweighted": {"loss.detach()": "each.detach().mean()"},
    "times-rows": {"loss.detach()": "loss.detach() * len(y)"},
    **usual_twins(mend_d),
}
D_TWINS = twins_of(mend_d, _MISTAKES)


EXERCISE = mend(
    "d",
    reference=mend_d,
    twins=D_TWINS,
    judge_work=_judge_d,
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
        "one-by-one-after": "The model takes a whole batch now. What follows it still goes sample by sample.",
        "unweighted": "That is the plain mean. The samples have weights.",
        "divided-by-count": "The weighted losses are divided by how many there are. A weighted mean divides by the sum "
        "of the weights.",
        "not-divided": "That is the weighted sum. A weighted mean divides it by the sum of the weights.",
        "means-multiplied": "The mean loss is multiplied by the mean weight. Each sample's loss has a weight of its own.",
        "divided-twice": "The weighted sum is divided twice, by how many samples there are and by the sum of the weights.",
        "by-mean-weight": "The weighted sum is divided by the mean of the weights. A weighted mean divides by their sum.",
        "by-largest": "The weights are divided by the largest. A weighted mean divides by their sum.",
        "unweighted-sum": "The losses are added without their weights, and divided by the sum of these.",
        "inverse": "The losses are divided by their weights. A weight of 2 counts a sample twice.",
        "squared": "The weights are squared.",
        "softmax": "The weights are put through a softmax. Their own proportions count.",
        "all-pairs": "Each weight meets each loss: the two shapes broadcast to a table.",
        "reports-unweighted": "The training is right. The list holds the plain means of the losses.",
        "times-rows": "The training is right. Each loss is multiplied by the number of its rows.",
    },
)
