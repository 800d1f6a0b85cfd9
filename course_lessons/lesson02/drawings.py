"""Drawings of lesson 02: host and device memory, and copies between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

import simgpu
from course_language import _
from course_utils.errors import Caught
from course_utils.evidence import recorded
from course_utils.plots import BLUE, COLOURS, GREEN, ORANGE, present
from course_utils.timing import kind_of, seconds
from simgpu.counters import Counters
from simgpu.timeline import Timeline

_ARROW = {"arrowstyle": "-|>", "mutation_scale": 16, "color": "#444444", "linewidth": 2}


def two_memories() -> None:
    """Draw the host's memory, the device's memory, and the bus between them."""
    fig, ax = plt.subplots(figsize=(7.6, 2.7), layout="constrained")
    for x, title, unit, colour in (
        (0, _("the host's memory: cpu"), "CPU", BLUE),
        (6.4, _("the device's memory"), "GPU", ORANGE),
    ):
        ax.add_patch(Rectangle((x, 0), 3.6, 2.2, facecolor="white", edgecolor="#444444"))
        ax.text(x + 1.8, 2.45, title, ha="center")
        ax.add_patch(Rectangle((x + 0.2, 0.15), 3.2, 0.6, facecolor=colour, alpha=0.85))
        ax.text(
            x + 1.8,
            0.45,
            _("{unit}: computes with these").format(unit=unit),
            color="white",
            ha="center",
            va="center",
        )
    for x, name in ((0.5, "x"), (8.2, "y = x.to(device)")):
        ax.add_patch(Rectangle((x - 0.3, 1.15), 1.6, 0.7, facecolor=GREEN, alpha=0.3))
        ax.text(x + 0.5, 1.5, name, ha="center", va="center", family="monospace", fontsize=8.5)
    for y, ends, words in ((1.5, (3.8, 6.2), ".to(device)"), (0.6, (6.2, 3.8), ".cpu()")):
        ax.add_patch(FancyArrowPatch((ends[0], y), (ends[1], y), **_ARROW))
        ax.text(5, y + 0.2, words, ha="center", family="monospace", fontsize=9)
    ax.text(5, 0.15, _("the bus: slow"), ha="center", fontsize=8, color="#555555")
    ax.set(xlim=(-0.1, 10.1), ylim=(-0.1, 2.8))
    ax.set_axis_off()
    present(
        fig,
        _(
            "Two memories joined by a bus. x lies in the host's memory, where the CPU computes; .to(device) "
            "makes a copy y in the device's memory, where the GPU computes; .cpu() copies back."
        ),
    )


_DIFFERENT = re.compile(
    r"got (\w+) is on ([\w:]+), different from other tensors on ([\w:]+) .*wrapper_[A-Z]+_+(\w+)"
)
_EXAMPLE = (
    "Expected all tensors to be on the same device, but got {} is on {}, different from other tensors on {} "
    "(when checking argument in method wrapper_CUDA_{})"
)


def device_error(caught: Caught | None) -> None:
    """Draw the message of a linear layer whose input stayed on the host, with a label for each part."""
    _annotate(caught, _EXAMPLE.format("mat1", "cpu", "cuda:0", "addmm"))


def device_error_of_the_left_side(caught: Caught | None) -> None:
    """Draw the message of a product whose left side stayed on the host, with a label for each part."""
    _annotate(caught, _EXAMPLE.format("mat2", "cuda:0", "cpu", "mm"))


def _annotate(caught: Caught | None, example: str) -> None:
    """Draw an error's message with labels; ``example`` if there is no error, or it is worded differently."""
    message = caught.message if caught and _DIFFERENT.search(caught.message) else example
    named, here, there, operation = _DIFFERENT.search(message).groups()
    if here == "cpu":
        places = (ORANGE, _("is here: move it")), (GREEN, _("the others are on your device"))
    else:
        places = (GREEN, _("is on your device")), (ORANGE, _("the others are here: move them"))
    labels = [
        (named, BLUE, _("this tensor")),
        (here, *places[0]),
        (there, *places[1]),
        (operation, COLOURS[3], _("this operation")),
    ]
    lines = message.replace(", but ", ",\nbut ").replace(" (when", "\n(when").split("\n")
    wide = max(map(len, lines)) + 13
    fig = plt.figure(figsize=(8.4, 2.4))
    ax = fig.add_axes((0, 0, 1, 1), xlim=(-1, wide), ylim=(-0.9, 3.0))
    ax.set_axis_off()
    size = 72 * 8.4 / (wide + 1) / 0.602  # a letter of a monospaced font, 0.602 em wide, is 1 on the axis
    heights, starts = (2.6, 1.7, 0.3), {}
    for (part, colour, words), row in zip(labels, (1, 1, 1, 2), strict=True):
        line, y = lines[row], heights[row]
        x = line.index(f" {part},") + 1 if part == here else line.rindex(part)
        starts[row, x] = len(part)
        box = {"facecolor": colour, "alpha": 0.22, "linewidth": 0}
        ax.add_patch(Rectangle((x - 0.2, y - 0.3), len(part) + 0.4, 0.6, **box))
        middle = x + len(part) / 2
        ax.annotate(
            words, (middle, y - 0.3), (middle, y - 0.78),
            color=colour, ha="center", va="center", fontsize=10, weight="bold",
            arrowprops={"arrowstyle": "-|>", "color": colour},
        )  # fmt: skip
    for row, (line, y) in enumerate(zip(lines, heights, strict=True)):
        cuts = [0, len(line), *(cut for (at, x), n in starts.items() if at == row for cut in (x, x + n))]
        for x, end in pairwise(sorted(cuts)):  # piece by piece, because the pitch is rounded to pixels
            piece = {"x": x, "y": y, "s": f"{line[x:end]} ", "family": "DejaVu Sans Mono"}
            ax.text(**piece, fontsize=size, va="center")
    said = "; ".join(f"{part}: {words}" for part, _, words in labels)
    present(fig, _("The error message with its parts labelled. {said}.").format(said=said))


