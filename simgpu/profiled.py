"""The report of a program that ran on a real GPU: from a trace of ``torch.profiler`` and a memory snapshot.

A step ends with the optimizer's; in a program without one, a step is a step of the profiler.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pickle
import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from . import advice, profiles
from .messages import _
from .profiles import Profile
from .recorder import Piece, Recorder
from .report import Report, size
from .tape import LIBRARIES, Event, Line, origin
from .timeline import Table, seconds

_MICRO = 1e-6  # a trace's times are microseconds
_WAITING = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
_LAUNCHES = (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cudaGraphLaunch",
)
_COPIES = ("cudaMemcpyAsync", "cudaMemcpy")
_DIRECTIONS = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d", "PtoP": "d2d"}


@dataclass
class _Step:
    """A step as it was measured: its events, its seconds, and those in which a kernel or copy ran."""

    events: list[Event]
    seconds: float
    busy: float
    loading: float


class ProfilerReport(Report):
    """A `Report` whose times are measured. What a fix would save is modelled with the measured kernels.

    Parameters
    ----------
    recorder
        What the trace and the snapshot say.
    steps
        The measured steps.
    profile
        The model of the card, for copies and launches in a step that is changed.
    card
        The card's name in the trace.
    capacity
        Its memory in bytes.
    has_lines
        Whether the trace has Python's stack.
    has_memory
        Whether there is a snapshot.
    """

    def __init__(
        self,
        recorder: Recorder,
        steps: list[_Step],
        profile: Profile,
        card: str,
        capacity: int,
        has_lines: bool,
        has_memory: bool,
    ) -> None:
        self.recorder, self.measured, self.profile = recorder, steps, profile
        self.card, self.capacity, self.dry = card, capacity, False
        self.has_lines, self.has_memory = has_lines, has_memory

    has_first_step_only = False  # a profiler's first step is in the middle of a program

    @cached_property
    def _usual(self) -> list[_Step]:
        """The measured steps without unusual ones, as in `Report.steady`."""
        steady = {id(events[0]) for events in self.steady}
        return [step for step in self.measured if step.events and id(step.events[0]) in steady]

    @cached_property
    def step_seconds(self) -> float | None:
        """The median of the steady steps' measured seconds; None if there is no step."""
        return median(step.seconds for step in self._usual) if self._usual else None

    @cached_property
    def idle_share(self) -> float:
        """The share of the steady steps in which neither a kernel nor a copy ran, measured."""
        return max(0.0, 1 - sum(s.busy for s in self._usual) / sum(s.seconds for s in self._usual))

    @cached_property
    def loading_seconds(self) -> float:
        """The median of the seconds that the program waited for a DataLoader in a steady step, measured."""
        return median(step.loading for step in self._usual) if self._usual else 0.0

    def likely_range(self, profile: Profile | None = None) -> tuple[float, float]:
        """Return the shortest and the longest of the steady steps, in seconds."""
        times = [step.seconds for step in self._usual]
        return min(times), max(times)

    @property
    def needed(self) -> int:
        """The most bytes reserved at a time, in the snapshot."""
        return self.recorder.reserved

    @cached_property
    def findings(self) -> list[advice.Finding]:
        """What the advisor found, what saves most first; see `advice`."""
        found = [*advice.findings(self), *self._idle_findings()]
        return sorted(found, key=lambda finding: -(finding.saves or 0.0))

    def _idle_findings(self) -> Iterator[advice.Finding]:
        """Find what the GPU waits for: the next batch, or the CPU's launches."""
        if not self._usual:
            return
        idle = self.idle_share * self.step_seconds
        if self.loading_seconds >= 0.1 * self.step_seconds:
            line = self.recorder.loader[0]
            text = _("The program waits for the next batch at each step.")
            fix = _("Let workers load data while the GPU computes (num_workers=4), or prepare the data once.")
            at = (line.file, line.number) if line else (None, 0)
            saves = min(self.loading_seconds, idle)
            yield advice.Finding(*at, "loader", self.loading_seconds, saves, "at most", text, fix, "speed")
        waits = sum(event.waited for event in self.steady_events if event.kind == "synchronize")
        others = idle - self.loading_seconds - waits / len(self.steady)
        if others >= 0.4 * self.step_seconds:
            text = _("The GPU is idle while the CPU prepares {launches:.0f} launches.").format(
                launches=self.launches
            )
            fix = _(
                "Give each launch more work, with a larger batch, a fused optimizer or torch.compile. The "
                "profiler slows the CPU down, so measure a step without it first."
            )
            yield advice.Finding(None, 0, "launches", others, others, "at most", text, fix, "speed")

    def compare(self, cards: Any) -> Table:
        """Raise ValueError: a trace doesn't say what each kernel computes."""
        raise ValueError(
            _("A trace can't say how long another GPU takes. Run the program on simulated ones.")
        )

    def export(self, path: str | Path) -> Path:
        """Raise ValueError: the report was made of a trace."""
        raise ValueError(_("This report was made of a trace. Open that one in Perfetto."))

    def as_dict(self) -> dict[str, Any]:
        """Return the report's figures as plain Python, for JSON."""
        figures = {**super().as_dict(), "card": self.card, "times": "measured"}
        if not self.has_memory:
            figures["memory"] = None
        return figures

    def _head(self) -> str:
        return _(
            "Report for a trace of {card}. Its times are measured. What a fix would save is modelled."
        ).format(card=self.card)

    def _memory_lines(self) -> list[str]:
        if not self.has_memory:
            return [_("The trace doesn't tell. Give a snapshot of the memory with --snapshot.")]
        figures = {"peak": size(self.peak), "needed": size(self.needed), "total": size(self.capacity)}
        lines = [
            _("At the peak, tensors take {peak}. PyTorch has reserved {needed} of {total}.").format(**figures)
        ]
        most = [(key, n) for key, n in self.bytes_by("line").items() if key != "-"][:4]
        if most:
            parts = ", ".join(f"{key} {size(n)}" for key, n in most)
            lines.append(_("By line of your program: {parts}").format(parts=parts))
        if self.recorder.out_of_memory is not None:
            line = self.recorder.out_of_memory[0]
            lines.append(
                _("It ran out of memory at {line}: {text}").format(
                    line=line or "-", text=line.text if line else ""
                )
            )
        return lines

    def _step_lines(self) -> list[str]:
        if not self._usual:
            return [_("No whole step was recorded, so there's no time of one.")]
        low, high = self.likely_range()
        lines = [
            _("A step took {step}, the median of {count}, from {low} to {high}.").format(
                step=seconds(self.step_seconds), count=len(self._usual), low=seconds(low), high=seconds(high)
            ),
            _("The profiler slows the CPU down, so a step without it is shorter."),
            _("Each step makes {launches:.0f} launches. The GPU is idle for {idle:.0%} of the time.").format(
                launches=self.launches, idle=self.idle_share
            ),
        ]
        if self.loading_seconds:
            lines.append(
                _("In each step the program waits {time} for the next batch.").format(
                    time=seconds(self.loading_seconds)
                )
            )
        if not self.has_lines:
            lines.append(_("The trace has no lines of your program. Record it with with_stack=True."))
        return [*lines, *self._wait_lines()]


