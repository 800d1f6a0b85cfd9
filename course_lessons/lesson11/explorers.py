"""Explorers (interactive figures) of lesson 11."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure

from course_language import _
from course_lessons.lesson11 import drawings
from course_lessons.lesson11.memory import STAGES, bytes_per_rank
from course_lessons.shared.explorer import Explorer, slider

CARD = 80e9
"""The memory of the card drawn beside the bars, in bytes."""


def sharding() -> None:
    """Display an explorer: memory on each rank by ZeRO stage, model size, number of cards and dtype."""

    def draw(parameters: float, ranks: int, dtype: torch.dtype) -> tuple[Figure, str]:
        """Return the figure for these settings and its alternative text."""
        cases = {name: bytes_per_rank(parameters, ranks, stage, dtype) for stage, name in enumerate(STAGES)}
        return drawings.memory(cases, CARD)

    sizes = [1e9, 8e9, 70e9, 405e9]
    Explorer(
        question=_(
            "8 billion parameters in float32 need 128 GB on one card. What does ZeRO-1 keep on each of 64?"
        ),
        guesses=("2 GB", "33 GB", "65 GB", "128 GB"),
        controls={
            "parameters": slider(_("parameters"), sizes, 8e9, lambda n: _("{n:g} billion").format(n=n / 1e9)),
            "ranks": slider(_("cards"), [1, 2, 4, 8, 64, 512]),
            "dtype": slider("dtype", [torch.float32, torch.bfloat16], None, _name),
        },
        draw=draw,
        found=_(
            "65 GB: ZeRO-1 keeps whole parameters and gradients, 64 GB, on each card, and a 64th of the "
            "moments. More cards shrink only what a stage divides, and only ZeRO-3 divides all."
        ),
        telling={"ranks": 3},
        answer="65 GB",
        reached=lambda parameters, ranks, dtype: (parameters, ranks, dtype) == (8e9, 64, torch.float32),
    ).show()


def step() -> None:
    """Display an explorer: timeline and memory of an FSDP step, by network speed and number of layers."""
    Explorer(
        question=_("What does keeping the gathered layers after forward save, and what does it cost?"),
        guesses=(
            _("time, for memory"),
            _("memory, for time"),
            _("both, for nothing"),
            _("nothing at all"),
        ),
        controls={
            "gather": slider(_("gathering a layer takes"), [0.5, 1.0, 2.0, 3.0], 1.0),
            "layers": slider(_("layers"), [2, 4, 6, 8], 4),
        },
        draw=drawings.fsdp_step,
        found=_(
            "Time, for memory. Kept, all layers are whole at once, and backward gathers nothing: "
            "the slower the network, the more time that saves. Freed, at most three layers or "
            "gradients are whole, however many layers there are."
        ),
        answer=_("time, for memory"),
        reached=lambda gather, layers: gather >= 2 and layers >= 4,  # both then differ clearly
    ).show()


def _name(dtype: torch.dtype) -> str:
    """Return a dtype's name, such as ``"float32"``."""
    return str(dtype).removeprefix("torch.")
