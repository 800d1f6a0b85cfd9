"""The page ``handbook/fidelity.md`` and its picture: how far the simulated GPU is from real ones.

``python -m tools.authoring.fidelity`` models the evidence that is shipped, in some minutes, and writes all
that follows from it: the table of what was measured and modelled, the ranges that are shown beside
modelled times (``simgpu/spread.json``), the page and the picture. ``notebooks --fix`` renews the last two.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from course_utils import files
from simgpu import profiles
from tools.authoring.pages import Generated, digest_mark
from tools.fidelity import Comparison, compare_row, read
from tools.fidelity.report import NEAR
from tools.records import table

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "tools" / "fidelity" / "evidence"
FILES = ("operators.csv.gz", "points.csv.gz")
TABLE = EVIDENCE / "modelled.csv.gz"
OURS = EVIDENCE / "recorded.csv.gz"
RECORD = ROOT / "course_lessons" / "recorded" / "machine_nvidia_h200.json"
SPREAD = ROOT / "simgpu" / "spread.json"
PAGE, CHART = "handbook/fidelity.md", "images/fidelity.svg"
COMMAND = "python -m tools.authoring.fidelity"

ENOUGH = 20
"""The minimum number of measurements for a card's own range; with fewer it gets that of all cards."""

WRONG = 0.6
"""A kind of work is listed as modelled wrongly if a smaller share than this is within 25 %."""


class Pair(NamedTuple):
    """A measured value and the simulated GPU's modelled one, in seconds or bytes as ``quantity`` says."""

    card: str
    kind: str
    quantity: str
    measured: float
    modelled: float

    @property
    def work(self) -> str:
        """``"network"`` for whole networks, ``"operator"`` for single operators, copies and collectives."""
        return "network" if self.kind.startswith("network") else "operator"


# --- from the evidence --------------------------------------------------------------------------


def main() -> None:
    """Model the evidence, and write everything that follows from it."""
    outcomes = [compare_row(row) for name in FILES for row in read(EVIDENCE / name)]
    write_pairs(
        Pair(f.profile, f.meaning.kind, f.quantity, f.measured, f.modelled)
        for f in outcomes
        if isinstance(f, Comparison)
    )
    write_pairs(held_out(), OURS)
    commit = ["git", "describe", "--always", "--dirty"]
    version = subprocess.run(commit, cwd=ROOT, capture_output=True, text=True, check=False)
    content = {
        "schema": 1,
        "note": "Measured over modelled seconds: the first and the last tenth part "
        "lie below low and above high.",
        "made": f"{COMMAND}, commit {version.stdout.strip()}, torch {torch.__version__}",
        "evidence": list(FILES),
        "cards": spread(read_pairs()),
    }
    files.write(SPREAD, json.dumps(content, indent=1) + "\n")
    for file in GENERATED:
        file.write(ROOT)
    print(TABLE, OURS, SPREAD, PAGE, CHART, sep="\n")


def held_out() -> list[Pair]:
    """Return the pairs of the course's own recording of a GPU, on which nothing was fitted."""
    with TemporaryDirectory() as folder:
        points = Path(folder) / "points.csv"
        table.write(RECORD, points)
        found = [f for f in map(compare_row, read(points)) if isinstance(f, Comparison)]
    names = {workload: name for name, (workload, _) in table.ROWS.items()}
    names["step:resnet50"] = "resnet50_step"
    return [
        Pair(
            f.profile,
            "resnet50_inference" if "mode=infer" in f.row.params else names[f.row.workload],
            *(f.quantity, f.measured, f.modelled),
        )
        for f in found
    ]


def write_pairs(rows: Iterable[Pair], path: Path = TABLE) -> None:
    """Write pairs to a gzipped CSV file, sorted; the same pairs give the same bytes."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Pair._fields)
    writer.writerows(sorted((*p[:3], f"{p.measured:.4g}", f"{p.modelled:.4g}") for p in rows))
    files.write(path, gzip.compress(text.getvalue().encode(), 9, mtime=0))


def read_pairs(path: Path = TABLE) -> list[Pair]:
    """Return the pairs of a gzipped CSV file that `write_pairs` wrote."""
    lines = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    next(lines)
    return [Pair(*line[:3], *map(float, line[3:])) for line in lines]


def spread(rows: Sequence[Pair]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the range of measured over modelled time, for each card and for ``"all"``, by kind of work.

    A range has ``low`` and ``high``, the first and last decile, and ``n``, the number of measurements; there
    is none with fewer than `ENOUGH`.
    """
    ranges: dict[str, dict[str, dict[str, float]]] = {}
    seconds = [p for p in rows if p.quantity == "seconds"]
    for card in [*profiles.names(), "all"]:
        for work in ("operator", "network"):
            alike = [p.measured / p.modelled for p in seconds if p.work == work and card in (p.card, "all")]
            if len(alike) >= ENOUGH:
                tenths = quantiles(alike, n=10, method="inclusive")
                low, high = round(tenths[0], 2), round(tenths[-1], 2)
                ranges.setdefault(card, {})[work] = {"low": low, "high": high, "n": len(alike)}
    return ranges


