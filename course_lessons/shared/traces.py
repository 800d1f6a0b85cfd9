"""Traces: what the host and the device did when, to draw in a notebook or to open in Perfetto.

A trace comes from the simulated device's clock, from ``torch.profiler``, or from a file that either
wrote. ``python -m tools.records.trace_of_loops`` records the one that is shipped.
"""

from __future__ import annotations

import functools
import gzip
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch.profiler import profile, schedule, supported_activities

import simgpu
from course_language import N_, _
from course_utils import content
from course_utils.devices import synchronize
from course_utils.timing import measure
from simgpu.clock import Span
from simgpu.nodata import NoData

RECORDED = content.recorded("trace_simulated_t4.json.gz")
"""Two steps of each of five loops on the simulated T4, by ``python -m tools.records.trace_of_loops``."""


LOADING = "load a batch"
"""The name of host work that stands for loading."""


class Trace:
    """What happened, in the order in which it began.

    Attributes
    ----------
    spans
        Everything that took time, on the lane ``"host"`` or on one of a device; times in seconds. What the
        program named with ``record_function`` is on the lane ``"phases"``.
    kind
        ``"measured"``, ``"modelled"`` or ``"published"``.
    start
        When it begins: with its first span, or with the steps that it was cut to.
    steps
        Begin and end of each step that the profiler counted, in seconds; none where nothing counted steps.
    """

    def __init__(self, spans: Iterable[Span], kind: str, steps: Iterable[tuple[float, float]] = ()) -> None:
        self.spans = sorted(spans, key=lambda span: span.start)
        self.kind = kind
        self.steps = sorted(steps)
        self.start = self.spans[0].start if self.spans else 0.0
        self._end = max((span.end for span in self.spans), default=0.0)

    @property
    def seconds(self) -> float:
        """From its begin to the last span's end, or to the end of the steps that it was cut to."""
        return self._end - self.start

    def whole_steps(self) -> Trace:
        """Return the part from the first step's begin to the last one's end; what sticks out is cut off.

        Raises
        ------
        ValueError
            Where the profiler counted no steps: the program has to call ``p.step()``.
        """
        if not self.steps:
            raise ValueError(_("This trace has no steps: call p.step() at the end of each."))
        start, end = self.steps[0][0], max(end for _, end in self.steps)
        inside = (s for s in self.spans if s.end > start and s.start < end)
        cut = (replace(s, start=max(s.start, start), end=min(s.end, end)) for s in inside)
        part = Trace(cut, self.kind, self.steps)
        part.start, part._end = start, end
        return part

    @property
    def lanes(self) -> list[str]:
        """The lanes: what the program called its phases, the host, then the device's."""
        return sorted(
            {span.lane for span in self.spans},
            key=lambda lane: (lane != "phases", lane != "host", "compute" not in lane, lane),
        )

    @property
    def has_device(self) -> bool:
        """Whether it tells what a device did; a simulated one that did nothing is told of, too."""
        return self.kind == "modelled" or any(s.lane not in ("host", "phases") for s in self.spans)

    def share(self, kind: str, on_host: bool = False) -> float:
        """Return for which share of the time something of a kind went on.

        Parameters
        ----------
        kind
            ``"kernel"``, ``"copy"``, ``"launch"``, ``"work"``, ``"wait"`` or ``"operation"``.
        on_host
            On the host rather than on the device.
        """
        if not self.seconds:
            return 0.0
        total, until = 0.0, self.start
        for span in self.spans:
            if span.kind == kind and (span.lane == "host") is on_host and span.end > until:
                total += span.end - max(span.start, until)
                until = span.end
        return total / self.seconds


def tracing_device(device: torch.device | str) -> torch.device:
    """Return a device of which both the host's and the device's side can be traced: this one, or ``sim``.

    ``torch.profiler`` sees what a CUDA, ROCm or XPU device does, unless its library for that is missing, and
    not what Apple's does. Where this PyTorch cannot have the simulated device, it is the CPU, whose two sides
    are one.

    Parameters
    ----------
    device
        A device that works.
    """
    device = torch.device(device)
    if device.type == "sim" or (device.type in ("cuda", "xpu") and _is_seen(str(device))):
        return device
    simgpu.disable_for("cpu")  # what is traced trains on the simulated one, not on MPS
    return torch.device("cpu") if simgpu.unavailable_reason() else simgpu.first()


