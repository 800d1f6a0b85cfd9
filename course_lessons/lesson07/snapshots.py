"""Snapshots of ``torch.cuda.memory``, ``torch.sim.memory``: what was allocated when, and by which line."""

from __future__ import annotations

import linecache
import pickle
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import matplotlib.pyplot as plt

from course_language import _, ngettext
from course_lessons.shared.memory import scale
from course_utils import content
from course_utils.number_format import amount
from course_utils.plots import COLOURS, present

RECORDED = content.recorded("snapshot_simulated_t4.pickle")
"""Three training steps on the simulated device, recorded by ``tools.records.snapshot_of_training``."""


def load(path: str | Path = RECORDED) -> dict[str, Any]:
    """Load a snapshot file that ``_dump_snapshot`` wrote. It is a pickle: open only files that you trust."""
    return pickle.loads(Path(path).read_bytes())


def allocations(snapshot: dict[str, Any], device: int = 0) -> list[dict[str, Any]]:
    """Return every block in a snapshot's history, in the order of allocation.

    ``snapshot`` is what ``torch.cuda.memory._snapshot()`` or `load` returns. The keys of a block:
    ``"bytes"``; ``"line"``, the line of the program that allocated it, such as ``"train.py, line 12:
    update"``, or, in a running notebook, ``"line 9: optimizer.step()"``; ``"function"``, the function of that
    line; ``"start"`` and ``"end"``, the numbers of the events at which it was allocated and freed (None: not
    freed). Blocks allocated before the recording have the line ``"before"``.
    """
    blocks: list[dict[str, Any]] = []
    in_use: dict[int, dict[str, Any]] = {}
    before = {"line": "before", "function": "", "start": 0}
    events = snapshot["device_traces"][device]
    events = [event for event in events if event["action"] in ("alloc", "free_completed")]
    for number, event in enumerate(events):
        if event["action"] == "alloc":
            line, function = _program_line(event["frames"])
            block = {"line": line, "function": function, "start": number}
            blocks.append({"bytes": event["size"], **block, "end": None})
            in_use[event["addr"]] = blocks[-1]
        elif event["addr"] in in_use:
            in_use.pop(event["addr"])["end"] = number
        else:
            blocks.insert(0, {"bytes": event["size"], **before, "end": number})
    for segment in snapshot["segments"]:
        for block in segment["blocks"] if segment["device"] == device else ():
            if block["state"] == "active_allocated" and block["address"] not in in_use:
                blocks.insert(0, {"bytes": block["requested_size"], **before, "end": None})
    return blocks


def draw(snapshot: dict[str, Any], device: int = 0, most: int = 6, begins: str = "forward") -> None:
    """Draw the memory in use from event to event, stacked by the line that allocated it.

    At most ``most`` lines have a colour of their own, if they are thick enough to see; the others share one.
    Steps begin with the allocations of the function ``begins``; they are numbered, and every second one is
    shaded.
    """
    blocks = allocations(snapshot, device)
    ends = 1 + max((n for block in blocks for n in (block["start"], block["end"] or 0)), default=0)
    curves: dict[str, list[int]] = {}
    for block in blocks:
        curve = curves.setdefault(block["line"], [0] * ends)
        for i in range(block["start"], ends if block["end"] is None else block["end"]):
            curve[i] += block["bytes"]
    together = _elementwise_sum(curves.values())
    peak = max(together, default=0)
    ranked = sorted(curves, key=lambda line: max(curves[line]), reverse=True)
    thick = [line for line in ranked[:most] if max(curves[line]) > peak / 100]
    layers = [(line, curves[line]) for line in curves if line in thick]
    rest = [curves[line] for line in curves if line not in thick]
    if max(others := _elementwise_sum(rest), default=0) > peak / 100:
        name = ngettext("{n_rest} other line", "{n_rest} other lines", len(rest)).format(n_rest=len(rest))
        layers.append((name, others))
    size, unit = scale(peak)
    fig, ax = plt.subplots(figsize=(8.8, 3.9), layout="constrained")
    heights = [[value / size for value in curve] for _, curve in layers]
    look = {"labels": [line for line, _ in layers], "colors": COLOURS, "step": "post", "lw": 0}
    if layers:
        ax.stackplot(range(ends), heights, **look)
    starts = _step_starts(blocks, begins)
    for number, (start, end) in enumerate(pairwise([*starts, ends]), 1):
        if number % 2:
            ax.axvspan(start, end, color="#eeeeea", zorder=0)
        place = {"ha": "center", "va": "bottom", "transform": ax.get_xaxis_transform()}
        ax.text((start + end) / 2, 1.02, _("step {number}").format(number=number), fontsize=9, **place)
    ax.set(xlim=(0, ends), ylim=(0, None), ylabel=_("memory, {unit}").format(unit=unit))
    ax.set_xlabel(_("allocations and frees, in their order"))
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles[::-1], labels[::-1], loc="outside right center", fontsize=9)
    each = "; ".join(
        _("{line} up to {max_curve}").format(line=line, max_curve=amount(max(curve), "B"))
        for line, curve in layers
    )
    said = _("Memory over {ends} events, at most {peak}, by line: {each}.")
    present(fig, said.format(ends=ends, peak=amount(peak, "B"), each=each))


def _step_starts(blocks: list[dict[str, Any]], function: str) -> list[int]:
    """Return the events at which a function begins to allocate, after another one has."""
    named = [b for b in blocks if b["line"] != "before"]
    pairs = pairwise([{"function": ""}, *named])
    return [b["start"] for a, b in pairs if b["function"] == function != a["function"]]


def _elementwise_sum(curves: Iterable[list[int]]) -> list[int]:
    """Return the elementwise sum of lists."""
    return [sum(values) for values in zip(*curves, strict=True)]


_INSTALLED = re.compile(r"/(site-packages|dist-packages|lib/python3\.\d+)/")


def _program_line(frames: list[dict[str, Any]]) -> tuple[str, str]:
    """Return the innermost line of the program in a stack, as text, and its function.

    Lines of installed packages are taken only if there are no others; PyTorch's never, then it is
    ``"PyTorch"``.
    """
    others = []
    for frame in frames:
        path = PurePosixPath(frame["filename"].replace("\\", "/"))
        if path.suffix == ".py" and "torch" not in path.parts:
            others.append((path, frame))
    own = [(path, frame) for path, frame in others if not _INSTALLED.search(str(path))]
    for path, frame in own or others:
        function = frame["name"]
        place = _("line {line}").format(line=frame["line"])
        if any(part.startswith("ipykernel_") for part in path.parts):
            text = linecache.getline(frame["filename"], frame["line"]).strip()
            return _truncated(f"{place}: {text or function}"), function
        return f"{path.name}, {place}" + f": {function}" * (function != "<module>"), function
    return "PyTorch", ""


def _truncated(text: str, most: int = 36) -> str:
    """Return a text, truncated to ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
