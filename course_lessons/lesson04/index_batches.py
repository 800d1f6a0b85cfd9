"""A shuffle you can enter in the middle."""

import random

import torch

from course_language import _
from course_utils.exercises import Exercise


def index_batches(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator)
    return list(order.split(size))[start:]


def _check_answer(answer, judge):
    """Check lengths, order and reproducibility of the batches, and that ``start`` skips whole batches."""
    torch.manual_seed(12)
    random.seed(12)

    def batches(*arguments):
        return _validated_index_lists(answer(*arguments), judge)

    for n, size, seed in ((23, 5, 7), (24, 4, 3), (40, 16, 11), (9, 20, 5)):
        case = f"n = {n}, size = {size}"
        with judge.own_generator():
            got = answer(n, size, seed, 0, 0)
        whole = _validated_index_lists(got, judge)
        order = [i for batch in whole for i in batch]
        sizes = [size] * (n // size) + [n % size] * (n % size > 0)
        judge.expect(
            _("{case}, start = 0: batches of").format(case=case),
            [len(batch) for batch in whole],
            sizes,
        )
        judge.expect(
            _("{case}, start = 0: the indices, sorted").format(case=case),
            sorted(order),
            list(range(n)),
        )
        ascending = all(batch == sorted(batch) for batch in whole)
        if ascending or order == sorted(order, reverse=True):
            judge.no(
                seen=_("{case}, start = 0: {whole}").format(case=case, whole=whole[:2]),
                expected=_("a random order"),
            )
        if batches(n, size, seed, 0, 0) != whole:
            judge.no(
                "not-repeatable",
                seen=_("{case}: another order at the second call").format(case=case),
            )
        if batches(n, size, seed, 1, 0) == whole:
            judge.no(
                "same-each-epoch",
                seen=_("{case}: epochs 0 and 1 in the same order").format(case=case),
            )
        for start in range(1, len(whole) + 1):
            rest = batches(n, size, seed, 0, start)
            diagnosis = "wrong-value"
            if rest == [order[i : i + size] for i in range(start, n, size)]:
                diagnosis = "start-in-indices"
            elif start < len(whole) and not any(batch in whole for batch in rest):
                diagnosis = "not-the-rest"
            judge.expect(
                _("{case}, start = {start}").format(case=case, start=start),
                rest,
                whole[start:],
                diagnosis,
            )
        if batches(n, size, 7, 0, 0) != batches(n, size, 3, 4, 0):
            judge.no(
                seen=_("seed 3, epoch 4: another order than seed 7, epoch 0"),
                expected=_("the same order, because seed + epoch is the same"),
            )


def _validated_index_lists(got, judge):
    """Return the index tensors as lists of ints; refuse anything else than 1-D int64 tensors."""
    judge.is_a(got, (list, tuple), _("a list of index tensors"))
    for batch in got:
        if not isinstance(batch, torch.Tensor) or batch.dtype != torch.int64 or batch.ndim != 1:
            judge.no(seen=batch, expected=_("1-D int64 tensors"))
    return [batch.tolist() for batch in got]


EXERCISE = Exercise(
    id="04.index_batches",
    title="A shuffle you can enter in the middle",
    level=2,
    minutes=10,
    task="""
Write `index_batches(n, size, seed, epoch, start)`. It returns the batches of one epoch, from batch number
`start` on, as a list of index tensors. Shuffle all `n` indices with a generator of its own, seeded with
`seed + epoch`, so that torch's own generators don't move. The order is another one in each epoch, and the
same at each call. The last batch may be smaller.
""",
    hints=(
        "The batches from `start` on must be those that the whole epoch has at that place. So which "
        "comes first, shuffling, cutting or leaving out? And who would notice if you called "
        "`torch.manual_seed`?",
        "`torch.Generator()` is a generator of your own, and its method `manual_seed` sets where it "
        "begins. `torch.randperm` takes it as `generator=`, and then the global generators don't move. "
        "The seed must depend on the epoch but not on `start`. A tensor's `split` cuts it into "
        "batches, and the last one gets what is left.",
        "Here 100 draws from a generator of its own change nothing for the rest of the program.\n\n"
        """```python
torch.manual_seed(0)
expected = torch.rand(2)
torch.manual_seed(0)
own = torch.Generator().manual_seed(5)
torch.rand(100, generator=own)
print(torch.equal(torch.rand(2), expected))  # True
print([len(part) for part in torch.arange(10).split(4)])  # [4, 4, 2]
```""",
    ),
    reference=index_batches,
    check_answer=_check_answer,
    why="Now three numbers (seed, epoch, start) say exactly where a run is in its data. A checkpoint "
    "can keep them in place of the whole order.",
    diagnoses={
        "global-generator": "The function touched a generator that other code uses: "
        "then dropout and everything else that is random changes too.",
        "same-each-epoch": "Epochs 0 and 1 have the same order. The epoch should change it.",
        "not-the-rest": "From `start` on, the batches are not those of the whole epoch: its order must not "
        "depend on `start`.",
        "start-in-indices": "`start` was counted in indices. It counts batches.",
        "not-repeatable": "Two calls with the same arguments gave two orders.",
    },
)
