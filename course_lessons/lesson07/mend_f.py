"""Loop f."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Judge

from . import detective, loops
from .checking import judge_waits, limit, mend, times, usual_twins


def mend_f(model, batches, optimizer):
    accuracies, hits, seen = [], 0, 0
    for x, y in batches:
        output = model(x)
        loss = F.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (output.argmax(1) == y).sum()
        seen += len(y)
        accuracies.append(hits / seen)
    return torch.stack(accuracies).tolist()


def _judge_small(small: detective.Run, judge: Judge) -> None:
    judge_waits(small, judge, few=2)


def _judge_f(got: detective.Run, judge: Judge) -> None:
    each = got.step_bytes
    if got.seconds <= limit("f") and len(each) > 2 and each[-1] - each[1] > loops.ROWS_F:
        judge.no(
            "still-grows",
            seen=f"{each[1]:,.0f} bytes read and written in the second step, {each[-1]:,.0f} in the last",
            expected="as many in each step",
        )
    if got.seconds > limit("f"):
        late = got.rest_seconds > 0.25 * got.seconds
        judge.no("moved-to-the-end" if late else "still-grows", **times("f", got))


_COUNT, _SHARE = "hits += (output.argmax(1) == y).sum()", "hits / seen"
_AFTER = "output = model(x)\n"


def _with(share: str, count: str = _COUNT):
    return edited(mend_f, {_SHARE: share, _COUNT: count})


_MISTAKES = {
    "per-batch": _with("(output.argmax(1) == y).float().mean()"),
    "mean-of-means": _with(
        "hits / (len(accuracies) + 1)", "hits += (output.argmax(1) == y).float().mean()"
    ),
    "sum-of-means": _with("hits.float()", "hits += (output.argmax(1) == y).float().mean()"),
    "equal-sizes": (
        _with("hits / ((len(accuracies) + 1) * len(batches[0][1]))"),
        _with("hits / ((len(accuracies) + 1) * len(y))"),
    ),
    "other-divisor": (
        _with("hits / len(y)"),
        _with("hits / (len(accuracies) + 1)"),
        _with("hits / (seen + 1)"),
        _with("hits / sum(len(y) for _, y in batches)"),
        _with("hits / len(batches)"),
    ),
    "last-hits": _with("(output.argmax(1) == y).sum() / seen"),
    "counts": _with("hits.float()"),
    "percent": _with("100 * hits / seen"),
    "errors": _with("1 - hits / seen"),
    "new-output": (
        _with(_SHARE, _AFTER + _COUNT),
        _with(
            "(model(torch.cat([x for x, _ in batches])[:seen]).argmax(1) == torch.cat([y for _, y in batches])[:seen]).float().mean()"
        ),
    ),
    "one-late": {
        _COUNT: f"accuracies.append(torch.as_tensor({_SHARE} if seen else 0.0, device=y.device))\n{_COUNT}",
        f"accuracies.append({_SHARE})": "",
    },
    "losses": _with("loss.detach()"),
    "whole": _with("hits // seen"),
    "aliased": {
        "hits, seen = [], 0, 0": "hits, seen = [], torch.zeros((), device=batches[0][0].device), []",
        "seen += len(y)": "seen.append(len(y) + sum(seen[-1:]))",
        "hits / seen": "hits",
        "torch.stack(accuracies)": "(torch.stack(accuracies).cpu() / torch.tensor(seen))",
    },
    **usual_twins(mend_f, "torch.stack(accuracies)"),
}
F_TWINS = twins_of(mend_f, _MISTAKES)


EXERCISE = mend(
    "f",
    reference=mend_f,
    twins=F_TWINS,
    judge_small=_judge_small,
    judge_work=_judge_f,
    title="Loop f",
    level=3,
    minutes=12,
    task="""
Write `mend_f(model, batches, optimizer)`, the sixth loop without its fault. The batches are on the device, and one of
them is smaller. It returns a list of Python numbers: after each step, the accuracy over all samples seen so far, each with
the output that its own step gave.
""",
    hints=(
        "Compare the last step with the first. What does it do that the first one did not?",
        "What must be known of all earlier samples, so that one more batch can be added?",
        "Two numbers are enough: how many were right, as a tensor on the device, and how many there were.",
    ),
    why="Work over everything so far makes each step a little slower, and a training of n steps does n² of it. In a short "
    "trial it does not show. A running count makes each step cost the same.",
    diagnoses={
        "still-grows": "The last steps still take longer than the first: the earlier samples are gone through again.",
        "moved-to-the-end": "The steps are fast now, and the same work is done after the last one.",
        "waits-each-step": "The host now waits for the device in every step: what you count need not leave it before "
        "the last one.",
        "per-batch": "That is the accuracy of each batch by itself. The task asks for all samples so far.",
        "mean-of-means": "The mean of the batches' accuracies counts a small batch as much as a large one.",
        "sum-of-means": "The batches' accuracies are added. All hits so far by all samples so far is asked for.",
        "equal-sizes": "The hits are divided as if all batches were equally large, and one is smaller.",
        "other-divisor": "The hits are all there. They are divided by another number than the samples seen so far.",
        "last-hits": "The hits of this batch alone are divided by all samples so far.",
        "counts": "Those are the numbers of hits. The task asks for their share of all samples so far.",
        "percent": "That is in percent. The accuracy is a share, from 0 to 1.",
        "errors": "That is the share of the wrong ones. The task asks for the right ones.",
        "new-output": "The outputs are those of the model after its step. Each step's own output counts, from before it.",
        "one-late": "Each number is a step late: it is made before the step's own batch is counted.",
        "losses": "Those are the losses. The task asks for the accuracies.",
        "whole": "All accuracies are 0 here. `//` does that, which keeps the whole number alone; so does a comparison that hits "
        "nothing.",
        "aliased": "Every entry of the list is the same tensor; `+=` changed it later. Append a new tensor in each step.",
    },
)
