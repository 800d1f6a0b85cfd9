"""Known wrong answers to 08.choose_checkpoints, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson08.choose_checkpoints import choose_checkpoints, peak_of, seconds_of


def _plan_by_size(blocks, budget):
    chosen = set()
    for number in sorted(range(len(blocks)), key=lambda n: -blocks[n][1]):
        if peak_of(blocks, chosen) > budget:
            chosen.add(number)
    return chosen if peak_of(blocks, chosen) <= budget else None


def _plan_without_turn(blocks, budget):
    numbers = range(len(blocks))
    choices = [{n for n in numbers if bits >> n & 1} for bits in range(2 ** len(blocks))]

    def kept(chosen):
        return sum(e + (0 if n in chosen else i) for n, (e, i, _) in enumerate(blocks))

    fitting = [c for c in choices if kept(c) <= budget]
    return min(fitting, key=lambda c: seconds_of(blocks, c), default=None)


def _plan_with_last(blocks, budget):
    right = choose_checkpoints(blocks, budget)
    return right | {len(blocks) - 1} if right else right


def _plan_none_fits(blocks, budget):
    return set() if peak_of(blocks, set()) <= budget else None


def _plan_hopeful(blocks, budget):
    right = choose_checkpoints(blocks, budget)
    return set(range(len(blocks))) if right is None else right


WRONG = {
    "does-not-fit": _plan_without_turn,
    "too-dear": _plan_by_size,
    "last-block": _plan_with_last,
    "gives-up": _plan_none_fits,
    "impossible": _plan_hopeful,
}
