"""A shuffle you can enter in the middle."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from course_utils.exercises import Exercise, Judge


def index_batches(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator)
    return list(order.split(size))[start:]


def _check_index_batches(answer: Callable[..., Any], judge: Judge) -> None:
    n, size = 23, 5
    torch.manual_seed(12)
    random.seed(12)
    with judge.own_generator():
        got = answer(n, size, 7, 0, 0)
    first = _index_lists(got, judge)
    flat = [i for batch in first for i in batch]
    if sorted(flat) != list(range(n)):
        judge.no(
            "not-each-once", seen=f"{len(set(flat))} of {n} indices", expected="each index once"
        )
    if [len(batch) for batch in first] != [5, 5, 5, 5, 3]:
        judge.no("sizes", seen=[len(batch) for batch in first], expected=[5, 5, 5, 5, 3])
    if flat == sorted(flat):
        judge.no("not-shuffled", seen=first, expected="a random order")
    if _index_lists(answer(n, size, 7, 0, 0), judge) != first:
        judge.no("not-repeatable", seen="another order at the second call", expected=first)
    if _index_lists(answer(n, size, 7, 1, 0), judge) == first:
        judge.no(
            "same-each-epoch", seen="epochs 0 and 1 in the same order", expected="another order"
        )
    for start in (1, 3, 5):
        rest = _index_lists(answer(n, size, 7, 0, start), judge)
        if rest != first[start:]:
            judge.no("not-the-rest", seen=f"start = {start}: {rest}", expected=first[start:])
    for one, other in (((7, 0), (3, 4)), ((5, 3), (6, 2))):  # the same sum
        wanted, got = (_index_lists(answer(n, size, *pair, 2), judge) for pair in (one, other))
        if got != wanted:
            judge.no(
                "other-seed",
                seen="seed {}, epoch {}: another order than seed {}, epoch {}".format(*other, *one),
                expected="the same order, because seed + epoch is the same",
            )


def _index_lists(got: object, judge: Judge) -> list[list[int]]:
    judge.is_a(got, (list, tuple), "a list of index tensors")
    for batch in got:
        if not isinstance(batch, torch.Tensor) or batch.dtype != torch.int64 or batch.ndim != 1:
            judge.no("not-index-tensors", seen=batch, expected="1-D int64 tensors")
    return [batch.tolist() for batch in got]


EXERCISE = Exercise(
    id="03.index_batches",
    title="A shuffle you can enter in the middle",
    level=2,
    minutes=10,
    task="""
Write `index_batches(n, size, seed, epoch, start)`: the batches of one epoch as a list of index tensors,
from batch number `start` on. All `n` indices come in an order that is random, different in each epoch
and the same at each call; the last batch may be smaller. Use a generator of its own, seeded with
`seed + epoch`: the global generators must not notice.
""",
    hints=(
        "`torch.Generator().manual_seed(number)` is a generator of your own; "
        "`torch.randperm(n, generator=...)` draws from it.",
        "Shuffle all n first, cut into batches, and only then leave out the first `start` batches.",
        "`order.split(size)` gives the batches, with the ragged one at the end; `[start:]` the rest.",
    ),
    reference=index_batches,
    check_answer=_check_index_batches,
    why="Now three numbers (seed, epoch, start) say exactly where a run is in its data. A checkpoint "
    "can keep them in place of the whole order.",
    diagnoses={
        "global-generator": "The function drew from a generator that other code uses, or seeded it: "
        "then dropout and everything else that is random changes too.",
        "same-each-epoch": "Every epoch has the same order: the seed does not depend on the epoch.",
        "not-the-rest": "From `start` on, the batches are not those of the whole epoch: `start` "
        "counts batches, and they are left out after the shuffle.",
        "not-each-once": "Some index is missing or comes twice: each epoch sees every digit once.",
        "sizes": "The batches have other sizes than asked for.",
        "not-shuffled": "The indices come in their natural order.",
        "not-repeatable": "Two calls with the same arguments gave two orders.",
        "not-index-tensors": "Each batch must be a 1-D tensor of indices.",
        "other-seed": "The order is random, but the generator is not seeded with `seed + epoch`.",
    },
)
