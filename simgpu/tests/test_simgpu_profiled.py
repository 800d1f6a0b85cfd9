"""The report of a profiler's trace and a memory snapshot, as a GPU writes them.

The traces are those of a CPU, with the calls of CUDA and the kernels that a GPU would have added.
"""

import json
import pickle
import runpy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import simgpu
from simgpu.profiled import ProfilerReport, read_profile
from simgpu.run import main

COMPUTES = ("aten::addmm", "aten::mm", "aten::relu", "aten::add_", "aten::sum", "aten::threshold_backward")
"""The operators that launch a kernel in these traces, of 20 µs."""


def _train(read_loss: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).sum()
        loss.backward()
        optimizer.step()
        if read_loss:
            loss.item()  # waits


def _exact_lines(events: list[dict]) -> bool:
    """Whether this PyTorch writes from which line a function was called; before 2.15 it doesn't."""
    return any("CallFrom" in event.get("args", {}) for event in events)


def _add_gpu(content: dict, card: str) -> dict:
    """Add what a GPU would have added: launches with kernels, and for item() a copy and a wait."""
    added: list[dict] = []

    def add(category: str, name: str, start: float, duration: float, thread: int, **args: object) -> None:
        added.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "ts": start,
                "dur": duration,
                "tid": thread,
                "args": args,
            }
        )

    free = 0.0  # when the GPU has done what it has
    operators = [event for event in content["traceEvents"] if event.get("cat") == "cpu_op"]
    for number, operator in enumerate(sorted(operators, key=lambda event: event["ts"])):
        start, thread, own = operator["ts"], operator["tid"], operator["args"]["External id"]
        if operator["name"] in COMPUTES:
            add(
                "cuda_runtime",
                "cudaLaunchKernel",
                start,
                0.5,
                thread,
                **{"External id": own},
                correlation=number,
            )
            free = max(free, start + 2) + 20
            add("kernel", "kernel", free - 20, 20, 7, device=0, stream=7, correlation=number)
        elif operator["name"] == "aten::_local_scalar_dense":
            add(
                "cuda_runtime",
                "cudaMemcpyAsync",
                start,
                0.2,
                thread,
                **{"External id": own},
                correlation=number,
            )
            name = "Memcpy DtoH (Device -> Pageable)"
            free = max(free, start + 1) + 1
            add("gpu_memcpy", name, free - 1, 1, 7, device=0, stream=7, correlation=number, bytes=4)
            add("cuda_runtime", "cudaStreamSynchronize", start + 0.3, 300, thread, correlation=number + 10**6)
    properties = [{"name": card, "totalGlobalMem": 16 * 2**30}]
    return {"deviceProperties": properties, "traceEvents": [*content["traceEvents"], *added]}


def _trace(path: Path, read_loss: bool, card: str = "Tesla T4", with_stack: bool = True) -> list[dict]:
    """Write the trace of a small training, and return its events."""
    with profile(activities=[ProfilerActivity.CPU], with_stack=with_stack, acc_events=True) as recording:
        _train(read_loss)
    recording.export_chrome_trace(str(path))
    content = _add_gpu(json.loads(path.read_text()), card)
    path.write_text(json.dumps(content))
    return content["traceEvents"]


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> tuple[ProfilerReport, list[dict]]:
    """The report of a training that reads its loss at each step, and its trace."""
    path = tmp_path_factory.mktemp("traces") / "trace.json"
    return (read_profile(path), events) if (events := _trace(path, read_loss=True)) else None


def test_a_wait_is_named_with_its_line_and_how_long_it_took(waiting):
    report, events = waiting
    finding = next(finding for finding in report.findings if finding.kind == "wait")
    assert Path(finding.file).name == Path(__file__).name
    exact = "loss.item()  # waits" if _exact_lines(events) else "def _train(read_loss: bool) -> None:"
    assert finding.where.text == exact
    assert finding.seconds == pytest.approx(300.2e-6, rel=0.01)
    assert "waits 300 µs a step" in str(report)


