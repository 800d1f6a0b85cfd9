"""Drawings of lesson 02: host and device memory, and copies between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

import simgpu
from course_language import _
from course_utils.evidence import recorded
from course_utils.plots import BLUE, COLOURS, GREEN, ORANGE, present
from course_utils.timing import kind_of, seconds
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


def transfer_chart(
    times: Mapping[str, Mapping[str, Sequence[float]]],
    megabytes: int,
    device: torch.device,
) -> None:
    """Draw the times of a copy to a device by source and kind of call, and recorded times of other machines.

    Parameters
    ----------
    times
        For each source, and for each kind of call, the times of all trials in seconds, in the order of the
        records (see `_recorded_host_to_device`). If all are empty, because this machine has no device to
        copy to, a sentence is printed instead.
    megabytes
        The size of the copy, in MiB.
    device
        The target device: times of the simulated one are modelled, others measured.
    """
    kind = kind_of(device)
    if not any(trials for ways in times.values() for trials in ways.values()):
        print(
            _("No chart: nothing leaves the host here. {unavailable_reason}")
            .format(unavailable_reason=simgpu.unavailable_reason() or "")
            .strip()
        )
        return
    machine = torch.get_device_module(device).get_device_name(device)
    quartiles = {
        source: [np.quantile(trials, (0.5, 0.25, 0.75)) for trials in ways.values()]
        for source, ways in times.items()
    }
    panels = [(machine, kind, quartiles)]
    panels += [
        (name, "recorded", dict(zip(times, rows, strict=True)))
        for name, rows in _recorded_host_to_device(megabytes).items()
    ]
    fig, axes = plt.subplots(
        len(panels), figsize=(8.4, 3.4 * len(panels)), layout="constrained", squeeze=False
    )
    ways = list(next(iter(times.values())))
    texts = [
        _draw_panel(
            ax,
            ways,
            rows,
            _("{megabytes} MiB to {machine} ({kind})").format(
                megabytes=megabytes, machine=machine, kind=_(str(kind))
            ),
        )
        for ax, (machine, kind, rows) in zip(axes.flat, panels, strict=True)
    ]
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
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


def _draw_panel(
    ax: Axes,
    ways: Sequence[str],
    rows: Mapping[str, Sequence[tuple[float, float, float]]],
    title: str,
) -> str:
    """Draw one machine's bars, a colour for each source; return the alternative text."""
    width, texts = 0.8 / len(rows), []
    longest = max(q3 for row in rows.values() for *_, q3 in row)
    for i, (source, row) in enumerate(rows.items()):
        medians, q1, q3 = np.transpose(row)
        spread = 1e3 * np.array([medians - q1, q3 - medians])
        thin = medians < longest / 100
        bars = ax.bar(
            np.arange(len(ways)) + (i - (len(rows) - 1) / 2) * width,
            1e3 * medians,
            0.92 * width,
            label=source,
            color=COLOURS[i],
            hatch=("", "//", "..")[i % 3],
            edgecolor=np.where(thin, COLOURS[i], "white"),
            linewidth=np.where(thin, 3, 1),
            yerr=spread if spread.any() else None,
            ecolor="#444444",
        )
        labels = [seconds(median) for median in medians]
        ax.bar_label(bars, labels, padding=2, fontsize=9)
        texts += [
            f"{source}, {' '.join(way.split())}: {label}" for way, label in zip(ways, labels, strict=True)
        ]
    ax.set_xticks(range(len(ways)), list(ways))
    ax.set_ylabel(_("host's time, ms\n(median and quartiles)"))
    ax.set_title(title)
    ax.margins(y=0.15)
    ax.grid(axis="x", visible=False)
    return f"{title}: {'; '.join(texts)}."


def first_and_last(lines: Mapping[str, Timeline]) -> None:
    """Print the modelled time of each timeline, and draw the first and the last on the same time axis."""
    for title, line in lines.items():
        print(_("{title:40} {seconds} (modelled)").format(title=title, seconds=seconds(line.seconds)))
    first, *__, last = lines
    for title in (first, last):
        present(lines[title].plot(title, until=lines[first].seconds), lines[title].alt())


def all_lines(lines: Mapping[str, Timeline]) -> None:
    """Draw timelines on the same time axis, each with its modelled time and its number of data races."""
    longest = max(line.seconds for line in lines.values())
    for title, line in lines.items():
        races = _(", {n_races} races").format(n_races=len(line.races)) if line.races else ""
        words = f"{title}: {seconds(line.seconds)}{races}"
        present(line.plot(words, until=longest), f"{words}. {line.alt()}")
