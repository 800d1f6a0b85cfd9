"""Fit the simulated device's model to what others measured: ``python -m tools.records.fit_simgpu FILE…``.

The files are those that ``python -m tools.fidelity`` reads. Of their rows the held-out part is left alone (see
`tools.fidelity.table.held_out`; the seed stands there), and of the others each card and kind of work counts the
same, however many rows it has. What is printed is the figures to write into ``profiles.json``, and how far modelled
and measured are apart before and after; ``python -m tools.fidelity --part held-out`` says it of the held-out part.

One figure at a time is made a little larger or smaller, and kept where the rows that it touches come nearer. The
distance is the mean of |log(modelled / measured)|, at most 1 for a row.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from simgpu import profiles
from tools.fidelity.compare import interpret, seconds_of
from tools.fidelity.table import (
    SEED,
    Unsupported,
    held_out,
    measured,
    profile_of,
    read,
    without_repeats,
)
from tools.fidelity.work import Calls, Reading

MOST, ENOUGH = 300, 30
"""Rows of a card and kind that are used, and from which they count in full."""

Figure = tuple[str, str]  # the card, "others" or "shared", and the figure's name
TOUCHES = {
    **dict.fromkeys(("kernel_floor", "cache_gain"), "elementwise"),
    "memory_efficiency": "elementwise, bandwidth",
    **dict.fromkeys(
        ("vector_efficiency", "tile_half", "prologue_epilogue_k_simt", "split_k_simt"), "product"
    ),
    **dict.fromkeys(("throttle_after", "throttle_rise", "throttle_most"), "product"),
    **dict.fromkeys(
        ("tensor_efficiency", "tile_half_tensor", "prologue_epilogue_k_tensor"), "product 16"
    ),
    **dict.fromkeys(("split_k_tensor", "product_share_tensor"), "product 16"),
    **{"resident": "product, product 16", "product_share_simt": "product", "gather_pace": "gather"},
    **{"softmax_share": "softmax", "reduce_share": "norm", "softmax_pace": "softmax, fused kernel"},
    **{"reduce_pace": "norm, fused kernel", "row_floor": "gather, norm, fused kernel"},
    **dict.fromkeys(("convolution_share", "winograd_share"), "convolution"),
    **dict.fromkeys(("winograd_transform", "prologue_epilogue_k_winograd"), "convolution"),
}
"""The kinds of work that say something of a figure."""

FIGURES: tuple[Figure, ...] = (
    *((card, "memory_efficiency") for card in ("T4", "A100", "A100-40GB", "H100")),
    *((card, "vector_efficiency") for card in ("T4", "A100-40GB")),
    *((card, "tensor_efficiency") for card in ("T4", "A100", "H100")),
    *((card, "kernel_floor") for card in ("A100", "H100")),
    *(
        (c, name)
        for c in ("T4", "others")
        for name in ("convolution_share", "winograd_share", "tile_half")
    ),
    *(("T4", name) for name in ("throttle_after", "throttle_rise", "throttle_most")),
    *(("shared", name) for name in TOUCHES if hasattr(profiles.shared(), name)),
)
_OLD = ("T4", "V100")  # cards before Ampere; "others" are the rest
_LIKE = {
    "A100-40GB": ("A100",),
    "H100": ("H200",),
}  # the same processors and so the same figure of them


class Example(NamedTuple):
    """A row to fit on."""

    card: str
    kind: str
    meaning: Reading
    seconds: float


def examples(files: Sequence[Path]) -> dict[tuple[str, str], list[Example]]:
    """Return the rows to fit on by card and kind, at most `MOST` of each."""
    found: dict[tuple[str, str], list[Example]] = defaultdict(list)
    for row in without_repeats([read(path) for path in files])[0]:
        try:
            meaning, card = interpret(row), profile_of(row.hardware)
            quantity, real = measured(row, meaning.amount)
        except Unsupported:
            continue
        if quantity == "seconds" and isinstance(meaning.workload, Calls) and not held_out(row):
            low = meaning.workload.dtype in ("float16", "bfloat16") and meaning.kind == "product"
            kind = f"{meaning.kind} 16" if low else meaning.kind
            found[card, kind].append(Example(card, kind, meaning, real))
    drawn = random.Random(SEED)
    return {key: drawn.sample(group, min(MOST, len(group))) for key, group in found.items()}


class Model:
    """All profiles, with figures that can be changed."""

    def __init__(self) -> None:
        self.profiles = {name: profiles.load(name) for name in profiles.names()}

    def get(self, figure: Figure) -> float:
        """Return a figure as it is now."""
        card, name = figure
        if card == "shared":
            return getattr(self.profiles["T4"].shared, name)
        return getattr(self.profiles["A100" if card == "others" else card], name)

    def set(self, figure: Figure, value: float) -> None:
        """Change a figure, on every card that has it in common."""
        card, name = figure
        for key, profile in self.profiles.items():
            alike = name != "memory_efficiency" and key in _LIKE.get(card, ())
            if card == "shared":
                self.profiles[key] = replace(
                    profile, shared=replace(profile.shared, **{name: value})
                )
            elif key == card or (card == "others" and key not in _OLD) or alike:
                self.profiles[key] = replace(profile, **{name: value})

    def loss(self, groups: Sequence[Sequence[Example]]) -> float:
        """Return how far modelled and measured are apart, every group by its weight."""

        def off(e: Example) -> float:
            made = seconds_of(e.meaning.workload, self.profiles[e.card], e.meaning.host)
            return min(abs(math.log(made / e.seconds)), 1.0)

        weights = [min(1.0, len(group) / ENOUGH) for group in groups]
        parts = (w * fmean(map(off, group)) for w, group in zip(weights, groups, strict=True))
        return sum(parts) / sum(weights)


def fit(model: Model, groups: dict, rounds: int, figures: Sequence[Figure] = FIGURES) -> None:
    """Change these figures of the model so that it comes nearer to the rows."""
    step = dict.fromkeys(figures, 0.2)
    for number in range(rounds):
        for figure in figures:
            card, name = figure
            there = {card, *_LIKE.get(card, ())}
            touched = [
                group
                for (of, kind), group in groups.items()
                if kind in TOUCHES[name].split(", ")
                and (card == "shared" or of in there or (card == "others" and of not in _OLD))
            ]
            if not touched:
                continue
            best, value = model.loss(touched), model.get(figure)
            for factor in (1 + step[figure], 1 / (1 + step[figure])):
                model.set(figure, value * factor)
                if model.loss(touched) < best - 1e-6:
                    step[figure] *= 1.2
                    break
                model.set(figure, value)
            else:
                step[figure] *= 0.6
        print(f"round {number + 1}: {model.loss(list(groups.values())):.4f}", flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--kind", action="append", help="only figures that this says something of")
    args = parser.parse_args()
    groups, model = examples(args.files), Model()
    figures = [f for f in FIGURES if not args.kind or {*TOUCHES[f[1]].split(", ")} & {*args.kind}]
    print(f"before: {model.loss(list(groups.values())):.4f}")
    fit(model, groups, args.rounds, figures)
    for card, name in figures:
        print(f"{card:10} {name:18} {model.get((card, name)):.4g}")


if __name__ == "__main__":
    main()
