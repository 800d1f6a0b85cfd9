"""Fit the simulated device's model to measurements: ``python -m tools.records.fit_simgpu FILE…``.

The files are those that ``python -m tools.fidelity`` reads. Rows that are held out for judging the model
(see `tools.fidelity.table.is_held_out`) are not used, and of the others each card and kind of work has the
same weight. Prints the figures to write into ``profiles.json``, and the distance between modelled and
measured before and after; ``python -m tools.fidelity --part held-out`` judges the result.

Coordinate descent: one figure at a time is made a little larger or smaller, and kept where the rows that
depend on it come nearer. The distance is the mean of |log(modelled / measured)|, at most 1 for a row.
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
    is_held_out,
    measured,
    profile_of,
    read,
    without_repeats,
)
from tools.fidelity.work import Calls, Reading

MOST, ENOUGH = 300, 30
"""The maximum number of rows of a card and kind, and the number from which they get full weight."""

Figure = tuple[str, str]  # the card, "others" or "shared", and the figure's name
DEPENDS_ON = {
    "elementwise": "kernel_floor cache_gain memory_efficiency",
    "bandwidth": "memory_efficiency",
    "product": "vector_efficiency tile_half fill_simt join_simt product_share_simt resident "
    "throttle_after throttle_rise throttle_most",
    "product 16": "resident tensor_efficiency tile_half_tensor fill_tensor join_tensor product_share_tensor",
    "gather": "gather_pace row_floor",
    "softmax": "softmax_share softmax_pace",
    "norm": "reduce_share reduce_pace row_floor",
    "fused kernel": "softmax_pace reduce_pace row_floor",
    "convolution": "convolution_share winograd_share winograd_transform winograd_fill",
}
"""For each kind of work the figures that its time depends on; "product 16" are products in 16 bits."""

FIGURES: tuple[Figure, ...] = (
    *((card, "memory_efficiency") for card in ("T4", "A100", "A100-40GB", "H100")),
    *((card, "vector_efficiency") for card in ("T4", "A100-40GB")),
    *((card, "tensor_efficiency") for card in ("T4", "A100", "H100")),
    *((card, "kernel_floor") for card in ("A100", "H100")),
    *((c, name) for c in ("T4", "others") for name in ("convolution_share", "winograd_share", "tile_half")),
    *(("T4", name) for name in ("throttle_after", "throttle_rise", "throttle_most")),
    *(
        ("shared", name)
        for name in dict.fromkeys(" ".join(DEPENDS_ON.values()).split())
        if hasattr(profiles.shared(), name)
    ),
)
_OLD = ("T4", "V100")  # cards before Ampere; "others" are all others
_LIKE = {"A100-40GB": ("A100",), "H100": ("H200",)}  # cards with the same processors


class Example(NamedTuple):
    """A measured row to fit on."""

    card: str
    kind: str
    meaning: Reading
    seconds: float


def examples(files: Sequence[Path]) -> dict[tuple[str, str], list[Example]]:
    """Return the rows to fit on by card and kind of work, at most `MOST` of each, drawn with a fixed seed.

    Rows that are held out, cannot be modelled, or are no times of calls of operators are skipped.
    """
    rows: dict[tuple[str, str], list[Example]] = defaultdict(list)
    for row in without_repeats([read(path) for path in files])[0]:
        try:
            meaning, card = interpret(row), profile_of(row.hardware)
            quantity, real = measured(row, meaning.amount)
        except Unsupported:
            continue
        if quantity == "seconds" and isinstance(meaning.workload, Calls) and not is_held_out(row):
            low = meaning.workload.dtype in ("float16", "bfloat16") and meaning.kind == "product"
            kind = f"{meaning.kind} 16" if low else meaning.kind
            rows[card, kind].append(Example(card, kind, meaning, real))
    drawn = random.Random(SEED)
    return {key: drawn.sample(group, min(MOST, len(group))) for key, group in rows.items()}


class Model:
    """All profiles, with parameters that can be changed; ``profiles.json`` is not."""

    def __init__(self) -> None:
        self.profiles = {name: profiles.load(name) for name in profiles.names()}

    def get(self, figure: Figure) -> float:
        """Return a parameter's present value."""
        card, name = figure
        if card == "shared":
            return getattr(self.profiles["T4"].shared, name)
        return getattr(self.profiles["A100" if card == "others" else card], name)

    def set(self, figure: Figure, value: float) -> None:
        """Set a parameter, on every card that shares it."""
        card, name = figure
        for key, profile in self.profiles.items():
            alike = name != "memory_efficiency" and key in _LIKE.get(card, ())
            if card == "shared":
                self.profiles[key] = replace(profile, shared=replace(profile.shared, **{name: value}))
            elif key == card or (card == "others" and key not in _OLD) or alike:
                self.profiles[key] = replace(profile, **{name: value})

    def loss(self, groups: Sequence[Sequence[Example]]) -> float:
        """Return the weighted mean of the groups' distances between modelled and measured time."""

        def distance(e: Example) -> float:
            """Return |log(modelled / measured)|, at most 1."""
            modelled = seconds_of(e.meaning.workload, self.profiles[e.card], e.meaning.host)
            return min(abs(math.log(modelled / e.seconds)), 1.0)

        weights = [min(1.0, len(group) / ENOUGH) for group in groups]
        parts = (w * fmean(map(distance, group)) for w, group in zip(weights, groups, strict=True))
        return sum(parts) / sum(weights)


def fit(model: Model, groups: dict, rounds: int, figures: Sequence[Figure] = FIGURES) -> None:
    """Fit the model's parameters to the rows by coordinate descent, in place; print each round's loss.

    ``groups`` is what `examples` returned. Figures on which no row depends are not changed.
    """
    step = dict.fromkeys(figures, 0.2)
    for number in range(rounds):
        for figure in figures:
            card, name = figure
            cards = {card, *_LIKE.get(card, ())}
            affected = [
                group
                for (of, kind), group in groups.items()
                if name in DEPENDS_ON.get(kind, "").split()
                and (card == "shared" or of in cards or (card == "others" and of not in _OLD))
            ]
            if not affected:
                continue
            best, value = model.loss(affected), model.get(figure)
            for factor in (1 + step[figure], 1 / (1 + step[figure])):
                model.set(figure, value * factor)
                if model.loss(affected) < best - 1e-6:
                    step[figure] *= 1.2
                    break
                model.set(figure, value)
            else:
                step[figure] *= 0.6
        print(f"round {number + 1}: {model.loss(list(groups.values())):.4f}", flush=True)


def main() -> None:
    """Fit to the files named on the command line, and print the fitted figures; writes nothing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--kind", action="append", choices=DEPENDS_ON, help="only its figures")
    args = parser.parse_args()
    groups, model = examples(args.files), Model()
    kinds = args.kind or DEPENDS_ON
    figures = [f for f in FIGURES if any(f[1] in DEPENDS_ON[kind].split() for kind in kinds)]
    print(f"before: {model.loss(list(groups.values())):.4f}")
    fit(model, groups, args.rounds, figures)
    for card, name in figures:
        print(f"{card:10} {name:18} {model.get((card, name)):.4g}")


if __name__ == "__main__":
    main()
