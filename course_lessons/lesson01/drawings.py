"""Drawings of lesson 01: CPU and GPU compared, timings, what a GPU's trips take, and the roofline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from course_language import _
from course_lessons.shared.roofline import roofline  # noqa: F401  (a drawing of this lesson)
from course_utils.evidence import published_gpus, recorded
from course_utils.number_format import amount
from course_utils.plots import BLUE, DASHES, GREEN, MARKERS, ORANGE, curves, log_ticks, present
from course_utils.show import show_table
from course_utils.this_machine import cpu_name
from course_utils.timing import Measurement
from simgpu.cost import Gemm, Work
from simgpu.host import seconds_between_events
from simgpu.latency import seconds as work_seconds
from simgpu.profiles import load as load_profile


def two_processors() -> None:
    """Draw a CPU and a GPU as chips, and delivery times of a motorbike and a train as an analogy."""
    fig, (chips, trips) = plt.subplots(1, 2, figsize=(8.6, 3.6), layout="constrained", width_ratios=(1.35, 1))
    for x, title in ((0, _("CPU: a few strong cores")), (11, _("GPU: thousands of simple ones"))):
        chips.add_patch(Rectangle((x, 0), 10, 8, facecolor="white", edgecolor="#444444"))
        chips.text(x + 5, 9.1, title, ha="center", fontsize=10)
    for i in range(4):
        corner = (0.5 + 4.7 * (i % 2), 3.2 + 2.4 * (i // 2))
        chips.add_patch(Rectangle(corner, 4.3, 2.1, facecolor=BLUE, alpha=0.85))
        chips.text(corner[0] + 2.15, corner[1] + 1.05, _("core"), color="white", ha="center", va="center")
    chips.add_patch(Rectangle((0.5, 0.4), 9, 2.3, facecolor="#bbbbbb"))
    chips.text(5, 1.55, _("cache, control"), ha="center", va="center")
    for i in range(20 * 12):
        corner = (11.5 + 0.45 * (i % 20), 1.7 + 0.5 * (i // 20))
        chips.add_patch(Rectangle(corner, 0.33, 0.36, facecolor=ORANGE, alpha=0.85))
    chips.add_patch(Rectangle((11.5, 0.4), 9, 0.9, facecolor="#bbbbbb"))
    for x, width, words in ((0, 4, _("memory")), (11, 10, _("memory, much faster"))):
        chips.add_patch(Rectangle((x + 5 - width / 2, -2.6), width, 2.2, facecolor=GREEN, alpha=0.3))
        chips.text(x + 5, -1.5, words, ha="center", va="center")
    chips.set(xlim=(-0.3, 21.3), ylim=(-3, 10))
    chips.set_axis_off()

    parcels = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000]
    trips.plot(parcels, [0.2 * n for n in parcels], marker="o", label=_("one motorbike"))
    trips.plot(parcels, [3.0] * len(parcels), marker="s", label=_("one train"))
    trips.set(
        xscale="log",
        yscale="log",
        xlabel=_("parcels"),
        ylabel=_("hours until the last one is there"),
    )
    trips.legend()
    trips.set_title(_("An illustration, not data"), fontsize=10)
    present(
        fig,
        _(
            "Left: a CPU chip with four large cores and a large cache, a GPU chip with hundreds of small "
            "cores and a wider memory. Right: delivery time of a motorbike grows with the parcels, that of "
            "a train is flat; the motorbike wins for few parcels, the train for many."
        ),
    )


def two_clocks() -> None:
    """Draw when a host launches a matrix product, and when the clock is read with and without
    synchronisation.
    """
    fig, ax = plt.subplots(figsize=(7.6, 2.3), layout="constrained")
    for y, start, length, words, colour in (
        (1, 0.6, 0.9, _("launch"), BLUE),
        (1, 1.5, 6.3, _("goes on with the program, or waits"), "#bbbbbb"),
        (0, 1.5, 6.3, "x @ y", ORANGE),
    ):
        ax.add_patch(Rectangle((start, y + 0.1), length, 0.6, facecolor=colour, alpha=0.85))
        ax.text(start + length / 2, y + 0.4, words, ha="center", va="center")
    for x, words in ((0.6, _("start")), (1.5, _("naive")), (7.8, _("synchronised"))):
        ax.plot([x, x], [0, 2], color="#444444", linestyle="--", linewidth=1)
        ax.text(x, 2.05, words, ha="center")
    for y, words in ((1, _("host")), (0, _("device"))):
        ax.text(-0.1, y + 0.4, words, ha="right", va="center")
    ax.set(xlim=(-1, 9), ylim=(-0.1, 2.4))
    ax.set_axis_off()
    ax.set_title(_("When is the clock read? (an illustration, not data)"), fontsize=10)
    present(
        fig,
        _(
            "An illustration: the host launches a product and goes on. A clock read there is naive: "
            "the device has only begun. After synchronising, the clock is read when the product is "
            "done."
        ),
    )


def peaks(flops: float, bytes_per_second: float) -> None:
    """Show a table of this CPU's measured rates and the published peaks of the course's GPUs.

    Parameters
    ----------
    flops
        The CPU's measured float32 matrix product, in FLOP/s.
    bytes_per_second
        The CPU's measured copy, in bytes read and written per second.
    """
    head = (
        _("Processor"),
        "float32 TFLOP/s",
        _("16-bit tensor TFLOP/s"),
        _("Memory GB/s"),
        _("Memory GB"),
    )
    rows = [(cpu_name(), f"{flops / 1e12:.3g}", "", f"{bytes_per_second / 1e9:.3g}", "")]
    rows += [
        (g.name, g.fp32_tflops, g.fp16_tensor_tflops, g.bandwidth_gb_s, g.memory_gb) for g in published_gpus()
    ]
    kinds = ["measured", *(["published"] * len(published_gpus()))]
    rows = [(*row, kind) for row, kind in zip(rows, kinds, strict=True)]
    sources = _("Published: ") + "; ".join(g.source for g in published_gpus()) + "."
    show_table((*head, _("Kind")), rows, kinds, sources)


def race(sizes: Sequence[int], times: Mapping[str, Sequence[Measurement]]) -> None:
    """Draw the time of a square float32 matrix product against its size, and the speed-up over the CPU.

    Recorded accelerators are added to the devices that were timed. If there are neither, a T4 is modelled
    from its published figures.

    Parameters
    ----------
    sizes
        The sizes n of n × n products, in increasing order.
    times
        For each device, such as ``"cpu"``, one measurement for each size, measured or modelled.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.8), layout="constrained")
    drawn = {}
    for device, (first, *__) in times.items():
        name = first.machine if first.kind == "modelled" else device
        drawn[name, first.kind] = (list(sizes), [m.median for m in times[device]])
    drawn.update(_recorded_races(sizes))
    if len(drawn) == 1:
        drawn["NVIDIA T4", "modelled"] = (list(sizes), _modelled_race(sizes))
    cpu = dict(zip(*drawn["cpu", "measured"], strict=True))
    for i, ((name, kind), (x, y)) in enumerate(drawn.items()):
        look = {"color": f"C{i}", "marker": MARKERS[i % len(MARKERS)], "linestyle": DASHES[kind]}
        if kind == "modelled":
            look["markerfacecolor"] = "none"
        left.plot(x, y, label=_("{name} ({kind})").format(name=name, kind=_(kind)), **look)
        if name != "cpu":
            gain = [cpu[size] / seconds for size, seconds in zip(x, y, strict=True)]
            right.plot(x, gain, label=_("{name} ({kind})").format(name=name, kind=_(kind)), **look)
    for ax, label in ((left, _("time of one product, s")), (right, _("CPU time / device time"))):
        ax.set(xscale="log", yscale="log", xlabel=_("size n of an n × n product"), ylabel=label)
        ax.set_xticks(list(sizes), [str(size) for size in sizes], rotation=45)
        ax.minorticks_off()
    right.axhline(1, color="#666666", linewidth=1)
    fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    names = ", ".join(_("{name} ({kind})").format(name=name, kind=_(kind)) for name, kind in drawn)
    present(
        fig,
        _(
            "Time of a matrix product against its size for {names}; "
            "right, each device's speed-up over the CPU."
        ).format(names=names),
    )


