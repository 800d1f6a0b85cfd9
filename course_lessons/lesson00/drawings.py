"""Drawings of lesson 00: the requirements between your code and a GPU's result."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, Polygon, Rectangle

from course_language import _
from course_utils.plots import GREEN, ORANGE, present


def five_doors(report: Any) -> None:
    """Draw the five requirements ("doors") of a `course_utils.doctor` report, and how far an arrow gets.

    The arrow ends at the first shut door. The fifth, native bfloat16, affects only the speed of one format:
    the arrow ends before it.

    Parameters
    ----------
    report
        A report with ``doors``; each has a ``name`` and a ``state``, ``"open"``, ``"shut"`` or
        ``"unknown"``.
    """
    fig, ax = plt.subplots(figsize=(7.6, 2.7), layout="constrained")
    looks = {
        "open": (GREEN, _("open")),
        "shut": (ORANGE, _("shut")),
        "unknown": ("#888888", _("not reached")),
    }
    *path, __ = report.doors
    shut = next((i for i, d in enumerate(path) if d.state == "shut"), None)
    for i, door in enumerate(report.doors):
        x, (colour, word) = 1.6 * i + 1.3 + (1.7 if i == len(path) else 0), looks[door.state]
        if door.state == "unknown" and shut is None:
            word = _("not known")
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
            f"{i + 1}. {chr(10).join(door.name.rsplit(' ', 1))}",
            ha="center",
            va="bottom",
            fontsize=9,
        )
        ax.text(x + 0.45, -0.42, word, ha="center", va="top", fontsize=9, color="#444444")
    end = 1.6 * len(path) + 1.4 if shut is None else 1.6 * shut + 1.25
    ax.add_patch(
        FancyArrowPatch((0.9, 0.9), (end, 0.9), arrowstyle="-|>", mutation_scale=16, color="#444444")
    )
    ax.text(0.8, 0.9, _("your\ncode"), ha="right", va="center")
    ax.text(1.6 * len(path) + 1.5, 0.9, _("a GPU's\nresult"), ha="left", va="center")
    ax.text(
        1.6 * len(path) + 3.45,
        -0.85,
        _("(for speed in bfloat16)"),
        ha="center",
        va="top",
        fontsize=9,
    )
    ax.set(xlim=(0, 1.6 * len(report.doors) + 3.0), ylim=(-1.3, 2.7))
    ax.set_axis_off()
    states = ", ".join(f"{d.name} {looks[d.state][1]}" for d in report.doors)
    present(fig, _("Five doors between your code and a GPU's result: {states}.").format(states=states))
