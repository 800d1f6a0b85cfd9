"""Who takes which rows."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from course_language import _
from course_utils.exercises import Exercise


def shard(n, rank, world_size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    length = math.ceil(n / world_size)
    padded = (order * world_size)[: length * world_size]
    return padded[rank::world_size]


def _check_answer(answer, judge):
    """Check the division of the rows among ranks, and their orders by epoch and seed."""

    def rows_of(n, rank, ranks, epoch, seed):
        torch.manual_seed(1000 + rank)  # each rank's global generator has a state of its own
        with judge.own_generator():
            rows = answer(n, rank, ranks, epoch, seed)
        rows = judge.listed(list(rows) if isinstance(rows, range) else rows, _("a list of row numbers"))
        numbers = [row.item() if isinstance(row, (Tensor, np.generic)) else row for row in rows]
        return [judge.is_a(number, int, _("whole row numbers")) for number in numbers]

    def order(epoch, seed=3):
        return [row for rank in (0, 1) for row in rows_of(50, rank, 2, epoch, seed)]

    for n, ranks in ((12, 3), (10, 4), (7, 2), (40, 1), (3, 8), (50, 6), (5, 32)):
        _judge_shards([rows_of(n, rank, ranks, 2, 3) for rank in range(ranks)], n, judge)
    epochs = [order(epoch) for epoch in range(4)]
    first, later = epochs[:2]
    steps = Counter((after - before) % 50 for before, after in pairwise(first[:25]))
    if max(steps.values(), default=0) > 12:
        judge.no(
            seen=_("rows {first} … in epoch 0").format(first=first[:8]),
            expected=_("a random order"),
        )
    judge.expect(_("epochs 0 and 1 have the same order"), first == later, False, "same-every-epoch")
    for rank, rows in enumerate((later[:25], later[25:])):
        kept = len({*rows} & {*first[:25]})
        if kept > 20:  # by chance in one of 380,000 seeds (hypergeometric)
            seen = _(
                "rank {rank} has in epoch 1 {kept} of the 25 rows of 50 that rank 0 had in epoch 0"
            ).format(rank=rank, kept=kept)
            judge.no("same-rows", seen=seen, expected=_("another choice"))
    judge.expect(_("different orders in epochs 0 to 3"), len({*map(tuple, epochs)}), 4)
    judge.expect(_("seeds 3 and 8 give the same order in epoch 0"), first == order(0, seed=8), False)


def _judge_shards(shards, n, judge):
    """Refuse one epoch's lists of rows, one for each rank, that do not divide ``n`` rows evenly."""
    some = ", ".join(f"rank {rank} {rows[:5]}" for rank, rows in enumerate(shards[:4]))
    seen = _("{n} rows for {n_shards} ranks: {some}").format(n=n, n_shards=len(shards), some=some)
    sizes, size = {len(rows) for rows in shards}, math.ceil(n / len(shards))
    if sizes != {size}:
        diagnosis = "unequal" if len(sizes) > 1 else "wrong-value"
        judge.no(diagnosis, seen=seen, expected=_("on each rank: {size}").format(size=size))
    counts = Counter(row for rows in shards for row in rows)
    if {*counts} - {*range(n)}:
        judge.no(seen=seen, expected=_("row numbers from 0 to {last}").format(last=n - 1))
    if len(counts) < n:
        judge.no("own-order", seen=seen, expected=_("all {n} rows, over all ranks").format(n=n))
    if max(counts.values()) > 1 + min(counts.values()):
        judge.no(seen=seen, expected=_("no row two times more than another"))


EXERCISE = Exercise(
    id="06.shard",
    title="Who takes which rows",
    level=2,
    minutes=10,
    task="""
Write `shard(n, rank, world_size, epoch, seed)`: the list of the row numbers, out of 0 to n - 1, that a rank
takes in an epoch. Without a word between them the ranks together go through all rows in a random order,
another one for each epoch and seed, so that a rank does not keep its rows. All take equally many, and no more
than needed: where the ranks do not divide n, some rows come once more than the others. n may be smaller than
the number of ranks. Global random generators stay as they are.
""",
    hints=(
        "How can ranks that never talk to each other agree on one random order? Look at the arguments, and "
        "ask which of them are the same on every rank. Only the choice from that order may depend on `rank`.",
        "Two generators with the same seed draw the same numbers. So make a `torch.Generator` of your own "
        "on every rank, seed it with a number that comes from both `seed` and `epoch`, and hand it to "
        "`torch.randperm(n, generator=...)`. A list that's too short for equal shares can be repeated, and "
        "a step such as `[1::3]` takes every third entry.",
        """Here three helpers share five tasks, so each of them gets two and one task comes twice:

```python
tasks = ["a", "b", "c", "d", "e"]
enough = (tasks + tasks)[:6]
for helper in range(3):
    print(helper, enough[helper::3])  # 0 has a and d, 1 has b and e, 2 has c and a
```""",
    ),
    reference=shard,
    check_answer=_check_answer,
    why="`DistributedSampler` does the same, and it learns the epoch from `set_epoch`. Equal shares matter, "
    "because a rank with one batch more would wait for ever in a collective call that no other rank makes.",
    diagnoses={
        "own-order": "Some rows are taken by nobody, and others more than once. All ranks need one and the "
        "same order of all rows, and pieces of it that don't overlap.",
        "same-every-epoch": "Each epoch has the same order. That is what happens where `set_epoch` is "
        "forgotten.",
        "same-rows": "Rows that one rank had in epoch 0 stay together in epoch 1. Shuffle all rows first, "
        "then share them out.",
        "unequal": "Some ranks have more rows than others. They would make more steps, and wait for the "
        "others.",
        "global-generator": "Your function changed a global generator. All ranks would draw the same "
        "numbers from it from here on, as for dropout. Use a `torch.Generator` of your own.",
    },
)
