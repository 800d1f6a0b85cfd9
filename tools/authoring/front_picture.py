"""The first picture of README and the site: four batches before and after lesson 02.

``python -m tools.authoring.front_picture`` draws it for light and dark pages, in every language.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import course_language
from course_language import _, chosen, font
from course_lessons.lesson02 import explorers
from course_utils.cli.bootstrap import ROOT
from course_utils.timing import seconds
from simgpu.timeline import Timeline

BEFORE = {"pinned": False, "non_blocking": False, "read_each": True, "second_stream": False}
AFTER = {"pinned": True, "non_blocking": True, "read_each": False, "second_stream": True}
INKS = {
    "light": {"ground": "#fdfdfb", "ink": "#1f2328", "soft": "#57606a", "wait": "#d0d0cc"},
    "dark": {"ground": "#0d1117", "ink": "#e6edf3", "soft": "#9da7b3", "wait": "#3d444d"},
}
COLOURS = {"work": "#009E73", "copy": "#E69F00", "launch": "#56B4E9", "kernel": "#3a8fd0"}


def path(language: str, theme: str) -> Path:
    """Return the picture's file: ``images/gain.png``, ``images/zh/gain_dark.png``."""
    folder = ROOT / "images" if language == "en" else ROOT / "images" / language
    return folder / f"gain{'' if theme == 'light' else '_dark'}.png"


def timelines() -> tuple[Timeline, Timeline]:
    """Return the modelled timelines of the four batches, before and after lesson 02."""
    return explorers.loop(**BEFORE), explorers.loop(**AFTER)


def draw(theme: str) -> None:
    """Draw the picture in the chosen language, for a light or a dark page."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    inks, lines = INKS[theme], timelines()
    names = {
        "work": _("loading"), "launch": _("launching"), "copy": _("copying"),
        "kernel": _("computing"), "wait": _("waiting"),
    }  # fmt: skip
    lanes = {"host": "CPU", "copy": _("copies"), "kernel": "GPU"}
    plt.rcParams["font.size"] = 15
    font.use_for_language()
    fig, both = plt.subplots(2, 1, figsize=(10, 6.1), sharex=True, facecolor=inks["ground"])
    for ax, line, title in zip(both, lines, (_("Before lesson 02"), _("After it")), strict=True):
        for span in line.spans:
            if span.lane.endswith("device to host"):  # four bytes, the loss
                continue
            y = 0 if span.lane == "host" else 1 if span.kind == "copy" else 2
            colour = COLOURS.get(span.kind, inks["wait"])
            start, length = (span.start - line.start) * 1e3, span.seconds * 1e3
            ax.barh(y, length, 0.74, start, color=colour, edgecolor=inks["ground"], linewidth=0.6)
        ax.set_title(
            _("{title}: {time}").format(title=title, time=seconds(line.seconds)),
            loc="left", fontsize=19, fontweight="bold", color=inks["ink"],
        )  # fmt: skip
        ax.set_yticks(range(3), lanes.values(), fontsize=16)
        ax.set_ylim(2.55, -0.55)
        ax.set_facecolor(inks["ground"])
        ax.tick_params(colors=inks["soft"], length=0)
        for edge in ("top", "right", "left"):
            ax.spines[edge].set_visible(False)
        ax.spines["bottom"].set_color(inks["wait"])
        end = line.seconds * 1e3
        ax.axvline(end, color=inks["soft"], linewidth=1, linestyle=":")
    first, second = (line.seconds * 1e3 for line in lines)
    after = both[1]
    style = {"arrowstyle": "<->", "color": inks["ink"], "linewidth": 1.4}
    after.annotate("", (second, 1), (first, 1), arrowprops=style)
    after.axvline(first, color=inks["soft"], linewidth=1, linestyle=":")
    gain = _("{factor} times as fast").format(factor=f"{first / second:.1f}")
    where = ((first + second) / 2, 0.78)
    after.text(*where, gain, ha="center", va="bottom", fontsize=17, fontweight="bold", color=inks["ink"])
    after.set_xlabel(_("ms, modelled for an NVIDIA T4"), color=inks["soft"], fontsize=14)
    both[0].set_xlim(0, 1.02 * first)
    handles = [Patch(color=COLOURS.get(kind, inks["wait"]), label=name) for kind, name in names.items()]
    fig.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.085), ncols=5, frameon=False,
        fontsize=15, handlelength=1.2, columnspacing=1.6, labelcolor=inks["ink"],
    )  # fmt: skip
    fig.subplots_adjust(left=0.11, right=0.975, top=0.93, bottom=0.19, hspace=0.33)
    goal = path(chosen(), theme)
    goal.parent.mkdir(exist_ok=True)
    fig.savefig(goal, dpi=120, transparent=True)
    plt.close(fig)
    print(goal.relative_to(ROOT))


def main() -> int:
    """Draw the picture for every language in a process of its own, and each theme."""
    if os.environ.get("COURSE_LANGUAGE"):
        for theme in INKS:
            draw(theme)
        return 0
    for language in course_language.languages():
        env = {**os.environ, "COURSE_LANGUAGE": language, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
        subprocess.run([sys.executable, "-m", __spec__.name], env=env, cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