def timings(times: Sequence[float], device: torch.device) -> None:
    """Draw timings in their order, one dot each, with the median and the quartiles of all but the first.

    Parameters
    ----------
    times
        Seconds of one call after the other.
    device
        Where they were measured.
    """
    q1, median, q3 = (1e6 * value for value in statistics.quantiles(times[1:], n=4))
    microseconds = [1e6 * value for value in times]
    fig, ax = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    ax.axhspan(q1, q3, color=BLUE, alpha=0.15, label=_("half of the others lie here (quartiles)"))
    ax.axhline(median, color=BLUE, linewidth=1, label=_("median of the others"))
    ax.plot(range(2, len(times) + 1), microseconds[1:], "o", color=BLUE, label=_("the other calls"))
    ax.plot(1, microseconds[0], "s", color=ORANGE, markersize=8, label=_("the first call"))
    ax.set(xlabel=_("call"), xlim=(0, len(times) + 1), ylabel=_("time of one call, µs"))
    ax.set_xticks([1, *range(5, len(times) + 1, 5)])
    if max(microseconds) > 8 * median:
        ax.set_yscale("log")
        log_ticks(ax.yaxis)
    else:
        ax.set_ylim(bottom=0)
    ax.set_title(_("measured on {device}").format(device=device), fontsize=10)
    ax.legend(fontsize=9, loc="upper right")
    present(
        fig,
        _(
            "{n} timings of one call as dots: the first took {first}, the others have a median of {median}."
        ).format(n=len(times), first=amount(times[0], "s"), median=amount(median / 1e6, "s")),
    )


_TRIPS, _COMPUTING = "#999999", ORANGE


