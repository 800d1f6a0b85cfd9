"""Known answers to 09.crossover."""


def _from_below(rows):
    wins = [(n, ratio > 1) for n, _, _, ratio in sorted(rows)]
    return next((n for i, (n, _) in enumerate(wins) if all(w for _, w in wins[i:])), None)


WRONG = {
    "changed-input": {"sorted(rows, reverse=True)": "(rows.sort() or rows)[::-1]"},
}
RIGHT = {"from below": _from_below}
