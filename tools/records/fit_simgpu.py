"""Fit the simulated device's model to what others measured: ``python -m tools.records.fit_simgpu FILE…``.

The files are those that ``python -m tools.fidelity`` reads. Of their rows the part that it holds out is
left alone (see `tools.fidelity.rows.held_out`; the seed stands there), and of the others each card and
kind of work counts the same, however many rows it has. What is printed is the figures to write into
``profiles.json``, and how far modelled and measured are apart before and after, on both parts.

One figure at a time is made a little larger or smaller, and kept where the rows that it touches come out
nearer. The distance is the mean of |log(modelled / measured)|, at most 1 for a row.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from course_utils import files
from simgpu import profiles
from tools.fidelity.hardware import profile_of
from tools.fidelity.interpret import interpret
from tools.fidelity.model import seconds_of
from tools.fidelity.rows import SEED, held_out, read, without_repeats
from tools.fidelity.units import measured
from tools.fidelity.workload import Calls, Uninterpretable

MOST = 300
"""Rows of a card and kind that are used."""

ENOUGH = 30
"""Rows from which a card and kind count in full."""

Figure = tuple[str, str]  # the card, or "shared", and the figure's name

_TOUCHES = {
    "memory_efficiency": ("elementwise", "bandwidth"),
    "kernel_floor": ("elementwise",),
    "vector_efficiency": ("product",),
    "tensor_efficiency": ("product 16",),
    "tile_half": ("product",),
    "tile_half_tensor": ("product 16",),
    "throttle_after": ("product",),
    "throttle_rise": ("product",),
    "throttle_most": ("product",),
    "fill_simt": ("product",),
    "fill_tensor": ("product 16",),
    "resident": ("product", "product 16"),
    "join_simt": ("product",),
    "join_tensor": ("product 16",),
    "cache_gain": ("elementwise",),
    "softmax_share": ("softmax",),
    "reduce_share": ("norm",),
    "product_share_simt": ("product",),
    "product_share_tensor": ("product 16",),
    "softmax_pace": ("softmax", "fused kernel"),
    "reduce_pace": ("norm", "fused kernel"),
    "gather_pace": ("gather",),
    "row_floor": ("gather", "norm", "fused kernel"),
    "winograd_transform": ("convolution",),
    "convolution_share": ("convolution",),
    "winograd_share": ("convolution",),
    "winograd_fill": ("convolution",),
}
"""The kinds of work that say something of a figure."""

FIGURES: tuple[Figure, ...] = (
    *((card, "memory_efficiency") for card in ("T4", "A100", "A100-40GB", "H100")),
    *((card, "vector_efficiency") for card in ("T4", "A100-40GB")),
    *((card, "tensor_efficiency") for card in ("T4", "A100", "H100")),
    *((card, "kernel_floor") for card in ("A100", "H100")),
    *(
        (card, name)
        for card in ("T4", "others")
        for name in ("convolution_share", "winograd_share")
    ),
    ("T4", "tile_half"),
    ("others", "tile_half"),
    *(("T4", name) for name in ("throttle_after", "throttle_rise", "throttle_most")),
    *(("shared", name) for name in _TOUCHES if hasattr(profiles.shared(), name)),
)

_OLD = ("T4", "V100")
"""Cards before Ampere; "others" are the rest."""

_LIKE = {"A100-40GB": ("A100",), "H100": ("H200",)}
"""Cards that have the same processors and so the same figure of them."""


class Example(NamedTuple):
    """A row to fit on, or to judge by."""

    card: str
    kind: str
    meaning: object
    seconds: float
    judged: bool


def examples(files: Sequence[Path]) -> list[Example]:
    """Return the rows that the figures here have a say in."""
    found = []
    rows, _ = without_repeats([read(path) for path in files])
    for row in rows:
        try:
            meaning, card = interpret(row), profile_of(row.hardware)
            quantity, real = measured(row, meaning.amount)
        except Uninterpretable:
            continue
        if quantity == "seconds" and isinstance(meaning.workload, Calls):
            low = meaning.workload.dtype in ("float16", "bfloat16")
            kind = f"{meaning.kind} 16" if low and meaning.kind == "product" else meaning.kind
            found.append(Example(card, kind, meaning, real, held_out(row)))
    return found


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
            if card == "shared":
                change = {"shared": replace(profile.shared, **{name: value})}
            elif (
                key == card
                or (card == "others" and key not in _OLD)
                or (name != "memory_efficiency" and key in _LIKE.get(card, ()))
            ):
                change = {name: value}
            else:
                continue
            self.profiles[key] = replace(profile, **change)

    def log_ratio(self, example: Example) -> float:
        """Return the logarithm of modelled over measured."""
        meaning = example.meaning
        profile = self.profiles[example.card]
        made = seconds_of(meaning.workload, profile, meaning.host)
        return math.log(made / example.seconds)

    def loss(self, groups: Sequence[Sequence[Example]]) -> float:
        """Return how far modelled and measured are apart, every group by its weight."""
        weights = [min(1.0, len(group) / ENOUGH) for group in groups]
        off = [fmean(min(abs(self.log_ratio(e)), 1.0) for e in group) for group in groups]
        return sum(w * x for w, x in zip(weights, off, strict=True)) / sum(weights)


def grouped(found: Sequence[Example]) -> dict[tuple[str, str], list[Example]]:
    """Return the rows by card and kind."""
    groups = defaultdict(list)
    for example in found:
        groups[example.card, example.kind].append(example)
    return dict(groups)


def fit(
    model: Model, found: Sequence[Example], rounds: int, figures: Sequence[Figure] = FIGURES
) -> None:
    """Change these figures of the model so that it comes nearer to the rows that are not judged by."""
    drawn = random.Random(SEED)
    groups = {
        key: drawn.sample(group, min(MOST, len(group)))
        for key, group in grouped([e for e in found if not e.judged]).items()
    }
    step = dict.fromkeys(figures, 0.2)
    for number in range(rounds):
        for figure in figures:
            card, name = figure
            there = {card, *(_LIKE.get(card, ()))}
            touched = [
                group
                for (of, kind), group in groups.items()
                if kind in _TOUCHES[name]
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
        print(f"round {number + 1}: {model.loss(list(groups.values())):.4f}", file=sys.stderr)


def report(model: Model, found: Sequence[Example]) -> None:
    """Print how far modelled and measured are apart, by card and kind, on the part to judge by."""
    for (card, kind), group in sorted(grouped([e for e in found if e.judged]).items()):
        for label, part in (
            ("short", [e for e in group if e.seconds < 1e-4]),
            ("long", [e for e in group if e.seconds >= 1e-4]),
        ):
            if part:
                ratios = [math.exp(model.log_ratio(e)) for e in part]
                off = [abs(ratio - 1) for ratio in ratios]
                near = fmean(x <= 0.25 for x in off)
                print(
                    f"{card:10} {kind:13} {label:5} {len(part):5} ratio {median(ratios):.2f} "
                    f"error {median(off):4.0%} near {near:4.0%}"
                )


_SOURCE = "fitted by tools/records/fit_simgpu.py to times that others measured (tools/fidelity), seed 16: {}"

_EVIDENCE = {
    "elementwise": "operations on elements",
    "bandwidth": "bandwidths",
    "softmax": "softmax",
    "norm": "layer norms",
    "gather": "embeddings",
    "fused kernel": "kernels by rows",
    "product": "products in float32",
    "product 16": "products in 16 bits",
    "convolution": "convolutions of 3 x 3 in float32",
}


def write(model: Model, path: Path, fitted: Sequence[Figure] = FIGURES) -> None:
    """Write the figures into the file of profiles, each with its source; the rest stays as it is."""
    figures = set(fitted)
    lines, card = [], ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if opened := re.match(r'    "([^"]+)": \{$', line):
            card = opened[1]
        figure = re.match(r'( +)"([a-z0-9_]+)": \{"value": ([^,]+), "unit": "([^"]+)"', line)
        if figure:
            name, unit = figure[2], figure[4]
            owner = "shared" if len(figure[1]) == 4 else card
            own = (owner, name) in figures
            like = next((of for of, cards in _LIKE.items() if owner in cards), None)
            other = owner != "shared" and owner not in _OLD and ("others", name) in figures
            if own or other or (name != "memory_efficiency" and (like, name) in figures):
                value = (
                    model.get((owner, name))
                    if owner == "shared"
                    else getattr(model.profiles[owner], name)
                )
                what = _SOURCE.format(" and ".join(_EVIDENCE[kind] for kind in _TOUCHES[name]))
                end = "," if line.endswith(",") else ""
                line = (
                    f'{figure[1]}"{name}": {{"value": {value:.4g}, "unit": "{unit}", '
                    f'"source": "{what}"}}{end}'
                )
        lines.append(line)
    files.write(path, "\n".join(lines) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.records.fit_simgpu", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--kind",
        action="append",
        choices=_EVIDENCE,
        help="only figures that this says something of",
    )
    parser.add_argument("--write", action="store_true", help="write them into profiles.json")
    args = parser.parse_args(argv)
    found, model = examples(args.files), Model()
    figures = [
        (card, name) for card, name in FIGURES if {*_TOUCHES[name]} & {*(args.kind or _EVIDENCE)}
    ]
    report(model, found)
    fit(model, found, args.rounds, figures)
    report(model, found)
    if args.write:
        write(model, Path(profiles.__file__).with_name("profiles.json"), figures)
    for card, name in figures:
        print(f"{card:10} {name:18} {model.get((card, name)):.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
