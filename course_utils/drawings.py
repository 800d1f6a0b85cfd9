"""Drawings that explain: too long for a lesson's cell, and nothing a learner should copy."""

from __future__ import annotations

import html
import itertools
import math
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.patches import FancyArrowPatch, Polygon, Rectangle

from . import simgpu
from .evidence import published_gpus, recorded
from .host import cpu_name
from .plots import COLOURS, DASHES, MARKERS, log_ticks, present
from .profiling import Facts
from .show import Bundle, show, table
from .simgpu.clock import Span
from .simgpu.cost import Work
from .simgpu.cost import seconds as work_seconds
from .simgpu.profiles import load as load_profile
from .timing import Measurement, seconds
from .traces import Trace

_BLUE, _ORANGE, _GREEN = COLOURS[0], COLOURS[1], COLOURS[2]


def five_doors(report: Any) -> None:
    """Draw the doors of a `course_utils.doctor` report, and how far an arrow gets through them.

    The fifth, native bf16, decides only how fast one format is: the arrow ends before it.

    Parameters
    ----------
    report
        A report with ``doors``; each has a ``name`` and a ``state``, ``"open"``, ``"shut"`` or
        ``"unknown"``.
    """
    fig, ax = plt.subplots(figsize=(7.6, 2.7), layout="constrained")
    looks = {
        "open": (_GREEN, "open"),
        "shut": (_ORANGE, "shut"),
        "unknown": ("#888888", "not reached"),
    }
    *path, _ = report.doors
    shut = next((i for i, d in enumerate(path) if d.state == "shut"), None)
    for i, door in enumerate(report.doors):
        x, (colour, word) = 1.6 * i + 1.3 + (1.7 if i == len(path) else 0), looks[door.state]
        if door.state == "unknown" and shut is None:
            word = "not known"
        ax.add_patch(Rectangle((x, 0), 0.9, 1.8, facecolor="white", edgecolor="#444444"))
        if door.state == "open":
            ajar = [(x, 0), (x + 0.3, -0.18), (x + 0.3, 1.62), (x, 1.8)]
            ax.add_patch(Polygon(ajar, facecolor=colour, edgecolor="#444444"))
        else:
            hatch = "///" if door.state == "unknown" else None
            leaf = Rectangle((x, 0), 0.9, 1.8, facecolor=colour, edgecolor="#444444", hatch=hatch)
            ax.add_patch(leaf)
            ax.plot([x + 0.75], [0.85], "o", color="white")
        ax.text(
            x + 0.45,
            2.0,
            f"{i + 1}. {door.name.replace(' ', chr(10))}",
            ha="center",
            va="bottom",
            fontsize=9,
        )
        ax.text(x + 0.45, -0.42, word, ha="center", va="top", fontsize=9, color="#444444")
    end = 1.6 * len(path) + 1.4 if shut is None else 1.6 * shut + 1.25
    ax.add_patch(FancyArrowPatch((0.9, 0.9), (end, 0.9), arrowstyle="-|>", mutation_scale=16))
    ax.text(0.8, 0.9, "your\ncode", ha="right", va="center")
    ax.text(1.6 * len(path) + 1.5, 0.9, "a GPU's\nresult", ha="left", va="center")
    ax.text(
        1.6 * len(path) + 3.45, -0.85, "(for speed in bfloat16)", ha="center", va="top", fontsize=9
    )
    ax.set(xlim=(0, 1.6 * len(report.doors) + 3.0), ylim=(-1.3, 2.7))
    ax.set_axis_off()
    states = ", ".join(f"{d.name} {looks[d.state][1]}" for d in report.doors)
    present(fig, f"Five doors between your code and a GPU's result: {states}.")


