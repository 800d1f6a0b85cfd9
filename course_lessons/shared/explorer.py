"""Interactive figures: a question, answers to guess from, and controls that redraw a computed figure.

In a notebook with a user they are ipywidgets (version 7 or 8). Without one (papermill, a saved page) there is
a single static figure. On the course's site the page contains every figure, drawn beforehand, and a short
script that selects among them.
"""

from __future__ import annotations

import html
import io
import itertools
import json
import os
from base64 import b64encode
from collections.abc import Callable, Hashable, Mapping, Sequence
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
    """A control of an explorer: a slider or a checkbox.

    Attributes
    ----------
    label
        The label shown beside it, with the unit.
    options
        ``(text, value)`` for each position, in order; the values of a checkbox are ``False`` and ``True``.
    start
        The index of the initial position.
    """

    label: str
    options: Sequence[tuple[str, Any]]
    start: int = 0

    @property
    def is_box(self) -> bool:
        """Whether it is a checkbox."""
        return [value for _, value in self.options] == [False, True]


def slider(
    label: str, values: Sequence[Any], start: Any = None, words: Callable[[Any], str] = str
) -> Control:
    """Return a slider over ``values``; ``words(value)`` is a value's text.

    It starts at the value ``start``, by default the first; ValueError if that is none of them.
    """
    options = [(words(value), value) for value in values]
    return Control(label, options, values.index(start) if start is not None else 0)


def box(label: str, ticked: bool = False) -> Control:
    """Return a checkbox."""
    return Control(label, [(_("no"), False), (_("yes"), True)], int(ticked))


@dataclass(frozen=True)
class Explorer:
    """An interactive figure with a question.

    Attributes
    ----------
    question
        What to find out, in one or two sentences.
    guesses
        Answers to choose from; the controls are disabled until one is chosen. There may be none.
    controls
        The control for each keyword argument of `draw`.
    draw
        Called with a value for each control; returns a figure and its alternative text.
    found
        The explanation, a sentence or two, shown once the learner has reached the answer.
    telling
        The index of each control's position for a static figure; by default its ``start``.
    answer
        The right one of `guesses`.
    reached
        Called like `draw`; returns whether the figure then answers the question. If it takes several figures,
        it returns a different text for each of them, and ``""`` or ``False`` for others. None: the first
        figure that the learner moves to answers it.
    parts
        How many different results of `reached` the answer takes.
    """

    question: str
    guesses: Sequence[str]
    controls: Mapping[str, Control]
    draw: Draw
    found: str
    telling: Mapping[str, int] | None = None
    answer: str = ""
    reached: Callable[..., Hashable] | None = None
    parts: int = 1

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for an answer that is no guess, or for more than `MOST_FRAMES` figures."""
        if self.answer not in (self.guesses or [""]):
            raise ValueError(_("The answer {answer!r} is none of the guesses.").format(answer=self.answer))
        count = sum(1 for _ in self.positions())
        if count > MOST_FRAMES:
            raise ValueError(
                _("{count} pictures, more than {most_frames}: give the controls fewer positions.").format(
                    count=count, most_frames=MOST_FRAMES
                )
            )

    def positions(self) -> itertools.product[tuple[int, ...]]:
        """Return an iterator over all combinations of the controls' positions, tuples of indices."""
        return itertools.product(*(range(len(c.options)) for c in self.controls.values()))

    def at(self, positions: Sequence[int]) -> tuple[Figure, str]:
        """Draw one combination of positions (indices); return the figure and its alternative text.

        The caller closes the figure.
        """
        return self.draw(**self._values(positions))

    def part(self, positions: Sequence[int]) -> str:
        """Return which part of the answer a figure shows that the learner has moved to; "" if none."""
        result = self.reached(**self._values(positions)) if self.reached else True
        return str(result) if result else ""

    def _values(self, positions: Sequence[int]) -> dict[str, Any]:
        """Return the value of each control at a combination of positions."""
        pairs = zip(self.controls.items(), positions, strict=True)
        return {name: control.options[i][1] for (name, control), i in pairs}

    @property
    def shown(self) -> tuple[int, ...]:
        """The index of each control's position in a static figure."""
        telling = self.telling or {}
        return tuple(telling.get(name, control.start) for name, control in self.controls.items())

    def show(self) -> None:
        """Display it in the form that `form` returns."""
        how = form()
        if how == "live":
            Live(self).display()
        elif how == "frames":
            show(Bundle(self._text(), page(self)))
        else:
            show_still(self)

    def _text(self) -> str:
        """Return the plain text of the explorer, for outputs without HTML."""
        figure, alt = self.at(self.shown)
        plt.close(figure)
        return f"{self.question}\n{alt}\n{self.found}"


