"""Matplotlib's font and texts for figures in a language whose characters its default font lacks."""

from __future__ import annotations

from typing import Any

from course_language import HERE, _, chosen
from course_language.punctuation import punctuated


def use_for_language() -> None:
    """Add the chosen language's font to matplotlib's ``font.family``, as a fallback; nothing for English."""
    path = HERE / chosen() / "font.otf"
    if not path.is_file():
        return
    import dataclasses

    import matplotlib
    from matplotlib import font_manager

    name = font_manager.FontProperties(fname=path).get_name()
    if name not in font_manager.fontManager.get_font_names():
        font_manager.fontManager.addfont(path)
        fonts = font_manager.fontManager.ttflist
        # It has a single weight: without this, matplotlib warns at each bold title.
        fonts.append(dataclasses.replace(fonts[-1], weight=700))
    families = matplotlib.rcParams["font.family"]
    matplotlib.rcParams["font.family"] = [*(family for family in families if family != name), name]


def translate_figure(fig: Any) -> None:
    """Translate a figure's texts, tick labels included, into the chosen language, in place."""
    if chosen() != "en":
        from matplotlib.text import Text
        from matplotlib.ticker import FuncFormatter

        def translated(text: Text) -> str:
            """Return the text of a matplotlib Text, translated line by line."""
            return "\n".join(punctuated(_(line)) for line in text.get_text().split("\n"))

        for axis in (axis for ax in fig.axes for axis in (ax.xaxis, ax.yaxis)):
            if isinstance(
                axis.get_major_formatter(), FuncFormatter
            ):  # the tick labels are names, not numbers
                names = [translated(name) for name in axis.get_ticklabels()]
                if any(names):  # of shared axes, only one has tick labels
                    axis.set_ticklabels(names)
        for text in fig.findobj(Text):
            text.set_text(translated(text))
