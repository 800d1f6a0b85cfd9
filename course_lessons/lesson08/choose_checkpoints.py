"""Which blocks to compute twice."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
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


_EQUAL = [(10, 40, 1.0)] * 6
_MIXED = [(8, 60, 6.0), (8, 30, 1.0), (8, 60, 6.0), (8, 30, 1.0), (16, 20, 3.0), (8, 80, 2.0)]
_CASES = (
    *((_EQUAL, budget) for budget in (1000, 300, 299, 100, 99)),
    *((_MIXED, budget) for budget in (290, 250, 200)),
    ([(4, 9, 5.0), (4, 5, 2.0), (4, 5, 2.0), (4, 1, 1.0)], 26),
    ([(4, 90, 1.0), (4, 10, 1.0), (4, 10, 9.0)], 94),
    ([(1, 10, 2.0), (1, 10, 3.0), (1, 20, 9.0), (1, 30, 1.0)], 54),  # two blocks for one dear one
    ([(2, 10, 4.0), (2, 8, 1.0), (2, 18, 7.0), (2, 40, 1.0)], 66),
    ([(5, 7, 2.0)], 12),
    ([(5, 7, 2.0)], 11),
)


def peak_of(blocks: Sequence[Any], chosen: set[int]) -> int:
    kept = most = 0
    for number, (entry, inside, _) in enumerate(blocks):
        most = max(most, kept + entry + inside)
        kept += entry + (number not in chosen) * inside
    return most


def _draw(rng: Random) -> tuple[list[tuple[int, int, float]], int]:
    blocks = [
        (rng.randint(1, 9), rng.randint(5, 40), float(rng.choice((1, 2, 3, 5, 8))))
        for _ in range(rng.randint(2, 5))
    ]
    chosen = {number for number in range(len(blocks)) if rng.random() < 0.5}
    return blocks, peak_of(blocks, chosen) - rng.choice((0, 0, 0, 1))


def _with_last_block(blocks: Sequence[Any], budget: int) -> set[int] | None:
    right = choose_checkpoints(blocks, budget)
    return right and right | {len(blocks) - 1}


_MISTAKES = {
    "no-second-time": {"return most": "return kept"},
    "all-entries": {
        "kept = most = 0": "kept = most = sum(block[0] for block in blocks)",
        "kept += entry": "",
    },
    "last-block": _with_last_block,
}


def _read(judge: Judge, got: Any) -> set[int] | None:
    if got is None:
        return None
    if not isinstance(got, (set, frozenset)):
        got = judge.listed(got, "a set or a list of block numbers")
    return {judge.is_a(plain(number), int, "whole block numbers") for number in got}


_Seen = tuple[str, float, set[int]] | None


def _look(got: set[int] | None, blocks: Sequence[Any], budget: int) -> _Seen:
    """Return what a choice is where it is not right, its seconds or else its MB, and the choice."""
    if got is None:
        return None
    if not got <= set(range(len(blocks))):
        return "wrong-value", 0, got
    peak = peak_of(blocks, got)
    if peak > budget:
        return "does-not-fit", peak, got
    return "too-dear", sum(blocks[number][2] for number in got), got


def _shown(seen: _Seen) -> str:
    if seen is None:
        return "None"
    kind, number, chosen = seen
    text = f"{chosen or 'set()'}"
    more = {
        "too-dear": f" with {number:g} s more",
        "does-not-fit": f" with {number:g} MB at the fullest",
    }
    return text + more.get(kind, "")


EXERCISE = Exercise(
    id="08.choose_checkpoints",
    title="Which blocks to compute twice",
    level=3,
    minutes=15,
    task="""
Checkpointing all blocks is seldom the best. Write `choose_checkpoints(blocks, budget)`. `blocks` lists, in their
order, at most ten tuples `(entry, inside, seconds)`: the MB of a block's input, the MB that it makes inside for
backward, and the time of its forward pass.

Backward goes from the last block to the first. Until its turn, a block keeps entry and inside; a checkpointed one
keeps its entry only, and makes the inside again at its turn, for `seconds` more. After its turn all is free.

Return the numbers (from 0) of the blocks to checkpoint, as a set or a list, so that never more than `budget` MB are in
use and the least time is added; None where no choice fits.
""",
    hints=(
        "Imagine that it's the turn of block 2 in backward. Which blocks are free already? Write down "
        "what's in memory now, first without checkpoints, and then with one on block 1.",
        "At the turn of block i, its own inside is there, with or without a checkpoint. So are the entries "
        "of blocks 0 to i, and the insides of earlier blocks without a checkpoint. The largest of these "
        "sums must fit the budget. Ten blocks have only 1024 choices, and `itertools.combinations` lets "
        "you try them all.",
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
        draw=_draw,
        read=_read,
        look=_look,
        alike=lambda got, right: got == right or near(got[:2], right[:2]),
        otherwise=lambda got, *_: got[0] if got else "wrong-value",
        situation=lambda blocks, budget: f"{budget} MB, blocks {blocks}",
        shown=_shown,
    ),
    why="A checkpoint on the last block is never worth it, because its turn comes first, while everything "
    "before it is still in memory. The other blocks differ: activation functions, norms and dropout "
    "fill much memory in little time, so they're good candidates, and matrix products are the "
    "opposite.",
    diagnoses={
        "does-not-fit": "At some moment this needs more than the budget.",
        "too-dear": "It fits, and another choice that fits adds less time.",
        "no-second-time": "At its turn a checkpointed block has its inside in memory too.",
        "all-entries": "You count all entries at every turn. Those of the later blocks are free by then.",
        "last-block": "The last block is computed twice for nothing: its turn comes first, when everything "
        "before it is still in memory.",
    },
)