def form() -> str:
    """Return how explorers are displayed: ``"live"`` widgets, ``"frames"`` for the site, or ``"still"``.

    The environment variable ``COURSE_WIDGETS`` takes precedence if it is one of these. Otherwise it is
    ``"live"`` in a notebook that a person has opened, if ipywidgets is installed, else ``"still"``.
    """
    requested = os.environ.get("COURSE_WIDGETS", "")
    if requested in {"live", "frames", "still"}:
        return requested
    has_user = (
        "JPY_SESSION_NAME" in os.environ  # Jupyter's server: a person opened this notebook
        or "VSCODE_PID" in os.environ
        or where() == "colab"
        or os.environ.get("KAGGLE_KERNEL_RUN_TYPE") == "Interactive"
    )
    if not (has_user and in_notebook()):
        return "still"
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        return "still"
    return "live"


def show_still(explorer: Explorer) -> None:
    """Display the question with its answers, the figure at `Explorer.shown`, and the explanation, collapsed.

    A line below the figure says each control's position.
    """
    guesses = " · ".join(explorer.guesses)
    question_html = f"<b>{html.escape(explorer.question)}</b><br>{html.escape(guesses)}"
    show(Bundle(f"{explorer.question}\n{guesses}", question_html))
    present(*explorer.at(explorer.shown))
    pairs = zip(explorer.controls.values(), explorer.shown, strict=True)
    positions_text = " · ".join(f"{control.label}: {control.options[i][0]}" for control, i in pairs)
    show(Bundle(positions_text, html.escape(positions_text)))
    explanation = html.escape(explorer.found)
    folded = _("<details><summary>What moving it shows</summary>{found}</details>").format(found=explanation)
    show(Bundle(explorer.found, folded))


