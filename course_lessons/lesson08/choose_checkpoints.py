"""Which blocks to compute twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases
from course_utils.exercises.values import brief

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


def peak_of(blocks: Sequence[Any], chosen: set[int]) -> int:
    kept = most = 0
    for number, (entry, inside, _) in enumerate(blocks):
        most = max(most, kept + entry + inside)
        kept += entry + (number not in chosen) * inside
    return most


def seconds_of(blocks: Sequence[Any], chosen: set[int]) -> float:
    return sum(blocks[n][2] for n in chosen)


_EQUAL = tuple((10, 40, 1.0) for _ in range(6))
_MIXED = ((8, 60, 6.0), (8, 30, 1.0), (8, 60, 6.0), (8, 30, 1.0), (16, 20, 3.0), (8, 80, 2.0))
_CASES = (
    (_EQUAL, 1000),
    (_EQUAL, 300),
    (_EQUAL, 299),
    (_MIXED, 290),
    (_MIXED, 250),
    (_MIXED, 200),
    (_EQUAL, 100),
    (_EQUAL, 99),
    (((4, 9, 5.0), (4, 5, 2.0), (4, 5, 2.0), (4, 1, 1.0)), 26),
    (((4, 90, 1.0), (4, 10, 1.0), (4, 10, 9.0)), 94),
    (((1, 10, 2.0), (1, 10, 3.0), (1, 20, 9.0), (1, 30, 1.0)), 54),  # two blocks for one dear one
    (((2, 10, 4.0), (2, 8, 1.0), (2, 18, 7.0), (2, 40, 1.0)), 66),
    (((5, 7, 2.0),), 12),
    (((5, 7, 2.0),), 11),
)


def _draw(rng: Random) -> tuple[list[tuple[int, int, float]], int]:
    blocks = [
        (rng.randint(1, 9), rng.randint(5, 40), float(rng.choice((1, 2, 3, 5, 8))))
        for _ in range(rng.randint(2, 5))
    ]
    peaks = sorted({peak_of(blocks, chosen) for chosen in _choices(len(blocks))})
    return blocks, rng.choice([*peaks, *peaks, peaks[0] - 1])


def _choices(count: int) -> list[set[int]]:
    return [{n for n in range(count) if bits >> n & 1} for bits in range(2**count)]


def _changed(change):
    def choose(blocks, budget):
        right = choose_checkpoints(blocks, budget)
        return None if right is None else change(right, set(range(len(blocks))))

    return choose


_TWINS = {
    "no-second-time": {"return most": "return kept"},
    "all-entries": {
        "kept = most = 0": "kept = most = sum(block[0] for block in blocks)",
        "kept += entry": "",
    },
    "last-block": _changed(lambda right, numbers: right and right | {max(numbers)}),
}

_Seen = tuple[str, float, list[int]] | None


def _look(got: list[int] | None, blocks: Sequence[Any], budget: int) -> _Seen:
    """Return whether a choice fits, the seconds or else the MB, and the choice."""
    if got is None:
        return None
    if not set(got) <= set(range(len(blocks))):
        return "no-block", 0, sorted(got)
    peak = peak_of(blocks, set(got))
    return ("fits", seconds_of(blocks, set(got)), got) if peak <= budget else ("dear", peak, got)


def _alike(got: _Seen, right: _Seen) -> bool:
    if got is None or right is None or got[0] == "no-block":
        return got == right
    return got[0] == right[0] and math.isclose(got[1], right[1], abs_tol=1e-9)


def _otherwise(got: _Seen, right: _Seen, blocks: Sequence[Any], budget: int) -> str:
    if got is None:
        return "wrong-value"
    if right is None:
        return "wrong-value"
    if got[0] != "fits":
        return "wrong-value" if got[0] == "no-block" else "does-not-fit"
    return "wrong-value" if right and not right[2] else "too-dear"


def _read(judge: Judge, got: Any) -> list[int] | None:
    if got is None:
        return None
    if not isinstance(got, (set, frozenset)):
        got = judge.listed(got, "a set or a list of block numbers")
    numbers = [plain(number) for number in got]
    if len(set(numbers)) < len(numbers) and set(numbers) <= {0, 1}:
        judge.no(seen=brief(got))
    return sorted({judge.is_a(number, int, "whole block numbers") for number in numbers})


def _shown(seen: _Seen) -> str:
    if seen is None:
        return "None"
    kind, number, chosen = seen
    text = f"{set(chosen) or 'set()'}"
    more = {"fits": f" with {number:g} s more", "dear": f" with {number:g} MB at the fullest"}
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
        "How much is in memory at the turn of block i? All entries up to i; the inside of i, checkpointed or "
        "not; and what of the blocks before it?",
        "The fullest moment is the largest of these sums over all turns. For ten blocks there are only 1024 "
        "choices to try.",
        "Write `peak(chosen)` with one loop over the blocks from the first, which carries what is kept so far. "
        "The numbers from 0 to `2 ** n - 1` are all choices, if bit k stands for block k.",
    ),
    reference=choose_checkpoints,
    check_answer=OverCases(
        choose_checkpoints,
        lambda: [(list(blocks), budget) for blocks, budget in _CASES],
        twins_of(choose_checkpoints, _TWINS),
        draw=_draw,
        read=_read,
        look=_look,
        alike=_alike,
        otherwise=_otherwise,
        situation=lambda blocks, budget: f"{budget} MB, blocks {blocks}",
        shown=_shown,
    ),
    why="Two things to take with you. The last block is never worth it: its turn comes at once, while all the "
    "others are still there. And blocks differ: activation functions, norms and dropout fill much memory in "
    "little time, products the other way round. PyTorch's compiler can weigh single operations in this way, given "
    "a budget of memory.",
    diagnoses={
        "does-not-fit": "At some moment this needs more than the budget.",
        "too-dear": "It fits, and another choice that fits adds less time.",
        "no-second-time": "At its turn a checkpointed block has its inside in memory too.",
        "all-entries": "You count all entries at every turn. Those of the later blocks are free by then.",
        "last-block": "The last block is computed twice for nothing: its turn comes first, when everything "
        "before it is still in memory.",
    },
)
