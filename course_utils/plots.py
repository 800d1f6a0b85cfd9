"""One plotting style, and the few plots the lessons share.

Figures have a solid light ground, so they read the same on a light and on a dark page. Colours are
Okabe and Ito's, which people with colour-blindness can tell apart; every series also has its own
marker or dash.
"""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from course_language import _, font

from .number_format import amount, is_share
from .show import Bundle, show
from .this_machine import in_notebook

if TYPE_CHECKING:
    from .timing import Measurement

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
BLUE, ORANGE, GREEN = COLOURS[:3]
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

DASHES = {"measured": "-", "recorded": "--", "modelled": ":", "published": "-."}
"""How a line is drawn for each kind of number."""

LOOKS = {
    "measured": {"marker": "o", "color": COLOURS[1]},
    "recorded": {"marker": "s", "color": COLOURS[0]},
    "modelled": {"marker": "D", "color": COLOURS[2], "markerfacecolor": "none"},
    "published": {"marker": "^", "color": "#444444", "markerfacecolor": "none"},
}
"""How a point is drawn for each kind of number: no_data where nobody measured it with this course."""

_STYLE = {
    "figure.figsize": (6.4, 3.8),
    "figure.dpi": 100,
    "figure.facecolor": "#fdfdfb",
    "savefig.facecolor": "#fdfdfb",
    "axes.facecolor": "#fdfdfb",
    "axes.prop_cycle": plt.cycler(color=COLOURS),
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "grid.color": "#d8d8d4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "font.size": 10.5,
}


def use_style() -> None:
    """Use the course's style for every figure from now on."""
    plt.rcParams.update(_STYLE)
    font.use()


def present(fig: Figure, alt: str) -> None:
    """Show a figure with its sentence of alternative text, and close it.

    Parameters
    ----------
    fig
        The figure.
    alt
        One sentence that says what the figure shows, for people who cannot see it.
    """
    show(_picture(fig, alt))
    plt.close(fig)


def curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    alt: str,
    title: str = "",
    kinds: Mapping[str, str] | None = None,
    log: str = "",
    reference: tuple[float, str] | None = None,
    xticks: Sequence[float] | None = None,
) -> None:
    """Draw one line a series, and show the figure.

    Parameters
    ----------
    series
        For each name in the legend, the x values and the y values.
    xlabel, ylabel
        What the axes show, with the unit.
    alt
        One sentence that says what the figure shows.
    title
        A short title.
    kinds
        For each name, ``"measured"``, ``"recorded"``, ``"modelled"`` or ``"published"``: the line is
        dashed accordingly and the legend says so.
    log
        Which axes are logarithmic: ``"x"``, ``"y"``, ``"xy"`` or none.
    reference
        A height and a name for a horizontal line to compare with.
    xticks
        The values to mark on the x axis.
    """
    fig, ax = plt.subplots(layout="constrained")
    for i, (name, (x, y)) in enumerate(series.items()):
        kind = (kinds or {}).get(name, "")
        look = {"marker": MARKERS[i % len(MARKERS)], "linestyle": DASHES.get(kind, "-")}
        ax.plot(
            x,
            y,
            **look,
            label=_("{name} ({kind})").format(name=name, kind=_(kind)) if kind else name,
        )
    if reference:
        ax.axhline(reference[0], color="#666666", linewidth=1)
        look = {"ha": "right", "va": "bottom", "color": "#555555"}
        ax.text(1, *reference, transform=ax.get_yaxis_transform(), **look)
    _label(ax, xlabel, ylabel, title, log)
    if xticks is not None:
        ax.set_xticks(list(xticks), [f"{tick:g}" for tick in xticks])
        ax.xaxis.minorticks_off()
    elif "x" in log:
        log_ticks(ax.xaxis)
    if "y" in log:
        log_ticks(ax.yaxis)
    ax.legend() if len(series) < 4 else fig.legend(loc="outside lower center", ncols=2)
    present(fig, alt)


