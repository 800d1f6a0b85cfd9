"""Loop f."""

import torch
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.edited import known_mistakes_of

from . import (
    detective,  # noqa: F401  (the stub's cell names it)
    loops,
)
from .checking import judge_waits, limit, mend, times


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


def _judge_small(small, judge):
    """Refuse more than two waits in a small run."""
    judge_waits(small, judge, few=2)


def _judge_work(got, judge):
    """Judge the full run: whether memory traffic grows from step to step, and the modelled time."""
    each = got.step_bytes
    if got.seconds <= limit("f") and len(each) > 2 and each[-1] - each[1] > loops.ROWS_F:
        judge.no(
            "still-grows",
            seen=_(
                "{second_each:,.0f} bytes read and written in the second step, {last_each:,.0f} in the last"
            ).format(second_each=each[1], last_each=each[-1]),
            expected=_("as many in each step"),
        )
    if got.seconds > limit("f"):
        late = got.rest_seconds > 0.25 * got.seconds
        judge.no("moved-to-the-end" if late else "still-grows", **times("f", got))


F_MISTAKES = known_mistakes_of(
    mend_f,
    {
        "mean-of-means": {
            "hits += (output.argmax(1) == y).sum()": "hits += (output.argmax(1) == y).float().mean()",
            "hits / seen": "hits / (len(accuracies) + 1)",
        },
        "aliased": {
            "hits, seen = [], 0, 0": "hits, seen = [], torch.zeros((), device=batches[0][0].device), []",
            "seen += len(y)": "seen.append(len(y) + sum(seen[-1:]))",
            "hits / seen": "hits",
            "torch.stack(accuracies)": "(torch.stack(accuracies).cpu() / torch.tensor(seen))",
        },
    },
)


EXERCISE = mend(
    "f",
    reference=mend_f,
    known_mistakes=F_MISTAKES,
    judge_small=_judge_small,
    judge_work=_judge_work,
    title="Loop f",
    level=3,
    minutes=12,
    task="""
Fix the sixth loop, as `mend_f(model, batches, optimizer)`. The batches are on the device, and one of them is
smaller. It returns a list of Python numbers. After each step that's the accuracy over all samples seen so
far. For each sample use the output of its own step, as the given loop does.
""",
    hints=(
        "Compare the last step with the first in the timeline. What does the last one do that the first one "
        "didn't have to do?",
        "The given loop keeps every output and goes through all of them again. What must you know of all "
        "earlier samples, so that you can add one more batch? Two numbers are enough. Count how many "
        "answers were right, as a tensor on the device, so that nobody has to wait for it. Count how many "
        "samples there were, too. The batches aren't equally large, so a mean of their accuracies would be "
        "wrong.",
        "Here's the largest number so far, after each of three batches. One tensor is all that's kept of "
        "the earlier ones.\n"
        """
```python
parts = [torch.tensor([3.0, 1.0]), torch.tensor([2.0]), torch.tensor([5.0, 4.0])]
best, so_far = torch.tensor(0.0), []
for part in parts:
    best = torch.maximum(best, part.max())  # a new tensor each time
    so_far.append(best)
print(torch.stack(so_far).tolist())  # [3.0, 3.0, 5.0]
```""",
    ),
    why="If each step goes over everything so far, a training of n steps does work in proportion to n², and "
    "a short trial doesn't show it. With a running count, every step costs the same.",
    diagnoses={
        "still-grows": "The last steps still take longer than the first: the earlier samples are gone "
        "through again.",
        "moved-to-the-end": "The steps are fast now, and the same work is done after the last one.",
        "waits-each-step": "The host now waits for the device in every step: what you count need not leave "
        "it before the last one.",
        "mean-of-means": "The mean of the batches' accuracies counts a small batch as much as a large one.",
        "aliased": "Every entry of the list is the same tensor; `+=` changed it later. Append a new tensor "
        "in each step.",
    },
)