def trips_and_product(seconds: Mapping[str, tuple[float, float]]) -> None:
    """Draw two bars for each card: the time on the bus, and the time to compute.

    Parameters
    ----------
    seconds
        For each card the seconds of the trips and those of the product, at its published peaks.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    for i, (moving, computing) in enumerate(seconds.values()):
        for place, value, colour in ((i - 0.2, moving, _TRIPS), (i + 0.2, computing, _COMPUTING)):
            ax.barh(place, 1e3 * value, 0.36, color=colour)
            ax.text(1e3 * value, place, f"  {1e3 * value:.2f}", va="center", fontsize=9)
    ax.set_yticks(range(len(seconds)), list(seconds))
    ax.set(xlabel=_("ms at published peaks"), xlim=(0, 1.12e3 * max(map(max, seconds.values()))))
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    ax.legend(
        handles=[
            Patch(color=_TRIPS, label=_("trips: two matrices there, one back")),
            Patch(color=_COMPUTING, label=_("product of 2048 × 2048")),
        ],
        fontsize=9,
        loc="lower right",
    )
    words = _("{card} {trips:.2f} and {product:.2f} ms")
    each = "; ".join(
        words.format(card=card, trips=1e3 * moving, product=1e3 * computing)
        for card, (moving, computing) in seconds.items()
    )
    present(fig, _("Bars for trips and product on each card, at published peaks: {each}.").format(each=each))


Job = tuple[Measurement, Measurement, Measurement]
"""Work on the CPU, on the device, and on the device with the trips of its data."""


def two_jobs(product: Job, sum: Job) -> None:
    """Draw what two jobs take on the CPU, and on a device, where the trips are a part of the bar."""
    fig, axes = plt.subplots(1, 2, figsize=(9.2, 2.7), layout="constrained")
    titles = (_("product, 2048 × 2048"), _("sum of two vectors of 2²⁶"))
    said = [_draw_job(ax, job, title) for ax, job, title in zip(axes, (product, sum), titles, strict=True)]
    fig.legend(
        handles=[
            Patch(color=BLUE, label=_("on the CPU")),
            Patch(color=_COMPUTING, label=_("on the device, data there already")),
            Patch(color=_TRIPS, label=_("trips")),
        ],
        loc="outside lower center",
        ncols=3,
        fontsize=9,
    )
    present(fig, _("Bars for two jobs. {each}.").format(each="; ".join(said)))


def _draw_job(ax: Axes, job: Job, title: str) -> str:
    """Draw one job as a bar for the CPU and one for the device; return what they show in words."""
    cpu, alone, whole = job
    hatch = {"hatch": "///", "edgecolor": "white"} if whole.kind == "modelled" else {}
    ax.barh(0, 1e3 * cpu.median, 0.6, color=BLUE)
    ax.barh(1, 1e3 * alone.median, 0.6, color=_COMPUTING, **hatch)
    trips = max(whole.median - alone.median, 0)
    ax.barh(1, 1e3 * trips, 0.6, left=1e3 * alone.median, color=_TRIPS, **hatch)
    names = [_("{name} ({kind})").format(name=m.device, kind=_(m.kind)) for m in (cpu, whole)]
    for place, m in enumerate((cpu, whole)):
        ax.text(1e3 * m.median, place, f"  {m.written()}", va="center", fontsize=9)
    ax.set_yticks((0, 1), names)
    ax.set(xlabel="ms", xlim=(0, 1.25e3 * max(cpu.median, whole.median)), ylim=(1.6, -0.6))
    ax.grid(False, axis="y")
    ax.set_title(title, fontsize=10)
    times = ", ".join(f"{name} {m.written()}" for name, m in zip(names, (cpu, whole), strict=True))
    return f"{title}{_(': ')}{times}"


def overhead(counts: Sequence[int], calls: Sequence[Measurement]) -> None:
    """Draw the time of one call of ``x.add_(1)`` against the number of elements of ``x``."""
    name = f"x.add_(1), {calls[0].device}"
    curves(
        {name: (counts, [1e6 * call.median for call in calls])},
        xlabel=_("numbers in x"),
        ylabel=_("time of one call, µs"),
        alt=_("Time of adding 1 to x against the length of x: flat for short x, rising for long x."),
        log="xy",
        kinds={name: calls[0].kind},
    )


def _recorded_races(sizes: Sequence[int]) -> dict[tuple[str, str], tuple[list[int], list[float]]]:
    """Return sizes and median seconds of products recorded on accelerators, by (machine, ``"recorded"``)."""
    races: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for size in sizes:
        for m in recorded("matmul", size=size):
            if m.kind == "recorded" and m.device != "cpu":
                x, y = races.setdefault((m.machine, "recorded"), ([], []))
                x.append(size)
                y.append(m.median)
    return races


def _modelled_race(sizes: Sequence[int]) -> list[float]:
    """Return the modelled seconds of each product on a T4, launch overhead included."""
    t4 = load_profile("T4")
    products = [Work(2 * n**3, 12 * n**2, "fp32", _("product"), (Gemm(1, n, n, n),)) for n in sizes]
    return [seconds_between_events(work_seconds(product, t4), t4, library=True) for product in products]
