"""The plotting style, and the plots that several lessons use.

Figures have a solid light background, so they are readable on light and dark pages. Colours are
Okabe and Ito's, which are colour-blind safe; every series also has its own marker or dashes.
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
"""The matplotlib line style for each kind of number."""

LOOKS = {
    "measured": {"marker": "o", "color": COLOURS[1]},
    "recorded": {"marker": "s", "color": COLOURS[0]},
    "modelled": {"marker": "D", "color": COLOURS[2], "markerfacecolor": "none"},
    "published": {"marker": "^", "color": "#444444", "markerfacecolor": "none"},
}
"""Matplotlib's arguments of a point for each kind of number; hollow if not measured with this course."""

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
    """Set matplotlib's rcParams to the course's style, and its font to one for the chosen language."""
    plt.rcParams.update(_STYLE)
    font.use_for_language()


def present(fig: Figure, alt: str) -> None:
    """Show a figure with alternative text, and close it; outside a notebook, print the text alone.

    Parameters
    ----------
    fig
        The figure.
    alt
        One sentence that says what the figure shows, for people who cannot see it.
    """
    show(_rendered(fig, alt))
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
    """Plot one line for each series, and show the figure.

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
        The y value and the label of a horizontal reference line.
    xticks
        The positions of the ticks on the x axis.
    """
    fig, ax = plt.subplots(layout="constrained")
    for i, (name, (x, y)) in enumerate(series.items()):
        kind = (kinds or {}).get(name, "")
        style = {"marker": MARKERS[i % len(MARKERS)], "linestyle": DASHES.get(kind, "-")}
        ax.plot(
            x,
            y,
            **style,
            label=_("{name} ({kind})").format(name=name, kind=_(kind)) if kind else name,
        )
    if reference:
        ax.axhline(reference[0], color="#666666", linewidth=1)
        style = {"ha": "right", "va": "bottom", "color": "#555555"}
        ax.text(1, *reference, transform=ax.get_yaxis_transform(), **style)
    _set_labels(ax, xlabel, ylabel, title, log)
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
    """Show measurements as a dot plot, one row each, with quartiles (or likely range) as error bars.

    The axis is logarithmic if the values span more than a factor of 10.

    Parameters
    ----------
    measurements
        One for each row, from top to bottom, all in the same unit.
    names
        The row labels, such as what was measured, or on which machine.
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
        share = is_share(quantity)  # shares differ in their last digits: the axis need not start at 0
        ax.set_xlim((low - room / 2, high + room / 2) if share else (0, 1.05 * high))
        ticks = list(MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(*ax.get_xlim()))
    if unit == "B":
        ticks = _binary_ticks(ticks)
    shown = [tick for tick in ticks if ax.get_xlim()[0] <= tick <= ax.get_xlim()[1]]
    shown = shown[:: math.ceil(len(shown) / 4)]
    ax.set_xticks(shown, [amount(tick, unit, quantity) if tick else "0" for tick in shown])
    ax.minorticks_off()
    kinds = {m.kind for m in measurements}
    labels = [
        _shortened(name) + (_(" ({kind})").format(kind=_(m.kind)) if len(kinds) > 1 else "")
        for name, m in zip(names, measurements, strict=True)
    ]
    ax.set_yticks(range(len(names)), labels)
    ax.set_ylim(len(names) - 0.5, -0.5)
    common_kind = f", {_(kinds.pop())}" if len(kinds) == 1 else ""
    likely = any(m.likely for m in measurements)
    bars = f"{_('quartiles')}{_(', or likely range where modelled') if likely else ''}{common_kind}"
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


def _shortened(name: str) -> str:
    """Return a machine's name without parts that take space and distinguish nothing."""
    for words in ("Simulated NVIDIA ", " 80GB", " SXM", "precision "):
        name = name.replace(words, "")
    return name


def _binary_ticks(ticks: Sequence[float]) -> list[float]:
    """Return ticks, in bytes, near the given ones and round in KiB, MiB or GiB: by powers of 2."""
    if ticks[0] > 0:
        return sorted({2.0 ** round(math.log2(tick)) for tick in ticks})
    step = 2.0 ** round(math.log2(ticks[1] - ticks[0]))
    return [step * i for i in range(math.ceil(ticks[-1] / step) + 1)]