def _is_pair(answer: object) -> bool:
    """Return whether an answer is two numbers."""
    return (
        isinstance(answer, (tuple, list))
        and len(answer) == 2
        and all(isinstance(value, (int, float)) for value in answer)
    )


def ledger(counted: Counters, answer: object) -> None:
    """Draw the bytes that one_step sent to the device as a stacked bar, and a learner's sum below it.

    Parameters
    ----------
    counted
        The copies of ``one_step``: four of parameters, one of images, one of labels. Nothing is drawn
        without copies.
    answer
        The learner's pair of numbers; anything else is left out.
    """
    sizes = [copy.bytes for copy in counted.copies if copy.code == "h2d"]
    if not sizes:
        return
    parts = {_("parameters"): sum(sizes[:-2]), _("images"): sizes[-2], _("labels"): sizes[-1]}
    total = sum(sizes)
    fig, ax = plt.subplots(figsize=(8.4, 1.3 + 0.45 * (1 + _is_pair(answer))), layout="constrained")
    left = 0
    for (name, size), colour, ha in zip(parts.items(), COLOURS, ("center", "center", "left"), strict=False):
        ax.barh(0, size, 0.5, left, color=colour, edgecolor=colour)
        at = left + size / 2
        ax.annotate(
            f"{name} {size:,}", (at, -0.27), (at + 0.05 * total * (ha == "left"), -0.45),
            color=colour, ha=ha, va="bottom", arrowprops={"arrowstyle": "-", "color": colour},
        )  # fmt: skip
        left += size
    rows = [(0, _("counted"), total)]
    if _is_pair(answer):
        rows.append((1, _("your answer"), answer[0]))
        drawn = max(0, min(answer[0], 1.25 * total))
        ax.barh(1, drawn, 0.5, color="#bbbbbb", hatch="//", edgecolor="white")
    for y, _name, size in rows:
        ax.text(max(0, min(size, 1.25 * total)), y, f" {size:,}", va="center")
    ax.set_yticks([y for y, *_ in rows], [name for _, name, _ in rows])
    ax.set(xlim=(0, 1.4 * total), ylim=(len(rows) - 0.5, -0.9))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel(_("bytes to the device"))
    ax.grid(axis="y", visible=False)
    said = ", ".join(f"{name} {size:,}" for name, size in parts.items())
    present(fig, _("Bytes to the device: {said}; together {total:,}.").format(said=said, total=total))


