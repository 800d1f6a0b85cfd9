"""The part of handbook/benchmark.md that sets the course's loops beside others': made from the records alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from course_utils.course import Course
from course_utils.evidence import recorded
from course_utils.timing import Measurement
from tools.authoring.cells import row

SOURCES = {
    ("mlp", "device"): "small MLP, batches on the device",
    ("mlp", "loader"): "from a DataLoader",
    ("cnn", "device"): "CNN, batches on the device",
    ("cnn", "loader"): "from a DataLoader",
}
REFERENCE = "bare"


def beside(course: Course) -> str:
    """Return a table of loops a machine, and what the whole ladder brought there, as Markdown."""
    folder = course.path.parent.parent / "course_lessons" / "recorded"
    loops = recorded("peer_loop", "speed-up", folder=folder)
    tables = [
        _machine(list(found), folder) for _, found in groupby(sorted(loops, key=_place), _place)
    ]
    known = {_place(m) for m in loops}
    alone = {_place(m): m for m in recorded("ladder", "speed-up", folder=folder)}
    for place in sorted(alone.keys() - known):
        machine, device, torch = place
        where = f"Recorded: {machine}, {device}, PyTorch {torch}, {alone[place].date}, without the loops of others."
        tables.append(" ".join([where, *_whole(alone[place], folder)]))
    return "\n\n".join(tables)


def _place(m: Measurement) -> tuple[str, str, str]:
    return m.machine, m.device, m.torch


def _machine(found: Sequence[Measurement], folder: Path) -> str:
    by_source = {
        source: {m.parameters["loop"]: m for m in found if _source(m) == source}
        for source in SOURCES
    }
    names = [
        name for name in dict.fromkeys(m.parameters["loop"] for m in found) if name != REFERENCE
    ]
    head = ["Training loop", *(SOURCES[source] for source in by_source)]
    rows = [[name, *(_cell(by_source[source].get(name)) for source in by_source)] for name in names]
    table = "\n".join(row(*cells) for cells in [head, ["---", *["---:"] * len(by_source)], *rows])
    one = found[0]
    where = (
        f"Recorded: {one.machine}, {one.device}, {one.threads} threads, PyTorch {one.torch}, {max(m.date for m in found)}; "
        f"times the images or rows a second of the barest loop, median and quartiles of {one.n} rounds in turns. Where the others draw from a DataLoader, the course's two loops keep their data on the device."
    )
    return "\n\n".join([table, where, *_whole(one, folder)])


def _source(m: Measurement) -> tuple[str, str]:
    return m.parameters["task"], m.parameters["data"]


def _whole(place: Measurement, folder: Path) -> list[str]:
    """Say what all rungs together brought on the same machine, where that was recorded."""
    ladder = recorded("ladder", "speed-up", folder=folder, network="tutorial")
    to_accuracy = recorded("mlp_to_accuracy", "speed-up", folder=folder)
    said = []
    if steps := [m for m in ladder if _place(m) == _place(place)]:
        top = max(steps, key=lambda m: m.median)
        said.append(
            f"The capstone's loop on the network of PyTorch's CIFAR-10 tutorial: {_cell(top)} the tutorial's loop, the larger batch included."
        )
    if whole := [m for m in to_accuracy if _place(m) == _place(place)]:
        said.append(
            f"A small MLP to the same held-out accuracy: {_cell(whole[-1])} the loop that the course sets out from, "
            f"over {whole[-1].n} seeds."
        )
    return [" ".join(said)] if said else []


def _cell(m: Measurement | None) -> str:
    return f"{m.median:.2f}× ({m.q1:.2f} to {m.q3:.2f})" if m else "–"
