"""One message per step."""

import torch
from torch import nn
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.checking import made_batches
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.values import nearly
from simgpu import cluster

from .checking import OnRanks, words


def accumulate(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)

    def add_gradient(x, y):
        (loss_fn(model(x), y) * len(x) / rows).backward()

    optimizer.zero_grad()
    with model.no_sync():
        for part in parts[:-1]:
            add_gradient(*part)
    add_gradient(*parts[-1])
    optimizer.step()


_CASES = (
    [((5, 3, 2), (4, 4, 2))],
    [((1, 3, 2, 4), (4, 1, 3, 2))],
    [((4, 4), (4, 4))],
    [((7,), (7,))],
)
"""For each rank, how many rows its parts have. (With unequal numbers of parts, a wrong answer would hang.)"""


def _run_rank(dist, call, sizes):
    """Run one step with gradients left over; return what was counted, in words for the learner."""
    torch.manual_seed(0)
    net, rank = nn.Linear(6, 3), dist.get_rank()
    model = cluster.DistributedDataParallel(net, dist)
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows, graphs, steps, in_vain = [], [0], [], []

    def backward(_):
        graphs.append(graphs[-1] - 1)
        in_vain.append(model._is_reduction_due and not model.require_backward_grad_sync)

    def forward(_, args, output):
        rows.append(len(args[0]))
        graphs.append(graphs[-1] + 1)
        if output.requires_grad:
            output.register_hook(backward)

    net.register_forward_hook(forward)
    optimizer.register_step_pre_hook(lambda *_: steps.append(1))
    call(model, made_batches(sizes[rank], 7 + rank), F.cross_entropy, optimizer)
    sent = [s for s in dist._cluster.spans if s.rank == rank and s.name == "all_reduce"]
    return {
        "rows of the forward passes": sorted(rows),
        "parts in memory at once": max(graphs),
        "backward passes": len(in_vain),
        "optimizer steps": len(steps),
        "all_reduce calls": len(sent),
        "backward passes that send, though within no_sync": sum(in_vain),
        "weights": nn.utils.parameters_to_vector(net.parameters()).detach(),
    }


_TERM, _SHARE = "(loss_fn(model(x), y) * len(x) / rows)", " * len(x) / rows"
_MISTAKES = {
    "every-part": {"with model.no_sync():": "if True:"},
    "forward-outside": {
        f"{_TERM}.backward()": f"loss = {_TERM}\n"
        "model.require_backward_grad_sync = x is parts[-1][0]\nloss.backward()\n"
        "model.require_backward_grad_sync = True",
        "with model.no_sync():": "if True:",
    },
    "never-sends": {"add_gradient(*parts[-1])": "    add_gradient(*parts[-1])"},
    "all-at-once": {
        f"{_TERM}.backward()": f"losses.append({_TERM})",
        "with model.no_sync():": "losses = []\nif True:",
        "optimizer.step()": "sum(losses).backward()\noptimizer.step()",
    },
    "unweighted": {_SHARE: " / len(parts)"},
}

EXERCISE = Exercise(
    id="06.accumulate",
    title="One message per step",
    level=2,
    minutes=12,
    task="""
Write `accumulate(model, parts, loss_fn, optimizer)`, one training step of a DDP model. The batch comes in
`parts`, a list of pairs `(x, y)` of different sizes. Ranks have equally many rows in all, and `loss_fn` gives
the mean over a part. Afterwards the weights are those after one step with the whole batch, and the gradients
were sent once. Old gradients may be left over. Run each part forward and backward once, one after the other.
""",
    hints=(
        "After each part, ask what has to travel. Can another rank do anything with the gradients of the "
        "first part alone? When do they hold the whole batch for the first time?",
        "Inside `with model.no_sync():` a backward pass only adds to this rank's gradients. DDP looks at it "
        "in the **forward** pass, so a part's two passes both belong inside. One part has to stay outside, "
        "because its backward pass sends the whole sum. Each loss is a mean over its part, so it counts "
        "with the part's share of the rows.",
        """Here each rank makes two gradients and sends them once:

```python
from simgpu import cluster

def two_passes(dist):
    model = cluster.DistributedDataParallel(torch.nn.Linear(1, 1), dist)
    with model.no_sync():
        model(torch.tensor([[3.0]])).backward()  # on each rank, weight.grad is 3
    model(torch.tensor([[8.0 * dist.get_rank()]])).backward()  # the mean of 3 and 11 is 7

cluster.run(two_passes, ranks=2)
```""",
    ),
    reference=accumulate,
    check_answer=OnRanks(
        accumulate,
        _CASES,
        known_mistakes_of(accumulate, _MISTAKES),
        alike=nearly(1e-4, 1e-6),
        situation=lambda sizes: _("parts of {words} rows on the ranks").format(
            words=" / ".join(map(words, sizes))
        ),
        program=_run_rank,
    ),
    limit=30.0,  # the first optimiser of a session takes seconds to import
    why="Without `no_sync` you get the same result, but each part pays for a message as large as the model. "
    "On a slow network that's most of the step.",
    diagnoses={
        "every-part": "Each part's backward pass sends the gradients here. Only the last one has to. Until "
        "then `model.no_sync()` keeps them on their rank.",
        "forward-outside": "The gradients still travel more than once. DDP decides in the forward pass "
        "whether the next backward pass sends: forward belongs within `no_sync` too.",
        "never-sends": "The gradients never travel, so each rank goes its own way. The last part must go "
        "through `model` itself, outside `no_sync`.",
        "all-at-once": "More than one part is in memory at a time. A part's activations go in its backward "
        "pass, so make that before the next part's forward pass.",
        "unweighted": "Each part counts the same here, so a row of a small part weighs more than the others.",
    },
)
