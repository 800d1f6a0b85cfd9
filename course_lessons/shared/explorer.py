"""A figure to play with: a question, a guess, and sliders that redraw a computed picture.

In a notebook it is made of ipywidgets (version 7 or 8). Where nobody can move anything (papermill, a saved
page) it is one telling picture. On the course's site it is every picture there is, computed beforehand, and a
few lines of script that choose among them.
"""

from __future__ import annotations

import html
import io
import itertools
import json
import os
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from course_language import _, font
from course_utils.plots import present
from course_utils.show import Bundle, show
from course_utils.this_machine import in_notebook, where

Draw = Callable[..., tuple[Figure, str]]
MOST_FRAMES = 128
"""Pictures of one explorer, at most: the site computes and holds them all."""


@dataclass(frozen=True)
class Control:
    """Something to move: a slider, or a box to tick.

    Attributes
    ----------
    label
        What it changes, with the unit.
    options
        For each position its words and its value, in order; a box has two, ``False`` and ``True``.
    start
        Which position is shown first.
    """

    label: str
    options: Sequence[tuple[str, Any]]
    start: int = 0

    @property
    def is_box(self) -> bool:
        """Whether it is a box to tick."""
        return [value for _, value in self.options] == [False, True]


def slider(
    label: str, values: Sequence[Any], start: Any = None, words: Callable[[Any], str] = str
) -> Control:
    """Return a slider over ``values``, shown as ``words`` of each; it begins at ``start``."""
    options = [(words(value), value) for value in values]
    return Control(label, options, values.index(start) if start is not None else 0)


def box(label: str, ticked: bool = False) -> Control:
    """Return a box to tick."""
    return Control(label, [(_("no"), False), (_("yes"), True)], int(ticked))


@dataclass(frozen=True)
class Explorer:
    """A question, the guesses to choose from, a picture with its controls, and what one finds.

    Attributes
    ----------
    question
        What to find out, in one or two sentences.
    guesses
        Answers to choose from before anything can be moved.
    controls
        For each argument of `draw` what changes it.
    draw
        Takes a value for each control; returns a figure and the sentence for those who do not see it.
    found
        What one sees after moving, in a sentence or two; shown after the first move.
    telling
        For each control the position that shows most, where nothing can be moved; by default the first one.
    """

    question: str
    guesses: Sequence[str]
    controls: Mapping[str, Control]
    draw: Draw
    found: str
    telling: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        """Refuse more pictures than a page can hold."""
        count = sum(1 for _ in self.positions())
        if count > MOST_FRAMES:
            raise ValueError(
                _("{count} pictures, more than {most_frames}: give the controls fewer positions.").format(
                    count=count, most_frames=MOST_FRAMES
                )
            )

    def positions(self) -> itertools.product[tuple[int, ...]]:
        """Return every combination of the controls' positions."""
        return itertools.product(*(range(len(c.options)) for c in self.controls.values()))

    def at(self, positions: Sequence[int]) -> tuple[Figure, str]:
        """Return the figure and its sentence for one position of each control."""
        pairs = zip(self.controls.items(), positions, strict=True)
        return self.draw(**{name: control.options[i][1] for (name, control), i in pairs})

    @property
    def shown(self) -> tuple[int, ...]:
        """The position of each control that a still picture shows."""
        telling = self.telling or {}
        return tuple(telling.get(name, control.start) for name, control in self.controls.items())

    def show(self) -> None:
        """Show it as can be moved here: live, as pictures to choose from, or as one picture."""
        how = form()
        if how == "live":
            Live(self).display()
        elif how == "frames":
            show(Bundle(self._text(), page(self)))
        else:
            still(self)

    def _text(self) -> str:
        figure, alt = self.at(self.shown)
        plt.close(figure)
        return f"{self.question}\n{alt}\n{self.found}"


def form() -> str:
    """Return ``"live"`` where a learner can move things, ``"frames"`` for the site, else ``"still"``.

    ``COURSE_WIDGETS`` decides where it is set to one of them.
    """
    asked = os.environ.get("COURSE_WIDGETS", "")
    if asked in {"live", "frames", "still"}:
        return asked
    hands = (
        "JPY_SESSION_NAME" in os.environ  # Jupyter's server: a person opened this notebook
        or "VSCODE_PID" in os.environ
        or where() == "colab"
        or os.environ.get("KAGGLE_KERNEL_RUN_TYPE") == "Interactive"
    )
    if not (hands and in_notebook()):
        return "still"
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        return "still"
    return "live"


def still(explorer: Explorer) -> None:
    """Show the question with its guesses, one telling picture, and, folded, what moving would have shown."""
    guesses = " · ".join(explorer.guesses)
    asked = f"<b>{html.escape(explorer.question)}</b><br>{html.escape(guesses)}"
    show(Bundle(f"{explorer.question}\n{guesses}", asked))
    present(*explorer.at(explorer.shown))
    pairs = zip(explorer.controls.values(), explorer.shown, strict=True)
    at = " · ".join(f"{control.label}: {control.options[i][0]}" for control, i in pairs)
    show(Bundle(at, html.escape(at)))
    found = html.escape(explorer.found)
    folded = _("<details><summary>What moving it shows</summary>{found}</details>").format(found=found)
    show(Bundle(explorer.found, folded))


