"""Drawings that explain: too long for a lesson's cell, and nothing a learner should copy."""

from __future__ import annotations

import html
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import FancyArrowPatch, Polygon, Rectangle

from . import simgpu
from .evidence import published_gpus, recorded
from .host import cpu_name
from .plots import COLOURS, DASHES, MARKERS, log_ticks, present
from .show import Bundle, show, table
from .simgpu.cost import Work
from .simgpu.cost import seconds as work_seconds
from .simgpu.profiles import load as load_profile
from .timing import Measurement, seconds

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
            if m.device != "cpu":
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
    ax.text(ridge * 1.08, roof[0], f"ridge: {ridge:.3g} FLOPs/byte", color="#555555")
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
