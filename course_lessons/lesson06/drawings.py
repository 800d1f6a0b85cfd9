"""Drawings of lesson 06: timelines of ranks, rows by rank, a restart, ring all_reduce, and DDP's buckets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch.utils.data.distributed import DistributedSampler

from course_language import _
from course_lessons.shared.traces import Trace
from course_utils.plots import BLUE, COLOURS, ORANGE, present
from course_utils.timing import seconds
from simgpu.cluster import MARK, Run, marked, run

_Bar = tuple[float, float, str]  # start, end, name

_LOOKS = {
    "compute": {"facecolor": BLUE},
    "communicate": {"facecolor": ORANGE, "hatch": "////"},
    "wait": {"facecolor": "#d0d0cc"},
}


def ranks(run: Run) -> None:
    """Draw a timeline of each rank of a simulated run: computation above, communication below."""
    lanes: list[dict[str, list[_Bar]]] = [{kind: [] for kind in _LOOKS} for _ in run.results]
    for span in run.spans:
        lanes[span.rank][span.kind].append((span.start, span.end, span.name))
    _draw_lanes(lanes, 0.0, run.seconds, "modelled")


def rank_lanes(traces: Mapping[int, Trace]) -> None:
    """Draw a timeline of each real rank from profiler traces: computation above, communication below.

    ``traces`` has for each rank what ``traces.read`` returned; they share a time axis, because the processes
    ran on one machine. A collective's bar begins when this rank calls it, so it includes the wait for other
    ranks.
    """
    lanes = [_bars_of_trace(trace) for trace in traces.values()]
    start = min(trace.start for trace in traces.values())
    end = max(stop for lane in lanes for bars in lane.values() for _, stop, _ in bars)
    _draw_lanes(lanes, start, end, "measured", list(traces))


def _bars_of_trace(trace: Trace) -> dict[str, list[_Bar]]:
    """Return a trace's bars by kind: from kernels on a GPU, from PyTorch's operations on a CPU."""
    on_device = any(span.kind == "kernel" for span in trace.spans)
    prefix, doing = ("nccl", "kernel") if on_device else ("gloo:", "operation")
    lanes: dict[str, list[_Bar]] = {kind: [] for kind in _LOOKS}
    for span in trace.spans:
        if span.name.startswith(prefix) and (span.kind == "kernel") is on_device:
            lanes["communicate"].append((span.start, span.end, span.name))
        elif span.kind == doing and not span.name.startswith("c10d::"):
            lanes["compute"].append((span.start, span.end, ""))
    return lanes


def _draw_lanes(
    lanes: Sequence[Mapping[str, Sequence[_Bar]]],
    begin: float,
    end: float,
    kind: str,
    names: Sequence[int] = (),
) -> None:
    """Draw the bars of each rank; ``names`` are the numbers of real ranks.

    Times are in seconds; ``kind`` is ``"measured"`` or ``"modelled"``.
    """
    unit, scale = _time_unit(end - begin)
    fig, ax = plt.subplots(figsize=(8.8, 0.75 * len(lanes) + 1.2), layout="constrained")
    rank_texts = []
    for row, lane in enumerate(lanes):
        for doing, look in _LOOKS.items():
            low = row + (0.02 if doing == "communicate" else -0.4)
            for start, stop, name in _merge_close_bars(lane[doing], (end - begin) / 1500):
                left, width = (start - begin) * scale, (stop - start) * scale
                box = Rectangle((left, low), width, 0.38, edgecolor="white", linewidth=0.5, **look)
                ax.add_patch(box)
                fits = width > 0.011 * (end - begin) * scale * (len(name) + 1)
                if fits and doing != "wait" and not names:  # real ranks' bars may overlap
                    _draw_label(ax, name, left + width / 2, low + 0.19)
        shares = {doing: _covered_seconds(lane[doing]) / ((end - begin) or 1) for doing in _LOOKS}
        rank = names[row] if names else row
        computes, communicates = shares["compute"], shares["communicate"]
        rank_texts.append(
            _("rank {rank} computes {computes:.0%} and communicates {communicates:.0%}").format(
                rank=rank, computes=computes, communicates=communicates
            )
        )
    ax.set_yticks(range(len(lanes)), [f"rank {n}" for n in (names or range(len(lanes)))])
    ax.set(xlim=(0, (end - begin) * scale or 1), ylim=(len(lanes) - 0.5, -0.5))
    ax.set_xlabel(_("{unit} ({kind})").format(unit=unit, kind=_(kind)))
    ax.grid(axis="y", visible=False)
    used = [doing for doing in _LOOKS if any(lane[doing] for lane in lanes)]
    looks = [Rectangle((0, 0), 1, 1, edgecolor="white", **_LOOKS[doing]) for doing in used]
    words = {"compute": _("computes"), "communicate": _("communicates"), "wait": _("waits")}
    fig.legend(looks, [words[doing] for doing in used], loc="outside upper center", ncols=3)
    length = seconds(end - begin)
    present(
        fig,
        _("What each rank did in {length}, {kind}: {said} of the time.").format(
            length=length, kind=_(kind), said="; ".join(rank_texts)
        ),
    )


def _time_unit(length: float) -> tuple[str, float]:
    """Return a unit that suits a duration, and the factor from seconds."""
    return ("s", 1.0) if length >= 1 else ("ms", 1e3) if length >= 1e-3 else ("µs", 1e6)


def _merge_close_bars(bars: Sequence[_Bar], gap: float) -> Iterable[_Bar]:
    """Return the bars sorted by start; unnamed ones that are less than ``gap`` seconds apart are merged."""
    joined: list[_Bar] = []
    for start, end, name in sorted(bars):
        if joined and not name and not joined[-1][2] and start - joined[-1][1] < gap:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]), "")
        else:
            joined.append((start, end, name))
    return joined


def _covered_seconds(bars: Sequence[_Bar]) -> float:
    """Return the seconds in which at least one bar lasts."""
    total, until = 0.0, -math.inf
    for start, end, _ in sorted(bars):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _draw_label(ax: Axes, text: str, x: float, y: float) -> None:
    """Draw a text on a light background, centred."""
    box = {"facecolor": "#fdfdfb", "edgecolor": "none", "alpha": 0.85, "pad": 1.2}
    ax.text(x, y, text, ha="center", va="center", fontsize=8.5, bbox=box)


def shared_rows(rows: int, ranks: int, epochs: int) -> None:
    """Draw which rank reads which row in each epoch, as `DistributedSampler` shares them with seed 0."""
    fig, axes = plt.subplots(
        epochs, 1, figsize=(8.8, 0.95 * epochs + 0.6), layout="constrained", squeeze=False
    )
    orders, repeated = [], 0
    for epoch, ax in enumerate(axes.flat):
        samplers = [DistributedSampler(range(rows), ranks, rank, seed=0) for rank in range(ranks)]
        for sampler in samplers:
            sampler.set_epoch(epoch)
        order = [row for turn in zip(*samplers, strict=True) for row in turn]
        repeated = len(order) - rows
        for place, row in enumerate(order):
            rank = place % ranks
            look = {"facecolor": COLOURS[rank], "edgecolor": "white", "hatch": "////" * (place >= rows)}
            ax.add_patch(Rectangle((place + 0.04, 0), 0.92, 1, linewidth=0.5, **look))
            _draw_label(ax, str(row), place + 0.5, 0.5)
        ax.set(xlim=(0, len(order)), ylim=(0, 1), xticks=[], yticks=[0.5])
        ax.set_yticklabels([_("epoch {epoch}").format(epoch=epoch)])
        ax.tick_params(length=0)
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        orders.append(", ".join(map(str, order)))
    looks = [Rectangle((0, 0), 1, 1, facecolor=COLOURS[rank]) for rank in range(ranks)]
    words = [_("rank {rank}").format(rank=rank) for rank in range(ranks)]
    if repeated:
        looks.append(Rectangle((0, 0), 1, 1, facecolor="#d0d0cc", edgecolor="white", hatch="////"))
        words.append(_("comes a second time"))
    fig.legend(looks, words, loc="outside upper center", ncols=ranks + 1)
    listed = "; ".join(_("epoch {epoch}").format(epoch=n) + ": " + order for n, order in enumerate(orders))
    present(
        fig,
        _(
            "Row numbers in a random order, shared out in turn to {ranks} ranks. {listed}. "
            "The last {repeated} repeat the first."
        ).format(ranks=ranks, listed=listed, repeated=repeated),
    )


def restarted(epochs: int, killed_in: int, part: float) -> None:
    """Draw an undisturbed training and one that died: what was saved, what was lost, what was done again.

    Parameters
    ----------
    epochs
        The length of both trainings; each saves after every epoch.
    killed_in, part
        The epoch in which a rank died, from 1 on, and how much of it had been done, from 0 to 1.
    """
    fig, ax = plt.subplots(figsize=(8.8, 2.7), layout="constrained")
    lanes = [[(n, 1.0) for n in range(epochs)]]
    lanes.append([*[(n, 1.0) for n in range(killed_in - 1)], (killed_in - 1, part)])
    lanes.append([(n, 1.0) for n in range(killed_in - 1, epochs)])
    for lane, bars in enumerate(lanes):
        for start, length in bars:
            lost = length < 1
            look = {"facecolor": "#d0d0cc" if lost else BLUE, "edgecolor": "white", "hatch": "////" * lost}
            ax.add_patch(Rectangle((start + 0.01, lane - 0.3), length - 0.02, 0.6, linewidth=0.5, **look))
            if not lost:
                _draw_label(ax, _("epoch {epoch}").format(epoch=start + 1), start + 0.5, lane)
                ax.plot(start + 1, lane, "D", color=ORANGE, markersize=8, clip_on=False, zorder=4)
    dies = killed_in - 1 + part
    ax.plot(dies, 1, "X", color="#c0392b", markersize=13, markeredgecolor="white", zorder=5)
    from_file = {"arrowstyle": "->", "color": ORANGE, "linewidth": 1.8, "connectionstyle": "arc3,rad=0.3"}
    ax.annotate("", (killed_in - 1 - 0.01, 1.95), (killed_in - 1 - 0.01, 1.1), arrowprops=from_file)
    ax.set(xlim=(0, epochs + 0.06), ylim=(2.5, -0.5), xticks=[])
    ax.set_yticks(range(3), [_("undisturbed"), _("killed"), _("started again")])
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    looks = [
        plt.Line2D([], [], marker="D", color=ORANGE, linestyle="", markersize=8),
        plt.Line2D([], [], marker="X", color="#c0392b", linestyle="", markersize=11),
        Rectangle((0, 0), 1, 1, facecolor="#d0d0cc", edgecolor="white", hatch="////"),
    ]
    words = [_("checkpoint"), _("rank 1 dies"), _("lost, done again")]
    fig.legend(looks, words, loc="outside upper center", ncols=3)
    present(
        fig,
        _(
            "An undisturbed training of {epochs} epochs with a checkpoint after each. In the other, a rank "
            "dies in epoch {killed}. What was done of that epoch is lost, and the training goes on from the "
            "checkpoint before it."
        ).format(epochs=epochs, killed=killed_in),
    )


def chunks(run: Run) -> None:
    """Draw, for each step, the tensor of `cluster.marked` on every rank: whose numbers each element sums.

    One row per rank, one square per element; a number that was added more than once is hatched. Prints a hint
    instead unless every rank called ``marked``, or for more than 6 ranks or 8 elements.
    """
    n = len(run.marks)
    places = len(run.marks[0][0][1]) if all(run.marks) else 0
    if not 1 <= places <= 8 or n > 6:
        begin = _("begin with x = cluster.marked(dist, size), at most 8 places on 6 ranks.")
        print(_("Nothing to draw: {begin}").format(begin=begin))
        return
    states = [_values_after_steps(marks, run.steps) for marks in run.marks]  # by rank, then by step
    columns = min(run.steps + 1, 4 if places > 4 else 7)
    rows = math.ceil((run.steps + 1) / columns)
    size = (8.8, rows * (0.28 * n + 0.55) + 0.5)
    fig, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for step, ax in enumerate(axes.flat):
        if step > run.steps:
            ax.set_axis_off()
            continue
        for rank in range(n):
            for place, value in enumerate(states[rank][step]):
                _draw_element(ax, place, rank, _count_marks(value, n))
        ax.set(xlim=(-0.1, places + 0.2), ylim=(n - 0.5, -0.5), xticks=[], yticks=[])
        ax.set_title(_("at the start") if step == 0 else _("after step {step}").format(step=step), fontsize=9)
        ax.spines[:].set_visible(False)
    for line in axes:
        line[0].set_yticks(range(n), [f"rank {rank}" for rank in range(n)], fontsize=8.5)
        line[0].tick_params(length=0)
        line[0].grid(visible=False)
    looks = [Rectangle((0, 0), 1, 1, facecolor=COLOURS[rank]) for rank in range(n)]
    looks.append(Rectangle((0, 0), 1, 1, fill=False, edgecolor="black"))
    words = [_("from rank {rank}").format(rank=rank) for rank in range(n)] + [_("from all, once")]
    if any(c > 1 for state in states for values in state for v in values for c in _count_marks(v, n)):
        looks.append(Rectangle((0, 0), 1, 1, linewidth=0, **_TWICE))
        words.append(_("more than once"))
    columns = len(looks) if n < 5 else 4
    fig.legend(looks, words, loc="outside lower center", ncols=columns, fontsize=9)
    full = sum(all(c == 1 for c in _count_marks(v, n)) for state in states for v in state[-1])
    present(
        fig,
        _(
            "Which ranks' numbers are in each of the {places} places of each of {n} ranks, after each of "
            "{steps} steps. At the end {full} of {product} places hold the sum of all."
        ).format(places=places, n=n, steps=run.steps, full=full, product=n * places),
    )


_TWICE = {"facecolor": "#222222", "hatch": "xxxx", "edgecolor": "#ff5555"}


def ring(all_reduce: Callable[..., Any]) -> None:
    """Run the learner's ``all_reduce(x, dist)`` on 4 ranks with 8 numbers each, and draw the `chunks`.

    If it raises, or sends nothing, a line is printed instead.
    """
    try:
        done = run(lambda dist: all_reduce(marked(dist, 8), dist), ranks=4, limit=10)
    except Exception as error:  # noqa: BLE001  (the check shows what the learner's function raised)
        print(_("Nothing to draw: {error}").format(error=error))
        return
    if not done.messages:
        print(_("Nothing to draw: no rank has sent anything yet."))
        return
    chunks(done)


def _draw_element(ax: Axes, place: int, rank: int, counts: Sequence[int]) -> None:
    """Draw one element of a rank's tensor: a stripe for each rank whose number is in it."""
    for part, count in enumerate(counts):
        look = _TWICE if count > 1 else {"facecolor": COLOURS[part]}
        if count:
            at = (place + 0.06 + 0.88 * part / len(counts), rank - 0.4)
            ax.add_patch(Rectangle(at, 0.88 / len(counts), 0.8, linewidth=0, **look))
    done = all(count == 1 for count in counts)
    edge = {"edgecolor": "black" if done else "#c8c8c4", "linewidth": 1.4 if done else 0.7}
    ax.add_patch(Rectangle((place + 0.06, rank - 0.4), 0.88, 0.8, fill=False, **edge))