def read_profile(
    trace: str | Path, snapshot: str | Path | None = None, card: str | None = None
) -> ProfilerReport:
    """Return the report of a program that ran on a real GPU under ``torch.profiler``.

    Call it in the program's folder, on a machine that has the libraries which the program uses. Else it can't
    tell the program's lines from a library's.

    Parameters
    ----------
    trace
        The file that ``export_chrome_trace`` has written, as ``.json`` or ``.json.gz``. The program's lines
        need ``with_stack=True``, and from PyTorch 2.15 on they are exact; before, they are the first lines
        of functions.
    snapshot
        The file of ``torch.cuda.memory._dump_snapshot``.
    card
        The card to model, such as ``"A100"``; by default the one that the trace names.

    Raises
    ------
    ValueError
        If a file is not of this kind, the trace has no work of a GPU, or the model doesn't know its card.
    """
    content = _read_trace(trace)
    reader = _Trace(content, str(trace))
    profile = _card(reader.card, card)
    recorder = Recorder()
    steps = reader.record(recorder, profile)
    if snapshot is not None:
        _read_snapshot(snapshot, recorder)
    capacity = reader.memory or profile.total_memory
    return ProfilerReport(
        recorder,
        steps,
        profile,
        reader.card or profile.name,
        capacity,
        bool(reader.frames),
        snapshot is not None,
    )