class Live:
    """An explorer as widgets; figures already drawn are cached as HTML in ``drawn``, by positions."""

    def __init__(self, explorer: Explorer) -> None:
        import ipywidgets as widgets

        self.explorer = explorer
        self.drawn: dict[tuple[int, ...], str] = {}
        self.seen: set[str] = set()
        """The parts of the answer that the learner has seen."""
        self.guess = widgets.ToggleButtons(options=list(explorer.guesses), value=None)
        self.guess.style.button_width = "auto"
        self.movers = [
            _checkbox_widget(widgets, control) if control.is_box else _slider_widget(widgets, control)
            for control in explorer.controls.values()
        ]
        self.picture = widgets.HTML()
        self.note = widgets.HTML(_CHOOSE if explorer.guesses else "")
        for mover in self.movers:
            mover.disabled = bool(explorer.guesses)
            mover.observe(self._on_control_changed, "value")
        self.guess.observe(self._on_answer_chosen, "value")
        heading = widgets.HTML(f"<b>{html.escape(explorer.question)}</b>")
        buttons = [self.guess] if explorer.guesses else []
        self.all = widgets.VBox([heading, *buttons, *self.movers, self.picture, self.note])
        self._update_figure()

    def display(self) -> None:
        """Display the widgets; front ends without widgets show the static figure of the same output."""
        from IPython.display import display

        figure, alt = self.explorer.at(self.explorer.shown)
        view = {"version_major": 2, "version_minor": 0, "model_id": self.all.model_id}
        data = {
            "text/plain": f"{self.explorer.question}\n{alt}",
            "image/png": b64encode(_png(figure)).decode("ascii"),
            "application/vnd.jupyter.widget-view+json": view,
        }
        display(data, metadata={"image/png": {"alt": alt}}, raw=True)

    def _current_positions(self) -> tuple[int, ...]:
        """Return the current position of each control, an index."""
        return tuple(int(m.value) if hasattr(m, "indent") else m.index for m in self.movers)

    def _update_figure(self) -> None:
        """Show the figure for the current positions."""
        positions = self._current_positions()
        if positions not in self.drawn:
            figure, alt = self.explorer.at(positions)
            self.drawn[positions] = _img_tag(_data_url(figure), alt)
        self.picture.value = self.drawn[positions]

    def _on_answer_chosen(self, _change: object) -> None:
        """Enable the controls, when an answer has been chosen."""
        for mover in self.movers:
            mover.disabled = False
        self._update_note()

    def _on_control_changed(self, _change: object) -> None:
        """Redraw, and show the explanation if the answer has been reached; then the guess stays."""
        self._update_figure()
        self.seen |= {self.explorer.part(self._current_positions())} - {""}
        self.guess.disabled = len(self.seen) >= self.explorer.parts
        self._update_note(moved=True)

    def _update_note(self, moved: bool = False) -> None:
        """Show what the learner said, and the explanation or that it has not been reached."""
        explorer, seen = self.explorer, len(self.seen)
        if seen >= explorer.parts:
            verdict = _RIGHT if self.guess.value == explorer.answer else _NOT_QUITE
            words = (f"<b>{verdict}</b> " if explorer.guesses else "") + html.escape(explorer.found)
        elif moved:
            words = html.escape(_keep_moving(explorer.parts)[seen])
        else:
            words = _MOVE
        if explorer.guesses:
            words = _YOU_SAID.format(guess=html.escape(self.guess.value), words=words)
        self.note.value = words


_CHOOSE = _("Choose an answer first; then you can move things.")
_YOU_SAID = _("You said: {guess}. {words}")
_MOVE = _("Move things, and see.")
_RIGHT = _("Right.")
_NOT_QUITE = _("Not quite.")


def _keep_moving(parts: int) -> list[str]:
    """Return what to tell a learner who has seen 0, 1, … of the ``parts`` of the answer."""
    nothing = _("Keep moving. Nothing that you've seen answers the question yet.")
    some = _("Keep moving. You've seen {n} of {parts} pictures that the answer takes.")
    return [nothing, *(some.format(n=n, parts=parts) for n in range(1, parts))]


def _slider_widget(widgets: Any, control: Control) -> Any:
    """Return the ipywidgets slider for a control."""
    options = [(words, i) for i, (words, _) in enumerate(control.options)]
    return widgets.SelectionSlider(
        options=options,
        value=control.start,
        description=control.label,
        style={"description_width": "14em"},
        layout={"width": "36em"},
    )


def _checkbox_widget(widgets: Any, control: Control) -> Any:
    """Return the ipywidgets checkbox for a control."""
    return widgets.Checkbox(value=bool(control.start), description=control.label, indent=False)


def _png(figure: Figure, small: bool = False) -> bytes:
    """Return a figure as PNG and close it; with ``small``, in 64 colours and strongly compressed."""
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


def _data_url(figure: Figure, small: bool = False) -> str:
    """Return a figure as a ``data:`` URL with a PNG; see `_png`."""
    return f"data:image/png;base64,{b64encode(_png(figure, small)).decode('ascii')}"


def _img_tag(source: str, alt: str) -> str:
    """Return an HTML ``img`` element."""
    return f'<img style="max-width:100%" alt="{html.escape(alt, quote=True)}" src="{source}">'


