"""Loop c."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from course_utils.exercises import Judge

from . import detective
from .checking import judge_result, judge_waits, limit, mend, times, without_sim


def mend_c(model, make_loader, epochs, optimizer, device):
    losses = []
    loader = make_loader(num_workers=4, persistent_workers=True)
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _check_c(answer: Callable[..., Any], judge: Judge) -> None:
    if without_sim("c", answer, judge):
        return
    got = detective.run("c", answer, facts=False)
    judge_result("c", got, judge, {"other-batches": lambda right: right.result[:8] * 3})
    if got.seconds <= limit("c"):
        judge_waits(got, judge)
        return
    names = [span.name for span in got.timeline.spans if span.lane == "host"]
    first = got.steps[0].host if got.steps else math.inf
    loads = [s for s in got.timeline.spans if s.name == "load a batch" and s.end < first]
    starts = [s.seconds for s in got.timeline.spans if s.name == "start the workers"]
    if len(loads) > 8:
        judge.no("loads-first", **times("c", got))
    if len(starts) > 1:
        judge.no("workers-restart", **times("c", got))
    if not starts:
        pinned = "pin_memory" in names or any(c.non_blocking for c in got.counters.copies)
        judge.no("only-copies" if pinned else "in-line", **times("c", got))
    many = starts[0] > detective.Loader.CORES * detective.Loader.START
    judge.no("too-many-workers" if many else "too-few-workers", **times("c", got))


EXERCISE = mend(
    "c",
    reference=mend_c,
    check_answer=_check_c,
    title="Loop c",
    level=2,
    minutes=10,
    task="""
Write `mend_c(model, make_loader, epochs, optimizer, device)`, the third loop without its fault.
`make_loader(num_workers=0, pin_memory=False, persistent_workers=False)` makes a `DataLoader` on the virtual clock: loading a
batch keeps one core of the host busy, there are four cores, and starting a worker takes as long as loading two
batches. Every epoch has the same batches, and they fit on the device. It returns the list of losses.
""",
    hints=(
        "What does the device do while a batch is loaded? Who could load the next one meanwhile?",
        "`num_workers` lets other processes load. How often do they start in your loop, and how often must they?",
        "`persistent_workers=True` keeps the workers from one epoch to the next. The other way is to keep the batches of "
        "the first epoch on the device.",
    ),
    why="Loading beside the training costs only what the device cannot cover. Workers that restart in every epoch can eat "
    "up the gain, and data that is kept on the device needs no loader at all.",
    diagnoses={
        "in-line": "The training process still loads every batch by itself, and the device waits.",
        "only-copies": "Pinned memory makes the copies faster. The copies are not what takes the time here.",
        "loads-first": "All batches are loaded before the first step. That takes as long as before, and more memory.",
        "workers-restart": "The workers start anew in every epoch, and that costs what they gain.",
        "too-few-workers": "A single worker loads no faster than the training process did.",
        "too-many-workers": "There are more workers than cores. They share the cores, and each takes time to start.",
        "other-batches": "These are the losses of the first epoch, over and over.",
    },
)
