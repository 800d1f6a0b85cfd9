"""The page ``handbook/fidelity.md`` and its picture: how far the simulated GPU is from real ones.

``python -m tools.authoring.fidelity`` models the evidence that is shipped, which takes some minutes, and writes all
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
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from course_utils import files
from simgpu import profiles
from tools.authoring.pages import WholePage, shows
from tools.fidelity import hold, read
from tools.fidelity.model import Found
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
"""Measurements from which a card has a range of its own; with fewer it has that of all cards."""

WRONG = 0.6
"""A kind of work stands among those that the model gets wrong where fewer are near the measured."""


class Pair(NamedTuple):
    """What was measured, and what the simulated device makes of it, in seconds or bytes."""

    card: str
    kind: str
    quantity: str
    measured: float
    modelled: float

    @property
    def work(self) -> str:
        """Whole networks, or single operators, copies and collectives."""
        return "network" if self.kind.startswith("network") else "operator"


# --- from the evidence --------------------------------------------------------------------------


def main() -> None:
    """Model the evidence, and write everything that follows from it."""
    found = [hold(row) for name in FILES for row in read(EVIDENCE / name)]
    write_pairs(
        Pair(f.profile, f.meaning.kind, f.quantity, f.measured, f.modelled)
        for f in found
        if isinstance(f, Found)
    )
    write_pairs(held_out(), OURS)
    commit = ["git", "describe", "--always", "--dirty"]
    told = subprocess.run(commit, cwd=ROOT, capture_output=True, text=True, check=False)
    content = {
        "schema": 1,
        "note": "Measured over modelled seconds: the first and the last tenth part lie below low and above high.",
        "made": f"{COMMAND}, commit {told.stdout.strip()}, torch {torch.__version__}",
        "evidence": list(FILES),
        "cards": spread(pairs()),
    }
    files.write(SPREAD, json.dumps(content, indent=1) + "\n")
    (ROOT / PAGE).touch()
    print("\n".join([str(TABLE), str(OURS), str(SPREAD), *renew(ROOT)]))


def held_out() -> list[Pair]:
    """Return what our own recording of a GPU measured, beside the model: by experiment, as nothing was fitted on it."""
    with TemporaryDirectory() as folder:
        points = Path(folder) / "points.csv"
        table.write(RECORD, points)
        found = [f for f in map(hold, read(points)) if isinstance(f, Found)]
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
    """Write a table, the same bytes for the same rows."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Pair._fields)
    writer.writerows(sorted((*p[:3], f"{p.measured:.4g}", f"{p.modelled:.4g}") for p in rows))
    files.write(path, gzip.compress(text.getvalue().encode(), 9, mtime=0))


def pairs(path: Path = TABLE) -> list[Pair]:
    """Return a table."""
    lines = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    next(lines)
    return [Pair(*line[:3], *map(float, line[3:])) for line in lines]


def spread(rows: Sequence[Pair]) -> dict[str, dict[str, dict[str, float]]]:
    """Return how much longer or shorter real work takes than modelled, by card and for all cards."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for card in [*profiles.names(), "all"]:
        for work in ("operator", "network"):
            alike = [
                p.measured / p.modelled
                for p in rows
                if (p.quantity, p.work) == ("seconds", work) and card in (p.card, "all")
            ]
            if len(alike) >= ENOUGH:
                tenths = quantiles(alike, n=10, method="inclusive")
                low, high = round(tenths[0], 2), round(tenths[-1], 2)
                found.setdefault(card, {})[work] = {"low": low, "high": high, "n": len(alike)}
    return found


# --- the page -----------------------------------------------------------------------------------

INTRODUCTION = """\
# How far the simulated GPU is from real ones

