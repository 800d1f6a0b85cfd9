"""Read, but not too early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import simgpu
from course_utils.devices import synchronize
from course_utils.exercises import Exercise, Judge
from simgpu.counters import Counters

from .checking import other_device


def predictions(model, batches, landing, device):
    start = 0
    for x in batches:
        stop = start + len(x)
        landing[start:stop].copy_(model(x).argmax(1), non_blocking=True)
        start = stop
    synchronize(device)
    return landing[:start].tolist()


def _classifier() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)).requires_grad_(False)
    for p in model.parameters():
        p.normal_()
    return model


def _check_predictions(answer: Callable[..., Any], judge: Judge) -> None:
    if simgpu.problem():
        print("Judged without the simulated device: only the values, not the waits.")
    with other_device() as other:
        device = torch.device("cpu") if other.type == "meta" else other
        for sizes in ((4, 4, 4), (5, 1, 7, 2, 3)):
            generator = torch.Generator().manual_seed(sum(sizes))
            rows = [torch.randn(n, 6, generator=generator) for n in sizes]
            right = _classifier()(torch.cat(rows)).argmax(1).tolist()
            landing = torch.full((len(right) + 3,), -1)
            landing = landing if device.type == "cpu" else landing.pin_memory()
            model, batches = _classifier().to(device), [x.to(device) for x in rows]
            synchronize(device)
            with simgpu.count() as counted:
                got = answer(model, batches, landing, device)
            _judge_predictions(got, right, len(sizes), counted, judge)


def _judge_predictions(got: Any, right: list[int], n: int, counted: Counters, judge: Judge) -> None:
    judge.is_a(got, list, "a list of class numbers")
    early = any(c.code == "d2h" and c.non_blocking for c in counted.copies)
    if len(got) > len(right):
        judge.no("whole-landing", seen=f"{len(got)} numbers", expected=f"{len(right)}, one a row")
    if got != right:
        unwritten = len(got) == len(right) and all(map(lambda g, r: g in (r, -1), got, right))
        judge.no("too-early" if early and unwritten else "wrong-classes", seen=got, expected=right)
    if counted.synchronizations > 1:
        judge.no(
            "waits-each",
            seen=f"the host waited {counted.synchronizations} times for {n} batches",
            expected="once",
        )


EXERCISE = Exercise(
    id="08.predictions",
    title="Read, but not too early",
    level=2,
    minutes=10,
    task="""
The loop below evaluates. `batches` are on the device, and `landing` is a pinned tensor on the host, with room for all rows and some more.
Each copy is `non_blocking`, so that the host can launch the next batch at once. But then it reads the landing place before
anything has landed. Mend `predictions(model, batches, landing, device)`: return the list of the predicted classes of all
rows, in order, and let the host wait **once**. (`synchronize(device)` is the course's.)
""",
    hints=(
        "When is the earliest moment at which all copies have been asked for? Nothing needs to be read before it.",
        "Each batch needs a place of its own in `landing`. Wait after the loop, then read.",
    ),
    reference=predictions,
    check_answer=_check_predictions,
    may_change=True,
    why="A copy to the device is safe without waiting, because the work that uses it stands in the same queue. The host stands "
    "in no queue. What it reads too early is old data, and there is no error.",
    diagnoses={
        "too-early": "The host read its memory before the copies had landed: some of what it found was there before.",
        "waits-each": "The host waited more than once. Ask for all copies, wait, and read them together.",
        "whole-landing": "Those are more numbers than there are rows. What lies behind the last row in `landing` was there before.",
        "wrong-classes": "Those are not the classes of all rows in their order. Has each batch a place of its own?",
    },
)
