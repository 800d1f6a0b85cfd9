"""Generates the tables of handbook/practices.md: the measured effect of each entry of ``practices.yml``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from course_lessons.shared.claims import DataPoint, Ratio, Value
from course_lessons.shared.claims.numbers import numbers
from course_utils.course import Course
from tools.authoring.cells import row

NOTHING = 0.03
"""A smaller relative change, or one whose quartiles include 1, counts as no change.

Equal loops timed alternately on a quiet machine differ by up to this."""
NO_GPU = "No real GPU has been recorded here yet: a GPU's numbers below are published or modelled."
_RAW = yaml.safe_load(Path(__file__).with_name("practices.yml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Practice:
    """One recommended practice: what to do, and where it helps or what it costs.

    ``numbers`` are speed-up or memory factors that measure it; ``note`` is a further fact with its source. If
    ``modelled`` is true and no real GPU has a number, those modelled for a T4 are shown.
    """

    name: str
    when: str
    lesson: str
    numbers: Sequence[Ratio | Value] = ()
    note: str = ""
    modelled: bool = False

    @property
    def points(self) -> list[DataPoint]:
        """The data points to show: recorded and published ones, and modelled ones where they are allowed."""
        every = [point for number in self.numbers for point in number.points()]
        real = [f for f in every if f.kind != "modelled"]
        if self.modelled and not any(f.accelerator for f in real):
            real += [f for f in every if f.kind == "modelled" and "T4" in f.where]
        return real


GROUPS = {
    title: [Practice(**{**one, "numbers": numbers(one.get("numbers", ()))}) for one in group]
    for title, group in _RAW["groups"].items()
}


def practices(course: Course) -> str:
    """Return a table for each group of practices, as Markdown."""
    every = [f for group in GROUPS.values() for p in group for f in p.points]
    parts = []
    if not any(f.accelerator and f.kind == "recorded" for f in every):
        parts.append(NO_GPU)
    for title, group in GROUPS.items():
        head = row("Practice", "Where it helps, what it costs", "What it brought", "Lesson")
        rows = [
            row(
                p.name,
                p.when,
                summary(p),
                f"[{p.lesson}](../notebooks/{course.lesson(p.lesson).file})",
            )
            for p in group
        ]
        parts.append("\n".join([f"## {title}\n", head, "|---|---|---|---|", *rows]))
    return "\n\n".join(parts)


def summary(practice: Practice) -> str:
    """Return a practice's table cell: a verdict each for CPU and GPU, the note, the numbers with sources."""
    points = practice.points
    places = {
        "CPU": [f for f in points if not f.accelerator],
        "GPU": [f for f in points if f.accelerator],
    }
    lines = [f"**{place}: {verdict(those)}**" for place, those in places.items() if those]
    lines += [practice.note] if practice.note else []
    text = "<br>".join(lines)
    if points:
        count = "1 number" if len(points) == 1 else f"{len(points)} numbers"
        listed = "<br>".join(map(_number, points))
        text += f"<details><summary>{count}</summary>{listed}</details>"
    return text


def verdict(points: Sequence[DataPoint]) -> str:
    """Return a one-word verdict on factors (nothing, gains, costs or depends), with their range and kinds."""
    low, high = (end(f.value for f in points) for end in (min, max))
    if all(abs(f.value - 1) < NOTHING or f.low <= 1 <= f.high for f in points):
        word = "nothing"
    elif low >= 1 + NOTHING:
        word = "gains"
    elif high <= 1 - NOTHING:
        word = "costs"
    else:
        word = "depends"
    kinds = ", ".join(dict.fromkeys(f.kind for f in points))
    ends = _times(low) + f" to {_times(high)}" * (_times(low) != _times(high))
    return f"{word}, {ends} ({kinds})"


def _times(value: float) -> str:
    """Return a factor as text, such as ``1.25×`` or ``1/20×``."""
    if value < 0.1:
        return f"1/{1 / value:.0f}×"
    return f"{value:.2f}×" if value < 9.95 else f"{value:.0f}×"


def _number(f: DataPoint) -> str:
    """Return a data point as text with its kind, machine and source; if undated, the date it was read."""
    what = f.what
    for record, reader in _RAW["words"].items():
        what = what.replace(record, reader)
    ends = f" ({_times(f.low)[:-1]} to {_times(f.high)})" if f.low != f.high else ""
    source = f.date
    if f.source:
        title, _, address = f.source.rpartition(", ")
        read = "" if re.search(r", \d{4}(-\d\d)*$", title) else f", read {f.date}"
        source = f"[{title}]({address}){read}"
    return f"{_times(f.value)}{ends} *{f.kind}*: {what}; {f.where}; {source}"
