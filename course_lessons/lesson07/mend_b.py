"""Loop b."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Judge

from . import detective, loops
from .checking import judge_waits, limit, mend, times, usual_twins


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


def _judge_b(got: detective.Run, judge: Judge) -> None:
    sent = [copy for copy in got.counters.copies if copy.code == "h2d"]
    few = [copy for copy in sent if copy.bytes <= 8]
    most = 8 * len(got.steps)
    seen = {
        "seen": f"{len(sent)} copies to the device, {sum(copy.bytes for copy in sent):,} bytes",
        "expected": f"two copies a step and {_B_BYTES:,} bytes, or fewer",
    }
    if len(few) > most >= len(sent) - len(few):
        judge.no("labels-too", **seen)
    if len(sent) > most:
        judge.no("as-many" if any(copy.pinned for copy in sent) else "each-sample", **seen)
    if sum(copy.bytes for copy in sent) > 2 * _B_BYTES:
        judge.no("all-each-step", **seen)
    if got.seconds > limit("b"):
        judge.no("slow", **times("b", got))
    judge_waits(got, judge)


_B_BYTES = loops.ROWS_B * (4 * loops.WIDTH_B + 8)


def _with(images: str = "images[rows]", labels: str = "labels[rows]"):
    return edited(mend_b, {"images[rows]": images, "labels[rows]": labels})


def _picked(index: str):
    return _with(f"images[{index}]", f"labels[{index}]")


_MISTAKES = {
    "in-order": {"in order": "in torch.arange(len(images)).split(len(order[0]))"},
    "first-rows": _picked(": len(rows)"),
    "labels-apart": (
        _with(labels="labels[: len(rows)]"),
        _with(labels="labels[rows.sort().values]"),
        _with(labels="labels[rows - 1]"),
    ),
    "images-apart": _with(images="images[: len(rows)]"),
    "all-rows": _picked(":"),
    "range": _picked("rows.min() : rows.max() + 1"),
    "rows-once": _picked("rows.unique()"),
    "row-dropped": (_picked("rows[:-1]"), _picked("rows[1:]")),
    "reversed-order": {"in order": "in order[::-1]"},
    "times-rows": {"loss.detach()": "loss.detach() * len(y)"},
    **usual_twins(mend_b),
}
B_TWINS = twins_of(mend_b, _MISTAKES)


EXERCISE = mend(
    "b",
    reference=mend_b,
    twins=B_TWINS,
    judge_work=_judge_b,
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
        "as-many": "The copies from pinned memory are cheaper, and there are as many as before.",
        "labels-too": "The images travel together now. The labels still go one by one, and a small copy costs nearly "
        "as much as a large one.",
        "all-each-step": "Far more bytes travel than before: all the images in every step. Once would do.",
        "in-order": "The rows are taken as they come. The order of the task is another.",
        "first-rows": "Each step takes the first rows. `order` says which.",
        "labels-apart": "The labels are not those of the images: only the images are picked by their row numbers.",
        "images-apart": "The images are not those of the labels: only the labels are picked by their row numbers.",
        "all-rows": "Each step trains on all images. It shall take those that `order` names for it.",
        "range": "Each step takes all rows from its lowest number to its highest. It shall take those named, and no others.",
        "rows-once": "A row that `order` names twice in a step counts once here.",
        "row-dropped": "A row of each step is left out.",
        "reversed-order": "The steps are made in the reverse order.",
        "times-rows": "The training is right. Each loss is multiplied by the number of its rows.",
    },
)
