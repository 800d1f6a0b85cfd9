"""Loop d."""

import torch
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.edited import known_mistakes_of

from . import detective  # noqa: F401  (the stub's cell names it)
from .checking import judge_waits, limit, mend, reference_run, times


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


def _judge_work(got, judge):
    """Judge the full run: kernels, calls of the model, waits and modelled time."""
    launches, few = got.counters.launches, reference_run("d").counters.launches
    seen = {
        "seen": _("{launches} kernels, {calls} calls of the model; {seen}").format(
            launches=launches, calls=got.calls, seen=times("d", got)["seen"]
        ),
        "expected": _("about {few} kernels, {n_steps} calls; {expected}").format(
            few=few, n_steps=len(got.steps), expected=times("d", got)["expected"]
        ),
    }
    steps = len(got.steps)
    if launches > 1.5 * few and got.calls > steps:
        judge.no("each-sample" if got.calls >= 10 * steps else "wrong-value", **seen)
    judge_waits(got, judge)
    if launches > 2.5 * few:
        judge.no("one-by-one-after", **seen)
    if got.seconds > limit("d"):
        judge.no(**seen)


_LOSS = "(weights * each).sum() / weights.sum()"
D_MISTAKES = known_mistakes_of(
    mend_d,
    {
        "unweighted": {_LOSS: "each.mean()"},
        "divided-by-count": {_LOSS: "(weights * each).mean()"},
        "reports-unweighted": {"loss.detach()": "each.detach().mean()"},
    },
)


EXERCISE = mend(
    "d",
    reference=mend_d,
    known_mistakes=D_MISTAKES,
    judge_work=_judge_work,
    title="Loop d",
    level=2,
    minutes=10,
    task="""
Fix the fourth loop, as `mend_d(model, batches, optimizer)`. The batches are on the device. Each has inputs,
labels, and a weight for each sample. A step's loss is the weighted mean over its samples. It returns the list
of losses.
""",
    hints=(
        "How many kernels run in one step, and how long does each take? What's the host busy with all that "
        "time? Find the line that keeps it busy.",
        "A model takes a whole batch at once, so you don't need the inner loop. But `F.cross_entropy` gives "
        'you one mean, and your samples have unequal weights. With `reduction="none"` it gives you one loss '
        "for each sample. Multiply these by the weights and add them up. Then ask what a weighted mean "
        "divides by. It isn't the number of samples.",
        "Here the last of three errors counts twice, so it's as if there were four.\n"
        """
```python
guess, truth = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 4.0, 3.0])
errors = torch.nn.functional.l1_loss(guess, truth, reduction="none")
print(errors.tolist())  # [0.0, 2.0, 3.0], without "none" their mean
often = torch.tensor([1.0, 1.0, 2.0])
print((often @ errors / 4).item())  # 2.0
```""",
    ),
    why="The device does a batch in about the time of one sample, because launching is what takes the time. "
    "A Python loop over samples, pixels, heads or parameters is nearly always such a case.",
    diagnoses={
        "each-sample": "The model still sees one sample at a time, so there are about as many kernels as "
        "before.",
        "one-by-one-after": "The model takes a whole batch now. What follows it still goes sample by sample.",
        "unweighted": "That is the plain mean. The samples have weights.",
        "divided-by-count": "The weighted losses are divided by how many there are. A weighted mean divides "
        "by the sum of the weights.",
        "reports-unweighted": "The training is right. The list holds the plain means of the losses.",
    },
)
