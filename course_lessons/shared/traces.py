"""Traces: timelines of host and device, to draw in a notebook or to open in Perfetto.

A trace comes from the simulated device's clock, from ``torch.profiler``, or from a file that either exported.
``python -m tools.records.trace_of_loops`` records the one that is shipped.
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
"""The name of spans of host work that simulate data loading."""


class Trace:
    """A timeline: spans, sorted by their start.

    Attributes
    ----------
    spans
        The spans, on the lane ``"host"`` or one of a device; times in seconds. Those that the program
        named with ``record_function`` are on the lane ``"phases"``.
    kind
        ``"measured"``, ``"modelled"`` or ``"published"``.
    start
        Its start time: that of the first span, or of the steps that it was cut to.
    steps
        Start and end of each profiler step, in seconds; empty if ``p.step()`` was not called.
    """

    def __init__(self, spans: Iterable[Span], kind: str, steps: Iterable[tuple[float, float]] = ()) -> None:
        self.spans = sorted(spans, key=lambda span: span.start)
        self.kind = kind
        self.steps = sorted(steps)
        self.start = self.spans[0].start if self.spans else 0.0
        self._end = max((span.end for span in self.spans), default=0.0)

    @property
    def seconds(self) -> float:
        """Its duration: from ``start`` to the end of the last span, or of the steps that it was cut to."""
        return self._end - self.start

    def whole_steps(self) -> Trace:
        """Return a copy cut to the time from the first step's start to the last step's end.

        Raises
        ------
        ValueError
            If there are no steps: the program has to call ``p.step()``.
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
        """The names of the lanes: first phases, then the host, then those of devices."""
        return sorted(
            {span.lane for span in self.spans},
            key=lambda lane: (lane != "phases", lane != "host", "compute" not in lane, lane),
        )

    @property
    def has_device(self) -> bool:
        """Whether device activity is known: always if simulated, else if there is a device event."""
        return self.kind == "modelled" or any(s.lane not in ("host", "phases") for s in self.spans)

    def share(self, kind: str, on_host: bool = False) -> float:
        """Return the share of the duration, 0 to 1, that spans of a kind cover; overlaps count once.

        Parameters
        ----------
        kind
            ``"kernel"``, ``"copy"``, ``"launch"``, ``"work"``, ``"wait"`` or ``"operation"``.
        on_host
            Whether to take spans on the host, not those on other lanes.
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
    """Return a device for which both host and device activity can be traced: this one, or the simulated one.

    ``torch.profiler`` records CUDA, ROCm and XPU devices, unless its library for them is missing, and not
    Apple's. If this PyTorch has no simulated device either, the CPU is returned. As a side effect, an earlier
    ``simgpu.disable_for`` is reverted, so that the simulated device can be used.

    Parameters
    ----------
    device
        The device to try.
    """
    device = torch.device(device)
    if device.type == "sim" or (device.type in ("cuda", "xpu") and _profiler_records(str(device))):
        return device
    simgpu.disable_for("cpu")  # what is traced trains on the simulated one, not on MPS
    return torch.device("cpu") if simgpu.unavailable_reason() else simgpu.first()


@functools.cache
def _profiler_records(device: str) -> bool:
    """Return whether the profiler records a device's activity; without CUPTI it silently records none."""
    x = torch.zeros(1, device=device)
    return trace(lambda: x.add_(1), device).has_device