class Live:
    """The widgets of one explorer, and the pictures drawn so far."""

    def __init__(self, explorer: Explorer) -> None:
        import ipywidgets as widgets

        self.explorer = explorer
        self.drawn: dict[tuple[int, ...], str] = {}
        self.guess = widgets.ToggleButtons(options=list(explorer.guesses), value=None)
        self.guess.style.button_width = "auto"
        self.movers = [
            _box(widgets, control) if control.is_box else _slider(widgets, control)
            for control in explorer.controls.values()
        ]
        self.picture = widgets.HTML()
        self.note = widgets.HTML(_("Choose an answer first; then you can move things."))
        for mover in self.movers:
            mover.disabled = True
            mover.observe(self._moved, "value")
        self.guess.observe(self._guessed, "value")
        heading = widgets.HTML(f"<b>{html.escape(explorer.question)}</b>")
        self.all = widgets.VBox([heading, self.guess, *self.movers, self.picture, self.note])
        self._draw()

    def display(self) -> None:
        """Display the widgets; where they cannot be had, the same output holds a picture."""
        from IPython.display import display

        figure, alt = self.explorer.at(self.explorer.shown)
        view = {"version_major": 2, "version_minor": 0, "model_id": self.all.model_id}
        data = {
            "text/plain": f"{self.explorer.question}\n{alt}",
            "image/png": b64encode(_png(figure)).decode("ascii"),
            "application/vnd.jupyter.widget-view+json": view,
        }
        display(data, raw=True)

    def _positions(self) -> tuple[int, ...]:
        return tuple(int(m.value) if hasattr(m, "indent") else m.index for m in self.movers)

    def _draw(self) -> None:
        at = self._positions()
        if at not in self.drawn:
            figure, alt = self.explorer.at(at)
            self.drawn[at] = _img(_source(figure), alt)
        self.picture.value = self.drawn[at]

    def _guessed(self, _change: object) -> None:
        for mover in self.movers:
            mover.disabled = False
        self.note.value = _("You said: {escape}. Move things, and see.").format(
            escape=html.escape(self.guess.value)
        )

    def _moved(self, _change: object) -> None:
        self._draw()
        said = html.escape(self.guess.value or "")
        self.note.value = _("You said: {said}. {escape}").format(
            said=said, escape=html.escape(self.explorer.found)
        )


def _slider(widgets: Any, control: Control) -> Any:
    options = [(words, i) for i, (words, _) in enumerate(control.options)]
    return widgets.SelectionSlider(
        options=options,
        value=control.start,
        description=control.label,
        style={"description_width": "14em"},
        layout={"width": "36em"},
    )


def _box(widgets: Any, control: Control) -> Any:
    return widgets.Checkbox(value=bool(control.start), description=control.label, indent=False)


def _png(figure: Figure, small: bool = False) -> bytes:
    """Return a figure as PNG, made quickly or of few colours for a page that holds many; close it."""
    canvas = FigureCanvasAgg(figure)
    font.translate_figure(figure)
    canvas.draw()
    plt.close(figure)
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    if small:
        picture = picture.quantize(64, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    picture.save(buffer, format="png", compress_level=9 if small else 1)
    return buffer.getvalue()


def _source(figure: Figure, small: bool = False) -> str:
    return f"data:image/png;base64,{b64encode(_png(figure, small)).decode('ascii')}"


def _img(source: str, alt: str) -> str:
    return f'<img style="max-width:100%" alt="{html.escape(alt, quote=True)}" src="{source}">'


_PAGE = """<div id="{name}" class="explorer"><p><b>{question}</b></p>
<p>{guesses}</p>{controls}{picture}<p class="found" hidden>{found}</p>
<script>(() => {{
const root = document.getElementById("{name}"), frames = {frames};
const img = root.querySelector("img"), movers = [...root.querySelectorAll("[data-mover]")];
root.querySelectorAll("button").forEach(b => b.onclick = () => {{
  root.querySelectorAll("button").forEach(o => o.setAttribute("aria-pressed", o === b));
  movers.forEach(m => m.disabled = false);
}});
movers.forEach(m => m.oninput = () => {{
  const at = movers.map(m => m.type === "checkbox" ? Number(m.checked) : Number(m.value));
  movers.forEach((m, i) => {{
    if (m.type !== "checkbox") m.nextElementSibling.textContent = JSON.parse(m.dataset.words)[at[i]];
  }});
  [img.src, img.alt] = frames[at.join()];
  root.querySelector(".found").hidden = false;
}});
}})()</script></div>"""


def page(explorer: Explorer) -> str:
    """Return the explorer as HTML with every picture in it; it asks nothing of any server."""
    frames = {}
    for at in explorer.positions():
        figure, alt = explorer.at(at)
        frames[",".join(map(str, at))] = [_source(figure, small=True), alt]
    start = [control.start for control in explorer.controls.values()]
    return _PAGE.format(
        name=f"explorer-{uuid4().hex[:8]}",
        question=html.escape(explorer.question),
        guesses=" ".join(
            f'<button type="button" aria-pressed="false">{html.escape(g)}</button>' for g in explorer.guesses
        ),
        controls="".join(_mover(control) for control in explorer.controls.values()),
        picture=_img(*frames[",".join(map(str, start))]),
        found=html.escape(explorer.found),
        frames=json.dumps(frames).replace("</", "<\\/"),
    )


def _mover(control: Control) -> str:
    label = html.escape(control.label)
    if control.is_box:
        ticked = " checked" if control.start else ""
        return f'<p><label><input type="checkbox" data-mover disabled{ticked}> {label}</label></p>'
    words = html.escape(json.dumps([text for text, _ in control.options]), quote=True)
    return (
        f'<p><label><span style="display:inline-block;min-width:12em">{label}</span> '
        '<input type="range" data-mover disabled min="0" '
        f'max="{len(control.options) - 1}" value="{control.start}" data-words="{words}">'
        f"<output>{html.escape(control.options[control.start][0])}</output></label></p>"
    )