def log_ticks(axis: Axis) -> None:
    """Set at least three ticks on a logarithmic axis, labelled as plain numbers unless they are long.

    Call it after everything is drawn: the ticks are chosen for the axis' current limits.

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
    axis.set_ticks(ticks, [f"{tick:g}" if plain else _scientific(tick) for tick in ticks])
    axis.set_minor_formatter(NullFormatter())


def _scientific(value: float) -> str:
    """Return a number in scientific notation for matplotlib: 2e-6 as 2 × 10⁻⁶, 1e-6 as 10⁻⁶."""
    digits, power = f"{value:.3e}".split("e")
    factor = "" if float(digits) == 1 else rf"{float(digits):g} \times "
    return f"${factor}10^{{{int(power)}}}$"


class LivePlot:
    """A line plot that is updated in place during training.

    Examples
    --------
    >>> plot = LivePlot("step", "loss", alt="The loss falls.")
    >>> plot.add(step, {"training loss": 2.3})
    >>> plot.close()

    Parameters
    ----------
    xlabel, ylabel
        The axes' labels, with the unit; if ``ylabel`` ends in %, that axis goes from 0 to 100.
    alt
        One sentence of alternative text for the finished figure.
    every
        The minimum time between two redraws, in seconds.
    """

    def __init__(self, xlabel: str, ylabel: str, alt: str, every: float = 1.0) -> None:
        self._labels, self._alt, self._min_interval_seconds = (xlabel, ylabel), alt, every
        self._series: dict[str, tuple[list[float], list[float]]] = {}
        self._handle: Any = None
        self._last_drawn_seconds = perf_counter()

    def add(self, x: float, values: Mapping[str, float]) -> None:
        """Add a point to each named series; redraw if ``every`` seconds have passed since the last time."""
        for name, value in values.items():
            xs, ys = self._series.setdefault(name, ([], []))
            xs.append(x)
            ys.append(value)
        if perf_counter() - self._last_drawn_seconds >= self._min_interval_seconds:
            self._draw()

    def close(self) -> None:
        """Draw the finished plot; outside a notebook this is the only time that it is shown."""
        self._draw(last=True)

    def _draw(self, last: bool = False) -> None:
        """Render the plot and show it, or update the display that shows it."""
        if not in_notebook() and not last:
            return
        fig, ax = plt.subplots(layout="constrained")
        for i, (name, (xs, ys)) in enumerate(self._series.items()):
            marker = MARKERS[i % len(MARKERS)] if len(xs) < 40 else None
            ax.plot(xs, ys, marker=marker, label=name)
        _set_labels(ax, *self._labels, "", "")
        if self._labels[1].endswith("%"):
            ax.set_ylim(0, 100)
        if self._series:
            ax.legend()
        picture = _rendered(fig, self._alt)
        plt.close(fig)
        self._last_drawn_seconds = perf_counter()
        if not in_notebook():
            show(picture)
        elif self._handle is None:
            from IPython.display import display

            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)


def _set_labels(ax: Axes, xlabel: str, ylabel: str, title: str, log: str) -> None:
    """Set the labels, the title, and the logarithmic scales (see `curves`) of axes."""
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title, **{f"{axis}scale": "log" for axis in log})


class _Figure(Bundle):
    """A rendered figure to display: a PNG with alternative text."""

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"text/plain": repr(self), **self.extra}, {"image/png": {"alt": repr(self)}}


def _rendered(fig: Figure, alt: str) -> Bundle:
    """Render a figure to PNG, with its texts in the chosen language; return it for display."""
    buffer = io.BytesIO()
    font.translate_figure(fig)
    fig.savefig(buffer, format="png", metadata={"Description": alt})
    png = base64.b64encode(buffer.getvalue()).decode("ascii")
    return _Figure(text=alt, html=html.escape(alt), extra={"image/png": png})
