"""The picture of a class: exercise by learner."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from course_language import say, spoken
from course_utils.exercises import Exercise
from course_utils.plots import COLOURS, use_style

from .class_progress import Classroom, Learner, Standing, mark

CELL = (0.52, 0.27)
"""One cell of the grid, in inches."""

# What a cell is filled with, and the colour of its mark.
FIRST, LATER, UNTRIED = (COLOURS[2], "white"), ("#bfe3d6", "black"), ("#efefec", "#77776f")
NOT_YET, RAISED = (COLOURS[4], "black"), (COLOURS[3], "black")
_LEGEND = {
    spoken("right at once"): FIRST,
    spoken("✓3  right at the third try"): LATER,
    spoken("4?  four tries, not yet"): NOT_YET,
    spoken("2!  two tries, stopped with an error"): RAISED,
    spoken("not tried"): UNTRIED,
}


def class_picture(room: Classroom, exercises: Sequence[Exercise]) -> tuple[bytes, str]:
    """Draw how far each learner is with each exercise, a row an exercise, in order.

    Returns
    -------
    tuple of bytes, str
        A PNG, and its sentence of alternative text.
    """
    use_style()
    rows, columns = len(exercises), len(room.learners)
    size = (CELL[0] * columns + 5.6, CELL[1] * (rows + 5.5) + 0.9)
    fig, (ax, bars) = plt.subplots(
        1, 2, figsize=size, layout="constrained", sharey=True, width_ratios=(CELL[0] * columns, 1.3)
    )
    for y, exercise in enumerate(exercises):
        for x, learner in enumerate(room.learners):
            _cell(ax, x, y, learner.on(exercise.id))
        _bar(bars, y, exercise, room.learners)
    _axes(ax, room.learners, exercises)
    bars.set(xlim=(0, max(columns, 1)), xlabel="learners")
    bars.xaxis.set_major_locator(plt.MaxNLocator(3, integer=True))
    bars.grid(visible=False)
    bars.tick_params(axis="y", length=0)
    handles = [
        Patch(facecolor=fill, edgecolor="#aaaaaa", label=say(name))
        for name, (fill, _) in _LEGEND.items()
    ]
    fig.legend(handles=handles, loc="outside lower left", ncols=3 if columns > 8 else 2, fontsize=9)
    buffer = io.BytesIO()
    alt = _said(room, exercises)
    with warnings.catch_warnings():  # a name in letters that the font lacks; the table has it whole
        warnings.filterwarnings("ignore", "Glyph")
        fig.savefig(buffer, format="png", dpi=110, metadata={"Description": alt})
    plt.close(fig)
    return buffer.getvalue(), alt


def _look(standing: Standing | None) -> tuple[str, str]:
    if standing is None:
        return UNTRIED
    if standing.outcome == "right":
        return FIRST if standing.tries == 1 else LATER
    return NOT_YET if standing.outcome == "not_yet" else RAISED


def _cell(ax: Axes, x: int, y: int, standing: Standing | None) -> None:
    fill, ink = _look(standing)
    cell = Rectangle((x + 0.04, y + 0.06), 0.92, 0.88, facecolor=fill, edgecolor="none")
    ax.add_patch(cell).set_in_layout(False)  # within the axes: the layout need not ask each cell
    text = ax.text(
        x + 0.5, y + 0.5, mark(standing), ha="center", va="center", color=ink, fontsize=9
    )
    text.set_in_layout(False)


def _bar(ax: Axes, y: int, exercise: Exercise, learners: Sequence[Learner]) -> None:
    """Stack, from the left, how many are right, not yet and stopped."""
    looks = [_look(learner.on(exercise.id)) for learner in learners]
    left = 0
    for look in (FIRST, LATER, NOT_YET, RAISED):
        ax.barh(y + 0.5, looks.count(look), left=left, height=0.7, color=look[0])
        left += looks.count(look)


def _axes(ax: Axes, learners: Sequence[Learner], exercises: Sequence[Exercise]) -> None:
    ax.set(xlim=(0, len(learners)), ylim=(len(exercises), 0))
    ax.set_xticks([x + 0.5 for x in range(len(learners))], [one.name for one in learners])
    ax.tick_params(axis="x", top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    plt.setp(ax.get_xticklabels(), rotation=50, ha="left", rotation_mode="anchor", parse_math=False)
    ax.set_yticks([y + 0.5 for y in range(len(exercises))], [_row(e) for e in exercises])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    lessons = [exercise.id.split(".")[0] for exercise in exercises]
    for y, name in enumerate(lessons):
        if y and name != lessons[y - 1]:
            ax.axhline(y, color="#444444", linewidth=1)


def _row(exercise: Exercise) -> str:
    return f"{exercise.title}  {exercise.id}"


def _said(room: Classroom, exercises: Sequence[Exercise]) -> str:
    standings = [one.on(exercise.id) for one in room.learners for exercise in exercises]
    tried = [standing for standing in standings if standing]
    right = sum(standing.outcome == "right" for standing in tried)
    return (
        f"{len(room.learners)} learners, {len(exercises)} exercises: {len(tried)} pairs tried, "
        f"{right} of them solved."
    )
