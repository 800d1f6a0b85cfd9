"""Drawings of lesson 09: the learner's own measurements, and the progress table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import torch

from course_language import _
from course_utils import progress_file
from course_utils.course import load_course
from course_utils.exercises import lesson
from course_utils.exercises.exercise import LEVELS
from course_utils.exercises.judge import Todo
from course_utils.number_format import amount, seconds
from course_utils.plots import BLUE, GREEN, ORANGE, curves, present
from course_utils.show import Bundle, show, show_table, table
from course_utils.timing import kind_of

Row = tuple[int, float, float, float]


def written(value: object, name: str) -> bool:
    """Return whether an exercise's function returned a result; if not, print that it is still to be written.

    Parameters
    ----------
    value
        The return value of the learner's function.
    name
        The function's name.
    """
    if value is None or isinstance(value, Todo):
        print(_("Write `{name}` above: then this cell shows what it found.").format(name=name))
        return False
    return True


def speed_ups(rows: Sequence[Row], device: torch.device) -> None:
    """Draw the speed-up over the CPU against the matrix size.

    Parameters
    ----------
    rows
        Tuples of size, seconds on the CPU, seconds on the device, and speed-up.
    device
        The device compared with the CPU.
    """
    kind = kind_of(device)
    name = _("speed-up of {device}").format(device=device)
    ratios = ", ".join(f"{n}: {ratio:.3g}" for n, *_, ratio in rows)
    curves(
        {name: ([row[0] for row in rows], [row[3] for row in rows])},
        xlabel=_("n, of two n × n matrices"),
        ylabel=_("CPU time / device time"),
        alt=_("The speed-up of {device} over the CPU against the size: {ratios}.").format(
            device=device, ratios=ratios
        ),
        log="xy",
        kinds={name: kind},
        reference=(1, _("as fast as the CPU")),
    )


def comparison(results: Mapping[str, tuple[Sequence[float], float, float]], kind: str) -> None:
    """Show a table of formats: accuracies with their range, time and peak memory.

    Parameters
    ----------
    results
        For each format the accuracies in percent, the median seconds and the peak in bytes.
    kind
        ``"measured"`` or ``"modelled"``: what the times and peaks are.
    """
    rows = [
        (
            name,
            _("{share:.1f} ({min_scores:.1f} to {max_scores:.1f})").format(
                share=sum(scores) / len(scores), min_scores=min(scores), max_scores=max(scores)
            ),
            seconds(time),
            amount(peak, "B") if peak else _("not metered"),
        )
        for name, (scores, time, peak) in results.items()
    ]
    head = (
        _("format"),
        _("accuracy, %, {n_first_value} seeds").format(n_first_value=len(next(iter(results.values()))[0])),
        _("time"),
        _("peak"),
    )
    note = _("Accuracies are measured, times and peaks {kind}.").format(kind=_(kind))
    show_table(head, rows, [kind] * len(rows), note)


def memory_fit(
    batches: Sequence[int], peaks: Sequence[float], line: tuple[float, float], capacity: float
) -> None:
    """Draw measured peaks, the line fitted to them, and the batch size at which it reaches a card's capacity.

    Parameters
    ----------
    batches, peaks
        Batch sizes, and peak memory in bytes.
    line
        Intercept, and slope per sample, in bytes.
    capacity
        The card's memory in bytes.
    """
    peaks = [peak / 2**20 for peak in peaks]
    fixed, per_sample, capacity = (value / 2**20 for value in (*line, capacity))
    full = (capacity - fixed) / per_sample
    fig, ax = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
    ax.plot([0, full], [fixed, capacity], color=BLUE, label=_("the line"))
    ax.plot(batches, peaks, "o", color=ORANGE, label=_("metered"))
    ax.axhline(capacity, color="#000000", linestyle="--", linewidth=1.2)
    ax.text(0, capacity, _(" the card"), va="bottom")
    ax.plot([full, full], [0, capacity], color=GREEN, linestyle=":")
    ax.text(full, 0.06 * capacity, _("{full:,.0f} samples ").format(full=full), ha="right", color=GREEN)
    ax.set(xlabel=_("batch size"), ylabel=_("peak, MiB"), xlim=(0, None), ylim=(0, 1.15 * capacity))
    ax.legend(loc="center left")
    present(
        fig,
        _(
            "Peak memory against batch size: points from {first_batche} to {last_batche} samples on a line "
            "from {fixed:.1f} MiB that meets the card's {capacity:,.0f} MiB at {full:,.0f} samples."
        ).format(
            first_batche=batches[0],
            last_batche=batches[-1],
            fixed=fixed,
            capacity=capacity,
            full=full,
        ),
    )


def gradient_gaps(gaps: Mapping[str, Mapping[str, float]]) -> None:
    """Draw the relative errors of accumulated gradients against those of the whole batch (log scale).

    Parameters
    ----------
    gaps
        For each way of splitting the batch, the relative error of each network.
    """
    networks = list(next(iter(gaps.values())))
    fig, ax = plt.subplots(figsize=(7.2, 0.55 * len(networks) + 1.3), layout="constrained")
    for i, (way, values) in enumerate(gaps.items()):
        positions = [k + 0.36 * (i - (len(gaps) - 1) / 2) for k in range(len(networks))]
        heights = [max(value, 1e-9) for value in values.values()]
        ax.barh(positions, heights, height=0.32, color=(BLUE, ORANGE)[i % 2], label=way, left=1e-9)
        for position, height in zip(positions, heights, strict=True):
            ax.text(1.15 * height, position, f"{height:.2g}", va="center", fontsize=9)
    ax.set(xscale="log", xlim=(1e-9, 30), yticks=range(len(networks)), yticklabels=networks)
    ax.set_xlabel(_("norm of the difference / norm of the gradient (logarithmic scale)"))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    fig.legend(loc="outside upper center", ncols=len(gaps))
    each = "; ".join(
        f"{way}: " + ", ".join(f"{name} {value:.2g}" for name, value in values.items())
        for way, values in gaps.items()
    )
    present(fig, _("Gaps between accumulated and whole gradients, as bars. {each}.").format(each=each))


def progress_by_level() -> None:
    """Show a table of solved exercises by lesson and level."""
    solved_ids = progress_file.solved()
    rows, totals = [], {level: [0, 0] for level in LEVELS}
    for entry in load_course().lessons:
        exercises = list(lesson(entry.id))
        counts = {level: [0, 0] for level in LEVELS}
        for exercise in exercises:
            for tally in (counts, totals):
                tally[exercise.level][0] += exercise.id in solved_ids
                tally[exercise.level][1] += 1
        if exercises:
            rows.append((entry.id, entry.title, *(_solved_text(*counts[level]) for level in LEVELS)))
    rows.append(("", _("together"), *(_solved_text(*totals[level]) for level in LEVELS)))
    text, page = table(("", _("Lesson"), *LEVELS.values()), rows)
    where = _("Kept in {progress_file}, on this machine only.").format(
        progress_file=progress_file.progress_file()
    )
    show(Bundle(text=f"{text}\n{where}", html=f"{page}<div style='opacity:.75'>{where}</div>"))


def _solved_text(solved: int, total: int) -> str:
    """Return "n of m" as text, or ``""`` if m is 0."""
    return _("{solved} of {total}").format(solved=solved, total=total) if total else ""
