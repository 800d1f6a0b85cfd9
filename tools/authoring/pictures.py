"""Two of README.md's pictures, a timeline and a memory mountain: ``python -m tools.authoring.pictures`` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from course_lessons.lesson02 import explorers
from course_lessons.lesson06 import snapshots
from course_utils.plots import use_style
from course_utils.timing import seconds

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "images"
LOOPS = {  # lesson 02's two extremes: pinned, non_blocking, read at each step, a second stream
    "Four batches": (False, False, True, False),
    "After four changes": (True, True, False, True),
}


def save(figures: Sequence[Figure], name: str) -> None:
    """Write figures of one width below each other, in twice the pixels of a telephone."""
    parts = []
    for figure in figures:
        figure.set_dpi(180)
        figure.canvas.draw()
        parts.append(np.asarray(figure.canvas.buffer_rgba()))
        plt.close(figure)
    plt.imsave(IMAGES / f"{name}.png", np.concatenate(parts))


def legend_below(figure: Figure) -> None:
    """Move a legend from the right of a picture to below it, where a telephone has room."""
    old = figure.legends[0] if figure.legends else figure.axes[0].get_legend()
    handles, labels = old.legend_handles, [text.get_text() for text in old.get_texts()]
    old.remove()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)


def timeline() -> None:
    """Draw the modelled timelines of two loops on a simulated T4, to one scale."""
    lines = {title: explorers.loop(*switches) for title, switches in LOOPS.items()}
    longest = max(line.seconds for line in lines.values())
    figures = []
    for title, line in lines.items():
        figure = line.plot(f"{title}: {seconds(line.seconds)}", until=longest)
        (ax,) = figure.axes
        figure.set_size_inches(5.8, 2.6)
        lanes = [label.get_text().partition(" ")[2] for label in ax.get_yticklabels()]
        ax.set_yticks(range(len(lanes)), [lane or "host" for lane in lanes])
        if figures:
            ax.get_legend().remove()
        else:
            legend_below(figure)
        figures.append(figure)
    save(figures, "timeline")


def mountain() -> None:
    """Draw the memory of three training steps on a simulated T4, as it was recorded."""

    def present(figure: Figure, _alt: str) -> None:
        figure.set_size_inches(5.8, 4.2)
        for text in figure.legends[0].get_texts():
            text.set_text(text.get_text().partition(", ")[2])
        legend_below(figure)
        save([figure], "mountain")

    snapshots.present = present
    snapshots.draw(snapshots.load())


if __name__ == "__main__":
    plt.switch_backend("agg")
    use_style()
    timeline()
    mountain()