def two_processors() -> None:
    """Draw a CPU and a GPU as chips, and their two ways of delivering parcels."""
    fig, (chips, trips) = plt.subplots(
        1, 2, figsize=(8.6, 3.6), layout="constrained", width_ratios=(1.35, 1)
    )
    for x, title in ((0, "CPU: a few strong cores"), (11, "GPU: thousands of simple ones")):
        chips.add_patch(Rectangle((x, 0), 10, 8, facecolor="white", edgecolor="#444444"))
        chips.text(x + 5, 9.1, title, ha="center", fontsize=10)
    for i in range(4):
        corner = (0.5 + 4.7 * (i % 2), 3.2 + 2.4 * (i // 2))
        chips.add_patch(Rectangle(corner, 4.3, 2.1, facecolor=_BLUE, alpha=0.85))
        chips.text(
            corner[0] + 2.15, corner[1] + 1.05, "core", color="white", ha="center", va="center"
        )
    chips.add_patch(Rectangle((0.5, 0.4), 9, 2.3, facecolor="#bbbbbb"))
    chips.text(5, 1.55, "cache, control", ha="center", va="center")
    for i in range(20 * 12):
        corner = (11.5 + 0.45 * (i % 20), 1.7 + 0.5 * (i // 20))
        chips.add_patch(Rectangle(corner, 0.33, 0.36, facecolor=_ORANGE, alpha=0.85))
    chips.add_patch(Rectangle((11.5, 0.4), 9, 0.9, facecolor="#bbbbbb"))
    for x, width, words in ((0, 4, "memory"), (11, 10, "memory, much faster")):
        chips.add_patch(
            Rectangle((x + 5 - width / 2, -2.6), width, 2.2, facecolor=_GREEN, alpha=0.3)
        )
        chips.text(x + 5, -1.5, words, ha="center", va="center")
    chips.set(xlim=(-0.3, 21.3), ylim=(-3, 10))
    chips.set_axis_off()

    parcels = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000]
    trips.plot(parcels, [0.2 * n for n in parcels], marker="o", label="one motorbike")
    trips.plot(parcels, [3.0] * len(parcels), marker="s", label="one train")
    trips.set(
        xscale="log", yscale="log", xlabel="parcels", ylabel="hours until the last one is there"
    )
    trips.legend()
    trips.set_title("An illustration, not data", fontsize=10)
    present(
        fig,
        "Left: a CPU chip with four large cores and a large cache, a GPU chip with hundreds of small "
        "cores and a wider memory. Right: delivery time of a motorbike grows with the parcels, that of "
        "a train is flat; the motorbike wins for few parcels, the train for many.",
    )


def peaks(flops: float, bytes_per_second: float) -> None:
    """Show a table of this CPU's measured rates above the published peaks of the course's GPUs.

    Parameters
    ----------
    flops
        The CPU's measured float32 matrix product, in FLOP/s.
    bytes_per_second
        The CPU's measured copy, in bytes read and written a second.
    """
    head = ("Processor", "float32 TFLOP/s", "16-bit tensor TFLOP/s", "Memory GB/s", "Memory GB")
    rows = [(cpu_name(), f"{flops / 1e12:.3g}", "", f"{bytes_per_second / 1e9:.3g}", "")]
    rows += [
        (g.name, g.fp32_tflops, g.fp16_tensor_tflops, g.bandwidth_gb_s, g.memory_gb)
        for g in published_gpus()
    ]
    kinds = ["measured", *(["published"] * len(published_gpus()))]
    rows = [(*row, kind) for row, kind in zip(rows, kinds, strict=True)]
    text, page = table((*head, "Kind"), rows, kinds)
    sources = "Published: " + "; ".join(g.source for g in published_gpus()) + "."
    show(Bundle(f"{text}\n{sources}", f"{page}<div><small>{html.escape(sources)}</small></div>"))


def race(sizes: Sequence[int], times: Mapping[str, Sequence[Measurement]]) -> None:
    """Draw the time of a square float32 matrix product against its size, and the speed-up.

    Recorded accelerators join the devices that were timed. Where there is neither, a T4 is modelled
    from its published figures.

    Parameters
    ----------
    sizes
        The sizes, rising.
    times
        For each device, such as ``"cpu"``, one measurement a size, measured or modelled.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.8), layout="constrained")
    drawn = {}
    for device, (first, *_) in times.items():
        name = first.machine if first.kind == "modelled" else device
        drawn[name, first.kind] = (list(sizes), [m.median for m in times[device]])
    drawn.update(_recorded_races(sizes))
    if len(drawn) == 1:
        drawn["NVIDIA T4", "modelled"] = (list(sizes), _modelled_race(sizes))
    cpu = dict(zip(*drawn["cpu", "measured"], strict=True))
    for i, ((name, kind), (x, y)) in enumerate(drawn.items()):
        look = {"color": f"C{i}", "marker": MARKERS[i % len(MARKERS)], "linestyle": DASHES[kind]}
        left.plot(x, y, label=f"{name} ({kind})", **look)
        if name != "cpu":
            gain = [cpu[size] / seconds for size, seconds in zip(x, y, strict=True)]
            right.plot(x, gain, label=f"{name} ({kind})", **look)
    for ax, label in ((left, "time of one product, s"), (right, "CPU time / device time")):
        ax.set(xscale="log", yscale="log", xlabel="size n of an n × n product", ylabel=label)
        ax.set_xticks(list(sizes), [str(size) for size in sizes], rotation=45)
        ax.minorticks_off()
    right.axhline(1, color="#666666", linewidth=1)
    fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    names = ", ".join(f"{name} ({kind})" for name, kind in drawn)
    present(
        fig,
        f"Time of a matrix product against its size for {names}; "
        "right, each device's speed-up over the CPU.",
    )


def _recorded_races(sizes: Sequence[int]) -> dict[tuple[str, str], tuple[list[int], list[float]]]:
    races: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for size in sizes:
        for m in recorded("matmul", size=size):
            if m.kind == "recorded" and m.device != "cpu":
                x, y = races.setdefault((m.machine, "recorded"), ([], []))
                x.append(size)
                y.append(m.median)
    return races


def _modelled_race(sizes: Sequence[int]) -> list[float]:
    """Return how long a T4 takes for each product: for the arithmetic, or at least for the launch."""
    t4 = load_profile("T4")
    products = [Work(2 * n**3, 12 * n**2, "fp32", matrix=True) for n in sizes]
    return [max(t4.launch, work_seconds(product, t4)) for product in products]


def roofline(
    peak_flops: float,
    bandwidth: float,
    points: Mapping[str, Sequence[tuple[float, float]]],
    kind: str = "measured",
) -> None:
    """Draw a device's roofline and the operations under it.

    Parameters
    ----------
    peak_flops
        The device's best rate, in FLOP/s.
    bandwidth
        Its best memory rate, in bytes/s.
    points
        For each operation, pairs of arithmetic intensity (FLOPs a byte) and FLOP/s.
    kind
        Where all these come from: ``"measured"`` or ``"modelled"``.
    """
    fig, ax = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    ridge = peak_flops / bandwidth
    every = [x for pairs in points.values() for x, _ in pairs]
    ends = [min(every) / 2, ridge, max(*every, ridge) * 3]
    roof = [min(peak_flops, bandwidth * x) / 1e9 for x in ends]
    ax.plot(ends, roof, color="#444444", label=f"roof (best rates, {kind})")
    ax.axvline(ridge, color="#999999", linewidth=1, linestyle=":")
    above = {"transform": ax.get_xaxis_transform(), "ha": "center", "color": "#555555"}
    ax.text(ridge, 1.02, f"ridge: {ridge:.3g} FLOPs/byte", **above)
    for i, (name, pairs) in enumerate(points.items()):
        x, y = zip(*pairs, strict=True)
        ax.plot(
            x,
            [rate / 1e9 for rate in y],
            MARKERS[i % len(MARKERS)],
            color=f"C{i}",
            label=f"{name} ({kind})",
        )
    ax.set(xscale="log", yscale="log", ylabel="GFLOP/s")
    ax.set_xlabel("arithmetic intensity, FLOPs a byte")
    log_ticks(ax.xaxis)
    log_ticks(ax.yaxis)
    ax.legend(fontsize=9)
    present(
        fig,
        f"A roofline: a slope up to the ridge at {ridge:.3g} FLOPs a byte, then flat at "
        f"{peak_flops / 1e9:.3g} GFLOP/s, with {kind} points of {', '.join(points)}.",
    )


def loading_bars(measurements: Sequence[Measurement]) -> None:
    """Draw times as horizontal bars with their quartiles; logarithmic over a decade.

    Parameters
    ----------
    measurements
        One a bar, from top to bottom.
    """
    fig, ax = plt.subplots(figsize=(7.2, 0.65 * len(measurements) + 1), layout="constrained")
    names = [f"{m.label}\n({m.kind} on {m.device})" for m in measurements]
    medians = [1e3 * m.median for m in measurements]
    spread = [
        [1e3 * (m.median - m.q1) for m in measurements],
        [1e3 * (m.q3 - m.median) for m in measurements],
    ]
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(names))]
    ax.barh(names, medians, xerr=spread, color=colours, ecolor="#444444", capsize=3)
    for i, m in enumerate(measurements):
        ax.text(1e3 * m.q3, i, f"  {seconds(m.median)}", va="center")
    shortest, longest = min(1e3 * m.q1 for m in measurements), max(1e3 * m.q3 for m in measurements)
    scale = ""
    if max(medians) > 10 * min(medians):
        scale = "logarithmic scale, "
        ax.set(xscale="log", xlim=(shortest / 4, longest * (longest / shortest) ** 0.25))
        log_ticks(ax.xaxis)
    else:
        ax.set_xlim(0, 1.25 * longest)
    ax.set_xlabel(f"time, ms ({scale}median and quartiles)")
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    each = ", ".join(f"{m.label} {seconds(m.median)} ({m.kind})" for m in measurements)
    present(fig, f"Times as bars: {each}.")


def checkpoint_moments() -> None:
    """Draw what lies in the folder at each moment of a save, and what a killed run goes on from."""
    moments = (
        ("before\nthe save", {"last.pt": "step 10", "previous.pt": "step 5"}, "step 10"),
        (
            "writing",
            {"last.pt.new": "half", "last.pt": "step 10", "previous.pt": "step 5"},
            "step 10",
        ),
        (
            "written,\nfsync",
            {"last.pt.new": "step 15", "last.pt": "step 10", "previous.pt": "step 5"},
            "step 10",
        ),
        (
            "first\nos.replace",
            {"last.pt.new": "step 15", "previous.pt": "step 10"},
            "step 10",
        ),
        ("second\nos.replace", {"last.pt": "step 15", "previous.pt": "step 10"}, "step 15"),
    )
    rows = ("last.pt.new", "last.pt", "previous.pt")
    fig, ax = plt.subplots(figsize=(8.4, 3.2), layout="constrained")
    for column, (moment, files, resumes) in enumerate(moments):
        ax.text(column + 0.5, 4.15, moment, ha="center", va="center", fontsize=9.5)
        for row, name in enumerate(rows):
            words = files.get(name, "")
            colour = {"": "#f2f2ef", "half": _ORANGE}.get(words, _BLUE)
            box = Rectangle((column + 0.06, 2.8 - row), 0.88, 0.75, facecolor=colour, alpha=0.9)
            ax.add_patch(box)
            ink = "white" if words else "#888888"
            ax.text(
                column + 0.5, 3.17 - row, words or "no file", ha="center", va="center", color=ink
            )
        ax.text(column + 0.5, 0.35, resumes, ha="center", va="center", weight="bold", color=_GREEN)
    for row, name in enumerate(rows):
        ax.text(-0.1, 3.17 - row, name, ha="right", va="center", family="monospace", fontsize=9)
    ax.text(-0.1, 0.35, "killed here, the\nrun goes on from", ha="right", va="center", fontsize=9)
    ax.set(xlim=(-1.5, 5), ylim=(0, 4.5))
    ax.set_axis_off()
    present(
        fig,
        "Five moments of a save. While last.pt.new is written, last.pt stays whole; then last.pt becomes "
        "previous.pt and last.pt.new becomes last.pt. Killed at any moment, the run finds a whole file.",
    )


def two_memories() -> None:
    """Draw the host's memory, the device's memory, and the bus between them."""
    fig, ax = plt.subplots(figsize=(7.6, 2.7), layout="constrained")
    for x, title, unit, colour in (
        (0, "the host's memory: cpu", "CPU", _BLUE),
        (6.4, "the device's memory", "GPU", _ORANGE),
    ):
        ax.add_patch(Rectangle((x, 0), 3.6, 2.2, facecolor="white", edgecolor="#444444"))
        ax.text(x + 1.8, 2.45, title, ha="center")
        ax.add_patch(Rectangle((x + 0.2, 0.15), 3.2, 0.6, facecolor=colour, alpha=0.85))
        ax.text(
            x + 1.8, 0.45, f"{unit}: computes with these", color="white", ha="center", va="center"
        )
    for x, name in ((0.5, "x"), (8.2, "y = x.to(device)")):
        ax.add_patch(Rectangle((x - 0.3, 1.15), 1.6, 0.7, facecolor=_GREEN, alpha=0.3))
        ax.text(x + 0.5, 1.5, name, ha="center", va="center", family="monospace", fontsize=8.5)
    for y, ends, words in ((1.5, (3.8, 6.2), ".to(device)"), (0.6, (6.2, 3.8), ".cpu()")):
        arrow = {"arrowstyle": "-|>", "mutation_scale": 16, "color": "#444444", "linewidth": 2}
        ax.add_patch(FancyArrowPatch((ends[0], y), (ends[1], y), **arrow))
        ax.text(5, y + 0.2, words, ha="center", family="monospace", fontsize=9)
    ax.text(5, 0.15, "the bus: slow; it makes copies", ha="center", fontsize=8, color="#555555")
    ax.set(xlim=(-0.1, 10.1), ylim=(-0.1, 2.8))
    ax.set_axis_off()
    present(
        fig,
        "Two memories joined by a bus. x lies in the host's memory, where the CPU computes; .to(device) "
        "makes a copy y in the device's memory, where the GPU computes; .cpu() copies back.",
    )


def what_moves() -> None:
    """Draw what a module's ``.to`` finds, and what it passes by."""
    rows = (
        ("nn.Parameter", "self.weight = nn.Parameter(...)", "yes", "yes", "yes"),
        ("buffer", "self.register_buffer(...)", "yes", "yes", "no"),
        ("module, ModuleList", "self.layers = nn.ModuleList(...)", "yes", "yes", "yes"),
        ("plain tensor", "self.scale = torch.ones(3)", "no", "no", "no"),
        ("list, dict of modules", "self.layers = [nn.Linear(...)]", "no", "no", "no"),
    )
    fig, ax = plt.subplots(figsize=(7.8, 2.7), layout="constrained")
    for column, words in zip((5.6, 6.6, 7.6), ("moved", "saved", "trained"), strict=True):
        ax.text(column, 5.4, words, ha="center")
    for y, (what, code, *marks) in zip(range(4, -1, -1), rows, strict=True):
        ax.text(0, y + 0.5, what, va="center")
        ax.text(2.1, y + 0.5, code, va="center", family="monospace", fontsize=8.5)
        for column, mark in zip((5.6, 6.6, 7.6), marks, strict=True):
            colour = _GREEN if mark == "yes" else _ORANGE
            box = Rectangle((column - 0.45, y + 0.08), 0.9, 0.84, facecolor=colour, alpha=0.85)
            ax.add_patch(box)
            ax.text(column, y + 0.5, mark, ha="center", va="center", color="white")
    ax.set(xlim=(-0.1, 8.2), ylim=(-0.1, 5.8))
    ax.set_axis_off()
    present(
        fig,
        "Parameters and the modules in a ModuleList are moved, saved and trained; buffers are moved and "
        "saved; plain tensors, and modules in a list or dict, are none of these.",
    )


def pinned_route() -> None:
    """Draw the way to the device from pageable and from pinned memory."""
    fig, ax = plt.subplots(figsize=(7.8, 2.6), layout="constrained")
    boxes = (
        (0.0, 1.5, 2.2, "pageable tensor", _BLUE, 0.3),
        (3.9, 1.5, 2.2, "driver's pinned\nbuffer", "#888888", 0.3),
        (0.0, 0.0, 2.2, "pinned tensor", _GREEN, 0.3),
        (8.2, 0.0, 1.8, "tensor on\nthe device", _ORANGE, 0.3),
    )
    for x, y, width, words, colour, alpha in boxes:
        height = 2.5 if x > 8 else 1.0
        ax.add_patch(Rectangle((x, y), width, height, facecolor=colour, alpha=alpha))
        ax.text(x + width / 2, y + height / 2, words, ha="center", va="center")
    for start, end, y, words in (
        (2.3, 3.8, 2.0, "the CPU\ncopies"),
        (6.2, 8.1, 2.0, "the GPU\nfetches"),
        (2.3, 8.1, 0.5, "the GPU fetches; the CPU is free"),
    ):
        arrow = {"arrowstyle": "-|>", "mutation_scale": 16, "color": "#444444", "linewidth": 2}
        ax.add_patch(FancyArrowPatch((start, y), (end, y), **arrow))
        ax.text((start + end) / 2, y + 0.1, words, ha="center", va="bottom", fontsize=9)
    ax.axvline(7.15, color="#888888", linestyle=":", linewidth=1)
    ax.text(7.05, 2.75, "host", ha="right", fontsize=9, color="#555555")
    ax.text(7.25, 2.75, "device", ha="left", fontsize=9, color="#555555")
    ax.set(xlim=(-0.1, 10.1), ylim=(-0.1, 3.0))
    ax.set_axis_off()
    present(
        fig,
        "From a pageable tensor the CPU first copies into the driver's pinned buffer, and the GPU "
        "fetches from there. From a pinned tensor the GPU fetches directly and the CPU is free.",
    )


def transfer_chart(
    times: Mapping[str, Mapping[str, Sequence[float]]],
    kind: str,
    size: str,
    device: torch.device,
) -> None:
    """Draw the time of a copy to a device, by the kind of source memory and the way of calling.

    Parameters
    ----------
    times
        For each source, and for each way of calling, the times of all trials in seconds. Where all
        are empty, no picture: this machine has nothing to copy to, and a sentence says so.
    kind
        ``"measured"`` or ``"modelled"``.
    size
        How much was copied, such as ``"64 MiB"``.
    device
        The device copied to.
    """
    if not any(trials for ways in times.values() for trials in ways.values()):
        print(f"No chart: nothing leaves the host here. {simgpu.problem() or ''}".strip())
        return
    journey = f"{size} to {torch.get_device_module(device).get_device_name(device)}"
    fig, ax = plt.subplots(figsize=(8.4, 3.6), layout="constrained")
    width, said = 0.38, []
    for i, (source, ways) in enumerate(times.items()):
        middle = [statistics.median(trials) for trials in ways.values()]
        spread = [
            [m - min(trials) for m, trials in zip(middle, ways.values(), strict=True)],
            [max(trials) - m for m, trials in zip(middle, ways.values(), strict=True)],
        ]
        places = [j + (i - 0.5) * width for j in range(len(ways))]
        bars = ax.bar(
            places,
            [1e3 * m for m in middle],
            0.92 * width,
            label=f"{source} source",
            color=COLOURS[i],
            hatch="//" if i else "",
            edgecolor=["white" if m > max(middle) / 100 else COLOURS[i] for m in middle],
            linewidth=[1 if m > max(middle) / 100 else 3 for m in middle],
            yerr=None if kind == "modelled" else [[1e3 * s for s in side] for side in spread],
        )
        ax.bar_label(bars, [seconds(m) for m in middle], padding=2, fontsize=9)
        said += [
            f"{source}, {' '.join(way.split())}: {seconds(m)}"
            for way, m in zip(ways, middle, strict=True)
        ]
    ax.set_xticks(range(len(ways)), list(ways))
    ax.set_ylabel(f"host's time, ms ({kind})")
    ax.set_title(f"{journey} ({kind})")
    ax.margins(y=0.15)
    ax.grid(axis="x", visible=False)
    ax.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    present(fig, f"Time to copy {journey}, {kind}: {'; '.join(said)}.")


_FORMATS = {
    # name: bits of the exponent, bits of the mantissa, largest exponent
    "float32": (8, 23, 127),
    "TF32": (8, 10, 127),
    "bfloat16": (8, 7, 127),
    "float16": (5, 10, 15),
}


def number_formats() -> None:
    """Draw the bits of four number formats, and how far each reaches."""
    fig, (bits, reach) = plt.subplots(
        1, 2, figsize=(9.2, 3.0), layout="constrained", width_ratios=(1, 1.15), sharey=True
    )
    parts = ((_ORANGE, "sign"), (_BLUE, "exponent: how far"), (_GREEN, "mantissa: how fine"))
    for row, (name, (exponent, mantissa, top)) in enumerate(_FORMATS.items()):
        y, x = -row, 0
        for (colour, _), count in zip(parts, (1, exponent, mantissa), strict=True):
            for _ in range(count):
                box = Rectangle((x + 0.06, y - 0.3), 0.88, 0.6, facecolor=colour, alpha=0.85)
                bits.add_patch(box)
                x += 1
        bits.text(x + 0.4, y, f"1 + {exponent} + {mantissa}", va="center", fontsize=9)
        bits.text(-0.5, y, name, ha="right", va="center")
        lowest = (1 - top) * math.log10(2)  # of the normal numbers
        least = lowest - mantissa * math.log10(2)
        highest = (top + 1) * math.log10(2)
        look = {"height": 0.5, "color": COLOURS[row]}
        reach.barh(y, lowest - least, left=least, alpha=0.35, **look)
        reach.barh(y, highest - lowest, left=lowest, alpha=0.9, **look)
    for i, (colour, words) in enumerate(parts):
        bits.text((-5.5, 0.5, 17)[i], 0.75, words, color=colour, fontsize=9.5, weight="bold")
    bits.set(xlim=(-6, 39), ylim=(-3.6, 1.2))
    bits.set_axis_off()
    reach.set_xticks(range(-40, 41, 20), [f"$10^{{{power}}}$" for power in range(-40, 41, 20)])
    reach.set(xlabel="size of a number; pale: subnormal, with ever fewer digits")
    reach.grid(axis="y", visible=False)
    reach.tick_params(axis="y", left=False, labelleft=False)
    present(
        fig,
        "Bits of sign, exponent and mantissa: float32 1 + 8 + 23, TF32 1 + 8 + 10, bfloat16 1 + 8 + 7, "
        "float16 1 + 5 + 10. The first three reach from about 10⁻³⁸ to 10³⁸, float16 only from 6 × 10⁻⁸ "
        "to 65504.",
    )


def gradient_sizes(gradients: Mapping[str, torch.Tensor]) -> None:
    """Draw how large gradients are, one histogram above the other, with what float16 can hold.

    Parameters
    ----------
    gradients
        For each name a tensor of gradients; zeros are left out.
    """
    names = list(gradients)
    fig, axes = plt.subplots(
        len(names), 1, figsize=(7.6, 1.9 * len(names) + 0.6), layout="constrained", sharex=True
    )
    limits = torch.finfo(torch.float16)
    least, normal, largest = -24, int(math.log2(limits.tiny)), math.log2(limits.max)
    sizes = {
        name: g[g != 0].abs().double().log2().clamp(-60, 40).numpy(force=True)
        for name, g in gradients.items()
    }
    low = min(float(values.min()) for values in sizes.values())
    high = max(largest + 3, *(float(values.max()) for values in sizes.values()))
    for ax, name in zip(np.atleast_1d(axes), names, strict=True):
        ax.axvspan(low - 1, least - 1, color=_ORANGE, alpha=0.22, linewidth=0)
        ax.axvspan(least - 1, normal, color=COLOURS[4], alpha=0.15, linewidth=0)
        ax.axvspan(normal, largest, color=_GREEN, alpha=0.15, linewidth=0)
        ax.axvspan(largest, high + 1, color=_ORANGE, alpha=0.22, linewidth=0)
        bins = np.arange(math.floor(low), math.ceil(high) + 1)
        ax.hist(sizes[name], bins=bins, weights=np.full(len(sizes[name]), 100 / len(sizes[name])))
        lost = (sizes[name] < least - 1).mean()
        ax.set(ylabel="share, %", xlim=(low - 1, high + 1))
        ax.set_title(f"{name}: {lost:.0%} too small for float16", fontsize=10.5)
    first = np.atleast_1d(axes)[0]
    top = 0.93 * first.get_ylim()[1]
    for x, words in (
        ((low + least) / 2 - 1, "becomes 0"),
        ((least + normal) / 2, "coarse"),
        ((normal + largest) / 2, "float16"),
        ((largest + high) / 2 + 0.5, "inf"),
    ):
        first.text(x, top, words, ha="center", va="top", fontsize=9, color="#444444")
    np.atleast_1d(axes)[-1].set_xlabel("size of a gradient, as a power of two")
    shares = "; ".join(f"{n}: {(sizes[n] < least - 1).mean():.0%}" for n in names)
    present(fig, f"Histograms of gradient sizes. Share too small for float16: {shares}.")


def loss_scale(scales: Sequence[float], skipped: Sequence[bool]) -> None:
    """Draw a gradient scaler's scale over the steps, and the steps it skipped.

    Parameters
    ----------
    scales
        The scale that each step was made with.
    skipped
        Whether the step was skipped.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    steps = range(1, len(scales) + 1)
    ax.step(steps, scales, where="mid", color=_BLUE, label="scale")
    bad = [(i, scale) for i, scale, skip in zip(steps, scales, skipped, strict=True) if skip]
    if bad:
        ax.plot(*zip(*bad, strict=True), "X", color=_ORANGE, markersize=8, label="step skipped")
    ax.set_yscale("log", base=2)
    ax.set(xlabel="step", ylabel="scale")
    ax.legend()
    present(
        fig,
        f"The scale over {len(scales)} steps: it halves at each of the {len(bad)} skipped steps, most "
        "of them at the start, and later doubles now and then.",
    )


def scores(groups: Mapping[str, Sequence[float]], xlabel: str) -> None:
    """Draw one dot a run, a row a group, with a bar at the mean; each run has its own height.

    Parameters
    ----------
    groups
        For each name its values, in %.
    xlabel
        What they are.
    """
    fig, ax = plt.subplots(figsize=(7.2, 0.6 * len(groups) + 1.0), layout="constrained")
    for row, values in enumerate(groups.values()):
        mean = statistics.fmean(values)
        ax.plot([mean, mean], [row - 0.28, row + 0.28], color="#444444", linewidth=2)
        heights = [row + 0.4 * ((i + 0.5) / len(values) - 0.5) for i in range(len(values))]
        ax.plot(values, heights, MARKERS[row], color=COLOURS[row], alpha=0.75)
    ax.set_yticks(range(len(groups)), list(groups))
    ax.set(xlabel=xlabel, ylim=(len(groups) - 0.5, -0.5))
    said = "; ".join(
        f"{name} {min(v):.1f} to {max(v):.1f}, mean {statistics.fmean(v):.1f}"
        for name, v in groups.items()
    )
    present(fig, f"One dot a run, with the mean as a bar. {said}.")


def memory_map(segments: Sequence[Mapping[str, Any]], most: int = 8) -> None:
    """Draw an allocator's segments, each as a bar, and the pieces that are in use in them.

    Parameters
    ----------
    segments
        What ``torch.cuda.memory_snapshot()`` returns.
    most
        How many segments to draw; the largest are taken.
    """
    largest = sorted(segments, key=lambda segment: segment["total_size"], reverse=True)[:most]
    if not largest:
        print("No segment is reserved.")
        return
    largest.sort(key=lambda segment: segment["address"])
    fig, ax = plt.subplots(figsize=(7.6, 0.42 * len(largest) + 1.1), layout="constrained")
    for row, segment in enumerate(largest):
        for block in segment["blocks"]:
            used = block["state"] != "inactive"
            ax.barh(
                row,
                block["size"] / 2**20,
                left=(block["address"] - segment["address"]) / 2**20,
                height=0.7,
                color=_BLUE if used else "white",
                edgecolor="#444444",
                hatch=None if used else "///",
            )
    left_out = f", of {len(segments)}" * (len(segments) > most)
    ax.set(xlabel="MiB from the segment's start", ylabel="segment", ylim=(len(largest) - 0.5, -0.5))
    ax.set_yticks(range(len(largest)), [str(row + 1) for row in range(len(largest))])
    ax.grid(False)
    looks = [Rectangle((0, 0), 1, 1, facecolor=_BLUE, edgecolor="#444444")]
    looks += [Rectangle((0, 0), 1, 1, facecolor="white", edgecolor="#444444", hatch="///")]
    fig.legend(looks, ["in use", "free, and kept"], loc="outside upper center", ncols=2)
    used = sum(segment["allocated_size"] for segment in largest) / 2**20
    total = sum(segment["total_size"] for segment in largest) / 2**20
    present(
        fig,
        f"{len(largest)} segments{left_out}, as bars: {used:.0f} of {total:.0f} MiB are in use; "
        "what is free lies between pieces in use.",
    )


def turns(used: Mapping[str, Sequence[float]]) -> None:
    """Draw the memory in use after each turn of some loops; lines that coincide stay visible.

    Parameters
    ----------
    used
        For each loop, the MiB in use after every turn.
    """
    fig, ax = plt.subplots(layout="constrained")
    styles = itertools.cycle(((7.0, "-"), (4.0, "-"), (1.5, "--")))
    for (name, values), (width, dash), colour in zip(used.items(), styles, COLOURS, strict=False):
        ax.plot(range(1, 1 + len(values)), values, dash, color=colour, linewidth=width, label=name)
    ax.set(xlabel="turn", ylabel="allocated, MiB", ylim=(0, None))
    ax.legend()
    each = "; ".join(
        f"{name} {', '.join(f'{v:.1f}' for v in values)}" for name, values in used.items()
    )
    present(fig, f"MiB in use after each turn of a loop: {each}.")


def batch_curve(
    rows: Sequence[int], peaks: Sequence[float], drawn: Sequence[object], kind: str
) -> None:
    """Draw the peak memory against the batch size, and the curve that the learner drew before.

    Parameters
    ----------
    rows
        The batch sizes.
    peaks
        The peak for each, in MiB.
    drawn
        What the learner put down for each, in MiB; anything that is no number is left out.
    kind
        ``"measured"`` or ``"modelled"``.
    """
    guesses = [
        (n, float(guess))
        for n, guess in zip(rows, drawn, strict=False)
        if isinstance(guess, int | float)
    ]
    fig, ax = plt.subplots(layout="constrained")
    slope, start = np.polyfit(rows[-2:], peaks[-2:], 1)
    ax.plot([0, rows[-1]], [start, start + slope * rows[-1]], color="#888888", linewidth=1)
    ax.text(0, start, " the last two points' line", va="top", color="#555555", fontsize=9)
    ax.plot(rows, peaks, marker=MARKERS[0], linestyle=DASHES[kind], label=f"the peak ({kind})")
    if guesses:
        ax.plot(*zip(*guesses, strict=True), marker=MARKERS[1], linestyle="--", label="you drew")
    ax.set(xlabel="rows in the batch", ylabel="peak memory, MiB", ylim=(0, None))
    ax.set_xticks(list(rows), [str(n) for n in rows], rotation=45)
    ax.legend()
    said = "" if guesses else " No curve of yours is there to compare."
    present(
        fig,
        f"Peak memory is level for small batches, then a straight line up to {peaks[-1]:.0f} MiB for "
        f"{rows[-1]} rows.{said}",
    )


def means(costs: Mapping[str, tuple[int, float]], kind: str) -> None:
    """Show what each way of saving memory saves and costs: a few in a table, five and more in a picture.

    Parameters
    ----------
    costs
        For each way the peak in bytes and the seconds of a step; the first is what the others are
        compared with.
    kind
        ``"measured"`` or ``"modelled"``.
    """
    usual, usual_time = next(iter(costs.values()))
    shares = {name: (peak / usual, time / usual_time) for name, (peak, time) in costs.items()}
    if len(costs) < 5:
        rows = [
            (
                name,
                f"{peak / 2**20:.1f} MiB",
                f"{shares[name][0]:.0%}",
                seconds(time),
                f"{shares[name][1]:.2f}×",
            )
            for name, (peak, time) in costs.items()
        ]
        head = ("method", "peak", "of the plain step's", f"time ({kind})", "of the plain step's")
        text, page = table(head, rows, [kind] * len(rows))
        show(Bundle(text, page))
        return
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(8.8, 0.34 * len(costs) + 0.9), sharey=True, layout="constrained"
    )
    places = range(len(costs))
    memory, time = ([values[i] for values in shares.values()] for i in (0, 1))
    peaks = [f" {peak / 2**20:.1f} MiB" for peak, _ in costs.values()]
    left.bar_label(left.barh(places, [100 * share for share in memory], color=_BLUE), peaks)
    left.axvline(100, color="#555555", linewidth=1)
    left.set(xlabel="peak memory, % of the plain step's", xlim=(0, 130 * max(memory)))
    left.set_yticks(places, list(costs))
    left.invert_yaxis()
    right.plot(time, places, MARKERS[0], color=COLOURS[1])
    for place, value in zip(places, time, strict=True):
        right.annotate(
            f"{value:.2f}×", (value, place), (7, 0), textcoords="offset points", va="center"
        )
    right.axvline(1, color="#555555", linewidth=1)
    right.set(xlabel=f"time, × the plain step's ({kind})", xscale="log")
    right.set_xlim(min(time) / 1.4, max(time) * 2)
    log_ticks(right.xaxis)
    each = "; ".join(
        f"{name}{peak}, {share:.0%} of the memory in {value:.2f} times the time"
        for (name, (share, value)), peak in zip(shares.items(), peaks, strict=True)
    )
    present(fig, f"Each way of saving memory by what it saves and what it costs: {each}.")


_DOINGS = {
    # kind of span: name in the legend, colour, hatching
    "kernel": ("computing", COLOURS[0], ""),
    "copy": ("copying", COLOURS[4], "////"),
    "operation": ("PyTorch's operations", COLOURS[3], ""),
    "launch": ("launching", COLOURS[5], ""),
    "work": ("loading", COLOURS[2], "...."),
    "wait": ("waiting", "#d0d0cc", ""),
    "phase": ("", "#eeeeea", ""),
}


def timelines(traces: Mapping[str, Trace]) -> None:
    """Draw traces below each other, each with its own time axis and a lane a host and device engine.

    What is too short to see by itself is drawn as bars whose height is its share of the time.

    Parameters
    ----------
    traces
        For each title a trace, as ``traces.trace`` or ``traces.read`` return.
    """
    lanes = {title: trace.lanes or ["host"] for title, trace in traces.items()}
    heights = [0.62 + 0.34 * len(names) for names in lanes.values()]
    fig, axes = plt.subplots(
        len(traces),
        1,
        figsize=(8.8, 0.4 + sum(heights)),
        layout="constrained",
        height_ratios=heights,
        squeeze=False,
    )
    shown: dict[str, Rectangle] = {}
    said, binned = [], False
    for ax, (title, trace) in zip(axes.flat, traces.items(), strict=True):
        unit, scale = ("ms", 1e3) if trace.seconds >= 1e-3 else ("µs", 1e6)
        filled = np.zeros((len(lanes[title]), _BINS))
        for kind, (name, colour, hatch) in _DOINGS.items():
            look = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4}
            for y, lane in enumerate(lanes[title]):
                spans = [s for s in trace.spans if s.kind == kind and s.lane == lane]
                if not spans:
                    continue
                if name:
                    shown[name] = Rectangle((0, 0), 1, 1, **look)
                long = [s for s in spans if s.seconds * _BINS > trace.seconds]
                shares = _shares([s for s in spans if s.seconds * _BINS <= trace.seconds], trace)
                if shares.any():
                    binned = True
                    at = np.flatnonzero(shares)
                    width = trace.seconds * scale / _BINS
                    heights_of = 0.8 * shares[at].clip(0.1, 1)
                    lows = y + 0.4 - filled[y, at]
                    ax.bar(at * width, -heights_of, width, lows, align="edge", color=colour)
                    filled[y, at] += heights_of
                # A white edge parts neighbours, but would hide a bar that is only a hairline.
                edges = ["white" if s.seconds > trace.seconds / 150 else "none" for s in long]
                bars = [((s.start - trace.start) * scale, s.seconds * scale) for s in long]
                ax.broken_barh(bars, (y - 0.4, 0.8), **{**look, "edgecolor": edges})
                for (start, length), span in zip(bars, long, strict=True):
                    if kind == "phase" and span.seconds > trace.seconds / 12:
                        at = (start + length / 2, y)
                        ax.annotate(span.name, at, ha="center", va="center", fontsize=8.5)
        ax.set_yticks(range(len(lanes[title])), [_lane(lane) for lane in lanes[title]])
        ax.set(ylim=(len(lanes[title]) - 0.5, -0.5), xlim=(0, trace.seconds * scale or 1))
        ax.set_title(f"{title} ({trace.kind}, {unit})", fontsize=10)
        ax.grid(visible=False)
        said.append(
            f"{title}: {seconds(trace.seconds)}, device busy {trace.share('kernel'):.0%}, host waits "
            f"{trace.share('wait', on_host=True):.0%}"
        )
    names = [name for name, _, _ in _DOINGS.values() if name in shown]
    fig.legend(
        [shown[name] for name in names], names, loc="outside upper center", ncols=6, fontsize=9
    )
    if binned:
        fig.supxlabel("Bars that do not fill their lane: the share of the time.", fontsize=9)
    present(fig, f"Timelines of host and device. {'; '.join(said)}.")


_BINS = 240
"""A span that is shorter than this part of a timeline is two or three pixels wide."""


def _shares(spans: Sequence[Span], trace: Trace) -> np.ndarray:
    """Return which share of each of `_BINS` parts of a trace the spans take."""
    edges = np.linspace(0, trace.seconds, _BINS + 1)
    shares = np.zeros(_BINS)
    for span in spans:
        start, end = span.start - trace.start, span.end - trace.start
        first = int(start / trace.seconds * _BINS)
        for i in range(first, min(first + 2, _BINS)):
            shares[i] += max(0.0, min(end, edges[i + 1]) - max(start, edges[i]))
    return shares / (trace.seconds / _BINS)


def _lane(lane: str) -> str:
    ours = {"compute": "device", "host to device": "to device", "device to host": "to host"}
    return next((name for words, name in ours.items() if words in lane), lane)


def facts(loops: Mapping[str, Facts], kind: str) -> None:
    """Show the facts of several loops as a table, a row a loop.

    Parameters
    ----------
    loops
        For each name what ``profiling.facts`` returned.
    kind
        ``"measured"`` or ``"modelled"``.
    """
    head = ("", "a step", "device computes", "host loads", "host waits")
    head += ("of best FLOP/s", "of best bytes/s", "kernels", "each")
    rows = [
        (
            name,
            seconds(f.seconds),
            *(
                f"{share:.0%}"
                for share in (f.busy, f.loading, f.waiting, f.flop_share, f.byte_share)
            ),
            f"{f.kernels:.0f}",
            seconds(f.kernel_seconds),
        )
        for name, f in loops.items()
    ]
    text, page = table(head, rows, [kind] * len(rows))
    note = f"All {kind}; shares of the time, and of the best rates while the device computes."
    show(Bundle(f"{text}\n{note}", f"{page}<div><small>{note}</small></div>"))


def busy_but(loops: Mapping[str, tuple[float, float]], kind: str) -> None:
    """Draw for each loop how long some kernel ran, beside the share of the best rate it reached.

    Parameters
    ----------
    loops
        For each name two shares, from 0 to 1.
    kind
        ``"measured"`` or ``"modelled"``.
    """
    fig, ax = plt.subplots(figsize=(7.6, 0.8 * len(loops) + 1.0), layout="constrained")
    for i, (name, hatch) in enumerate(
        (("of the time a kernel ran", ""), ("of the best FLOP/s", "//"))
    ):
        values = [100 * shares[i] for shares in loops.values()]
        bars = ax.barh(
            [row + (i - 0.5) * 0.38 for row in range(len(loops))],
            values,
            0.36,
            color=COLOURS[i],
            hatch=hatch,
            edgecolor="white",
            label=name,
        )
        ax.bar_label(bars, [_percent(value) for value in values], padding=3, fontsize=9)
    ax.set_yticks(range(len(loops)), list(loops))
    ax.set(ylim=(len(loops) - 0.5, -0.5), xlim=(0, 115), xlabel=f"share, % ({kind})")
    ax.grid(axis="y", visible=False)
    fig.legend(loc="outside upper center", ncols=2)
    each = "; ".join(
        f"{n}: {a:.0%} of the time, {b:.2%} of the best FLOP/s" for n, (a, b) in loops.items()
    )
    present(fig, f"How long a kernel ran, and how much of the best FLOP/s was reached. {each}.")


def _percent(value: float) -> str:
    if value < 0.01:
        return "under 0.01 %"
    return f"{value:.0f} %" if value >= 1 else f"{value:.2f} %"


def changes(gains: Mapping[str, Mapping[str, float]], kind: str) -> None:
    """Draw how many times as fast each loop became by each change.

    Parameters
    ----------
    gains
        For each loop, for each change: the old time a sample over the new; nan where the loop had
        nothing to change.
    kind
        ``"measured"`` or ``"modelled"``.
    """
    names = list(next(iter(gains.values())))
    values = np.array([[row[name] for name in names] for row in gains.values()])
    fig, ax = plt.subplots(
        figsize=(1.15 * len(names) + 2.2, 0.5 * len(gains) + 1.5), layout="constrained"
    )
    ax.imshow(
        np.log2(np.nan_to_num(values, nan=1.0).clip(0.125, 8)),
        cmap="PuOr_r",
        vmin=-3,
        vmax=3,
        aspect="auto",
        alpha=0.8,
    )
    for (row, column), value in np.ndenumerate(values):
        strong = "bold" if value >= 1.2 else "normal"
        written = "–" if math.isnan(value) else f"{value:.2f}" if value < 10 else f"{value:.0f}"
        ax.text(column, row, written, ha="center", va="center", weight=strong)
    ax.set_xticks(range(len(names)), [textwrap.fill(name, 11) for name in names])
    ax.set_yticks(range(len(gains)), list(gains))
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.set_xlabel(f"times as fast as before ({kind}); bold from 1.2 on; – nothing to change")
    best = "; ".join(
        f"{loop}: {', '.join(f'{n} {gain:.2g}' for n, gain in row.items() if not math.isnan(gain))}"
        for loop, row in gains.items()
    )
    present(fig, f"Times as fast by each change. {best}.")


def pyramid(
    gains: Mapping[str, Mapping[str, float]],
    claimed: Mapping[str, tuple[float, float] | None],
    kind: str,
) -> None:
    """Draw what a tutorial claims that a change brings, and what it brought to each loop.

    Parameters
    ----------
    gains
        For each change, for each loop: times as fast.
    claimed
        For each change the claimed range, or None where speed is not what is claimed.
    kind
        ``"measured"`` or ``"modelled"``.
    """
    fig, ax = plt.subplots(figsize=(8.4, 0.95 * len(gains) + 1.4), layout="constrained")
    for row, (change, loops) in enumerate(gains.items()):
        band = claimed[change]
        if band:
            box = Rectangle((band[0], row - 0.38), band[1] - band[0], 0.76, color="#bbbbbb")
            box.set_label("claimed" if row == 0 else "")
            ax.add_patch(box)
        for i, (loop, gain) in enumerate(loops.items()):
            ax.plot(
                gain,
                row + 0.12 * (i - (len(loops) - 1) / 2),
                MARKERS[i],
                color=f"C{i}",
                label=loop if row == 0 else "",
            )
    ax.axvline(1, color="#666666", linewidth=1)
    ax.set(xscale="log", ylim=(len(gains) - 0.5, -0.5), xlabel=f"times as fast ({kind})")
    ax.set_yticks(range(len(gains)), list(gains))
    ax.grid(axis="y", visible=False)
    log_ticks(ax.xaxis)
    fig.legend(loc="outside upper center", ncols=6, fontsize=9)
    each = "; ".join(
        f"{change}: {min(row.values()):.2g} to {max(row.values()):.2g} times"
        for change, row in gains.items()
    )
    present(fig, f"What was claimed as grey bands, and what each of the loops gained: {each}.")