_PAGE = """<div id="{name}" class="explorer"><p><b>{question}</b></p>
<p>{guesses}</p>{controls}{picture}<p class="note" aria-live="polite">{note}</p>
<p class="found" hidden><b class="verdict"></b> {found}</p>
<script>(() => {{
const root = document.getElementById("{name}"), frames = {frames};
const parts = {parts}, words = {words}, seen = new Set();
const img = root.querySelector("img"), movers = [...root.querySelectorAll("[data-mover]")];
const note = root.querySelector(".note"), buttons = [...root.querySelectorAll("button")];
const chosen = () => buttons.find(b => b.getAttribute("aria-pressed") === "true");
const tell = text => {{
  const values = chosen() && {{guess: chosen().textContent, words: text}};
  note.textContent = values ? words.said.replace(/{{(\\w+)}}/g, (_, name) => values[name]).trim() : text;
}};
buttons.forEach(b => b.onclick = () => {{
  buttons.forEach(o => o.setAttribute("aria-pressed", o === b));
  movers.forEach(m => m.disabled = false);
  tell(words.move);
}});
movers.forEach(m => m.oninput = () => {{
  const at = movers.map(m => m.type === "checkbox" ? Number(m.checked) : Number(m.value));
  movers.forEach((m, i) => {{
    if (m.type !== "checkbox") m.nextElementSibling.textContent = JSON.parse(m.dataset.words)[at[i]];
  }});
  [img.src, img.alt] = frames[at.join()];
  if (at.join() in parts) seen.add(parts[at.join()]);
  if (seen.size < {needed}) return tell(words.keep[seen.size]);
  buttons.forEach(b => b.disabled = true);
  if (chosen()) root.querySelector(".verdict").textContent = words.verdicts[chosen().value];
  tell("");
  root.querySelector(".found").hidden = false;
}});
}})()</script></div>"""


def page(explorer: Explorer) -> str:
    """Return the explorer as HTML that contains every figure and a script; it loads nothing from a server."""
    frames, parts = {}, {}
    for positions in explorer.positions():
        key = ",".join(map(str, positions))
        figure, alt = explorer.at(positions)
        frames[key] = [_data_url(figure, small=True), alt]
        if part := explorer.part(positions):
            parts[key] = part
    words = {
        "said": _YOU_SAID,
        "move": _MOVE,
        "keep": _keep_moving(explorer.parts),
        "verdicts": {"right": _RIGHT, "wrong": _NOT_QUITE},
    }
    start = [control.start for control in explorer.controls.values()]
    return _PAGE.format(
        name=f"explorer-{uuid4().hex[:8]}",
        question=html.escape(explorer.question),
        guesses=" ".join(
            f'<button type="button" value="{"right" if g == explorer.answer else "wrong"}" '
            f'aria-pressed="false">{html.escape(g)}</button>'
            for g in explorer.guesses
        ),
        controls="".join(
            _control_html(control, disabled=bool(explorer.guesses)) for control in explorer.controls.values()
        ),
        picture=_img_tag(*frames[",".join(map(str, start))]),
        found=html.escape(explorer.found),
        note=_CHOOSE if explorer.guesses else "",
        frames=_script_json(frames),
        parts=_script_json(parts),
        words=_script_json(words),
        needed=explorer.parts,
    )


def _script_json(value: object) -> str:
    """Return a value as JSON that may stand in a script element."""
    return json.dumps(value).replace("</", "<\\/")


def _control_html(control: Control, disabled: bool) -> str:
    """Return the HTML ``input`` element of a control, with its label."""
    label, off = html.escape(control.label), " disabled" if disabled else ""
    if control.is_box:
        ticked = " checked" if control.start else ""
        return f'<p><label><input type="checkbox" data-mover{off}{ticked}> {label}</label></p>'
    words = html.escape(json.dumps([text for text, _ in control.options]), quote=True)
    return (
        f'<p><label><span style="display:inline-block;min-width:12em">{label}</span> '
        f'<input type="range" data-mover{off} min="0" '
        f'max="{len(control.options) - 1}" value="{control.start}" data-words="{words}">'
        f"<output>{html.escape(control.options[control.start][0])}</output></label></p>"
    )
