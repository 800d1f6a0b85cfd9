"""Drawings of lesson 03: loading times, and what a save leaves in the folder."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from course_utils.plots import BLUE, COLOURS, GREEN, ORANGE, log_ticks, present
from course_utils.timing import Measurement, seconds


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
            colour = {"": "#f2f2ef", "half": ORANGE}.get(words, BLUE)
            box = Rectangle((column + 0.06, 2.8 - row), 0.88, 0.75, facecolor=colour, alpha=0.9)
            ax.add_patch(box)
            ink = "white" if words else "#888888"
            ax.text(
                column + 0.5, 3.17 - row, words or "no file", ha="center", va="center", color=ink
            )
        ax.text(column + 0.5, 0.35, resumes, ha="center", va="center", weight="bold", color=GREEN)
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
