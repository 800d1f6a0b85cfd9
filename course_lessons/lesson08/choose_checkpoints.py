"""Which blocks to compute twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from course_utils.exercises import Exercise, Judge


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


def peak_of(blocks: Sequence[tuple[int, int, float]], chosen: set[int]) -> int:
    kept = [entry + (0 if n in chosen else inside) for n, (entry, inside, _) in enumerate(blocks)]
    return max(sum(kept[:n]) + entry + inside for n, (entry, inside, _) in enumerate(blocks))


def seconds_of(blocks: Sequence[tuple[int, int, float]], chosen: set[int]) -> float:
    return sum(blocks[n][2] for n in chosen)


_EQUAL = tuple((10, 40, 1.0) for _ in range(6))


_MIXED = ((8, 60, 6.0), (8, 30, 1.0), (8, 60, 6.0), (8, 30, 1.0), (16, 20, 3.0), (8, 80, 2.0))


_PLANS = (
    (_EQUAL, 1000),
    (_EQUAL, 300),
    (_EQUAL, 299),
    (_EQUAL, 180),
    (_MIXED, 290),
    (_MIXED, 250),
    (_MIXED, 200),
    (_EQUAL, 100),
    (_EQUAL, 99),
    (((4, 9, 5.0), (4, 5, 2.0), (4, 5, 2.0), (4, 1, 1.0)), 26),
    (((4, 90, 1.0), (4, 10, 1.0), (4, 10, 9.0)), 94),
    (((5, 7, 2.0),), 12),
    (((5, 7, 2.0),), 11),
)


def _check_choose_checkpoints(answer: Callable[..., Any], judge: Judge) -> None:
    for plan, budget in _PLANS:
        blocks = list(plan)
        best = choose_checkpoints(blocks, budget)
        case = f"for {len(blocks)} blocks in {budget} MB"
        got = answer(blocks, budget)
        if got is None or best is None:
            if got is not best:
                why = "gives-up" if got is None else "impossible"
                judge.no(why, seen=f"{got} {case}", expected=best if got is None else "None")
            continue
        judge.is_a(got, (set, frozenset, list, tuple), "a set of block numbers")
        chosen = {judge.is_a(number, int, "whole block numbers") for number in got}
        if not chosen <= set(range(len(blocks))):
            judge.no("no-block", seen=f"{got} {case}", expected="numbers from 0 on")
        peak, extra = peak_of(blocks, chosen), seconds_of(blocks, chosen)
        if peak > budget:
            judge.no(
                "does-not-fit",
                seen=f"{sorted(chosen)} {case}: {peak} MB at the peak",
                expected=f"at most {budget} MB",
            )
        least = seconds_of(blocks, best)
        if extra > least + 1e-9:
            without = seconds_of(blocks, chosen - {len(blocks) - 1})
            judge.no(
                "last-block" if without <= least + 1e-9 else "too-dear",
                seen=f"{sorted(chosen)} {case}: {extra:g} s more",
                expected=f"{least:g} s more is enough",
            )


EXERCISE = Exercise(
    id="08.choose_checkpoints",
    title="Which blocks to compute twice",
    level=3,
    minutes=15,
    task="""
Checkpointing all blocks is seldom the best. Write `choose_checkpoints(blocks, budget)`. `blocks` lists, in
their order, each block's `(entry, inside, seconds)`: the MB of its input, the MB that it makes inside for
backward, and how long its forward pass takes. There are at most ten.

Until its turn in backward, a block keeps its entry and its inside; a checkpointed one keeps its entry only, and
makes the inside again when its turn comes, for `seconds` more. Backward goes from the last block to the first.
What a block kept is free after its turn.

Return the set of the numbers (from 0) of the blocks to checkpoint, so that never more than `budget` MB are in
use and the least time is added; None where no choice fits.
""",
    hints=(
        "How much is in memory at the turn of block i? All entries up to i; the inside of i, checkpointed or "
        "not; and what of the blocks before it?",
        "The fullest moment is the largest of these sums over all turns. For ten blocks there are only 1024 "
        "choices to try.",
        "Write `peak(chosen)` with one loop over the blocks from the first, which carries what is kept so far. "
        "The numbers from 0 to `2 ** n - 1` are all choices, if bit k stands for block k.",
    ),
    reference=choose_checkpoints,
    check_answer=_check_choose_checkpoints,
    why="Two things to take with you. The last block is never worth it: its turn comes at once, while all the "
    "others are still there. And blocks differ: activation functions, norms and dropout fill much memory in "
    "little time, products the other way round. PyTorch's compiler can weigh single operations in this way, given "
    "a budget of memory.",
    diagnoses={
        "does-not-fit": "At some moment this needs more than the budget. At its turn a checkpointed block has "
        "its inside in memory too.",
        "too-dear": "It fits, and another choice that fits adds less time.",
        "last-block": "The last block is computed twice for nothing: its turn comes first, when everything "
        "before it is still in memory.",
        "gives-up": "There is a choice that fits.",
        "impossible": "Nothing fits here, so there is nothing to choose.",
        "no-block": "There is no such block.",
    },
)