def dots(measurements: Sequence[Measurement], names: Sequence[str]) -> None:
    """Draw medians as dots with their quartiles, one row each; logarithmic over a decade.

    Parameters
    ----------
    measurements
        One a row, from top to bottom, all of one unit.
    names
        What each is, or where.
    """
    unit, quantity = measurements[0].unit, measurements[0].quantity
    fig, ax = plt.subplots(figsize=(7.2, 0.45 * len(measurements) + 0.95), layout="constrained")
    for row, m in enumerate(measurements):
        begin, end = m.interval
        spread = None if begin == end else [[m.median - begin], [end - m.median]]
        ax.errorbar(m.median, row, xerr=spread, capsize=4, markersize=7, **LOOKS[m.kind])
        ax.text(1.02, row, m.written(), transform=ax.get_yaxis_transform(), va="center")
    figures = [figure for m in measurements for figure in (m.median, *m.interval)]
    ends = [figure for figure in figures if figure is not None]
    low, high = min(ends), max(ends)
    if low > 0 and high > 10 * low:
        ax.set(xscale="log", xlim=(low / 1.5, high * 1.5))
        log_ticks(ax.xaxis)
        ticks = list(ax.get_xticks())
    else:
        room = high - low or 0.01
        share = is_share(quantity)  # what differs is in the last digits: no need to begin at 0
        ax.set_xlim((low - room / 2, high + room / 2) if share else (0, 1.05 * high))
        ticks = list(MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(*ax.get_xlim()))
    if unit == "B":
        ticks = _binary(ticks)
    shown = [tick for tick in ticks if ax.get_xlim()[0] <= tick <= ax.get_xlim()[1]]
    shown = shown[:: math.ceil(len(shown) / 4)]
    ax.set_xticks(shown, [amount(tick, unit, quantity) if tick else "0" for tick in shown])
    ax.minorticks_off()
    kinds = {m.kind for m in measurements}
    labels = [
        _short(name) + (_(" ({kind})").format(kind=_(m.kind)) if len(kinds) > 1 else "")
        for name, m in zip(names, measurements, strict=True)
    ]
    ax.set_yticks(range(len(names)), labels)
    ax.set_ylim(len(names) - 0.5, -0.5)
    alike = f", {_(kinds.pop())}" if len(kinds) == 1 else ""
    likely = any(m.likely for m in measurements)
    bars = f"{_('quartiles')}{_(', or likely range where modelled') if likely else ''}{alike}"
    ax.set_xlabel(_("{quantity}: median and {bars}").format(quantity=_(quantity), bars=bars))
    each = "; ".join(
        _("{name} {written} ({kind})").format(name=name, written=m.written(), kind=_(m.kind))
        for name, m in zip(names, measurements, strict=True)
    )
    present(
        fig,
        _("{quantity} as dots with their quartiles: {each}.").format(
            quantity=_(quantity).capitalize(), each=each
        ),
    )


def _short(name: str) -> str:
    """Leave out of a machine's name what takes room and tells nothing: its kind is said beside it."""
    for words in ("Simulated NVIDIA ", " 80GB", " SXM", "precision "):
        name = name.replace(words, "")
    return name


def _binary(ticks: Sequence[float]) -> list[float]:
    """Return round numbers of KiB, MiB or GiB near the ticks, evenly spaced as these are."""
    if ticks[0] > 0:
        return sorted({2.0 ** round(math.log2(tick)) for tick in ticks})
    step = 2.0 ** round(math.log2(ticks[1] - ticks[0]))
    return [step * i for i in range(math.ceil(ticks[-1] / step) + 1)]


