"""Puzzle: all_reduce on a ring."""

import math

import torch

from course_language import _
from course_lessons.shared.checking import on_ranks
from course_utils.exercises import Exercise
from course_utils.exercises.judge import Raised

from .checking import NOT_THERE, Watched, words


def ring_all_reduce(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        part = parts[(rank - step - 1) % n]
        received = torch.empty_like(part)
        sending = dist.isend(parts[(rank - step) % n], (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        sending.wait()
        if step < n - 1:
            part += received
        else:
            part.copy_(received)


_COLLECTIVES = ("all_", "reduce", "gather", "scatter", "broadcast")  # how their names begin
_RINGS = (  # the tensor's shape, how many ranks, and the dtype
    ((12,), 4, torch.float32),
    ((12,), 3, torch.int64),
    ((3, 5), 4, torch.float32),
    ((17,), 5, torch.float64),
    ((3,), 4, torch.float32),
    ((5,), 1, torch.float32),
)


def _tensor_of_rank(shape, dtype, rank):
    """Return the input of a rank; each rank's numbers are 10 times those of the rank before."""
    return (torch.arange(math.prod(shape)) + 1).mul(10**rank).view(shape).to(dtype)


def _check_ring(answer, judge, shape, ranks, dtype):
    """Check result, collectives, waits, bytes and number of messages on ``ranks`` simulated ranks."""
    asked = set()

    def run_rank(dist, call):
        x = _tensor_of_rank(shape, dtype, dist.get_rank())
        call(x, Watched(dist, asked))
        got = x.clone()
        x.zero_()  # the caller may do so, if nothing is on its way any more
        return got

    where = _("{ranks} ranks with {prod} numbers each").format(ranks=ranks, prod=math.prod(shape))
    try:
        run = on_ranks(run_rank, answer, ranks, judge, "deadlock", "wrong-value")
    except Raised as raised:
        if "before wait()" not in str(raised.error):
            raise
        judge.no("no-wait", seen=f"{where}: {raised.error}", expected=_("wait() first"))
    judge.expect("collectives", sorted(n for n in asked if n.startswith(_COLLECTIVES)), [])
    judge.expect(_("irecv without wait(), {where}").format(where=where), sum(run.unwaited), 0, "no-wait")
    if any((result < NOT_THERE / 2).any() for result in run.results):
        seen = _("{where}: what was still to arrive is in the result").format(where=where)
        judge.no("no-wait", seen=seen, expected=_("wait() first"))
    total = sum(_tensor_of_rank(shape, dtype, rank) for rank in range(ranks))
    right = torch.stack([result == total for result in run.results]).flatten(1)
    half_way = (right.sum(0) == 1).all() and right.any(1).all()
    diagnosis = "half-way" if half_way else "wrong-value"
    for rank, result in enumerate(run.results):
        what = _("x on rank {rank} of {where}").format(rank=rank, where=where)
        judge.expect(what, result, total, diagnosis)
    most = 2 * (ranks - 1)
    limit = most * math.ceil(math.prod(shape) / ranks) * dtype.itemsize
    if max(run.sent) > limit:
        seen = _("{where}: bytes sent by each rank: {sent}").format(where=where, sent=words(run.sent))
        judge.no("whole-tensors", seen=seen, expected=_("at most {limit} from each").format(limit=limit))
    if run.steps > most:
        seen = _("{where}: {steps} messages, one after the other").format(where=where, steps=run.steps)
        judge.no("too-many-steps", seen=seen, expected=_("at most {most}").format(most=most))


EXERCISE = Exercise(
    id="06.ring_all_reduce",
    title="Puzzle: all_reduce on a ring",
    level=3,
    minutes=25,
    task="""
Write `ring_all_reduce(x, dist)`. Afterwards `x` holds, in place and on each of the n ranks, the sum over all
ranks. It is contiguous and has any shape; n may be 1, and need not divide its size. You may use `dist.send`,
`recv`, `isend` and `irecv`, and no collective.

However many ranks there are, each may send at most **2 (n - 1) pieces** of `math.ceil(x.numel() / n)`
numbers. For a large tensor that's less than two gradients. And at most **2 (n - 1) messages** may stand in a
chain where each waits for the one before.

A way in: take a pencil and three ranks. `x.view(-1).tensor_split(3)` cuts `x` into three pieces, which are
views of `x`. Go in rounds like the one above. In each, every rank sends one piece and receives another. What
does a rank do with the piece that it receives, and which does it send next? The cell below your answer draws
what your function does.
""",
    hints=(
        "Follow a single piece. It leaves one rank, and each rank that it comes to adds its own numbers. How "
        "many rounds does it take until the sum is complete? In the same rounds, every other rank can start "
        "another piece, so all links are busy.",
        "There are two halves. In the first n - 1 rounds you add what comes in. In round s, rank r sends "
        "piece r - s and receives piece r - s - 1, both modulo n. Then each rank has one complete piece. "
        "What should happen to the complete pieces in the next n - 1 rounds?",
        """Here two rounds tell each of three ranks the largest number:

```python
from simgpu import cluster

def largest(dist):
    rank, theirs = dist.get_rank(), torch.empty(1)
    best = torch.tensor([[4.0, 9.0, 2.0][rank]])
    for _ in range(2):
        sending = dist.isend(best, (rank + 1) % 3)
        dist.recv(theirs, (rank - 1) % 3)
        sending.wait()
        best = torch.maximum(best, theirs)
    return best.item()  # 9.0 on each

cluster.run(largest, ranks=3)
```""",
    ),
    reference=ring_all_reduce,
    check_answer=lambda answer, judge: [_check_ring(answer, judge, *ring) for ring in _RINGS],
    may_change=True,
    why="A rank sends less than twice the tensor, whether there are 4 ranks or 4000, and that's why large "
    "clusters can train at all. NCCL and gloo use rings too, and trees where the tensors are small and the "
    "number of steps counts for more than the bytes.",
    diagnoses={
        "deadlock": "A rank waits for ever: each message needs one rank that sends it and one that receives "
        "it. Where every rank begins with `send`, nobody receives. Begin with `isend`, then receive, and "
        "then call `wait()`.",
        "no-wait": "A message may still be on its way. `isend` and `irecv` only begin one: leave its tensor "
        "alone until `wait()` of what they returned has returned.",
        "half-way": "Each rank has one complete piece, and the others are not. The first half of the way is "
        "done: now the complete pieces go round.",
        "whole-tensors": "A rank sends more than the target allows. Cut the tensor into pieces, and let "
        "every rank send one piece in each round, so that no link is the bottleneck.",
        "too-many-steps": "The bytes are right, and too many messages wait for one another. Those on one "
        "link do too: in each round, can every rank send one and receive one?",
    },
)