def trace(
    work: Callable[[], object], device: torch.device | str, calls: int = 1, values: bool = True
) -> Trace:
    """Run a function and return a trace of host and device.

    On the simulated device it is taken from the modelled clock. Elsewhere ``torch.profiler`` records it,
    which slows the host down; the profiler's own start, milliseconds on a GPU, is cut off.

    Parameters
    ----------
    work
        A function without arguments. It is first called to warm up: once, and twice more with the profiler.
    device
        The device it uses.
    calls
        The number of calls to record.
    values
        Whether the simulated device computes values. Without them it models memory and time only, which
        takes the CPU much less time. A real device always computes them.
    """
    device = torch.device(device)
    if device.type == "sim":
        with nullcontext() if values else NoData():
            work()
            synchronize(device)
            with simgpu.timeline() as recording:
                for _ in range(calls):
                    work()
        return Trace(recording.spans, "modelled")
    work()
    synchronize(device)
    steps = schedule(wait=0, warmup=1, active=2, repeat=1)
    options = {"activities": supported_activities(), "schedule": steps}
    with profile(**options, acc_events=True) as recording:  # else 2.10 warns
        for _ in range(2):  # its warm-up, and the step in which every thread gets its buffers
            work()
            synchronize(device)
            recording.step()
        for _ in range(calls):
            work()
        synchronize(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recording.export_chrome_trace(str(path))
        whole = read(path)
        whole.steps = whole.steps[-1:]
        return whole.whole_steps()


def step_seconds(step: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a training step: the measured median, or modelled on the simulated device."""
    if device.type != "sim":
        return measure(step, device=device, min_seconds=0.05).median
    return trace(step, device, 2, values=False).seconds / 2


def read(path: str | Path, process: str | None = None) -> Trace:
    """Read a trace file that ``torch.profiler`` or a simulated device's timeline exported; return the trace.

    Parameters
    ----------
    path
        A file ending in ``.json`` or ``.json.gz``.
    process
        In a file with several recordings of simulated devices, the name of one; see `names`. By default all.

    Raises
    ------
    ValueError
        If the file is not such a trace, or has no recording of this name.
    """
    events = read_events(Path(path))
    spans = list(_simulated_spans(events, process))
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
    """Return the names of the recordings of simulated devices in a trace file."""
    return list(dict.fromkeys(name for name, _ in _simulated_threads(read_events(Path(path))).values()))


def host_busy(seconds: float, device: torch.device | str) -> None:
    """Occupy the host for some time, as decoding and augmenting a batch would; on ``sim`` in virtual time."""
    if torch.device(device).type == "sim":
        simgpu.host_work(seconds, LOADING)
        return
    with torch.profiler.record_function(LOADING):
        until = perf_counter() + seconds
        while perf_counter() < until:
            pass


# --- Reading a trace file


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a Chrome trace file, gzip-compressed or not.

    Raises
    ------
    ValueError
        If it is not a trace file.
    """
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


def _simulated_threads(events: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, Any], tuple[str, str]]:
    """Map (pid, tid) to (recording, lane) for the threads of simulated devices in a Chrome trace.

    Both names come from the metadata events: a process is named "<recording>: <device or host> (modelled)",
    or without "<recording>: ", which gives "". The lane is "host", or device and thread, such as "sim:0
    compute". Threads of other processes are left out.
    """
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


def _simulated_spans(events: Iterable[Mapping[str, Any]], name: str | None) -> Iterator[Span]:
    """Yield the spans of simulated devices: of the recording ``name``, or of all if it is None."""
    threads = _simulated_threads(events)
    for event in events:
        recording, lane = threads.get((event.get("pid"), event.get("tid")), (None, ""))
        if event.get("ph") == "X" and recording is not None and name in (None, recording):
            yield _span(event, lane, event["cat"])


_DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "kernel"}
_DRIVER_CALLS = ("cuda_runtime", "cuda_driver", "xpu_runtime")
_OLD_CATEGORIES = {  # the categories of 2021, as PyTorch 1.8 and 1.9 wrote them
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
_STEP, _LOADER = "ProfilerStep", "enumerate(DataLoader)#"
_OF_PYTORCH = (_STEP, "Optimizer.")  # annotations that PyTorch adds itself


def profiled(events: Iterable[dict[str, Any]]) -> Trace:
    """Return a trace of events of ``torch.profiler``: device work, driver calls, operations, annotations.

    Parameters
    ----------
    events
        As `read_events` returns them. Older traces have microseconds since 1970, whose last digits are
        lost in a float: subtract a common offset first if these matter.
    """
    spans, steps = [], []
    for event, lane, kind in classified_events(events):
        if kind == "step":
            start = float(event["ts"]) / 1e6
            steps.append((start, start + float(event["dur"]) / 1e6))
        else:
            spans.append(_span(event, lane, kind))
    return Trace(spans, "measured", steps)


def classified_events(events: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield the events of ``torch.profiler`` that `read` uses, each with its lane and its kind of span.

    A step of the profiler has the kind ``"step"`` and no lane. Of nested operations only the outermost is
    yielded.

    Parameters
    ----------
    events
        As `read_events` returns them; categories of older PyTorch are replaced by today's.
    """
    outermost: dict[Any, float] = {}  # for each thread, the end of its outermost operation
    whole = [event | {"cat": category(event)} for event in events if event.get("ph") == "X"]
    for event in sorted(whole, key=lambda event: (float(event["ts"]), -float(event["dur"]))):
        cat, name = event["cat"], event["name"]
        if cat in _DEVICE_KINDS:
            lane = "copy" if cat == "gpu_memcpy" else "compute"
            yield event, f"device {lane}", _DEVICE_KINDS[cat]
        elif cat in _DRIVER_CALLS:
            if "Synchronize" in name or "hipMemcpyWithStream" in name:
                yield event, "host", "wait"
            elif "Launch" in name or "Memcpy" in name or "Memset" in name:
                yield event, "host", "launch"
        elif cat == "user_annotation" and (name == LOADING or name.startswith(_LOADER)):
            yield event, "host", "work"
        elif cat == "user_annotation" and name.startswith(_STEP):
            yield event, "", "step"
        elif cat == "user_annotation" and not name.startswith(_OF_PYTORCH):
            yield event, N_("phases"), "phase"
        elif cat == "cpu_op" and float(event["ts"]) >= outermost.get(event["tid"], -1.0):
            outermost[event["tid"]] = float(event["ts"]) + float(event["dur"])
            yield event, "host", "operation"


def category(event: Mapping[str, Any]) -> str:
    """Return an event's category (``"cat"``) as today's PyTorch names it; older traces differ."""
    cat = str(event.get("cat"))
    cat = _OLD_CATEGORIES.get(cat, cat)
    annotated = cat == "cpu_op" and event["name"].startswith((*_OF_PYTORCH, _LOADER))
    return "user_annotation" if annotated else cat


_DTYPE_BYTES = dict(Byte=1, Char=1, Half=2, BFloat16=2, Int=4, Float=4, Long=8, Double=8)
"""Bytes per element, by the names of dtypes in events of NCCL's collectives."""


def _span(event: Mapping[str, Any], lane: str, kind: str) -> Span:
    """Convert a trace event (microseconds) to a span (seconds) with its bytes and FLOPs, if recorded."""
    start = float(event["ts"]) / 1e6
    details = event.get("args", {})
    message_bytes = details.get("In msg nelems", 0) * _DTYPE_BYTES.get(details.get("dtype"), 0)
    return Span(
        lane,
        event["name"],
        start,
        start + float(event["dur"]) / 1e6,
        kind,
        bytes=float(details.get("bytes", message_bytes)),
        flops=float(details.get("flops", 0)),
    )
