"""The handbook's table of cards: from the figures that the simulated device goes by."""

from __future__ import annotations

from course_utils.course import Course
from simgpu import profiles
from tools.authoring.cells import row


def cards(course: Course) -> str:
    """Return a table of NVIDIA cards, oldest capability first, as Markdown."""
    known = sorted(map(profiles.load, profiles.names()), key=lambda p: (p.capability, p.bandwidth))
    rows = [
        row(
            card.name.removeprefix("NVIDIA ").removeprefix("GeForce "),
            "{}.{}".format(*card.capability),
            f"{card.total_memory / 2**30:.1f}",
            f"{card.bandwidth / 1e9:,.0f}",
            f"{card.fp16_flops / 1e12:,.0f}",
        )
        for card in known
    ]
    head = row("card", "compute capability", "GiB", "GB/s", "TFLOP/s in float16")
    return "\n".join([head, "|---|---:|---:|---:|---:|", *rows])
