"""Traces of the host and the device: made on ``sim`` and on the CPU, and read from files."""

import gzip
import json
import time

import nbformat
import pytest
import torch
from harness import LESSONS, NOTEBOOKS, code_cells

from course_lessons.shared import monitor, profiling, traces
from course_lessons.shared.profiling import facts
from course_utils.exercises import lesson
from simgpu.clock import Span
from simgpu.nodata import NoData
from tools.records import trace_of_loops
from tools.records.lesson08 import LOOPS, make_step

FIVE = ["launch", "compute", "loader", "memory", "synchronisation"]


@pytest.fixture
def sim(simulated):
    return simulated.first()


def test_a_device_that_idles_is_seen_to_idle(sim):
    x = torch.ones(1, device=sim)

    def step():
        traces.host_busy(1e-3, sim)
        x.add_(1)

    seen = traces.trace(step, sim, calls=3)
    assert seen.kind == "modelled"
    assert seen.seconds == pytest.approx(3e-3, rel=0.05)
    assert seen.share("work", on_host=True) > 0.95
    assert 0 < seen.share("kernel") < 0.02
    assert seen.share("kernel", on_host=True) == 0


def test_the_cpu_is_traced_by_the_profiler():
    x = torch.rand(200, 200)

    def step():
        with torch.profiler.record_function("product"):
            x @ x
        traces.host_busy(2e-3, "cpu")

    seen = traces.trace(step, "cpu", calls=2)
    assert seen.kind == "measured"
    assert seen.lanes == ["phases", "host"]
    assert [s.name for s in seen.spans if s.kind == "phase"] == ["product"] * 2
    assert [s.name for s in seen.spans if s.kind == "operation"] == ["aten::matmul"] * 2
    assert seen.share("work", on_host=True) * seen.seconds >= 4e-3


def test_the_profilers_own_start_is_in_no_trace():
    pauses = [0.2] * 3  # its first steps last longer: on a GPU by some milliseconds

    def step():
        time.sleep(pauses.pop() if pauses else 0)
        torch.ones(8) + 1

    assert traces.trace(step, "cpu", calls=2).seconds < 0.1


def _event(category, name, start, length, thread=1, **args):
    named = {"cat": category, "name": name, "tid": thread, "pid": 1, "args": args}
    return {"ph": "X", "ts": start, "dur": length, **named}


CUDA = [
    _event("user_annotation", "ProfilerStep#3", 0, 100),
    _event("user_annotation", "forward", 0, 40),
    _event("cpu_op", "aten::linear", 0, 20),
    _event("cpu_op", "aten::addmm", 5, 14),
    _event("cuda_runtime", "cudaLaunchKernel", 10, 5),
    _event("kernel", "sgemm", 20, 30, thread=7),
    _event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 50, 10, thread=7, bytes=4),
    _event("cuda_runtime", "cudaStreamSynchronize", 30, 30),
    _event("cuda_runtime", "cudaGetDevice", 61, 1),
]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_of_a_card_is_read(tmp_path, name):
    path, text = tmp_path / name, json.dumps({"traceEvents": CUDA}).encode()
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    seen = traces.read(path)
    assert seen.kind == "measured"
    assert seen.lanes == ["phases", "host", "device compute", "device copy"]
    assert seen.seconds == pytest.approx(60e-6)
    assert seen.share("kernel") == pytest.approx(0.5)
    assert seen.share("wait", on_host=True) == pytest.approx(0.5)
    assert seen.share("launch", on_host=True) == pytest.approx(5 / 60)
    assert [s.name for s in seen.spans if s.kind == "operation"] == ["aten::linear"]


def test_events_of_the_shipped_trace_nest_or_follow_each_other():
    events = json.loads(gzip.decompress(traces.RECORDED.read_bytes()))["traceEvents"]
    lanes = {}
    for event in (e for e in events if e["ph"] == "X"):
        start, length = (round(1000 * event[key]) for key in ("ts", "dur"))
        lanes.setdefault((event["pid"], event["tid"]), []).append((start, -(start + length)))
    for spans in lanes.values():
        around = []
        for start, end in sorted(spans):
            while around and around[-1] <= start:
                around.pop()
            assert not around or -end <= around[-1], "Perfetto drops what overlaps its neighbour"
            around.append(-end)