# --- the page -----------------------------------------------------------------------------------


def page() -> str:
    """Return the page, as Markdown: ``tools/fidelity/page.md`` with the numbers filled in."""
    rows, record = read_pairs(), json.loads(RECORD.read_text(encoding="utf-8"))
    seconds = [p for p in rows if p.quantity == "seconds"]
    kinds = _grouped(rows, lambda p: p[:3])
    off = sorted((_near(alike), key) for key, alike in kinds.items() if len(alike) > 4)
    off_lines = [_line(*key, kinds[key]) for near, key in off if near < WRONG]
    named = {f"{card}, {_kind(*kind)}": alike for (card, *kind), alike in sorted(kinds.items())}
    template = (ROOT / "tools" / "fidelity" / "page.md").read_text(encoding="utf-8")
    return template.format(
        **record["machine"],
        date=record["date"],
        n=f"{len(seconds):,}",
        cards=len({p.card for p in seconds}),
        alt=alt(),
        made=json.loads(SPREAD.read_text(encoding="utf-8"))["made"].partition(", ")[2],
        operators=_by_card(seconds, "operator"),
        networks=_by_card(seconds, "network"),
        enough=ENOUGH,
        wrong=round(100 * WRONG),
        off="\n".join(off_lines) or "Nowhere.",
        ours=ours(),
        kinds=_table("Card, work", named),
    )


def _grouped(rows: Iterable[Pair], key: Callable[[Pair], Any]) -> dict[Any, list[Pair]]:
    """Return pairs grouped by a key, as a dict of lists."""
    groups: dict[Any, list[Pair]] = {}
    for pair in rows:
        groups.setdefault(key(pair), []).append(pair)
    return groups


def _by_card(seconds: Sequence[Pair], work: str) -> str:
    """Return the table for one kind of work, one row for each card and one for all cards, as Markdown."""
    alike = [p for p in seconds if p.work == work]
    by_card = _grouped(alike, lambda p: p.card)
    named = {card: by_card[card] for card in profiles.names() if card in by_card}
    ranges = []
    for card in [*named, "all"]:
        spread = profiles.spread(card, single=work == "operator")
        has_its_own = spread.card == card
        ranges.append(f"{spread[0]:.2f} to {spread[1]:.2f}" if has_its_own else "as all")
    return _table("Card", {**named, "**all**": alike}, "Range", ranges)


def ours() -> str:
    """Return the table for the GPU that the course recorded itself, by experiment, as Markdown."""
    groups: dict[str, list[Pair]] = {}
    for p in read_pairs(OURS):
        what = ", memory" if p.quantity == "bytes" else ""
        whole = "networks" if p.kind.endswith(("_step", "_inference")) else "calls and copies"
        for name in (f"`{p.kind}`{what}", f"**{whole}{what}**"):
            groups.setdefault(name, []).append(p)
    named = dict(sorted(groups.items(), key=lambda g: (g[0].startswith("*"), "mem" in g[0])))
    ratios = ([p.modelled / p.measured for p in alike] for alike in named.values())
    furthest = [f"{max(each, key=lambda r: max(r, 1 / r)):.2f}" for each in ratios]
    return _table("Experiment", named, "Furthest", furthest)


def _table(first: str, named: Mapping[str, Sequence[Pair]], last: str = "", cells: Sequence[str] = ()) -> str:
    """Return a table of the agreement in each named group of pairs, as Markdown.

    ``first`` heads the column of names. ``last`` heads an additional last column with the given ``cells``, if
    not "".
    """
    lines = [f"| {first} | Measured | Ratio, median | Within 25 % |", "|---|---:|---:|---:|"]
    for name, alike in named.items():
        ratio = median(p.modelled / p.measured for p in alike)
        lines.append(f"| {name} | {len(alike):,} | {ratio:.2f} | {100 * _near(alike):.0f} % |")
    if last:
        ends = (f" {last} |", "---:|", *(f" {cell} |" for cell in cells))
        lines = [line + end for line, end in zip(lines, ends, strict=True)]
    return "\n".join(lines)


