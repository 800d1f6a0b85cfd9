"""README.md's three pictures: a lesson in JupyterLab, a timeline, a memory mountain.

``python -m tools.authoring.pictures`` draws them anew; with names, ``lesson``, ``timeline`` or ``mountain``, only these.
"""

from __future__ import annotations

import os
import sys
import tempfile
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


def lesson() -> None:
    """Run lesson 00 in JupyterLab with a prediction made, and take its picture where the answer stands."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "simgpu" / "tests")]
    from browsers import SECOND, chromium
    from test_browser import jupyterlab

    with (
        tempfile.TemporaryDirectory() as folder,
        chromium() as browser,
        jupyterlab(Path(folder)) as (address, token, _),
    ):
        notebook = Path(folder) / "course" / "notebooks" / "00_start_here.ipynb"
        shipped, asked = notebook.read_text(encoding="utf-8"), 'predict(\\"00.doubling\\", '
        answered = shipped.replace(f"{asked}todo()", f"{asked}8")
        assert answered != shipped, "the prediction has another name now"
        notebook.write_text(answered, encoding="utf-8")
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}/lab/tree/notebooks/00_start_here.ipynb?token={token}&reset")
        idle = page.locator("#jp-main-statusbar").get_by_text("| Idle")
        idle.wait_for(timeout=60 * SECOND)
        for name in ("Run", "Run All Cells"):
            page.get_by_role("menuitem", name=name, exact=True).click()
        answer = page.locator(".jp-OutputArea-output", has_text="You predicted").first
        answer.wait_for(timeout=300 * SECOND)
        idle.wait_for(timeout=300 * SECOND)
        answer.evaluate("answer => answer.scrollIntoView({block: 'end'})")
        page.wait_for_timeout(SECOND)
        page.screenshot(path=IMAGES / "lesson.png")


if __name__ == "__main__":
    os.environ.setdefault("COURSE_DEVICE", "cpu")  # `lesson` shows what is measured where it runs
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # what else runs disturbs one thread less
    plt.switch_backend("agg")
    use_style()
    for draw in (lesson, timeline, mountain):
        if draw.__name__ in (sys.argv[1:] or ("lesson", "timeline", "mountain")):
            draw()