def test_steps_kernels_and_idle_time_are_those_of_the_trace(tmp_path):
    events = []
    for step in range(
        5
    ):  # each of 100 µs with a kernel of 20 µs and an optimizer's of 10 µs that overlap by 5
        start, thread = 1000 + 100 * step, {"ph": "X", "tid": 1}
        events.append({**thread, "cat": "user_annotation", "name": "Optimizer.step#SGD.step"})
        events[-1] |= {"ts": start + 90, "dur": 10, "args": {}}
        for number, (launched, begins, takes) in enumerate(((5, 10, 20), (92, 25, 10)), 2 * step):
            call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + launched, "dur": 2}
            events.append({**thread, **call, "args": {"correlation": number}})
            kernel = {"cat": "kernel", "name": "kernel", "ts": start + begins, "dur": takes}
            events.append({**thread, **kernel, "args": {"correlation": number, "stream": 7, "device": 0}})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"deviceProperties": [{"name": "NVIDIA H100 PCIe"}], "traceEvents": events}))
    report = read_profile(path)
    assert report.step_seconds == pytest.approx(100e-6)
    assert report.likely_range() == pytest.approx((100e-6, 100e-6))
    assert report.launches == 2
    assert report.idle_share == pytest.approx(0.75)
    assert report.findings[0].kind == "launches"
    assert report.as_dict()["times"] == "measured"
    assert report.as_dict()["memory"] is None, "no snapshot was given"


def test_a_training_that_waits_for_nothing_has_no_wait(tmp_path):
    _trace(tmp_path / "trace.json", read_loss=False)
    report = read_profile(tmp_path / "trace.json")
    assert not report.waits
    assert all(finding.kind not in ("wait", "synchronize") for finding in report.findings)


def test_without_a_stack_the_report_says_how_to_get_lines(tmp_path):
    _trace(tmp_path / "trace.json", read_loss=True, with_stack=False)
    report = read_profile(tmp_path / "trace.json")
    assert "with_stack=True" in str(report)
    assert all(finding.where is None for finding in report.findings)


PROGRAM = """
import pickle, torch
torch.sim.memory._record_memory_history()
kept = torch.empty(2**20, device="sim")
passing = torch.empty(2**19, device="sim")
del passing
after = torch.empty(2**10, device="sim")
with open("snapshot.pickle", "wb") as file:
    pickle.dump(torch.sim.memory._snapshot(), file)
torch.sim.memory._record_memory_history(enabled=None)
"""


def test_the_memory_at_the_peak_is_named_by_line(tmp_path, monkeypatch):
    _trace(tmp_path / "trace.json", read_loss=False)
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    simgpu.enable()
    runpy.run_path("program.py")
    report = read_profile("trace.json", "snapshot.pickle")
    assert report.peak == 6 * 2**20
    assert report.bytes_by("line") == {"program.py:4": 4 * 2**20, "program.py:5": 2 * 2**20}
    assert "PyTorch has reserved" in str(report)
    assert report.fits("1 GB")
    assert not report.fits("5 MB")


def test_what_is_no_trace_of_a_gpu_is_told_in_a_sentence(tmp_path):
    path = tmp_path / "trace.json"
    with pytest.raises(ValueError, match="There is no file"):
        read_profile(path)
    path.write_text("hello")
    with pytest.raises(ValueError, match="is no trace of"):
        read_profile(path)
    path.write_text(json.dumps({"traceEvents": []}))
    with pytest.raises(ValueError, match="no work of a GPU"):
        read_profile(path)
    _trace(path, read_loss=False, card="Some GPU of 2031")
    with pytest.raises(ValueError, match=r"doesn't know the card 'Some GPU of 2031'"):
        read_profile(path)
    assert read_profile(path, card="A100").profile.key == "A100"
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(Path("a snapshot has no such thing")))
    with pytest.raises(ValueError, match="is no snapshot"):
        read_profile(path, tmp_path / "snapshot.pickle", "A100")


def test_the_command_prints_the_report_and_writes_it(tmp_path, monkeypatch, capsys):
    _trace(tmp_path / "trace.json", read_loss=True)
    monkeypatch.chdir(tmp_path)
    assert main(["report", "trace.json", "--json", "out.json", "--html", "out.html"]) == 0
    assert "Report for a trace of Tesla T4" in capsys.readouterr().out
    assert json.loads(Path("out.json").read_text())["findings"]
    assert "<h3>" in Path("out.html").read_text()
    assert main(["report", "missing.json"]) == 2
    assert capsys.readouterr().err == "There is no file missing.json.\n"
