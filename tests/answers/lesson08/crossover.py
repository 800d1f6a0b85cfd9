"""Known answers to 08.crossover."""

from __future__ import annotations


def _from_below(rows):
    wins = [(n, ratio > 1) for n, _, _, ratio in sorted(rows)]
    return next((n for i, (n, _) in enumerate(wins) if all(w for _, w in wins[i:])), None)


RIGHT = {"from below": _from_below}
