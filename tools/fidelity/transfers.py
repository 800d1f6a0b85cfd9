"""Rows that measured bandwidth: of memory, of the bus and between cards."""

from __future__ import annotations

import re

from simgpu.cluster.collectives import KINDS

from .operators import fields
from .rows import Row
from .workload import Calls, Collective, Copy, Interpretation, Uninterpretable

STREAM_ELEMENTS = 2**25
"""Doubles in an array of BabelStream where a file says nothing else: its own default."""

COPY_BYTES = 2**29
"""Bytes of one of nvbandwidth's copies where a file says nothing else: its own default."""

# What stands for it here, and how many arrays are read or written.
_STREAMS = {
    "copy": ("copy", 2),
    "mul": ("scale", 2),
    "scale": ("scale", 2),
    "add": ("add", 3),
    "triad": ("triad", 3),
    "dot": ("dot", 2),
    "read": ("sum", 1),
    "init": ("fill", 1),
}


def stream(row: Row) -> Interpretation:
    """Say how long one pass over memory takes whose bytes a second were measured."""
    name = row.workload.replace(":", " ").split()[-1].lower()
    if name not in _STREAMS:
        raise Uninterpretable("no operator of PyTorch reads memory in this way")
    if "occupancy=" in row.params and "occupancy=100.0%" not in row.params:
        raise Uninterpretable("the device was held at a part of its occupancy")
    call, arrays = _STREAMS[name]
    calls = Calls(call, (STREAM_ELEMENTS,), "float64")
    return Interpretation("bandwidth", calls, amount=8 * arrays * STREAM_ELEMENTS)


def small_kernels(row: Row) -> Interpretation:
    """Interpret the same kernel, launched again and again, alone or from a graph."""
    elements = fields(row.params).get("elements")
    if elements is None:
        raise Uninterpretable("its parameters do not say how many elements")
    graph = row.params.startswith("cuda graph")
    calls = Calls("scale", (elements,), "float64", launched_in_a_row=not graph)
    return Interpretation("small kernel", calls)


def copies(row: Row) -> Interpretation:
    """nvbandwidth's copies between pinned memory of the host and the device."""
    known = {"Host to Device": "h2d", "Device to Host": "d2h"}
    direction = known.get(row.workload.removeprefix("nvbandwidth "))
    if direction is None:
        raise Uninterpretable("which of the tests between two devices it was is not said")
    return Interpretation("copy", Copy(direction, COPY_BYTES), amount=COPY_BYTES)


def own(row: Row) -> Interpretation:
    """``copy:h2d`` or ``copy:d2h`` with ``MiB=64 source=pinned`` or ``pageable``."""
    direction, size = row.workload.removeprefix("copy:"), fields(row.params).get("MiB")
    source = re.search(r"source=(pinned|pageable)\b(?! on)", row.params)
    if direction not in ("h2d", "d2h") or size is None or source is None:
        raise Uninterpretable(
            "its direction is not h2d or d2h, or it does not say MiB= and source="
        )
    return Interpretation("copy", Copy(direction, size * 2**20, source[1] == "pinned"))


_SCALE = {"K": 2**10, "M": 2**20, "G": 2**30}


def collective(row: Row) -> Interpretation:
    """Interpret messages among the cards of one machine."""
    message = re.search(r"message=(\d+)([KMG])", row.params)
    if message:  # NCCL's own tests: the bandwidth of the bus, whatever the number of ranks
        nbytes, ranks = int(message[1]) * _SCALE[message[2]], int(row.params.split()[0])
        moved = 2 * (ranks - 1) / ranks * nbytes
        return Interpretation("collective", Collective("all_reduce", nbytes, ranks), amount=moved)
    known = fields(row.params)
    nbytes, ranks, here = (known.get(name) for name in ("size", "workers", "devices_per_node"))
    if nbytes is None or ranks is None or here is None:
        raise Uninterpretable("its parameters do not say size, workers and devices_per_node")
    if here < ranks:
        raise Uninterpretable("the cards stand in more than one machine")
    if "pairwise" in row.hardware and ranks > 2:
        raise Uninterpretable("only pairs of the cards are linked")
    name = row.workload.removeprefix("collective:")
    if name not in KINDS:
        raise Uninterpretable("the collective is not known")
    return Interpretation("collective", Collective(name, nbytes, ranks))
