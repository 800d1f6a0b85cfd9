"""The tables of handbook/practices.md: what each habit of ``practices.yml`` brought, by the records."""

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
"""A time that changes by less than this share, or whose quartiles enclose no change, has not changed.

Loops that take turns on a quiet machine differ by so much."""
NO_GPU = "No real GPU has been recorded here yet: a GPU's numbers below are published or modelled."
_RAW = yaml.safe_load(Path(__file__).with_name("practices.yml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Practice:
    """One habit: what to do, and where it helps or what it costs.

    ``numbers`` speak to it, times as fast or times less memory; ``note`` is known beside them, with its
    source. ``modelled`` numbers of a T4 are shown where they are asked for and a GPU has no others.
    """

    name: str
    when: str
    lesson: str
    numbers: Sequence[Ratio | Value] = ()
    note: str = ""
    modelled: bool = False

    @property
    def points(self) -> list[DataPoint]:
        """Its numbers."""
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
    """Return a table for each group, as Markdown."""
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
    """Say what one practice brought: in a word for CPU and GPU, then each number with its kind and source."""
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
    """Weigh the numbers in a word, and give their range and their kinds."""
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
    if value < 0.1:
        return f"1/{1 / value:.0f}×"
    return f"{value:.2f}×" if value < 9.95 else f"{value:.0f}×"


def _number(f: DataPoint) -> str:
    """Write a number with its kind, machine and source, and the day that was read where it has no date."""
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
