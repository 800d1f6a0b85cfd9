"""Loop a."""

import torch
from torch.nn import functional as F

from course_lessons.shared.edited import edited

from . import detective  # noqa: F401  (the stub's cell names it)
from .checking import judge_waits, limit, mend, times


def mend_a(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())
        optimizer.step()
    return torch.stack(norms).tolist()


def _judge_small(small, judge):
    """Refuse two or more waits a step, as one for each parameter gives, then more than one in all."""
    judge_waits(small, judge, few=2 * len(small.steps) - 1, diagnosis="each-parameter")
    judge_waits(small, judge, few=1, diagnosis="each-step")


def _judge_work(got, judge):
    """Judge the full run: its modelled time."""
    if got.seconds > limit("a"):
        judge.no(**times("a", got))


A_MISTAKES = {
    "sum-of-norms": edited(
        mend_a, {"for p in model.parameters()]).norm()": "for p in model.parameters()]).sum()"}
    )
}


EXERCISE = mend(
    "a",
    reference=mend_a,
    known_mistakes=A_MISTAKES,
    judge_small=_judge_small,
    judge_work=_judge_work,
    title="Loop a",
    level=2,
    minutes=10,
    task="""
Fix the first loop, as `mend_a(model, batches, optimizer)`. The batches are on the device. It returns a list
of Python numbers. For each step that's the norm of the gradient of all parameters together.
""",
    hints=(
        "Look in the timeline for the places where the host waits. Which expression in the loop turns a "
        "tensor into a Python number, and how often does it run in one step?",
        "Nothing has to leave the device before the last step is made. The norm of the parameters' norms is "
        "the norm of the whole gradient, and a tensor can hold it. `nn.utils.get_total_norm`, from lesson "
        "05, computes it for you from the gradients. Put one tensor into the list in each step, and make "
        "Python numbers of all of them after the loop.",
        "Here somebody wants the largest entry of two tensors, in each of four steps. All the numbers "
        "come to the host together.\n"
        """
```python
largest = []
for step in range(4):
    parts = [step * torch.ones(2, 3), -2 * torch.ones(5)]
    tops = torch.stack([part.max() for part in parts])
    largest.append(tops.max())  # still a tensor
print(torch.stack(largest).tolist())  # [0.0, 1.0, 2.0, 3.0]
```""",
    ),
    why="Each `.item()` makes the host wait until the queue is empty, and then the device waits for the "
    "host. If the numbers stay on the device, there's only one wait in the whole loop, and "
    "`nn.utils.get_total_norm` is a short way to get them.",
    diagnoses={
        "each-parameter": "The host still waits several times in every step. There its numbers leave the "
        "device one by one.",
        "each-step": "One wait per step is left. That gains most of the time here, and still empties the "
        "queue in every step: read the numbers when all steps are made.",
        "sum-of-norms": "The norms of the parts do not add up to the norm of the whole. Their squares do.",
        "too-early": "A copy with `non_blocking=True` was read before it had arrived. Wait for the device "
        "before you read it.",
    },
)
