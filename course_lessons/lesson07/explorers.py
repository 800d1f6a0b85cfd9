"""Explorers (interactive figures) of lesson 07."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

from course_language import N_, _
from course_lessons.shared.explorer import Explorer, box, slider
from course_utils.plots import BLUE, COLOURS, GREEN, ORANGE
from simgpu.allocator import Allocator, Block

MIB = 2**20
CARD = 100 * MIB
MOMENTS = (_("full of tensors"), _("half deleted"), _("24 MiB more"), _("all deleted"))


def after(moments: int, size: int, emptied: bool) -> tuple[Allocator, str]:
    """Return a card's allocator after the first ``moments`` of `MOMENTS`, and a description of the last one.

    Tensors of ``size`` bytes fill the card; if ``emptied``, ``empty_cache()`` is called after each moment.
    """
    allocator, event = Allocator(CARD), _("nothing yet")
    held: list[Block] = []
    for moment in MOMENTS[:moments]:
        if moment == MOMENTS[0]:
            with suppress(torch.OutOfMemoryError):
                while True:
                    held.append(allocator.allocate(size))
            event = _("{n_held} tensors lie there").format(n_held=len(held))
        elif moment == MOMENTS[1]:
            for block in held[::2]:
                allocator.free(block)
            held = held[1::2]
            event = _("{n_held} are left, with gaps between them").format(n_held=len(held))
        elif moment == MOMENTS[2]:
            event = _("24 MiB: out of memory, and nothing is changed")
            with suppress(torch.OutOfMemoryError):
                held.append(allocator.allocate(24 * MIB))
                event = _("24 MiB: given")
        else:
            for block in held:
                allocator.free(block)
            event = _("no tensor is left")
        if emptied:
            allocator.empty_cache()
    return allocator, event


def allocator() -> None:
    """Display an explorer: an allocator's fragmentation, moment by moment."""

    def draw(moments: int, size: int, emptied: bool) -> tuple[Figure, str]:
        """Return the figure of the allocator's segments and its alternative text."""
        state, event = after(moments, size, emptied)
        fig, ax = plt.subplots(figsize=(7.2, 2.6))
        fig.subplots_adjust(left=0.04, right=0.98, top=0.72, bottom=0.22)
        place = 0.0
        for segment in sorted(state.snapshot(), key=lambda s: s["address"]):
            for piece in segment["blocks"]:
                used = piece["state"] != "inactive"
                look = {"facecolor": BLUE} if used else {"facecolor": "white", "hatch": "///"}
                ax.barh(0, piece["size"] / MIB, left=place, height=0.8, edgecolor="#444444", **look)
                place += piece["size"] / MIB
            ax.axvline(place, color="black", linewidth=2)
        ax.barh(0, CARD / MIB - place, left=place, height=0.8, color="#eeeeea")
        ax.set(xlim=(0, CARD / MIB), yticks=[])
        ax.set_xlabel(_("MiB of the card; a black line ends a segment"))
        ax.grid(False)
        used, reserved = state.allocated / MIB, state.reserved / MIB
        free = CARD / MIB - reserved
        figures = _("allocated {used:.0f} MiB, reserved {reserved:.0f} MiB, free {free:.0f} MiB").format(
            used=used, reserved=reserved, free=free
        )
        ax.set_title(_("{said}\n{figures} (modelled)").format(said=event, figures=figures))
        return fig, _("A card of 100 MiB, modelled: {said}; {figures}.").format(said=event, figures=figures)

    Explorer(
        question=_(
            "The card is full, then every second tensor is deleted. Does one of 24 MiB fit into the "
            "other half?"
        ),
        guesses=(
            _("yes"),
            _("no"),
            _("only after empty_cache()"),
            _("it depends on the tensors' size"),
        ),
        controls={
            "moments": slider(_("moment"), range(len(MOMENTS) + 1), 0, lambda n: (_("nothing"), *MOMENTS)[n]),
            "size": slider(_("size of a tensor"), [2 * MIB, 4 * MIB, 8 * MIB, 12 * MIB], 4 * MIB, _mib),
            "emptied": box(_("empty_cache() after each moment")),
        },
        draw=draw,
        found=_(
            "Blue is in use, hatched is idle and kept. A segment goes back whole or not at all: "
            "where a tensor of 12 MiB has a segment of its own, its gap can go back; where five of "
            "4 MiB share one, it cannot."
        ),
        telling={"moments": 3},
        answer=_("it depends on the tensors' size"),
        # A size with which the 24 MiB are given, and one with which they aren't.
        reached=lambda moments, size, emptied: moments == 3 and after(3, size, emptied)[1],
        parts=2,
    ).show()