def _values_after_steps(marks: Sequence[tuple[int, list[float]]], steps: int) -> list[list[float]]:
    """Return the values of a marked tensor after each step, from 0 (the start) on.

    ``marks`` is an item of `Run.marks`: pairs of a number of steps and the values then.
    """
    return [[values for at, values in marks if at <= step][-1] for step in range(steps + 1)]


def _count_marks(value: float, n: int) -> list[int]:
    """Return how often each of ``n`` ranks' marks is in a sum, by rank."""
    return [int(value // MARK**rank % MARK) for rank in range(n)]


def buckets(
    layers: Mapping[str, int],
    backward: float,
    bandwidth: float,
    ranks: int = 2,
    latency: float = 5e-6,
    first: int = 2**20,
    cap: int = 25 * 2**20,
) -> tuple[Figure, str]:
    """Return a figure of when gradients are ready and when DDP sends them, and its alternative text.

    A simple model: each layer takes a share of the backward pass that is proportional to its gradient's
    bytes, and an all_reduce is a ring.

    Parameters
    ----------
    layers
        For each layer, in forward order, the bytes of its gradient.
    backward
        Duration of the backward pass, in seconds.
    bandwidth, latency
        Of a link, in bytes per second and in seconds.
    first, cap
        Capacity of the first bucket, and of the others, in bytes; by default PyTorch's.
    """
    total = sum(layers.values())
    groups = _assign_buckets(layers, first, cap)

    def ring(size: int) -> float:
        """Return the seconds of a ring all_reduce of ``size`` bytes."""
        return 2 * (ranks - 1) * (latency + size / ranks / bandwidth)

    ready, free, bars, sent = 0.0, 0.0, [], []
    for number, group in enumerate(groups):
        for name in group:
            share = backward * layers[name] / total
            bars.append((0, ready, share, name, number))
            ready += share
        start = max(ready, free)
        free = start + ring(sum(layers[name] for name in group))
        sent.append((1, start, free - start, _("bucket {number}").format(number=number), number))
    apart = backward + ring(total)
    unit, scale = _time_unit(max(free, apart))
    fig, ax = plt.subplots(figsize=(8.8, 2.7))
    fig.subplots_adjust(left=0.17, right=0.98, top=0.87, bottom=0.2)  # quicker than to lay it out
    ax.set_title(
        _("done after {free}, sent at the end {apart} (modelled)").format(
            free=seconds(free), apart=seconds(apart)
        )
    )
    whole = 1.02 * max(free, apart) * scale
    for row, start, length, name, number in [*bars, *sent]:
        look = {"color": COLOURS[number % 6], "hatch": "////" if row else "", "edgecolor": "white"}
        ax.barh(row, length * scale, left=start * scale, height=0.7, linewidth=0.8, **look)
        fits = length * scale > 0.0092 * whole * len(name)
        _draw_label(ax, name if fits else str(number) * row, (start + length / 2) * scale, row)
    grey = {"color": "#a8a8a4", "edgecolor": "white", "height": 0.7}
    ax.barh(2, backward * scale, **grey)
    ax.barh(2, ring(total) * scale, left=backward * scale, hatch="////", **grey)
    ax.set_yticks(range(3), [_("backward pass"), "all_reduce", _("if sent at the end")])
    ax.set(xlim=(0, whole), ylim=(2.55, -0.55), xlabel=_("{unit} (modelled)").format(unit=unit))
    ax.grid(axis="y", visible=False)
    listed = "; ".join(
        _("bucket {i}: {group}").format(i=i, group=", ".join(group)) for i, group in enumerate(groups)
    )
    return (
        fig,
        _(
            "Gradients become ready from the last layer to the first; DDP sends them in {n_groups} buckets "
            "({listed}). Done after {free} instead of {apart} (modelled)."
        ).format(n_groups=len(groups), listed=listed, free=seconds(free), apart=seconds(apart)),
    )


def _assign_buckets(layers: Mapping[str, int], first: int, cap: int) -> list[list[str]]:
    """Assign layers to buckets, from last to first; a bucket is closed when it has reached its limit.

    ``layers`` has each layer's bytes; ``first`` and ``cap`` are the limits of the first bucket and the
    others.
    """
    groups: list[list[str]] = [[]]
    held, limit = 0, first
    for name in reversed(layers):
        groups[-1].append(name)
        held += layers[name]
        if held >= limit:
            groups.append([])
            held, limit = 0, cap
    return [group for group in groups if group]