def what_moves() -> None:
    """Draw a table of what a module's ``.to`` moves, ``state_dict`` saves and the optimizer trains."""
    rows = (
        ("nn.Parameter", "self.weight = nn.Parameter(...)", "yes", "yes", "yes"),
        (_("buffer"), "self.mean = nn.Buffer(...)", "yes", "yes", _("no")),
        (_("module, ModuleList"), "self.layers = nn.ModuleList(...)", "yes", "yes", "yes"),
        (_("plain tensor"), "self.scale = torch.ones(3)", _("no"), _("no"), _("no")),
        (_("list, dict of modules"), "self.layers = [nn.Linear(...)]", _("no"), _("no"), _("no")),
    )
    fig, ax = plt.subplots(figsize=(7.8, 2.7), layout="constrained")
    for column, words in zip((5.6, 6.6, 7.6), (_("moved"), _("saved"), _("trained")), strict=True):
        ax.text(column, 5.4, words, ha="center")
    for y, (what, code, *marks) in zip(range(4, -1, -1), rows, strict=True):
        ax.text(0, y + 0.5, what, va="center")
        ax.text(2.1, y + 0.5, code, va="center", family="monospace", fontsize=8.5)
        for column, mark in zip((5.6, 6.6, 7.6), marks, strict=True):
            colour = GREEN if mark == "yes" else ORANGE
            box = Rectangle((column - 0.45, y + 0.08), 0.9, 0.84, facecolor=colour, alpha=0.85)
            ax.add_patch(box)
            ax.text(column, y + 0.5, _(mark), ha="center", va="center", color="white")
    ax.set(xlim=(-0.1, 8.2), ylim=(-0.1, 5.8))
    ax.set_axis_off()
    present(
        fig,
        _(
            "Parameters and the modules in a ModuleList are moved, saved and trained; buffers are moved and "
            "saved; plain tensors, and modules in a list or dict, are none of these."
        ),
    )


def pinned_route() -> None:
    """Draw the copies from pageable and from pinned memory to the device."""
    fig, ax = plt.subplots(figsize=(7.8, 2.6), layout="constrained")
    boxes = (
        (0.0, 1.5, 2.2, _("pageable tensor"), BLUE, 0.3),
        (3.9, 1.5, 2.2, _("driver's pinned\nbuffer"), "#888888", 0.3),
        (0.0, 0.0, 2.2, _("pinned tensor"), GREEN, 0.3),
        (8.2, 0.0, 1.8, _("tensor on\nthe device"), ORANGE, 0.3),
    )
    for x, y, width, words, colour, alpha in boxes:
        height = 2.5 if x > 8 else 1.0
        ax.add_patch(Rectangle((x, y), width, height, facecolor=colour, alpha=alpha))
        ax.text(x + width / 2, y + height / 2, words, ha="center", va="center")
    for start, end, y, words in (
        (2.3, 3.8, 2.0, _("the CPU\ncopies")),
        (6.2, 8.1, 2.0, _("the GPU\nfetches")),
        (2.3, 8.1, 0.5, _("the GPU fetches; the CPU is free")),
    ):
        ax.add_patch(FancyArrowPatch((start, y), (end, y), **_ARROW))
        ax.text((start + end) / 2, y + 0.1, words, ha="center", va="bottom", fontsize=9)
    ax.axvline(7.75, color="#888888", linestyle=":", linewidth=1)
    ax.text(7.65, 2.75, _("host"), ha="right", fontsize=9, color="#555555")
    ax.text(7.85, 2.75, _("device"), ha="left", fontsize=9, color="#555555")
    ax.set(xlim=(-0.1, 10.1), ylim=(-0.1, 3.0))
    ax.set_axis_off()
    present(
        fig,
        _(
            "From a pageable tensor the CPU first copies into the driver's pinned buffer, and the GPU "
            "fetches from there. From a pinned tensor the GPU fetches directly and the CPU is free."
        ),
    )


_SOURCES = {"pageable": 0, "pinned": 1, "pinned on the spot": 2}
_QUANTITIES = {"time": 0, "time until the call returns": 1}
"""Names in records of the experiment ``host_to_device``; dict keys, because keys are not translated."""


def transfer_chart(times: Mapping[str, Mapping[str, Sequence[float]]], device: torch.device) -> None:
    """Draw how long 64 MiB take to a device, and for how long Python waits; here, and as recorded elsewhere.

    Parameters
    ----------
    times
        For each source the times of all trials in seconds, as `transfers.time_copies` returns them. If all
        are empty, because this machine has no device to copy to, a sentence is printed instead.
    device
        The target device: times of the simulated one are modelled, others measured.
    """
    if not any(trials for ways in times.values() for trials in ways.values()):
        print(
            _("No chart: nothing leaves the host here. {unavailable_reason}")
            .format(unavailable_reason=simgpu.unavailable_reason() or "")
            .strip()
        )
        return
    megabytes = 64
    machine = torch.get_device_module(device).get_device_name(device)
    here = {
        source: [tuple(np.quantile(trials, (0.5, 0.25, 0.75))) for trials in ways.values()]
        for source, ways in times.items()
    }
    panels = [(machine, str(kind_of(device)), here)]
    panels += [
        (name, "recorded", dict(zip(times, rows, strict=True)))
        for name, rows in _recorded_host_to_device(megabytes).items()
    ]
    fig, axes = plt.subplots(
        len(panels), figsize=(8.4, 2.7 * len(panels)), layout="constrained", squeeze=False
    )
    texts = [
        _draw_panel(
            ax,
            rows,
            _("{megabytes} MiB to {machine} ({kind})").format(
                megabytes=megabytes, machine=machine, kind=_(kind)
            ),
        )
        for ax, (machine, kind, rows) in zip(axes.flat, panels, strict=True)
    ]
    axes[-1, 0].set_xlabel(_("ms, until the data are on the device (median and quartiles)"))
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    present(fig, _("Time of a copy. {texts}").format(texts=" ".join(texts)))


