"""A rung: one change that was tried on a training loop, as it is stored and displayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from course_language import _
from course_utils.show import show_table
from course_utils.timing import Measurement

Parts = Mapping[str, Any]


@dataclass(frozen=True)
class Rung:
    """One change that was tried, and its result.

    Attributes
    ----------
    name
        What was changed.
    change
        The parts of the loop that are new, as text.
    stands_on
        The names of the kept rungs that it was measured on top of.
    speed_up
        The ratio of images per second, new loop over old: median and quartiles of the rounds. None if it was
        not measured.
    predicted
        The learner's guess of it, or None.
    accuracy
        The new loop's accuracy after one epoch, 0 to 1; None if not measured.
    kept
        Whether the change is kept.
    why
        The reason, in a few words.
    """

    name: str
    change: dict[str, str]
    stands_on: tuple[str, ...]
    speed_up: Measurement | None
    predicted: float | None
    accuracy: float | None
    kept: bool
    why: str


def described(parts: Parts) -> dict[str, str]:
    """Return a loop's parts as text: functions by their names, with the arguments of partials."""
    return {name: _part_text(part) for name, part in parts.items()}


def _part_text(part: Any) -> str:
    """Return a part as text."""
    if isinstance(part, partial):
        given = ", ".join(f"{name}={value}" for name, value in part.keywords.items())
        return f"{_part_text(part.func)}({given})"
    return getattr(part, "__name__", str(part))


def read_rung(fields: dict[str, Any]) -> Rung:
    """Return a rung from its dict in a climb's JSON file."""
    speed_up = fields["speed_up"] and Measurement(**fields["speed_up"])
    return Rung(**{**fields, "speed_up": speed_up, "stands_on": tuple(fields["stands_on"])})


def outdated(rung: Rung, order: list[str]) -> bool:
    """Return whether a rung that this one was measured on top of was measured again later.

    ``order`` has the names of rungs in the order of their measurement.
    """
    later = order[order.index(rung.name) :] if rung.name in order else ()
    return any(name in later for name in rung.stands_on)


_HEAD = (
    _("rung"),
    _("predicted"),
    _("times as fast"),
    _("quartiles"),
    _("accuracy"),
    _("kept"),
    _("why"),
)


def show_rungs(rungs: Sequence[Rung], kind: str, note: str = "") -> None:
    """Show rungs as a table."""
    show_table(_HEAD, [_row(rung) for rung in rungs], [kind] * len(rungs), note)


def _row(rung: Rung) -> tuple[str, ...]:
    """Return a rung's row of the table."""
    speed_up = rung.speed_up
    return (
        rung.name,
        "" if rung.predicted is None else f"{rung.predicted:.3g}",
        f"{speed_up.median:.2f}" if speed_up else "–",
        f"{speed_up.q1:.2f} – {speed_up.q3:.2f}" if speed_up else "",
        "" if rung.accuracy is None else f"{rung.accuracy:.1%}",
        _("yes") if rung.kept else _("no"),
        rung.why if speed_up else _("not measured"),
    )