def log_ticks(axis: Axis) -> None:
    """Mark at least three values on a logarithmic axis, as plain numbers unless they are long.

    Call it when everything is drawn: the marks fit the range that is shown then.

    Parameters
    ----------
    axis
        ``ax.xaxis`` or ``ax.yaxis``.
    """
    low, high = sorted(axis.get_view_interval())
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = math.ceil(len(decades) / 8)
    choices = [[10.0**k for k in decades if k % every == 0]]
    choices += [[step * 10.0**k for k in decades for step in steps] for steps in ((1, 3), (1, 2, 5))]
    choices += [list(MaxNLocator(6, steps=[1, 2, 3, 5, 10]).tick_values(low, high))]
    shown = [[tick for tick in ticks if low <= tick <= high] for ticks in choices]
    ticks = next((ticks for ticks in shown if len(ticks) >= 3), shown[-1])
    plain = all(1e-3 <= tick < 1e5 for tick in ticks)
    axis.set_ticks(ticks, [f"{tick:g}" if plain else _power(tick) for tick in ticks])
    axis.set_minor_formatter(NullFormatter())


def _power(value: float) -> str:
    """Write 2e-6 as 2 × 10⁻⁶, and 1e-6 as 10⁻⁶."""
    digits, power = f"{value:.3e}".split("e")
    factor = "" if float(digits) == 1 else rf"{float(digits):g} \times "
    return f"${factor}10^{{{int(power)}}}$"


class LivePlot:
    """A curve that grows while the training runs, redrawn in place.

    Examples
    --------
    >>> plot = LivePlot("step", "loss", alt="The loss falls.")
    >>> plot.add(step, {"training loss": 2.3})
    >>> plot.close()

    Parameters
    ----------
    xlabel, ylabel
        What the axes show, with the unit; one in % ends in it, and goes from 0 to 100.
    alt
        One sentence that says what the finished figure shows.
    every
        The least time between two drawings, in seconds.
    """

    def __init__(self, xlabel: str, ylabel: str, alt: str, every: float = 1.0) -> None:
        self._labels, self._alt, self._every = (xlabel, ylabel), alt, every
        self._series: dict[str, tuple[list[float], list[float]]] = {}
        self._handle: Any = None
        self._drawn = perf_counter()

    def add(self, x: float, values: Mapping[str, float]) -> None:
        """Add a point to each named series; the picture follows at most once every ``every`` s."""
        for name, value in values.items():
            xs, ys = self._series.setdefault(name, ([], []))
            xs.append(x)
            ys.append(value)
        if perf_counter() - self._drawn >= self._every:
            self._draw()

    def close(self) -> None:
        """Draw the finished picture; outside a notebook this is the only drawing."""
        self._draw(last=True)

    def _draw(self, last: bool = False) -> None:
        if not in_notebook() and not last:
            return
        fig, ax = plt.subplots(layout="constrained")
        for i, (name, (xs, ys)) in enumerate(self._series.items()):
            marker = MARKERS[i % len(MARKERS)] if len(xs) < 40 else None
            ax.plot(xs, ys, marker=marker, label=name)
        _label(ax, *self._labels, "", "")
        if self._labels[1].endswith("%"):
            ax.set_ylim(0, 100)
        if self._series:
            ax.legend()
        picture = _picture(fig, self._alt)
        plt.close(fig)
        self._drawn = perf_counter()
        if not in_notebook():
            show(picture)
        elif self._handle is None:
            from IPython.display import display

            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)


def _label(ax: Axes, xlabel: str, ylabel: str, title: str, log: str) -> None:
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title, **{f"{axis}scale": "log" for axis in log})


class _Figure(Bundle):
    """A drawn figure: its picture, and its alternative text for those who do not see it."""

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"text/plain": repr(self), **self.extra}, {"image/png": {"alt": repr(self)}}


def _picture(fig: Figure, alt: str) -> Bundle:
    buffer = io.BytesIO()
    font.speak(fig)
    fig.savefig(buffer, format="png", metadata={"Description": alt})
    png = base64.b64encode(buffer.getvalue()).decode("ascii")
    return _Figure(text=alt, html=html.escape(alt), extra={"image/png": png})