def _mib(nbytes: int) -> str:
    """Return a size in MiB as text."""
    return f"{nbytes // MIB} MiB"


ROWS, WIDTH = 2048, 256
KEPT = 4 * ROWS * (WIDTH + 4 * WIDTH + 4 * WIDTH)
"""Bytes that a block saves for backward beside its input: what its two layers and its GELU need."""
INPUT = 4 * ROWS * WIDTH
"""Bytes of a block's input: all that a checkpointed block saves."""


def mountain_heights(checkpointed: tuple[bool, ...]) -> Iterator[tuple[str, int]]:
    """Yield the phase, and the bytes of saved activations, after each block, forward and then backward.

    ``checkpointed`` says for each block whether it is recomputed.
    """
    height = 0
    for again in checkpointed:
        height += INPUT + (0 if again else KEPT)
        yield "forward", height
    for again in reversed(checkpointed):
        if again:
            height += KEPT
            yield "computed again", height
        height -= INPUT + KEPT
        yield "backward", height


def mountain(blocks: int = 6) -> None:
    """Display an explorer: which blocks are checkpointed, and the peak of activation memory."""

    def draw(**again: bool) -> tuple[Figure, str]:
        """Return the bar chart of activation memory and its alternative text."""
        steps = list(mountain_heights(tuple(again.values())))
        fig, ax = plt.subplots(figsize=(7.2, 3.2))
        fig.subplots_adjust(left=0.1, right=0.98, top=0.87, bottom=0.17)
        phases = (N_("forward"), N_("computed again"), N_("backward"))
        for phase, colour in zip(phases, (BLUE, ORANGE, GREEN), strict=True):
            bars = [(i, height / MIB) for i, (name, height) in enumerate(steps) if name == phase]
            if bars:
                ax.bar(*zip(*bars, strict=True), width=0.9, color=colour, label=phase)
        whole = blocks * (INPUT + KEPT) / MIB
        peak = max(height for _, height in steps) / MIB
        ax.axhline(peak, color=COLOURS[6], linewidth=1)
        ax.set(ylim=(0, 1.05 * whole), xlim=(-0.7, 3 * blocks - 0.3), xticks=[])
        ax.set(ylabel=_("activations, MiB"), xlabel=_("time, one bar per block"))
        ax.legend(loc="upper right")
        redone = sum(again.values())
        title = _("peak {peak:.0f} of {whole:.0f} MiB; {redone} of {blocks} blocks computed twice").format(
            peak=peak, whole=whole, redone=redone, blocks=blocks
        )
        ax.set_title(title)
        return fig, (
            _(
                "Activations block by block, counted: with {redone} of {blocks} blocks computed again the "
                "peak is {peak:.0f} MiB instead of {whole:.0f}."
            ).format(redone=redone, blocks=blocks, peak=peak, whole=whole)
        )

    def reached(**again: bool) -> str:
        """Return whether three blocks are chosen with the last or without it; "" for another number."""
        chosen = list(again.values())
        return "" if sum(chosen) != 3 else "with" if chosen[-1] else "without"

    Explorer(
        question=_("You may compute three of six blocks again. Which three save most of the peak?"),
        guesses=(
            _("the first three"),
            _("the last three"),
            _("any three"),
            _("any three but the last block"),
        ),
        controls={f"block_{n}": box(_("checkpoint block {n}").format(n=n)) for n in range(1, blocks + 1)},
        draw=draw,
        found=_(
            "Each checkpointed block lowers the top where backward begins by the same amount. But "
            "it is computed again when its turn comes, on top of all that lies before it: the last "
            "block cannot help."
        ),
        telling={f"block_{n}": int(n in (1, 2, 3)) for n in range(1, blocks + 1)},
        answer=_("any three but the last block"),
        reached=reached,
        parts=2,
    ).show()
