"""Drawings of lesson 04."""

from __future__ import annotations

import matplotlib.pyplot as plt

from course_language import _
from course_utils.plots import BLUE, ORANGE, present

from .training_script import TrainingProcess


def killed_and_resumed(alone: TrainingProcess, killed: TrainingProcess, again: TrainingProcess) -> None:
    """Draw the losses of a run left alone, and those of a run that was killed and started again.

    Parameters
    ----------
    alone, killed, again
        The processes; ``again`` went on where ``killed`` had saved.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
    line, first, second = (process.losses() for process in (alone, killed, again))
    ax.plot(list(line), list(line.values()), color="#bbbbbb", linewidth=6, label=_("left alone"))
    ax.plot(list(first), list(first.values()), "o-", color=BLUE, label=_("killed"))
    ax.plot(list(second), list(second.values()), "s--", color=ORANGE, label=_("started again"))
    died = max(first, default=0)
    if first:
        look = {"markersize": 14, "markeredgewidth": 3, "color": "#222222", "linestyle": "none"}
        ax.plot(died, first[died], marker="x", label=_("killed here"), zorder=5, **look)
    ax.set(xlabel=_("step"), ylabel=_("loss of the batch"), ylim=(0, None))
    fig.legend(loc="outside upper center", ncols=4)
    apart = max((abs(line[step] - loss) for step, loss in second.items() if step in line), default=0.0)
    present(
        fig,
        _(
            "The losses of a run left alone, and of one that was killed at step {died} and started again. "
            "After the kill they differ by at most {apart:.2g}."
        ).format(died=died, apart=apart),
    )