@pytest.mark.slow
def test_by_the_lessons_rule_each_loop_has_its_name_on_a_simulated_t4(sim):
    regime = lesson("08").regime.reference
    gained = {}
    for name, how in LOOPS.items():
        with NoData():
            plain, half = (
                facts(make_step(sim, **{**how, "half": half}), sim, calls=2) for half in (False, True)
            )
        assert regime(plain) == name
        gained[name] = plain.seconds / half.seconds
    assert {name for name, gain in gained.items() if gain > 1.1} == {"memory", "compute"}
    assert max(gained[name] for name in ("loader", "launch", "synchronisation")) < 1


def test_the_lesson_has_the_loops_that_are_recorded():
    (file,) = (entry.file for entry in LESSONS if entry.id == "08")
    cells = code_cells(nbformat.read(NOTEBOOKS / file, as_version=4))
    cell = next(cell for cell in cells if cell.source.startswith("usual = "))
    shown = {}
    exec(cell.source.partition("loops = ")[0], shown)
    order = ("launch", "compute", "loader", "memory", "synchronisation")
    assert list(shown["smallest"].values()) == [LOOPS[name] for name in order]


@pytest.mark.slow
def test_the_shipped_trace_is_what_its_command_makes(sim, tmp_path):
    trace_of_loops.record(tmp_path / "again.json.gz")
    assert traces.names(tmp_path / "again.json.gz") == traces.names() == FIVE
    for name in FIVE:
        again, shipped = (traces.read(p, name) for p in (tmp_path / "again.json.gz", traces.RECORDED))
        assert len(again.spans) == len(shipped.spans)
        assert again.share("kernel") == pytest.approx(shipped.share("kernel"), abs=0.01)
    assert traces.RECORDED.stat().st_size < 60_000


def test_its_recordings_look_as_they_are_called():
    seen = {name: traces.read(traces.RECORDED, name) for name in FIVE}
    assert seen["loader"].share("work", on_host=True) > 0.5, "most of the time"
    assert seen["synchronisation"].share("wait", on_host=True) > 0.3
    assert seen["launch"].share("launch", on_host=True) > 0.9 > 0.5 > seen["launch"].share("kernel")
    assert seen["memory"].share("kernel") > 0.9 < seen["compute"].share("kernel")


@pytest.mark.parametrize("text", [b"no json", b"[1, 2]", b'{"a": 1}', b"\x1f\x8bno"])
def test_what_is_no_trace_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text)
    with pytest.raises(ValueError, match="is no trace"):
        traces.read(tmp_path / "x.json")


def test_a_recording_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="has no recording 'lunch'; it has launch"):
        traces.read(traces.RECORDED, "lunch")


def test_what_can_be_traced(sim, monkeypatch):
    seen = {"cuda:1": True, "cuda:0": False}
    monkeypatch.setattr(traces, "_profiler_records", seen.get)
    assert traces.tracing_device("cpu") == sim
    assert traces.tracing_device("cuda:1") == torch.device("cuda:1")
    assert traces.tracing_device("cuda:0") == sim  # without CUPTI the profiler is blind there
    assert traces.tracing_device("mps") == sim


@pytest.mark.parametrize("kind", ["launch", "operation"])
def test_a_trace_without_device_events_says_so_and_has_no_facts(kind):
    """As the profiler writes it where CUPTI is missing, and as one of a CPU."""
    spans = [
        Span("host", "cudaLaunchKernel", 0.0, 1.0, kind),
        Span("phases", "step", 0.0, 2.0, "work"),
    ]
    with pytest.raises(ValueError, match=r"no device events\. Was CUPTI missing\?"):
        profiling.facts_of(traces.Trace(spans, "measured"), 1)
    spans.append(Span("stream 7 compute", "add", 1.0, 2.0, "kernel"))
    assert profiling.facts_of(traces.Trace(spans, "measured"), 1).kernels == 1


def test_a_simulated_device_that_did_nothing_is_idle(sim):
    idle = profiling.facts_of(traces.Trace([Span("host", "load", 0.0, 1.0, "work")], "modelled"), 1)
    assert (idle.busy, idle.loading) == (0, 1)


def test_a_monitor_says_why_it_cannot_watch(monkeypatch, capsys):
    monitor.watch(lambda: pytest.fail("nothing runs"), "cpu")
    assert "needs a graphics card" in capsys.readouterr().out

    def not_supported(device):
        raise OSError("Not Supported")

    monkeypatch.setattr(torch.cuda, "utilization", not_supported)
    assert "Not Supported" in monitor.unavailable("cuda")