@functools.cache
def _is_seen(device: str) -> bool:
    """Return whether the profiler sees a device: without CUPTI it starts, and silently sees none."""
    one = torch.zeros(1, device=device)
    return trace(lambda: one.add_(1), device).has_device


def trace(
    work: Callable[[], object], device: torch.device | str, calls: int = 1, values: bool = True
) -> Trace:
    """Run a piece of work and return what the host and the device did.

    On the simulated device that is what its clock says. Elsewhere ``torch.profiler`` looks on, which
    makes everything the host does slower; its own start, milliseconds on a GPU, is not in the trace.

    Parameters
    ----------
    work
        A function without arguments. It is called before, to warm up: once, and twice more for the profiler.
    device
        The device it works on.
    calls
        How often to run it.
    values
        Whether the simulated device computes values. Without them it models memory and time only, which
        takes the CPU much less time. A real device always computes them.
    """
    device = torch.device(device)
    if device.type == "sim":
        with nullcontext() if values else NoData():
            work()
            synchronize(device)
            with simgpu.timeline() as seen:
                for _ in range(calls):
                    work()
        return Trace(seen.spans, "modelled")
    work()
    synchronize(device)
    plan = schedule(wait=0, warmup=1, active=2, repeat=1)
    how = {"activities": supported_activities(), "schedule": plan}
    with profile(**how, acc_events=True) as seen:  # else 2.10 warns
        for _ in range(2):  # its warm-up, and the step in which every thread gets its buffers
            work()
            synchronize(device)
            seen.step()
        for _ in range(calls):
            work()
        synchronize(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        whole = read(path)
        whole.steps = whole.steps[-1:]
        return whole.whole_steps()


def step_seconds(step: Callable[[], object], device: torch.device) -> float:
    """Return how long a training step takes: measured; on the simulated device modelled, without values."""
    if device.type != "sim":
        return measure(step, device=device, min_seconds=0.05).median
    return trace(step, device, 2, values=False).seconds / 2


def read(path: str | Path, process: str | None = None) -> Trace:
    """Return a trace from a file that ``torch.profiler`` or a simulated device's timeline exported.

    Parameters
    ----------
    path
        A file ending in ``.json`` or ``.json.gz``.
    process
        Of a file with several recordings, the one to read; see `names`.

    Raises
    ------
    ValueError
        Where the file is no such trace, or lacks that recording.
    """
    events = read_events(Path(path))
    spans = list(_simulated(events, process))
    if spans:
        return Trace(spans, "modelled")
    if process is not None:
        raise ValueError(
            _("{path} has no recording {process!r}; it has {names}.").format(
                path=path, process=process, names=", ".join(names(path))
            )
        )
    return profiled(events)


def names(path: str | Path = RECORDED) -> list[str]:
    """Return the names of the recordings in a file of simulated devices."""
    return list(dict.fromkeys(name for name, _ in _threads(read_events(Path(path))).values()))


def host_busy(seconds: float, device: torch.device | str) -> None:
    """Keep the host busy, as decoding and augmenting a batch would; on ``sim`` by the virtual clock."""
    if torch.device(device).type == "sim":
        simgpu.host_work(seconds, LOADING)
        return
    with torch.profiler.record_function(LOADING):
        until = perf_counter() + seconds
        while perf_counter() < until:
            pass


# --- Reading a trace file


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a trace file, compressed or not."""
    data = path.read_bytes()
    try:
        content = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        events: list[dict[str, Any]] = content["traceEvents"]
    except (ValueError, KeyError, TypeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(
            _("{path} is no trace: export one with export_chrome_trace(...) or timeline.export(...).").format(
                path=path
            )
        ) from error
    return events


def _threads(events: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, Any], tuple[str, str]]:
    """Return for each thread of a simulated device's trace its recording and its lane."""
    processes, threads = {}, {}
    for event in events:
        if event.get("ph") == "M" and event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        elif event.get("ph") == "M" and event["name"] == "thread_name":
            threads[event["pid"], event.get("tid")] = event["args"]["name"]
    lanes = {}
    for (pid, tid), thread in threads.items():
        owner = processes.get(pid, "")
        if not owner.endswith("(modelled)"):
            continue
        name, _, side = owner.removesuffix("(modelled)").strip().rpartition(": ")
        lanes[pid, tid] = (name, "host" if side == "host" else f"{side} {thread}")
    return lanes


def _simulated(events: Iterable[Mapping[str, Any]], name: str | None) -> Iterator[Span]:
    threads = _threads(events)
    for event in events:
        recording, lane = threads.get((event.get("pid"), event.get("tid")), (None, ""))
        if event.get("ph") == "X" and recording is not None and name in (None, recording):
            yield _span(event, lane, event["cat"])


_ON_DEVICE = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "kernel"}
_CALLS = ("cuda_runtime", "cuda_driver", "xpu_runtime")
_OLDER = {  # the categories of 2021, as PyTorch 1.8 and 1.9 wrote them
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
_STEP, _LOADER = "ProfilerStep", "enumerate(DataLoader)#"
_OWN = (_STEP, "Optimizer.")  # what PyTorch annotates by itself


def profiled(events: Iterable[dict[str, Any]]) -> Trace:
    """Return the trace of what ``torch.profiler`` exported: device work, calls of the driver, operations.

    Parameters
    ----------
    events
        As `read_events` returns them. Microseconds since 1970 lose their last digits here: of older traces
        take off a common time before, where these matter.
    """
    spans, steps = [], []
    for event, lane, kind in meant(events):
        if kind == "step":
            start = float(event["ts"]) / 1e6
            steps.append((start, start + float(event["dur"]) / 1e6))
        else:
            spans.append(_span(event, lane, kind))
    return Trace(spans, "measured", steps)


def meant(events: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield those events of ``torch.profiler`` that `read` takes, each with its lane and its kind of span.

    Parameters
    ----------
    events
        Of a trace file, as `read_events` returns them; those of older PyTorch get today's categories.
    """
    outermost: dict[Any, float] = {}  # for each thread, when its outermost operation ends
    whole = [event | {"cat": category(event)} for event in events if event.get("ph") == "X"]
    for event in sorted(whole, key=lambda event: (float(event["ts"]), -float(event["dur"]))):
        cat, name = event["cat"], event["name"]
        if cat in _ON_DEVICE:
            lane = "copy" if cat == "gpu_memcpy" else "compute"
            yield event, f"device {lane}", _ON_DEVICE[cat]
        elif cat in _CALLS:
            if "Synchronize" in name or "hipMemcpyWithStream" in name:
                yield event, "host", "wait"
            elif "Launch" in name or "Memcpy" in name or "Memset" in name:
                yield event, "host", "launch"
        elif cat == "user_annotation" and (name == LOADING or name.startswith(_LOADER)):
            yield event, "host", "work"
        elif cat == "user_annotation" and name.startswith(_STEP):
            yield event, "", "step"
        elif cat == "user_annotation" and not name.startswith(_OWN):
            yield event, N_("phases"), "phase"
        elif cat == "cpu_op" and float(event["ts"]) >= outermost.get(event["tid"], -1.0):
            outermost[event["tid"]] = float(event["ts"]) + float(event["dur"])
            yield event, "host", "operation"


def category(event: Mapping[str, Any]) -> str:
    """Return the category that today's PyTorch gives an event of a trace, also of an older one."""
    cat = str(event.get("cat"))
    cat = _OLDER.get(cat, cat)
    annotated = cat == "cpu_op" and event["name"].startswith((*_OWN, _LOADER))
    return "user_annotation" if annotated else cat


_SIZES = dict(Byte=1, Char=1, Half=2, BFloat16=2, Int=4, Float=4, Long=8, Double=8)
"""Bytes of a number, by the names that NCCL's events give the types."""


def _span(event: Mapping[str, Any], lane: str, kind: str) -> Span:
    start = float(event["ts"]) / 1e6
    details = event.get("args", {})
    sent = details.get("In msg nelems", 0) * _SIZES.get(details.get("dtype"), 0)  # a collective's
    return Span(
        lane,
        event["name"],
        start,
        start + float(event["dur"]) / 1e6,
        kind,
        bytes=float(details.get("bytes", sent)),
        flops=float(details.get("flops", 0)),
    )