def _near(alike: Sequence[Pair]) -> float:
    """Return the share of pairs whose modelled value is within 25 % of the measured one."""
    return sum(abs(p.modelled / p.measured - 1) <= NEAR for p in alike) / len(alike)


def _kind(kind: str, quantity: str) -> str:
    """Return the label of a kind of work and a quantity."""
    return kind.replace(":", ",") + (", memory" if quantity == "bytes" else "")


def _line(card: str, kind: str, quantity: str, alike: Sequence[Pair]) -> str:
    """Return a list item that says how far off the model is for one card and kind of work, as Markdown."""
    ratio = median(p.modelled / p.measured for p in alike)
    return (
        f"- **{card}, {_kind(kind, quantity)}**: {100 * _near(alike):.0f} % of {len(alike)}. "
        f"The median is {ratio:.2f} of the measured, too {'little' if ratio < 1 else 'much'}."
    )


def alt() -> str:
    """Return the picture's alternative text."""
    seconds = [p for p in read_pairs() if p.quantity == "seconds"]
    parts = [
        f"of {len(alike):,} {work}s {100 * _near(alike):.0f} % lie within 25 % of the measured"
        for work in ("operator", "network")
        if (alike := [p for p in seconds if p.work == work])
    ]
    return (
        "Modelled against measured time, on logarithmic axes, one dot a measurement, coloured by kind of "
        f"work; single operators left, whole networks right: {', and '.join(parts)}."
    )


# --- the picture --------------------------------------------------------------------------------


def draw(path: Path) -> None:
    """Draw modelled against measured time with matplotlib into an SVG file, the many markers as a bitmap."""
    import matplotlib.pyplot as plt

    from course_utils.plots import COLOURS, MARKERS, log_ticks, use_style

    seconds = [p for p in read_pairs() if p.quantity == "seconds"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with plt.rc_context({"svg.hashsalt": "fidelity", "svg.fonttype": "path"}):
        use_style()
        fig, axes = plt.subplots(1, 2, figsize=(9.6, 5.2), layout="constrained")
        for ax, work, title in zip(
            axes, ("operator", "network"), ("single operators", "whole networks"), strict=True
        ):
            here = [p for p in seconds if p.work == work]
            ends = [min(min(p[3:]) for p in here) / 1.5, max(max(p[3:]) for p in here) * 1.5]
            for factor, width in ((1, 1.2), (1 + NEAR, 0.6), (1 - NEAR, 0.6)):
                ax.plot(ends, [factor * end for end in ends], color="#555555", linewidth=width)
            kinds = sorted({p.kind for p in here}, key=lambda k: -sum(p.kind == k for p in here))
            for i, kind in enumerate(kinds):
                x, y = zip(*(p[3:] for p in here if p.kind == kind), strict=True)
                look = {"color": COLOURS[i % 7], "marker": MARKERS[i % 7], "linestyle": ""}
                look |= {"markerfacecolor": "none"} if i >= 7 else {}
                ax.plot(x, y, **look, markersize=3.5, alpha=0.5, rasterized=True, zorder=2 + i / 99)
                ax.plot([], [], **look, label=kind.removeprefix("network: "))
            ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, title=title, aspect="equal")
            ax.set(xlabel="measured, in seconds", ylabel="modelled, in seconds")
            log_ticks(ax.xaxis)
            log_ticks(ax.yaxis)
            ax.legend(loc="upper left", fontsize=9)
        about = f"{alt()} This file {digest()}."
        with files.replacing(path) as new:
            fig.savefig(new, format="svg", dpi=150, metadata={"Date": None, "Description": about})
        plt.close(fig)


def digest() -> str:
    """Return the mark stored in the picture's file that changes with the table of pairs."""
    return digest_mark(gzip.decompress(TABLE.read_bytes()))


GENERATED = (Generated(PAGE, page), Generated(CHART, digest, draw))


if __name__ == "__main__":
    argparse.ArgumentParser(prog=COMMAND, description=main.__doc__).parse_args()
    main()
