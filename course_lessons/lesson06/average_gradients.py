"""Average the gradients."""

import torch
from torch import nn

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.values import nearly

from .checking import OnRanks


def average_gradients(model, dist):
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def _model_with_gradients(rank, unused):
    """Return a model with one frozen layer, and with gradients as if rank ``rank`` had run a backward pass.

    Parameters named in ``unused`` have none.
    """
    torch.manual_seed(rank)
    layers = {"first": nn.Linear(3, 2), "second": nn.Linear(2, 2, bias=False)}
    layers |= {"third": nn.Linear(2, 2).requires_grad_(False), "last": nn.Linear(2, 1)}
    model = nn.ModuleDict(layers)
    for number, (name, parameter) in enumerate(model.named_parameters()):
        if parameter.requires_grad and name not in unused:
            values = torch.arange(1.0, parameter.numel() + 1) + 10 * number
            values[::2] *= -1
            own = (rank + 1) ** 2 * values.roll(rank)  # no rank's is a multiple of another's
            parameter.grad = own.view_as(parameter)
    return model


_A, _B = "second.weight", "last.bias"
_CASES = (
    [((), ())],
    [((),)],
    [((), (_A,), ())],
    [((_A,), ())],
    [((_B,), (_A, _B))],
    [((_A,), (_A,), (_A, _B))],
)
"""For each rank, the parameters that the rank did not use."""


def _run_rank(dist, call, unused):
    """Run the answer on one rank; return its gradients, its weights, and which of them require a gradient."""
    model = _model_with_gradients(dist.get_rank(), unused[dist.get_rank()])
    call(model, dist)
    named = dict(model.named_parameters())
    return {
        **{f"{name}.grad": parameter.grad for name, parameter in named.items()},
        **{name: parameter.detach() for name, parameter in named.items()},
        "requires_grad": [parameter.requires_grad for parameter in named.values()],
    }


def _describe_case(unused):
    """Return the case in words: which parameters have no gradient, and on which ranks."""
    missing = [_("{n} on rank {r}").format(n=" and ".join(n), r=r) for r, n in enumerate(unused) if n]
    return _("{n_unused} ranks, without a gradient: {missing}").format(
        n_unused=len(unused), missing=", ".join(missing) or "none"
    )


_SEND, _DIVIDE = "dist.all_reduce(parameter.grad)", "parameter.grad /= dist.get_world_size()"

EXERCISE = Exercise(
    id="06.average_gradients",
    title="Average the gradients",
    level=2,
    minutes=10,
    task="""
Each rank has called `backward()` on rows of its own. Write `average_gradients(model, dist)`: on every rank,
each parameter's `.grad` becomes the mean over all ranks. A frozen parameter (`requires_grad=False`) gets no
gradient. For any other, `None` counts as zero: this rank did not use the parameter, and another one may have.
(Where none has, the mean is zero.)

`dist` is the simulated cluster in the check, and `torch.distributed` in real processes.
""",
    hints=(
        "Ask what each rank has now, and what all of them should have. `dist.all_reduce(tensor)` adds up "
        "over all ranks, in place, so afterwards each rank's tensor holds the sum. What turns a sum into a "
        "mean?",
        "Every rank must call `all_reduce` for the same tensors, in the same order. If a rank skips a "
        "parameter because its `.grad` is `None`, the others wait for it. What could this rank hand in "
        "instead, so that the sum stays right? A frozen parameter is frozen on all ranks, so all of them "
        "can skip it.",
        """Here three ranks average a score, and rank 1 has none:

```python
from simgpu import cluster

def mean_score(dist):
    score = [6.0, None, 9.0][dist.get_rank()]
    total = torch.tensor([0.0 if score is None else score])
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()

print(cluster.run(mean_score, ranks=3).results)  # [5.0, 5.0, 5.0]
```""",
    ),
    reference=average_gradients,
    check_answer=OnRanks(
        average_gradients,
        _CASES,
        known_mistakes_of(
            average_gradients,
            {
                "not-divided": {_DIVIDE: ""},
                "own": ({_SEND: "", _DIVIDE: ""}, lambda model, dist: None),
            },
        ),
        alike=nearly(),
        situation=_describe_case,
        program=_run_rank,
        hang=lambda unused: "none-skipped" if any(unused) else "not-all-call",
    ),
    may_change=True,
    why="This is data parallel training: all ranks start with equal weights and step with the same mean "
    "gradient, so their weights stay equal. `DistributedDataParallel` does the same with fewer and larger "
    "messages, and it sends them while the backward pass is still running.",
    diagnoses={
        "not-all-call": "Not every rank makes the same calls, though each has all gradients here. A "
        "collective is called by all ranks, in the same order.",
        "none-skipped": "A rank whose gradient is None leaves a call out here, so its calls no longer fit "
        "those of the other ranks.",
        "not-divided": "That's the sum over the ranks. Divide it by the number of ranks, so that it's the "
        "mean.",
        "own": "Each rank still has the gradient that it had. `all_reduce` adds up into the tensor that "
        "it's given, so give it `.grad` itself, and no copy.",
    },
)
