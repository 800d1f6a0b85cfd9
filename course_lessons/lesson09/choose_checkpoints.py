"""Which blocks to compute twice."""

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference, near

from .checking import plain


def choose_checkpoints(blocks, budget):
    def peak(chosen):
        kept = most = 0
        for number, (entry, inside, _) in enumerate(blocks):
            kept += entry
            most = max(most, kept + inside)
            if number not in chosen:
                kept += inside
        return most

    def seconds(chosen):
        return sum(blocks[number][2] for number in chosen)

    numbers = range(len(blocks))
    choices = [{n for n in numbers if bits >> n & 1} for bits in range(2 ** len(blocks))]
    return min((c for c in choices if peak(c) <= budget), key=seconds, default=None)


_CASES = (
    *(([(10, 40, 1.0)] * 6, budget) for budget in (1000, 299, 99)),
    ([(8, 60, 6.0), (8, 30, 1.0), (8, 60, 6.0), (8, 30, 1.0), (16, 20, 3.0), (8, 80, 2.0)], 200),
    ([(4, 9, 5.0), (4, 5, 2.0), (4, 5, 2.0), (4, 1, 1.0)], 26),
    ([(1, 10, 2.0), (1, 10, 3.0), (1, 20, 9.0), (1, 30, 1.0)], 54),  # two blocks for one dear one
    ([(5, 7, 2.0)], 12),
)


def peak_of(blocks, chosen):
    """Return the peak memory in MB when the blocks with the numbers in ``chosen`` are checkpointed."""
    kept = most = 0
    for number, (entry, inside, _) in enumerate(blocks):
        most = max(most, kept + entry + inside)
        kept += entry + (number not in chosen) * inside
    return most


def _random_case(rng):
    """Return random ``(blocks, budget)``; the budget is the peak of a random choice, or 1 MB less."""
    sizes = range(rng.randint(2, 5))
    blocks = [(rng.randint(1, 9), rng.randint(5, 40), float(rng.choice((1, 2, 3, 5, 8)))) for _ in sizes]
    chosen = {number for number in sizes if rng.random() < 0.5}
    return blocks, peak_of(blocks, chosen) - rng.choice((0, 0, 0, 1))


def _with_last_block(blocks, budget):
    """Return the right choice with the last block added: a known mistake."""
    right = choose_checkpoints(blocks, budget)
    return right and right | {len(blocks) - 1}


_MISTAKES = {
    "no-second-time": {"return most": "return kept"},
    "all-entries": {"kept = most = 0": "kept = most = sum(b[0] for b in blocks)", "kept += entry": ""},
    "last-block": _with_last_block,
}


def _validated_result(judge, got):
    """Return the block numbers as a set of ints, or None, or refuse the result."""
    if got is None:
        return None
    if not isinstance(got, (set, frozenset)):
        got = judge.listed(got, _("a set or a list of block numbers"))
    return {judge.is_a(plain(number), int, _("whole block numbers")) for number in got}


def _compared_value(got, blocks, budget):
    """Return ``(diagnosis if wrong, seconds or MB, the choice in words)``, or None for None."""
    if got is None:
        return None
    if not got <= set(range(len(blocks))):
        return "wrong-value", 0, f"{got}"
    peak, seconds = peak_of(blocks, got), sum(blocks[number][2] for number in got)
    if peak > budget:
        return "does-not-fit", peak, _("{got} with {peak:g} MB at the fullest").format(got=got, peak=peak)
    return "too-dear", seconds, _("{got} with {seconds:g} s more").format(got=got, seconds=seconds)


EXERCISE = Exercise(
    id="09.choose_checkpoints",
    title="Which blocks to compute twice",
    level=3,
    minutes=15,
    task="""
Checkpointing all blocks is seldom the best. Write `choose_checkpoints(blocks, budget)`. `blocks` lists, in
their order, at most ten tuples `(entry, inside, seconds)`: the MB of a block's input, the MB that it makes
inside for backward, and the time of its forward pass.

Backward goes from the last block to the first. Until its turn, a block keeps entry and inside; a checkpointed
one keeps its entry only, and makes the inside again at its turn, for `seconds` more. After its turn all is
free.

Return the numbers (from 0) of the blocks to checkpoint, as a set or a list, so that never more than `budget`
MB are in use and the least time is added; None where no choice fits.
""",
    hints=(
        "Imagine that it's the turn of block 2 in backward. Which blocks are free already? Write down what's "
        "in memory now, first without checkpoints, and then with one on block 1.",
        "At the turn of block i, its own inside is there, with or without a checkpoint. So are the entries "
        "of blocks 0 to i, and the insides of earlier blocks without a checkpoint. The largest of these sums "
        "must fit the budget. Ten blocks have only 1024 choices, and `itertools.combinations` lets you try "
        "them all.",
        """One loop can carry a total and remember the fullest moment. On this bus, people get on before
others get off.

```python
stops = [(12, 0), (5, 8), (9, 3)]  # how many get on, how many get off
on_board = most = 0
for on, off in stops:
    most = max(most, on_board + on)
    on_board += on - off
print(most)  # 18, at the last stop
```""",
    ),
    reference=choose_checkpoints,
    check_answer=ComparesToReference(
        choose_checkpoints,
        lambda: [(list(blocks), budget) for blocks, budget in _CASES],
        known_mistakes_of(choose_checkpoints, _MISTAKES),
        draw=_random_case,
        read=_validated_result,
        look=_compared_value,
        alike=lambda got, right: got == right or near(got[:2], right[:2]),
        otherwise=lambda got, *_: got[0] if got else "wrong-value",
        situation=lambda blocks, budget: _("{budget} MB, blocks {blocks}").format(
            budget=budget, blocks=blocks
        ),
        shown=lambda seen: seen[2] if seen else "None",
    ),
    why="A checkpoint on the last block is never worth it, because its turn comes first, while everything "
    "before it is still in memory. The other blocks differ: activation functions, norms and dropout fill "
    "much memory in little time, so they're good candidates, and matrix products are the opposite.",
    diagnoses={
        "does-not-fit": "At some moment this needs more than the budget.",
        "too-dear": "It fits, and another choice that fits adds less time.",
        "no-second-time": "At its turn a checkpointed block has its inside in memory too.",
        "all-entries": "You count all entries at every turn. Those of the later blocks are free by then.",
        "last-block": "The last block is computed twice for nothing, because its turn comes first.",
    },
)