def _read_trace(path: str | Path) -> dict[str, Any]:
    """Return a trace's content."""
    opener = gzip.open if str(path).endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            content = json.load(file)
    except (ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise ValueError(_("There is no file {file}.").format(file=path)) from None
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise ValueError(_("{file} is no trace of torch.profiler.").format(file=path))
    return content


def _card(name: str, wanted: str | None) -> Profile:
    """Return the profile of the card that is wanted, or that a driver calls so."""
    if wanted is not None:
        return profiles.load(wanted)
    words = re.sub(r"[^a-z0-9]", "", name.lower())
    known = [key for key in profiles.names() if re.sub(r"[^a-z0-9]", "", key.lower()) in words]
    if not known:
        raise ValueError(
            _(
                "The model doesn't know the card {name!r}. Give the most similar one, such as card='A100'."
            ).format(name=name or "-")
        )
    return profiles.load(max(known, key=len))


class _Trace:
    """The events of a trace, by what they are."""

    def __init__(self, content: dict[str, Any], file: str) -> None:
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for event in content["traceEvents"]:
            if event.get("ph") == "X" and "dur" in event:
                groups[event.get("cat", "")].append(event)
        for events in groups.values():
            events.sort(key=lambda event: event["ts"])
        device = next(iter(content.get("deviceProperties") or []), {})
        self.card: str = device.get("name", "")
        self.memory: int = device.get("totalGlobalMem", 0)
        work = [*groups["kernel"], *groups["gpu_memcpy"], *groups["gpu_memset"]]
        if not work:
            raise ValueError(
                _("{file} has no work of a GPU. Was CUDA among the profiler's activities?").format(file=file)
            )
        self.work: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for event in work:
            self.work[event["args"].get("correlation")].append(event)
        self.calls = sorted([*groups["cuda_runtime"], *groups["cuda_driver"]], key=lambda event: event["ts"])
        self.marks = groups["user_annotation"]
        self.operators = {event["args"].get("External id"): event["name"] for event in groups["cpu_op"]}
        marked = [
            event["tid"] for event in self.marks if event["name"].startswith(("Optimizer.", "ProfilerStep"))
        ]
        threads = marked or [event["tid"] for event in groups["cpu_op"]]
        self.main = max(set(threads), key=threads.count) if threads else None
        self.frames = [event for event in groups["python_function"] if event["tid"] == self.main]

    def record(self, recorder: Recorder, profile: Profile) -> list[_Step]:
        """Put the trace's events and steps into a recorder, and return the measured steps."""
        optimizer = [mark for mark in self.marks if mark["name"].startswith("Optimizer.step")]
        bounds = [mark["ts"] + mark["dur"] for mark in optimizer if mark["tid"] == self.main]
        if bounds:
            starts = [min(call["ts"] for call in self.calls), *bounds[:-1]]
        else:
            marks = [mark for mark in self.marks if mark["name"].startswith("ProfilerStep")]
            starts = [mark["ts"] for mark in marks]
            bounds = [mark["ts"] + mark["dur"] for mark in marks]
        loading = [mark for mark in self.marks if mark["name"].startswith("enumerate(DataLoader)")]
        lines = self._lines([*self.calls, *loading])
        if loading:
            recorder.loader = (lines[id(loading[0])][0], 0, None)
        events, times = self._events(profile, lines, optimizer)
        recorder.events = events
        steps = []
        for start, end in zip(starts, bounds, strict=True):
            first, last = bisect_right(times, start), bisect_right(times, end)
            loads = sum(mark["dur"] for mark in loading if start <= mark["ts"] < end)
            busy = self._busy(start, end) * _MICRO
            steps.append(_Step(events[first:last], (end - start) * _MICRO, busy, loads * _MICRO))
            (recorder.bounds if optimizer else recorder.calls).append(last if optimizer else first)
        recorder.steps = len(steps)
        return steps

    def _events(
        self, profile: Profile, lines: dict[int, tuple[Line | None, str]], optimizer: list[dict[str, Any]]
    ) -> tuple[list[Event], list[float]]:
        """Return the calls of CUDA as events of a tape, and the time of each in the trace."""
        events: list[Event] = []
        times: list[float] = []
        streams: dict[tuple[int, int], int] = {}
        end = None
        for call in self.calls:
            name, work = call["name"], self.work.get(call["args"].get("correlation"), [])
            took = call["dur"] * _MICRO
            if (
                name in _WAITING
                and events
                and events[-1].kind == "copy"
                and self._belongs(call, events, times)
            ):
                events[-1].waited += took  # a copy that isn't non_blocking: CUDA's copy, and then this
                events[-1].blocking = True
                end = call["ts"] + call["dur"]
                continue
            if name in _WAITING:
                event = Event("synchronize", stream=None, waited=took)
            elif name in _COPIES and work:
                event = self._copy(work[0], took)
            elif name in _LAUNCHES and work:
                event = Event("kernel", name=self.operators.get(call["args"].get("External id"), ""))
                event.name = event.name.removeprefix("aten::")
                event.seconds = sum(part["dur"] for part in work) * _MICRO
                event.host = max(0.0, took - profile.launch)
            else:
                continue
            if work:
                place = work[0]["args"].get("device", 0), work[0]["args"].get("stream", 0)
                event.device = place[0]
                event.stream = streams.setdefault(place, sum(known[0] == place[0] for known in streams))
            if end is not None:
                event.host += max(0.0, call["ts"] - end) * _MICRO
            end = call["ts"] + call["dur"]
            event.line, event.inner = lines[id(call)]
            if call["tid"] != self.main:
                event.phase = "backward"
            elif any(mark["ts"] <= call["ts"] < mark["ts"] + mark["dur"] for mark in optimizer):
                event.phase = "optimizer"
            events.append(event)
            times.append(call["ts"])
        return events, times

    def _belongs(self, call: dict[str, Any], events: list[Event], times: list[float]) -> bool:
        """Return whether a wait is the end of the copy before it: PyTorch calls both at once."""
        return events[-1].direction == "d2h" and call["ts"] - times[-1] < 50 + events[-1].waited / _MICRO

    def _copy(self, work: dict[str, Any], took: float) -> Event:
        """Return the event of a copy that CUDA's call has taken the host so many seconds."""
        found = re.search(r"(HtoD|DtoH|DtoD|PtoP) \((\w+) -> (\w+)\)", work["name"])
        direction = _DIRECTIONS[found[1]] if found else "d2d"
        event = Event("copy", direction=direction, bytes=work["args"].get("bytes", 0), blocking=False)
        event.pinned = found is not None and "Pageable" not in found.groups()
        event.blocking = not event.pinned and direction != "d2d"
        event.seconds, event.waited = work["dur"] * _MICRO, took
        return event

    def _busy(self, start: float, end: float) -> float:
        """Return for how many microseconds between two times a kernel or copy ran."""
        total, until = 0.0, start
        for event in self._in_order:
            if event["ts"] >= end:
                break
            stop = min(event["ts"] + event["dur"], end)
            if stop > until:
                total += stop - max(event["ts"], until)
                until = stop
        return total

    @cached_property
    def _in_order(self) -> list[dict[str, Any]]:
        """The work of the GPU by its start."""
        return sorted((event for work in self.work.values() for event in work), key=lambda event: event["ts"])

    def _lines(self, calls: list[dict[str, Any]]) -> dict[int, tuple[Line | None, str]]:
        """Return for each call, by its id, the program's line at that time and PyTorch's innermost file."""
        found: dict[int, tuple[Line | None, str]] = {}
        open_frames: list[dict[str, Any]] = []
        frames = iter(self.frames)
        following = next(frames, None)
        for call in sorted(calls, key=lambda event: event["ts"]):
            while following is not None and following["ts"] <= call["ts"]:
                open_frames.append(following)
                following = next(frames, None)
            open_frames = [frame for frame in open_frames if frame["ts"] + frame["dur"] >= call["ts"]]
            found[id(call)] = _line_of(open_frames)
        return found


def _line_of(frames: list[dict[str, Any]]) -> tuple[Line | None, str]:
    """Return the innermost line of the program among open frames, and PyTorch's innermost file."""
    inner = None
    for frame in reversed(frames):
        for place in (frame["name"], frame["args"].get("CallFrom", "")):
            found = re.match(r"(.+\.py)(?:\((\d+)\)|:(\d+)$)", place)
            if found is None:
                continue
            file, number = found[1], int(found[2] or found[3])
            origin = _origin(file)
            if inner is None:
                inner = file if origin == "torch" else ""
            # A frame's own name has the first line of its function; who called it says the exact one.
            if origin == "user" and (place != frame["name"] or "CallFrom" not in frame["args"]):
                return Line(file, number), inner
    return None, inner or ""


def _origin(file: str) -> str:
    """Return whose code a file of a trace is: "torch", "library" or "user".

    The profiler leaves out the folders of ``sys.path``, such as site-packages.
    """
    if Path(file).is_absolute():
        return origin(file)
    top = Path(file).parts[0].removesuffix(".py")
    if top == "torch":
        return "torch"
    is_library = top.startswith("<") or top in sys.stdlib_module_names
    return "library" if is_library or any((Path(folder) / file).is_file() for folder in LIBRARIES) else "user"


class _Plain(pickle.Unpickler):
    """Reads numbers, texts, lists and dicts, which is all that a snapshot has; calls nothing."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def _read_snapshot(path: str | Path, recorder: Recorder) -> None:
    """Put the peak of a snapshot's busiest device into a recorder."""
    try:
        with open(path, "rb") as file:
            content = _Plain(file).load()
        traces, segments = content["device_traces"], content["segments"]
    except FileNotFoundError:
        raise ValueError(_("There is no file {file}.").format(file=path)) from None
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError):
        raise ValueError(_("{file} is no snapshot of PyTorch's memory.").format(file=path)) from None
    device = max(range(len(traces)), key=lambda index: len(traces[index]), default=0)
    own = [segment for segment in segments if segment.get("device", 0) == device]
    live: dict[int, Piece] = {}
    reserved = 0
    for segment in own:
        reserved += segment["total_size"]
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"].startswith("active"):
                live[block.get("address", address)] = _piece(block)
            address += block["size"]
    history = traces[device] if traces else []
    for event in reversed(history):  # back to what was in use when the history began
        reserved -= _change(event)
        if event["action"] == "alloc":
            live.pop(event["addr"], None)
        elif event["action"] == "free_completed":
            live[event["addr"]] = _piece(event)
    _play(history, live, reserved, recorder)