def _recorded_host_to_device(megabytes: int) -> dict[str, list[list[tuple[float, float, float]]]]:
    """Return recorded times of host-to-device copies for each machine, as rows by source, columns by call.

    Each entry is (median, first quartile, third quartile) in seconds. Rows: pageable, pinned, pinned on the
    spot. Columns: blocking, until the data have arrived; non-blocking, until the call returns; non-blocking,
    until the data have arrived. Machines that lack a measurement are left out.
    """
    arrived, returned = _QUANTITIES
    ways = ((False, arrived), (True, returned), (True, arrived))
    records = {
        (m.machine, m.parameters["source"], m.parameters["non_blocking"], quantity): m
        for quantity in _QUANTITIES
        for m in recorded("host_to_device", quantity, megabytes=megabytes)
        if m.kind == "recorded"
    }
    machines = {}
    for machine in dict.fromkeys(name for name, *_ in records):
        keys = [[(machine, source, *way) for way in ways] for source in _SOURCES]
        if all(key in records for row in keys for key in row):
            rows = [[records[key] for key in row] for row in keys]
            machines[machine] = [[(m.median, m.q1, m.q3) for m in row] for row in rows]
    return machines


def _draw_panel(ax: Axes, rows: Mapping[str, Sequence[tuple[float, float, float]]], title: str) -> str:
    """Draw one machine's bars: Python waits for the dark part only. Return the alternative text."""
    bars, texts = [], []
    for source, (blocking, returns, arrives) in rows.items():
        bars.append((_("{source}, blocking").format(source=source), blocking[0], blocking))
        bars.append((_("{source}, non_blocking").format(source=source), min(returns[0], arrives[0]), arrives))
    names, waits, ends = zip(*bars, strict=True)
    medians, q1, q3 = 1e3 * np.transpose(ends)
    waits = 1e3 * np.array(waits)
    y = [i + 0.35 * (i // 2) for i in range(len(bars))]
    spread = np.array([medians - q1, q3 - medians])
    ax.barh(y, waits, 0.8, color=BLUE, label=_("Python waits"))
    ax.barh(
        y, medians - waits, 0.8, waits,
        color="#bcdcef", hatch="//", edgecolor="white", label=_("the copy goes on, Python is free"),
    )  # fmt: skip
    if spread.any():
        ax.errorbar(medians, y, xerr=spread, fmt="none", ecolor="#444444")
    for name, place, wait, median, end in zip(names, y, waits, medians, q3, strict=True):
        words = seconds(median / 1e3)
        if wait < 0.9 * median:
            words = _("{arrives}; the call returns after {returns}").format(
                arrives=words, returns=seconds(wait / 1e3)
            )
        ax.text(end, place, f" {words}", va="center", fontsize=9)
        texts.append(f"{name}: {words}")
    ax.set_yticks(y, names, fontsize=9)
    ax.invert_yaxis()
    ax.set_title(title)
    ax.set_xlim(0, 1.65 * max(q3))
    ax.grid(axis="y", visible=False)
    return f"{title}: {'. '.join(texts)}."


def one_line(line: Timeline) -> None:
    """Draw the timeline of a loop, with its modelled time."""
    words = _("Four batches: {seconds}").format(seconds=seconds(line.seconds))
    present(line.plot(words), f"{words}. {line.alt()}")


def all_lines(lines: Mapping[str, Timeline]) -> None:
    """Draw timelines on the same time axis, each with its modelled time and its number of data races."""
    longest = max(line.seconds for line in lines.values())
    for title, line in lines.items():
        races = _(", {n_races} races").format(n_races=len(line.races)) if line.races else ""
        words = f"{title}: {seconds(line.seconds)}{races}"
        present(line.plot(words, until=longest), f"{words}. {line.alt()}")
