"""Four ranks, one file."""

from collections.abc import Mapping

from torch import nn

from course_language import _
from course_lessons.shared.checking import on_ranks
from course_utils.exercises import Exercise
from simgpu import cluster


def save_on_one(model, dist, save):
    if dist.get_rank() == 0:
        save(model.module.state_dict())
    dist.barrier()


class _Net(nn.Module):
    """A network with buffers, and with a child that is called ``module``."""

    def __init__(self):
        super().__init__()
        self.module = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)


def _run_rank(dist, answer):
    """Run the answer on one rank of the simulated cluster.

    Returns the list of arguments with which it called ``save``, and the state_dict of the unwrapped model.
    Records the spans ``save`` and ``go on``, by which the check sees whether a rank returned before the
    file was written.
    """
    saved = []

    def save(values):
        cluster.compute(dist, 1.0, "save")
        saved.append(values)

    model = cluster.DistributedDataParallel(_Net(), dist)
    dist.barrier()
    answer(model, dist, save)
    cluster.compute(dist, 0.1, "go on")
    return saved, model.module.state_dict()


def _check_answer(answer, judge):
    """Check on 2, 1 and 4 ranks who saves, what is saved, and that all ranks wait for it."""
    for ranks in (2, 1, 4):
        run = on_ranks(_run_rank, answer, ranks, judge, "hang")
        saved, right = run.results[0]
        writers = [rank for rank, (states, _) in enumerate(run.results) for _ in states]
        several = "every-rank" if len(set(writers)) > 1 else "wrong-value"
        judge.expect(_("of {ranks} ranks, those that saved").format(ranks=ranks), writers, [0], several)
        state = judge.is_a(saved[0], Mapping, _("a state_dict"))
        diagnosis = "missing-keys" if set(state) < set(right) else "wrong-value"
        if all(f"module.{key}" in state for key in right):
            diagnosis = "wrapped-keys"
        judge.expect("keys", ", ".join(map(str, state)), ", ".join(right), diagnosis)
        judge.expect("state", dict(state), dict(right))
        done = max(span.end for span in run.spans if span.name == "save")
        early = [s.rank for s in run.spans if s.name == "go on" and s.start < done - 1e-6]
        if early:
            seen = _("ranks {early} of {ranks} went on before the file was there").format(
                early=early, ranks=ranks
            )
            judge.no("no-wait", seen=seen, expected=_("all ranks wait for it"))


EXERCISE = Exercise(
    id="09.save_on_one",
    title="Four ranks, one file",
    level=2,
    minutes=6,
    task="""
In the cell, every rank writes the same file at once, with keys that the plain model does not know. Write
`save_on_one(model, dist, save)` for a `model` wrapped by `DistributedDataParallel`: rank 0 calls
`save(state)` once, with the keys of the model inside. All ranks call the function. Saving takes a while; when
the function returns on any rank, the file is there. (`dist` stands for `torch.distributed`.)
""",
    hints=(
        "Ask three questions. Which rank has to write the file? What should the others do in the meantime? "
        "And where does the wrapper keep your own model?",
        "`dist.get_rank()` tells you which rank you are. `dist.barrier()` makes each rank wait until all "
        "ranks have called it. So every rank has to come to it, because otherwise the others wait forever. "
        "Think about what rank 0 must have done by then.",
        """Other wrappers keep the model in an attribute as well. This one averages weights, and you can see
how the keys differ:

```python
net = torch.nn.Linear(3, 1)
average = torch.optim.swa_utils.AveragedModel(net)
print(list(average.state_dict()))  # ['n_averaged', 'module.weight', 'module.bias']
print(list(average.module.state_dict()))  # ['weight', 'bias']
```

`DistributedDataParallel` uses the same name for that attribute.""",
    ),
    reference=save_on_one,
    check_answer=_check_answer,
    why="All replicas are equal, so one copy is enough, and the barrier makes sure that no rank loads the "
    "file or ends the job before it's written. With FSDP no rank has the whole model, so there each rank "
    "saves its own part with `torch.distributed.checkpoint`.",
    diagnoses={
        "every-rank": "Several ranks write the same file.",
        "wrapped-keys": "The keys are those of the wrapper: each begins with one `module.` more than in the "
        "model inside.",
        "missing-keys": "Keys are missing. A model's state has its buffers too, such as BatchNorm's running "
        "mean.",
        "no-wait": "Some ranks go on while rank 0 still writes.",
        "hang": "Ranks wait for ever. A barrier counts only where every rank comes to it.",
    },
    may_change=True,
)
