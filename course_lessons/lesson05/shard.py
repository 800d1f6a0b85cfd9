"""Who takes which rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_utils.exercises import Exercise, Judge


def shard(n, rank, world_size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    length = math.ceil(n / world_size)
    padded = (order * world_size)[: length * world_size]
    return padded[rank::world_size]


_SHARDS = ((12, 3), (10, 4), (7, 2), (40, 1), (3, 8), (50, 6), (5, 32))


def _check_shard(answer: Callable[..., Any], judge: Judge) -> None:
    for n, ranks in _SHARDS:
        _judge_shards(answer, n, ranks, judge)
    first, later, *more = epochs = [_order(answer, 50, epoch, 3, judge) for epoch in range(4)]
    other = _order(answer, 50, 0, 8, judge)
    steps = Counter((after - before) % 50 for before, after in pairwise(first[:25]))
    if max(steps.values(), default=0) > 12:
        judge.no("not-shuffled", seen=f"rows {first[:8]} … in epoch 0", expected="a random order")
    if first == later:
        judge.no("same-every-epoch", seen="epochs 0 and 1 alike", expected="another order")
    for rank, rows in enumerate((later[:25], later[25:])):
        kept = len({*rows} & {*first[:25]})
        if kept == 25:
            judge.no(
                "handed-round" if rank else "same-rows",
                seen=f"rank {rank} has in epoch 1 the 25 rows of 50 that rank 0 had in epoch 0",
                expected="another choice",
            )
        if kept > 20:  # by chance in one of 380,000 seeds (hypergeometric)
            judge.no(
                "nearly-same-rows",
                seen=f"rank {rank} has in epoch 1 {kept} of the 25 rows of 50 that rank 0 had in epoch 0",
                expected="another choice",
            )
    for epoch, order in enumerate(more, 2):
        if order in epochs[:epoch]:
            seen = f"epochs {epochs.index(order)} and {epoch} alike"
            judge.no("epochs-again", seen=seen, expected="another order")
    if first == other:
        judge.no("no-seed", seen="seeds 3 and 8 alike", expected="another order")


def _judge_shards(answer: Callable[..., Any], n: int, ranks: int, judge: Judge) -> None:
    """Refuse the rows of an epoch that are no fair division of ``n`` rows."""
    shards = [_rows(answer, n, rank, ranks, 2, 3, judge) for rank in range(ranks)]
    seen = f"{n} rows for {ranks} ranks: {_some(shards)}"
    length, sizes = math.ceil(n / ranks), sorted({len(rows) for rows in shards})
    often = Counter(row for rows in shards for row in rows)
    covered = {*often}
    if covered - set(range(n)):
        judge.no("other-rows", seen=seen, expected=f"row numbers from 0 to {n - 1}")
    if len(sizes) > 1:
        judge.no("unequal", seen=seen, expected=f"on each rank: {length}")
    if ranks > 1 and sizes == [n] and n > 1:
        judge.no("all-rows", seen=seen, expected=f"on each rank: {length}")
    if sizes[0] < length:
        judge.no("drops-rows", seen=seen, expected=f"on each rank: {length}")
    if sizes[0] > length:
        judge.no("too-long", seen=seen, expected=f"on each rank: {length}")
    if len(covered) < n:
        alone = [_rows(answer, n, 0, 1, 2, 3, judge) for _ in range(2)]
        if alone[0] != alone[1]:
            judge.no(
                "unseeded", seen=f"rows {alone[0][:5]}, then {alone[1][:5]}", expected="the same"
            )
        if len({*alone[0]}) < n:
            judge.no(
                "repeated", seen=f"rows {alone[0]} for a single rank", expected="each row once"
            )
        places = [[alone[0].index(row) for row in rows] for rows in shards]
        even = all(len({(b - a) % n for a, b in pairwise(each)}) < 2 for each in places)
        judge.no(
            "overlap" if even else "own-order", seen=seen, expected=f"all {n} rows, over all ranks"
        )
    if max(often.values()) > 1 + min(often.values()):
        judge.no("same-again", seen=seen, expected="no row two times more than another")


def _rows(
    answer: Callable[..., Any],
    n: int,
    rank: int,
    ranks: int,
    epoch: int,
    seed: int,
    judge: Judge,
) -> list[int]:
    """Call the answer as a rank does, whose own random numbers are in a state of their own."""
    torch.manual_seed(1000 + rank)
    with judge.own_generator():
        got = answer(n, rank, ranks, epoch, seed)
    got = list(got) if isinstance(got, range) else got
    rows = judge.listed(got, "a list of row numbers")
    numbers = [row.item() if isinstance(row, (Tensor, np.generic)) else row for row in rows]
    return [judge.is_a(number, int, "whole row numbers") for number in numbers]


def _order(
    answer: Callable[..., Any], n: int, epoch: int, seed: int, judge: Judge
) -> list[list[int]]:
    return [row for rank in (0, 1) for row in _rows(answer, n, rank, 2, epoch, seed, judge)]


def _some(shards: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"rank {rank} {list(rows)[:5]}" for rank, rows in enumerate(shards[:4]))


EXERCISE = Exercise(
    id="05.shard",
    title="Who takes which rows",
    level=2,
    minutes=10,
    task="""
