"""Loop b."""

import torch
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.edited import known_mistakes_of

from . import (
    detective,  # noqa: F401  (the stub's cell names it)
    loops,
)
from .checking import judge_waits, limit, mend, times


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


def _judge_work(got, judge):
    """Judge the full run: copies to the device, modelled time and waits."""
    sent = [copy for copy in got.counters.copies if copy.code == "h2d"]
    few = [copy for copy in sent if copy.bytes <= 8]
    most = 8 * len(got.steps)
    seen = {
        "seen": _("{n_sent} copies to the device, {total:,} bytes").format(
            n_sent=len(sent), total=sum(copy.bytes for copy in sent)
        ),
        "expected": _("two copies per step and {b_bytes:,} bytes, or fewer").format(b_bytes=_B_BYTES),
    }
    if len(few) > most >= len(sent) - len(few):
        judge.no("labels-too", **seen)
    if len(sent) > most:
        judge.no("each-sample", **seen)
    if sum(copy.bytes for copy in sent) > 2 * _B_BYTES:
        judge.no("all-each-step", **seen)
    if got.seconds > limit("b"):
        judge.no(**times("b", got))
    judge_waits(got, judge)


_B_BYTES = loops.ROWS_B * (4 * loops.WIDTH_B + 8)


B_MISTAKES = known_mistakes_of(
    mend_b, {"in-order": {"in order": "in torch.arange(len(images)).split(len(order[0]))"}}
)


EXERCISE = mend(
    "b",
    reference=mend_b,
    known_mistakes=B_MISTAKES,
    judge_work=_judge_work,
    title="Loop b",
    level=1,
    minutes=8,
    task="""
Fix the second loop, as `mend_b(model, images, labels, order, optimizer, device)`. `images`, with one row per
image, and `labels` are on the host and fit on the device. `order` holds one tensor of row numbers per step.
It returns the list of losses.
""",
    hints=(
        "Count the copies to the device in one step. The given loop makes one for each image and one for "
        "each label. How many does a step really need?",
        "A copy costs time before its first byte moves, so one large copy is much cheaper than many small "
        "ones. You can index a tensor with a tensor of row numbers, so `images[rows]` is a whole batch. "
        "Either you pick the rows on the host and then move the batch, or you move all images and labels "
        "once, before the loop.",
        "Here three rows are picked from a small table in one go. The order is that of the row numbers, "
        "and a row may come twice.\n"
        """
```python
table = torch.arange(12).reshape(4, 3)
names = torch.tensor([30, 31, 32, 33])
picked = torch.tensor([3, 0, 3])
print(table[picked].shape)  # torch.Size([3, 3])
print(names[picked].tolist())  # [33, 30, 33]
```""",
    ),
    why="A copy costs time before its first byte moves: the launch, the way over the bus, the wait. One "
    "large copy pays that once. Data that fits on the device is best moved once for the whole training.",
    diagnoses={
        "each-sample": "Each sample still crosses the bus by itself.",
        "labels-too": "The images travel together now. The labels still go one by one, and a small copy "
        "costs nearly as much as a large one.",
        "all-each-step": "Far more bytes travel than before: all the images in every step. Once would do.",
        "in-order": "The rows are taken as they come, not in the order that `order` names.",
        "waits-each-step": "In every step the host now waits for the device. The given loop had no such "
        "wait. Read the losses when all steps are made.",
    },
)
