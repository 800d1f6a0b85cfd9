"""The ranks that wait for ever."""

import torch
from torch import nn
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.checking import made_batches
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.values import nearly

from .checking import OnRanks, words


def unhang(model, batches, dist, log):
    total = torch.zeros(2)
    with torch.no_grad():
        for x, y in batches:
            loss = F.cross_entropy(model(x), y, reduction="sum")
            total += torch.stack([loss, torch.tensor(float(len(x)))])
    dist.all_reduce(total)
    mean = (total[0] / total[1]).item()
    if dist.get_rank() == 0:
        log(mean)
    return mean


_CASES = (
    [((4, 4), (4, 4))],
    [((4, 2, 3), (5,))],
    [((3,), (2, 2), (), (6, 1))],
    [((5, 2),)],
    [((2, 2), (7, 7), (1, 9))],
)
"""For each rank, how many rows its batches have."""


def _make_classifier():
    """Return the model: the same weights on every rank."""
    torch.manual_seed(5)
    return nn.Linear(6, 3)


def _run_rank(dist, call, sizes):
    """Run the answer on one rank; return what it returned and what it logged."""
    rank, logged = dist.get_rank(), []
    mean = call(_make_classifier(), made_batches(sizes[rank], 11 + rank), dist, logged.append)
    return {"returned": mean, "logged": logged}


def _validated_result(judge, got):
    """Return the result, or refuse it if a rank returned anything else than a Python number."""
    for result in got.values():
        judge.is_a(result["returned"], (int, float), _("a Python number on every rank"))
    return got


_SEND, _MEAN = "dist.all_reduce(total)", "mean = (total[0] / total[1]).item()"
_OWN_MEAN = "total[:] = torch.stack([total[0] / total[1].clamp(min=1), torch.tensor(1.0)])\n"
_BY_BATCH = {', reduction="sum"': "", "float(len(x))": "1.0"}
_MISTAKES = {
    "own-rows": {_SEND: ""},
    "mean-of-means": ({_SEND: _OWN_MEAN + _SEND}, _BY_BATCH),
    "all-log": {"dist.get_rank() == 0": "True"},
}

EXERCISE = Exercise(
    id="06.unhang",
    title="The ranks that wait for ever",
    level=2,
    minutes=10,
    task="""
`unhang(model, batches, dist, log)` is to return, on every rank, the mean loss of all rows of all ranks, as a
Python number, and to log it once, from rank 0. The ranks may have different numbers of batches, of different
sizes, and a rank may have none at all; no row is left out. The code in the cell hangs, for two reasons. Fix
both.
""",
    hints=(
        "Go through the code as rank 0 with two batches, and then as rank 1 with one batch. Write down "
        "every collective call that each of them makes. Where do the two lists differ?",
        "A collective call is safe only where every rank reaches it equally often. So it can't stand under "
        "`if rank == 0`, and it can't stand in a loop that's longer on some ranks than on others. What "
        "could each rank add up by itself first, so that a single call is enough? And does anybody have to "
        "wait for `log`?",
        """Here three ranks find the mean of all prices, though one rank has no price at all:

```python
from simgpu import cluster

def mean_price(dist):
    prices = [[3.0, 5.0], [10.0], []][dist.get_rank()]
    both = torch.tensor([sum(prices), float(len(prices))])
    dist.all_reduce(both)  # one call on each rank
    return both[0].item() / both[1].item()

print(cluster.run(mean_price, ranks=3).results)  # [6.0, 6.0, 6.0]
```""",
    ),
    reference=unhang,
    check_answer=OnRanks(
        unhang,
        _CASES,
        known_mistakes_of(unhang, _MISTAKES),
        read=_validated_result,
        alike=nearly(1e-5),
        situation=lambda sizes: _("batches of {words} rows on the ranks").format(
            words=" / ".join(map(words, sizes))
        ),
        program=_run_rank,
        hang=lambda sizes: "one-rank" if len({*map(len, sizes)}) == 1 else "unequal-loops",
    ),
    why="A real cluster doesn't tell you at once that it hangs, because it waits silently until a timeout "
    "ends it after minutes. So with every hang, ask which collective one rank has called and another "
    "hasn't, and let the Flight Recorder answer.",
    diagnoses={
        "one-rank": "All ranks have equally many batches here, and still they do not make the same calls. "
        "Which call does one rank alone make?",
        "unequal-loops": "The ranks have different numbers of batches here, and they do not make the same "
        "calls. Each must make every call, even where it has no batch at all.",
        "own-rows": "That's the mean over the rank's own rows. A collective call has to bring in the rows "
        "of the others.",
        "mean-of-means": "That's a mean of means. Batches and ranks have different numbers of rows, so a "
        "row among few counts for more than a row among many. Add up losses and rows, and divide once.",
        "all-log": "Other ranks log too. On many ranks that makes as many copies of each line.",
    },
)