def _play(history: list[dict[str, Any]], live: dict[int, Piece], reserved: int, recorder: Recorder) -> None:
    """Play a memory history from its begin, and put its peak into a recorder."""
    used = sum(piece.bytes for piece in live.values())
    recorder.peak, recorder.reserved, recorder.peak_pieces = used, reserved, list(live.values())
    rising = False
    for event in history:
        reserved += _change(event)
        recorder.reserved = max(recorder.reserved, reserved)
        if event["action"] == "alloc":
            live[event["addr"]] = _piece(event)
            used += event["size"]
            if used > recorder.peak:
                recorder.peak, rising = used, True
        elif event["action"] == "free_completed":
            if rising:
                recorder.peak_pieces, rising = list(live.values()), False
            used -= event["size"]
            live.pop(event["addr"], None)
        elif event["action"] == "oom":
            recorder.out_of_memory = (_piece(event).line, event["size"], event.get("device_free", 0))
    if rising:
        recorder.peak_pieces = list(live.values())


def _change(event: dict[str, Any]) -> int:
    """Return by how many bytes an event of the allocator changes what is reserved."""
    if event["action"] in ("segment_alloc", "segment_map"):
        return event["size"]
    return -event["size"] if event["action"] in ("segment_free", "segment_unmap") else 0


def _piece(entry: dict[str, Any]) -> Piece:
    """Return a block of a snapshot, or of its history, with the program's line."""
    for frame in entry.get("frames", ()):
        if origin(frame["filename"]) == "user":
            line = Line(frame["filename"], frame["line"])
            break
    else:
        line = None
    return Piece(entry.get("requested_size", entry["size"]), "other", line, "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m simgpu report``."""
    parser.add_argument("trace", help="the file that torch.profiler's export_chrome_trace has written")
    parser.add_argument("--snapshot", metavar="FILE", help="the file of torch.cuda.memory._dump_snapshot")
    parser.add_argument("--card", help="the GPU to model, if the trace's is not known: the most similar one")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON, for a test")
    parser.add_argument("--html", metavar="FILE", help="write the report as a page")


def print_profile(args: argparse.Namespace) -> int:
    """Print the report that the options of `add_arguments` ask for, and return the exit status."""
    try:
        report = read_profile(args.trace, args.snapshot, args.card)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(report)
    report.write(args.json, args.html)
    return 0