Write `shard(n, rank, world_size, epoch, seed)`: the list of the row numbers, out of 0 to n - 1, that a rank takes in an epoch.
Without a word between them the ranks together go through all rows in a random order, another one for each epoch and seed, so
that a rank does not keep its rows. All take equally many, and no more than needed: where the ranks do not divide n, some rows
come once more than the others. n may be smaller than the number of ranks. Global random generators stay as they are.
""",
    hints=(
        "How can ranks that do not talk agree on one random order? What do all of them know?",
        "A `torch.Generator` of your own, seeded with `seed + epoch` on every rank, gives all of them the same "
        "`torch.randperm(n, generator=...)`.",
        "Repeat the order until it has `world_size * math.ceil(n / world_size)` entries. Each rank takes every "
        "`world_size`-th of them, from its own number on.",
    ),
    reference=shard,
    check_answer=_check_shard,
    why="`DistributedSampler` does this, with the epoch that `set_epoch` hands it.",
    diagnoses={
        "own-order": "Some rows are taken by nobody, and others more than once: the ranks do not share one order. It must not "
        "depend on the rank.",
        "unseeded": "The same call gives other rows each time, so the ranks cannot agree. Seed your generator with what all of "
        "them know.",
        "repeated": "Even a single rank, which is to take all rows, gets some of them twice and others never. A permutation has "
        "each row once.",
        "overlap": "All ranks have the same order, and they take pieces of it that overlap. Some rows are taken by nobody.",
        "same-every-epoch": "Each epoch has the same order. That is what happens where `set_epoch` is forgotten.",
        "same-rows": "A rank keeps its rows, and only their order changes. Shuffle all rows first, then share them out.",
        "handed-round": "The same rows stay together, and only the rank that has them is another. Shuffle all rows first, then "
        "share them out.",
        "nearly-same-rows": "Nearly all rows that one rank had stay together in the next epoch. Draw the whole order anew for each.",
        "epochs-again": "Two epochs that follow each other have other orders, and a later one has the order of an earlier one.",
        "same-again": "A row comes at least two times more than another. Where rows have to come again, go on through the order, "
        "one after the other.",
        "no-seed": "In epoch 0 the order does not depend on the seed.",
        "not-shuffled": "Most rows come in equal steps, as they lie in the data.",
        "unequal": "Some ranks have more rows than others. They would make more steps, and wait for the others.",
        "drops-rows": "Rows are left out where the ranks do not divide n. The task wants every row at least once.",
        "too-long": "There are more rows than needed.",
        "all-rows": "Each rank takes all rows. The ranks would only repeat each other's work.",
        "other-rows": "There is a row number that the data does not have.",
        "global-generator": "Your function changed a global generator. All ranks would draw the same numbers from it "
        "from here on, as for dropout. Use a `torch.Generator` of your own.",
    },
)
