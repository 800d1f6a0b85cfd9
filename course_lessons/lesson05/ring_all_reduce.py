"""Puzzle: all_reduce on a ring."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lessons.shared.checking import on_ranks
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import NotYet, Raised
from simgpu import cluster

from .checking import words


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


COLLECTIVES = ("all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter")
COLLECTIVES += ("broadcast", "reduce_scatter", "reduce_scatter_tensor", "all_to_all_single")


class _Watched:
    """What a rank sees as ``dist``; notes what is asked for. What is still to arrive is no rank's number."""

    def __init__(self, dist: Any, asked: set[str]) -> None:
        self._dist, self._asked = dist, asked

    def __getattr__(self, name: str) -> Any:
        self._asked.add(name)
        return getattr(self._dist, name)

    def irecv(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        self._asked.add("irecv")
        return self._dist.irecv(tensor.fill_(_NOT_THERE), *args, **kwargs)


_NOT_THERE = -1e9
"""What a tensor holds until its message has arrived."""


_RINGS: tuple[tuple[tuple[int, ...], int, torch.dtype], ...] = (
    ((12,), 4, torch.float32),
    ((12,), 3, torch.int64),
    ((3, 5), 4, torch.float32),
    ((6,), 2, torch.float64),
    ((17,), 5, torch.float32),
    ((3,), 4, torch.float32),
    ((5,), 1, torch.float32),
)
"""The tensor's shape, how many ranks, and the dtype."""


def _check_ring_all_reduce(answer: Callable[..., Any], judge: Judge) -> None:
    for shape, ranks, dtype in _RINGS:
        asked: set[str] = set()

        def program(
            dist: Any,
            call: Callable[..., Any],
            shape: tuple[int, ...] = shape,
            dtype: torch.dtype = dtype,
            asked: set[str] = asked,
        ) -> Tensor:
            x = _addend(shape, dtype, dist.get_rank())
            call(x, _Watched(dist, asked))
            got = x.clone()
            x.zero_()  # the caller may do so, if nothing is on its way any more
            return got

        where = f"{ranks} ranks with {math.prod(shape)} numbers each"
        try:
            run = on_ranks(program, answer, ranks, judge, "deadlock", "other-partner")
        except NotYet as refusal:
            begun = "isend" in asked and asked & {"recv", "irecv"} and "in send" not in refusal.seen
            in_vain = begun or "finished" in refusal.seen
            if refusal.diagnosis == "deadlock" and in_vain:
                judge.no("no-partner", seen=refusal.seen, expected=refusal.expected)
            raise
        except Raised as raised:
            if "before wait()" not in str(raised.error):
                raise
            judge.no("no-wait", seen=f"{where}: {raised.error}", expected="wait() first")
        if collectives := sorted(asked & {*COLLECTIVES}):
            judge.no("collective", seen=", ".join(collectives), expected="only send and receive")
        if left := sum(run.unwaited):
            judge.no("no-wait", seen=f"{where}: {left} × irecv without wait()", expected="wait()")
        if any((each < _NOT_THERE / 2).any() for each in run.results):
            seen = f"{where}: what was still to arrive is in the result"
            judge.no("no-wait", seen=seen, expected="wait() first")
        _judge_sums(run.results, shape, dtype, where, judge)
        _judge_messages(run, shape, dtype, where, judge)


def _addend(shape: tuple[int, ...], dtype: torch.dtype, rank: int) -> Tensor:
    return (torch.arange(math.prod(shape)) + 1).mul(10**rank).view(shape).to(dtype)


def _judge_sums(
    results: Sequence[Tensor], shape: tuple[int, ...], dtype: torch.dtype, where: str, judge: Judge
) -> None:
    """Refuse a tensor on a rank that is not the sum over all ranks."""
    given = [_addend(shape, dtype, rank) for rank in range(len(results))]
    total = torch.stack(given).sum(0)
    if all(torch.equal(each, total) for each in results):
        return
    got = torch.stack(list(results))
    shares = [[_shares(number, at) for at, number in enumerate(each.flatten())] for each in results]
    places = [(rank, at) for at in range(total.numel()) for rank in range(len(results))]
    wrong = [(rank, at) for rank, at in places if shares[rank][at] != "1" * len(results)]
    known = all(0 < len(shares[r][at]) <= len(results) for r, at in wrong)
    often = [(r, at) for r, at in wrong if known and re.search("[2-9]", shares[r][at])]
    rank, at = (often or wrong or [(0, 0)])[0]
    why = "other-sum"
    if all(torch.equal(each, own) for each, own in zip(results, given, strict=True)):
        why = "not-in-place"
    elif all(torch.allclose(each * len(results), total) for each in results):
        why = "divided"
    elif often:
        why = "more-than-once"
    elif any(torch.equal(each, total) for each in results):
        why = "some-ranks"
    elif ((got == total).sum(0) == 1).all():
        why = "half-way"
    elif (got == torch.stack(given)).all(0).any():
        why = "left-over"
    elif known:
        why = "lacking"
    held = _held(shares[rank][at], len(results)) if known else ""
    number = results[rank].flatten()[at].item()
    judge.no(
        why,
        seen=f"place {at} on rank {rank} holds {number:g}{held}, with {where}",
        expected=f"{total.flatten()[at].item():g}, each rank's once",
    )


def _shares(number: Tensor, at: int) -> str:
    """Return how often each rank's addend is in a number: a digit for each, rank 0's at the end."""
    share = number.item() / (at + 1)
    return f"{share:.0f}" if share == int(share) and share >= 0 else ""


def _held(shares: str, ranks: int) -> str:
    digits = shares.zfill(ranks)[::-1]
    if not shares or len(digits) > ranks:
        return ""
    return ": " + ", ".join(f"{n} × rank {rank}'s" for rank, n in enumerate(digits) if n != "0")


def _judge_messages(
    run: cluster.Run, shape: tuple[int, ...], dtype: torch.dtype, where: str, judge: Judge
) -> None:
    """Refuse more bytes from a rank, or a longer chain of messages, than the ring needs."""
    ranks = len(run.results)
    size = math.prod(shape)
    most = 2 * (ranks - 1) * math.ceil(size / ranks) * dtype.itemsize
    if max(run.sent) > most:
        whole = size * dtype.itemsize
        alone = max(run.sent) > 1.5 * sorted(run.sent)[-2]
        all_of_it = min(run.sent) >= (ranks - 1) * whole
        judge.no(
            "one-rank" if alone else "whole-tensors" if all_of_it else "too-many-bytes",
            seen=f"{where}: bytes sent by each rank: {words(run.sent)}",
            expected=f"at most {most} from each",
        )
    if run.steps > 2 * (ranks - 1):
        judge.no(
            "too-many-steps",
            seen=f"{where}: {run.steps} messages, one after the other",
            expected=f"at most {2 * (ranks - 1)}",
        )


EXERCISE = Exercise(
    id="05.ring_all_reduce",
    title="Puzzle: all_reduce on a ring",
    level=3,
    minutes=25,
    task="""
Through rank 0 one link carries everything while the others are idle. There is a way in which every link carries *less than two*
gradients, however many ranks there are. Find it.

Write `ring_all_reduce(x, dist)`. Afterwards `x` holds, on each of the n ranks, the sum over all of them, in place. It is contiguous and
has any shape; n may be 1, and need not divide its size. You may use `dist.send`, `recv`, `isend` and `irecv`, and no collective.

The target, however many ranks there are: at most **2 (n - 1) messages** in a chain where each waits for the one before, and from each rank
at most **2 (n - 1) pieces** of `math.ceil(x.numel() / n)` numbers. Messages on one link wait for each other, so
go in rounds. `send` waits until its message is received; `isend` and `irecv` return at once, and are done when `wait()` of what they
returned has returned. The cell below your answer draws it.
""",
    hints=(
        "Cut `x` into n pieces, with `x.view(-1).tensor_split(n)`: they are views. In each step every rank sends one "
        "piece to its right neighbour and receives one from its left, so that all links are busy.",
        "In the first n - 1 steps, add what comes. In step s, rank r sends piece r - s and receives piece r - s - 1, both modulo n. "
        "Then each rank has one complete piece.",
        "In the next n - 1 steps, go on with the same numbering, and copy what comes in the place of adding it. In each step: "
        "`isend` to the right, `recv` from the left, then `wait()`.",
    ),
    reference=ring_all_reduce,
    check_answer=_check_ring_all_reduce,
    may_change=True,
    why="What a rank sends hardly depends on the number of ranks: less than twice the tensor, be they 4 or 4000. "
    "That is why large clusters can train at all. NCCL and gloo use rings, and trees where the tensors are small and the number of "
    "steps counts for more than the bytes.",
    diagnoses={
        "deadlock": "The ranks wait for each other. If every rank sends first, nobody receives: begin sending "
        "with `isend`, receive, and then wait.",
        "no-partner": "A rank waits in vain. Each message needs a rank that sends it and one that receives it: compare who sends to "
        "whom with who receives from whom.",
        "other-partner": "What one rank sends is not what the other one receives. Compare sizes and dtypes.",
        "no-wait": "A message may still be on its way. `isend` and `irecv` only begin one: leave its tensor alone until `wait()` of "
        "what they returned has returned.",
        "collective": "That is a collective. Build it from sending and receiving.",
        "not-in-place": "`x` is as it was. The sum belongs into `x` itself.",
        "divided": "That is the mean. The task asks for the sum.",
        "half-way": "Each rank has one complete piece, and the others are not. The first half of the way is done: now "
        "the complete pieces go round.",
        "some-ranks": "Some ranks have the sum, and others do not.",
        "more-than-once": "A rank's number is in a place more than once. What is complete must not be added again.",
        "lacking": "Some places lack the numbers of some ranks. Follow one piece: on its first way round every rank adds "
        "its numbers to it, and on its second every rank gets the whole.",
        "left-over": "Some places never took part: they are as before on every rank. n need not divide the size.",
        "other-sum": "Some places hold what no sum of the ranks' numbers for that place can be. Look at which piece a rank sends, at "
        "which one the next expects, and at whether it has arrived when it is added.",
        "one-rank": "One rank sends far more than the others. Its link is the bottleneck, and the more so the more ranks there are.",
        "whole-tensors": "Each rank sends the whole tensor several times. Send pieces.",
        "too-many-bytes": "The ranks send more than the target allows.",
        "too-many-steps": "The bytes are right, and too many messages wait for one another. Those on one link do too: in each round, can "
        "every rank send one and receive one?",
    },
)
