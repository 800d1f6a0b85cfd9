"""Records the shipped trace: five loops of lesson 08 on a simulated T4. Run it with ``python -m``."""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import simgpu
from course_lessons.shared.traces import RECORDED, read_events
from course_utils import files
from course_utils.devices import synchronize

from .lesson08 import LOOPS, make_step


def record(path: str | Path, steps: int = 2) -> None:
    """Write a Chrome trace, gzipped JSON, of ``steps`` steps of each loop on a simulated T4."""
    device = simgpu.enable("T4")
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (loop, how) in enumerate(LOOPS.items()):
            step = make_step(device, **how)
            step()
            synchronize(device)
            with simgpu.timeline() as seen:
                for _ in range(steps):
                    step()
                synchronize(device)
            begin = round(seen.start * 1e6, 3)
            for event in read_events(seen.export(Path(folder) / "one.json")):
                event["pid"] += 10 * number
                if "ts" in event:
                    event["ts"] = round(event["ts"] - begin, 3)
                elif event["name"] == "process_name":
                    event["args"]["name"] = f"{loop}: {event['args']['name']}"
                events.append(event)
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"))
    files.write(Path(path), gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record the trace of five loops on the simulated device.")
    parser.add_argument("path", nargs="?", type=Path, default=RECORDED)
    asked = parser.parse_args()
    record(asked.path)
    print(f"{asked.path}: {asked.path.stat().st_size / 1024:.0f} KiB")
