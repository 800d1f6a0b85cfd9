"""Explorers (interactive figures) of lesson 06."""

from __future__ import annotations

from matplotlib.figure import Figure

from course_language import _
from course_lessons.lesson06 import drawings
from course_lessons.shared.explorer import Explorer, box, slider

MIB = 2**20
LINKS = {6e9: "6 GB/s", 1.25e9: _("1.25 GB/s (10 Gbit/s)"), 25e9: "25 GB/s", 300e9: "300 GB/s"}


def buckets() -> None:
    """Display an explorer: how much communication backward hides, by link, bucket size and ranks."""

    def draw(bandwidth: float, cap: int, ranks: int, tied: bool) -> tuple[Figure, str]:
        """Return the figure for these settings and its alternative text."""
        layers = {_("layer {i}").format(i=i): 8 * MIB for i in range(8)}
        if tied:
            layers = {"embedding": 32 * MIB} | layers
        return drawings.buckets(layers, 20e-3, bandwidth, ranks=ranks, cap=cap)

    def reached(bandwidth: float, cap: int, ranks: int, tied: bool) -> bool:
        """Return whether the link is the fastest and the last bucket smaller than another one."""
        return bandwidth == max(LINKS) and cap in (10 * MIB, 25 * MIB) and not tied

    Explorer(
        question=_("Eight layers, 64 MiB of gradients, 20 ms of backward. What can never hide behind it?"),
        guesses=(
            _("nothing: a fast link hides all"),
            _("the first bucket"),
            _("the last bucket"),
            _("the largest bucket"),
        ),
        controls={
            "bandwidth": slider(_("link"), sorted(LINKS), 6e9, LINKS.get),
            "cap": slider(
                _("bucket"),
                [m * MIB for m in (1, 10, 25, 100)],
                25 * MIB,
                lambda b: f"{b // MIB} MiB",
            ),
            "ranks": slider(_("ranks"), [2, 8, 64]),
            "tied": box(_("an embedding of 32 MiB, ready last")),
        },
        draw=draw,
        found=_(
            "The last bucket is full when backward ends, so it always sticks out. Small buckets "
            "shorten it and pay the latency more often; with one large bucket nothing hides. An "
            "embedding that is ready last sticks out whole."
        ),
        answer=_("the last bucket"),
        reached=reached,
    ).show()