On a machine without a GPU the course's times are *modelled*: a simulated GPU works out how long a real one would take. Others
have measured real ones and published what they found. Here is each of those measurements that we could repeat in the
model and may pass on, {n} times on {cards} cards, beside what the model makes of it. On the line the model is right, between the thin lines it is at most
25 % off. The one GPU that this course recorded itself stands [below](#a-real-h200-that-had-no-part-in-it), apart from them: there the model is further off.

"""

READING = """
*Ratio* is modelled over measured: below 1 the model says too little. *Range* is what the course prints beside a modelled time:
in eight of ten cases the real card took between so many times as long. It always holds the modelled time itself.
A card with fewer than {enough} measurements gets the range of all cards. The course takes the range of operators where one kernel or one copy is timed,
else that of networks; for peaks of memory and for ratios of two times it shows none.

## Where the model is still wrong

These have fewer than {wrong:.0f} % of their measurements within 25 %:

"""

OWN = """
## A real H200 that had no part in it

The first GPU that `python -m course_utils record` ran on, {date}: {device}, {cpu}, {cores} cores, PyTorch {torch}. Nothing in the
model was fitted to these numbers, and they have no part in the ranges above. Each experiment, its time where nothing else is said:

"""

OWN_READ = """
*Furthest* is the ratio that is furthest from 1. As far as one machine can tell:

- **What the card alone decides is right.** Large products, additions and copies on the card, and 64 MB copied from pinned memory.
- **What the host decides is not.** Small additions that follow each other take less than is modelled; a small step of training, whose backward
  pass and optimizer ask for such calls too, takes longer. One figure for a host's speed cannot mend both: the model
  says too little of a training step, or this host is unlike those it was made from.
- **Training convolutions in 16 bits** took up to twice as long as was modelled, where the card is busy. A trace of an A100 showed why (channels
  that lie second are turned round slowly, and a batch norm of few channels cannot use the whole card), and the model has it since: a ResNet-50 of 128
  images takes what is modelled in float16 and TF32. In bfloat16 it takes a fifth longer than in float16, which the model does not know, and
  a small network's convolutions take longer still.
- **5×5 convolutions of few channels in float32**, at a batch of 1,024, take less time than modelled, and more memory: cuDNN seems to take
  another way, with room of its own.
- **Memory**: cuDNN's working memory is not modelled, and of cuBLAS's 32 MiB one block, where the backward pass has a second.
- **From pageable memory** 64 MB take longer than modelled. That is the host's copy into pinned memory, and hosts differ.
"""

LIMITS = """
And what this sample does not show:

- **It is a sample of what people publish.** All measurements of a kind may come from one program on one machine; a range made of them says
  less of your program than its count suggests. The 3,000 operators of the largest source had no part in fitting the model; of the others a part
  had, and the hosts' speed was chosen on all networks.
- **Not every card.** Where a card has no row above, nothing was compared: its range is that of other cards.
- **Convolutional networks on an A100 or H100.** Most measurements of them have a licence that does not let us pass them on. By ten of those, training a
  ResNet-50 in 16 bits takes 0.95 to 1.02 times as long as modelled.
- **Hosts differ** by a factor of two among those who published. A small network waits for its host.
- **`torch.compile`** runs a program here as it stands, and its time is that of the program not compiled; why it is no other, and why there are
  no CUDA graphs, stands in [simgpu's README](../simgpu/README.md#beside-real-gpus).
- **Not modelled at all:** quantised weights, several machines.
{ours}
## All kinds of work

<details><summary>Each card, and each kind of work on it</summary>

"""

SOURCES = """
</details>

The measurements, each with its source: [the evidence](../tools/fidelity/evidence/README.md). How to set your own card beside the model:
[simgpu](../simgpu/README.md#beside-real-gpus). This page, its picture and the ranges ({made}) are written by `{command}`.
"""


def page() -> str:
    """Return the page, as Markdown."""
    rows = pairs()
    seconds = [p for p in rows if p.quantity == "seconds"]
    cards = [card for card in profiles.names() if any(p.card == card for p in seconds)]
    text = INTRODUCTION.format(n=f"{len(seconds):,}", cards=len(cards))
    text += f"![{alt()}](../{CHART})\n"
    for work, title in (
        ("operator", "Single operators, copies and collectives"),
        ("network", "Whole networks"),
    ):
        text += f"\n## {title}\n\n{_HEAD} Range |\n{_RULE}---:|\n"
        for card in [*cards, "all"]:
            alike = [p for p in seconds if p.work == work and card in (p.card, "all")]
            if alike:
                low, high, _, of, _ = profiles.spread(card, single=work == "operator")
                own = f"{low:.2f} to {high:.2f}" if of == card else "as all"
                text += f"{_row(card if card != 'all' else '**all**', alike)} {own} |\n"
    text += READING.format(enough=ENOUGH, wrong=100 * WRONG)
    kinds: dict[tuple[str, str, str], list[Pair]] = {}
    for p in rows:
        kinds.setdefault(p[:3], []).append(p)
    off = sorted((_near(alike), key) for key, alike in kinds.items() if len(alike) > 4)
    text += "".join(_said(*key, kinds[key]) for near, key in off if near < WRONG) or "Nowhere.\n"
    text += LIMITS.format(ours=ours())
    text += f"{_HEAD}\n{_RULE}\n".replace("| Card |", "| Card, work |")
    text += "".join(
        f"{_row(f'{card}, {_kind(kind, quantity)}', alike)}\n"
        for (card, kind, quantity), alike in sorted(kinds.items())
    )
    made = json.loads(SPREAD.read_text(encoding="utf-8"))["made"].partition(", ")[2]
    return text + SOURCES.format(made=made, command=COMMAND)


def ours() -> str:
    """Return the part on the GPU that the course recorded itself."""
    content = json.loads(RECORD.read_text(encoding="utf-8"))
    groups: dict[str, list[Pair]] = {}
    for p in pairs(OURS):
        what = ", memory" if p.quantity == "bytes" else ""
        whole = "networks" if p.kind.endswith(("_step", "_inference")) else "calls and copies"
        for name in (f"`{p.kind}`{what}", f"**{whole}{what}**"):
            groups.setdefault(name, []).append(p)
    text = OWN.format(date=content["date"], **content["machine"])
    text += f"{_HEAD} Furthest |\n{_RULE}---:|\n".replace("| Card |", "| Experiment |")
    for name, alike in sorted(groups.items(), key=lambda g: (g[0].startswith("*"), "mem" in g[0])):
        ratios = [p.modelled / p.measured for p in alike]
        text += f"{_row(name, alike)} {max(ratios, key=lambda r: max(r, 1 / r)):.2f} |\n"
    return text + OWN_READ


_HEAD = "| Card | Measured | Ratio, median | Within 25 % |"
_RULE = "|---|---:|---:|---:|"


def _row(name: str, alike: Sequence[Pair]) -> str:
    ratio = median(p.modelled / p.measured for p in alike)
    return f"| {name} | {len(alike):,} | {ratio:.2f} | {100 * _near(alike):.0f} % |"


def _near(alike: Sequence[Pair]) -> float:
    return sum(abs(p.modelled / p.measured - 1) <= NEAR for p in alike) / len(alike)


def _kind(kind: str, quantity: str) -> str:
    return kind.replace(":", ",") + (", memory" if quantity == "bytes" else "")


def _said(card: str, kind: str, quantity: str, alike: Sequence[Pair]) -> str:
    ratio = median(p.modelled / p.measured for p in alike)
    return (
        f"- **{card}, {_kind(kind, quantity)}**: {100 * _near(alike):.0f} % of {len(alike)}. "
        f"The median is {ratio:.2f} of the measured, too {'little' if ratio < 1 else 'much'}.\n"
    )


def alt() -> str:
    """Say in a sentence or two what the picture shows."""
    seconds = [p for p in pairs() if p.quantity == "seconds"]
    said = [
        f"of {len(alike):,} {work}s {100 * _near(alike):.0f} % lie within 25 % of the measured"
        for work in ("operator", "network")
        if (alike := [p for p in seconds if p.work == work])
    ]
    return (
        "Modelled against measured time, on logarithmic axes, one dot a measurement, coloured by kind of work; "
        f"single operators left, whole networks right: {', and '.join(said)}."
    )


# --- the picture --------------------------------------------------------------------------------


def draw(path: Path) -> None:
    """Draw the picture into an SVG file; its dots are pixels in it, as they are many."""
    import matplotlib.pyplot as plt

    from course_utils.plots import COLOURS, MARKERS, log_ticks, use_style

    seconds = [p for p in pairs() if p.quantity == "seconds"]
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
    """Return what stands in the picture's file to tell whether it shows this table."""
    return shows(gzip.decompress(TABLE.read_bytes()))


WHOLE = WholePage({PAGE: page}, "its table", CHART, digest, draw)
problems, renew = WHOLE.problems, WHOLE.renew


if __name__ == "__main__":
    argparse.ArgumentParser(prog=COMMAND, description=main.__doc__).parse_args()
    main()
