"""A font for figures in a language whose letters matplotlib's own lacks."""

from __future__ import annotations

from typing import Any

from course_language import HERE, _, chosen
from course_language.punctuation import punctuated


def use() -> None:
    """Let matplotlib take from the language's own font what its usual one lacks; nothing to do in English."""
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
        # It has one weight: without this matplotlib says so at each bold title.
        fonts.append(dataclasses.replace(fonts[-1], weight=700))
    families = matplotlib.rcParams["font.family"]
    matplotlib.rcParams["font.family"] = [*(family for family in families if family != name), name]


def speak(fig: Any) -> None:
    """Put a figure's words that are keys in the program into the chosen language."""
    if chosen() != "en":
        from matplotlib.text import Text
        from matplotlib.ticker import FuncFormatter

        def said(text: Text) -> str:
            return "\n".join(punctuated(_(line)) for line in text.get_text().split("\n"))

        for axis in (axis for ax in fig.axes for axis in (ax.xaxis, ax.yaxis)):
            if isinstance(axis.get_major_formatter(), FuncFormatter):  # has names, not numbers
                names = [said(name) for name in axis.get_ticklabels()]
                if any(names):  # where axes are shared, one alone has the names
                    axis.set_ticklabels(names)
        for text in fig.findobj(Text):
            text.set_text(said(text))
