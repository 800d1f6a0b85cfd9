"""Loop b."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from course_utils.exercises import Judge

from . import detective
from .checking import judge_result, judge_waits, limit, mend, times, twin_of, without_sim


def mend_b(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x, y = images[rows].to(device), labels[rows].to(device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _check_b(answer: Callable[..., Any], judge: Judge) -> None:
    if without_sim("b", answer, judge):
        return
    got = detective.run("b", answer, facts=False)
    judge_result("b", got, judge, {"other-rows": functools.partial(twin_of, "b", b_in_order)})
    sent = [copy for copy in got.counters.copies if copy.code == "h2d"]
    small = [copy for copy in sent if copy.bytes <= 8]
    most = 8 * len(got.steps)
    seen = {
        "seen": f"{len(sent)} copies to the device, {sum(copy.bytes for copy in sent):,} bytes",
        "expected": f"two copies a step and {_B_BYTES:,} bytes, or fewer",
    }
    if len(small) > most >= len(sent) - len(small):
        judge.no("labels-too", **seen)
    if len(sent) > most:
        judge.no("as-many" if any(copy.non_blocking for copy in sent) else "each-sample", **seen)
    if sum(copy.bytes for copy in sent) > 2 * _B_BYTES:
        judge.no("all-each-step", **seen)
    if got.seconds > limit("b"):
        judge.no("slow", **times("b", got))
    judge_waits(got, judge)


_B_BYTES = detective.ROWS_B * (4 * detective.WIDTH_B + 8)


def b_step(model, x, y, optimizer):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def b_in_order(model, images, labels, order, optimizer, device):
    losses, first = [], 0
    for rows in order:
        part = slice(first, first + len(rows))
        x, y = images[part].to(device), labels[part].to(device)
        losses.append(b_step(model, x, y, optimizer))
        first += len(rows)
    return torch.stack(losses).tolist()


EXERCISE = mend(
    "b",
    reference=mend_b,
    check_answer=_check_b,
    title="Loop b",
    level=1,
    minutes=8,
    task="""
Write `mend_b(model, images, labels, order, optimizer, device)`, the second loop without its fault. `images` (one row
an image) and `labels` are on the host and fit on the device. `order` holds one tensor of row numbers a step. It
returns the list of losses.
""",
    hints=(
        "Count the copies to the device in a step. How many must there be?",
        "A tensor can be indexed with a tensor of row numbers: `images[rows]` is a batch.",
        "Pick the rows first and move the batch, or move all images once, before the loop.",
    ),
    why="A copy costs time before its first byte moves: the launch, the way over the bus, the wait. One large copy pays "
    "that once. Data that fits on the device is best moved once for the whole training.",
    diagnoses={
        "each-sample": "Each sample still crosses the bus by itself.",
        "as-many": "Pinned memory and non_blocking make each copy cheaper, and there are as many as before.",
        "labels-too": "The images travel together now. The labels still go one by one, and a small copy costs nearly "
        "as much as a large one.",
        "all-each-step": "Far more bytes travel than before: all the images in every step. Once would do.",
        "other-rows": "These are the losses of the rows as they come. The order of the task is another.",
    },
)
