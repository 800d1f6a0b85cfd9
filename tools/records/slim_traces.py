"""Traces that others published, slimmed for the lessons. Run it with ``python -m``, a trace at a time.

A slimmed trace holds what `traces.meant` takes of the full file, in some of its steps: kernels, copies, launches,
waits, outermost operations, what the program named. Stacks, shapes, paths, process and machine names stay behind.
Its index has the figures of the full file beside it, so that a test sees whether something got lost.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from course_lessons.shared import recordings, traces
from course_lessons.shared.profiling import facts_of
from course_utils import files

SOURCES = json.loads((Path(__file__).parent / "trace_sources.json").read_text(encoding="utf-8"))
"""For each name what was run on what, where the full file is, and which of its steps to keep."""

_KEPT = ("bytes", "stream", "Collective name", "In msg nelems", "dtype", "Group size")


def slim(full: Mapping[str, Any], steps: slice = slice(None)) -> dict[str, Any]:
    """Return a slimmed copy of some steps of a trace, its numbers read as `decimal.Decimal` so that no digit is lost."""
    inside, origin = cut(full["traceEvents"], steps)
    threads: dict[Any, int] = {}
    events = []
    for event in inside:
        on_device = event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
        details = {k: _plain(v) for k, v in event.get("args", {}).items() if k in _KEPT}
        thread = threads.setdefault((on_device, event["tid"]), len(threads))
        events.append(
            {
                "ph": "X",
                "cat": event["cat"],
                "name": short(event["name"]) if event["cat"] == "kernel" else event["name"],
                "ts": _plain(Decimal(event["ts"]) - origin),
                "dur": _plain(Decimal(event["dur"])),
                "pid": int(on_device),
                "tid": thread,
                **({"args": details} if details else {}),
            }
        )
    named = [_named("process_name", pid, 0, name) for pid, name in enumerate(("host", "device"))]
    for (on_device, _), thread in threads.items():
        named.append(
            _named("thread_name", int(on_device), thread, "stream" if on_device else "thread")
        )
    return {"displayTimeUnit": "ms", "traceEvents": [*named, *events]}


def cut(events: Iterable[dict[str, Any]], steps: slice) -> tuple[list[dict[str, Any]], Decimal]:
    """Return what the lessons read of some steps, all that begins before their end and ends after their begin, and that begin."""
    taken = list(traces.meant(events))
    kept = sorted((e for e, _, kind in taken if kind == "step"), key=lambda e: Decimal(e["ts"]))
    kept = kept[steps]
    if not kept:
        raise ValueError("The trace has no such steps.")
    begin, end = Decimal(kept[0]["ts"]), max(_end(e) for e in kept)
    inside = [
        event
        for event, _, kind in taken
        if (event in kept if kind == "step" else _end(event) > begin and Decimal(event["ts"]) < end)
    ]
    return inside, begin


def short(kernel: str) -> str:
    """Return a kernel's name without what it returns, its template arguments and its arguments."""
    if kernel.startswith("_ZN"):
        # Mangled: each part of the name after its length, then the arguments.
        parts, rest = [], kernel.removeprefix("_ZN")
        while length := re.match(r"\d+", rest):
            begin, end = length.end(), length.end() + int(length[0])
            parts.append(rest[begin:end])
            rest = rest[end:]
        return "::".join(parts)
    name = kernel.replace("(anonymous namespace)::", "").removeprefix("void ")
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    return name.split("(")[0]


def figures(trace: traces.Trace) -> dict[str, float]:
    """Return what is to be the same in the full file and the slimmed one, of a whole step: seconds and shares."""
    steps = trace.whole_steps()
    n = len(steps.steps)
    found = facts_of(steps, n)
    launches = sum(span.kind == "launch" for span in steps.spans)
    told = ("seconds", "busy", "loading", "waiting", "kernels", "kernel_seconds")
    values = {"steps": n, **{word: getattr(found, word) for word in told}, "launches": launches / n}
    return {word: float(f"{value:.7g}") for word, value in values.items()}


def make(name: str, file: Path, folder: Path = recordings.FOLDER) -> Path:
    """Slim one of `SOURCES` from its full file, and write it and its entry in the index into a folder."""
    source = dict(SOURCES[name])
    steps = slice(*source.pop("keep"))
    full = json.loads(gzip.decompress(file.read_bytes()), parse_float=Decimal)
    slimmed = slim(full, steps)
    about = {"source": source["url"], "licence": source["licence"], "changed": "slimmed"}
    made = folder / f"{name}.json.gz"
    text = json.dumps({**about, **slimmed}, separators=(",", ":"))
    files.write(made, gzip.compress(text.encode(), mtime=0))
    whole = traces.profiled(_from_zero(full["traceEvents"]))
    entry = {
        **source,
        "gpu": full["deviceProperties"][0]["name"],
        "full": figures(whole),
        "kept": figures(traces.Trace(whole.spans, whole.kind, whole.steps[steps])),
    }
    path = folder / "index.json"
    index = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    index = {other: (index | {name: entry})[other] for other in SOURCES if other in {*index, name}}
    files.write(path, json.dumps(index, indent=1, ensure_ascii=False) + "\n")
    return made


def _from_zero(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return whole events with their clock set to begin at 0, so that a float holds each nanosecond."""
    timed = [event for event in events if event.get("ph") == "X"]
    begin = min(Decimal(event["ts"]) for event in timed)
    return [{**event, "ts": float(Decimal(event["ts"]) - begin)} for event in timed]


def _end(event: Mapping[str, Any]) -> Decimal:
    return Decimal(event["ts"]) + Decimal(event["dur"])


def _plain(value: Any) -> Any:
    """Return a Decimal as the shortest number that JSON can hold, to the nanosecond, and the rest as it is."""
    if not isinstance(value, Decimal):
        return value
    rounded = float(round(value, 3))
    return int(rounded) if rounded.is_integer() else rounded


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Slim a published trace for the lessons.")
    parser.add_argument("name", choices=list(SOURCES))
    parser.add_argument("file", type=Path, help="the full file, from where its source says")
    asked = parser.parse_args()
    written = make(asked.name, asked.file)
    print(f"{written}: {written.stat().st_size / 1000:.0f} kB")
