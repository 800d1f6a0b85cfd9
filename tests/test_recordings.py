"""Traces of real GPUs: what is shipped is what the full files say, and no more than the lessons need."""

import gzip
import json
import re
from dataclasses import replace
from decimal import Decimal

import pytest

from course_lessons.lesson07 import drawings, regime
from course_lessons.shared import recordings, traces
from course_utils import show
from tools.records import slim_traces

NAMES = list(recordings.index())


def content(name):
    return json.loads(gzip.decompress(recordings.load(name).path.read_bytes()))


@pytest.mark.parametrize("name", NAMES)
def test_the_slimmed_file_has_the_figures_of_the_full_one(name):
    about = recordings.index()[name]
    assert slim_traces.figures(recordings.load(name).trace) == pytest.approx(
        about["kept"], rel=1e-5
    )
    if about["kept"]["steps"] == about["full"]["steps"]:
        assert about["kept"] == about["full"]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_anyones_machine_is_left(name):
    text = json.dumps(content(name))
    text = text.replace(recordings.load(name).url, "")
    assert not re.search(r"/home|/usr|/tmp|\.py\b|\.so\b|python|conda|0x[0-9a-f]{6}", text)
    keys = {key for event in content(name)["traceEvents"] for key in event.get("args", {})}
    details = {"Collective name", "In msg nelems", "dtype", "Group size"}
    assert keys <= {"name", "bytes", "stream", *details}
    events = [event for event in content(name)["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in events} <= {0, 1}
    assert max(event["tid"] for event in events) < 10
    assert all(-1e6 < event["ts"] < 1e6 for event in events), "the clock begins with the first step"


def test_all_together_stay_small():
    sizes = {path.name: path.stat().st_size for path in recordings.FOLDER.glob("*.gz")}
    assert sizes.keys() == {f"{name}.json.gz" for name in NAMES}
    assert max(sizes.values()) < 100_000
    assert sum(sizes.values()) < 300_000


@pytest.mark.parametrize("name", NAMES)
def test_source_and_licence_stand_beside_it(name):
    about, made = recordings.index()[name], content(name)
    assert re.fullmatch(r"[0-9a-f]{40}", about["commit"])
    assert about["url"] == (
        f"https://github.com/{about['repository']}/blob/{about['commit']}/{about['path']}"
    )
    assert (made["source"], made["licence"]) == (about["url"], about["licence"])
    texts = (recordings.FOLDER / "LICENCES.txt").read_text(encoding="utf-8").split("-" * 100)
    ((_, text),) = [
        (files, text)
        for files, text in zip(texts[1::2], texts[2::2], strict=True)
        if f"{name}.json.gz" in files and f"github.com/{about['repository']}\n" in files
    ]
    for holder in re.findall(r"Copyright \(c\) [^;]+", about["licence"]):
        assert holder in text
    assert "WITHOUT WARRANTY" in text or "IMPLIED WARRANTIES" in text


def test_the_source_list_and_the_index_agree():
    for name, source in slim_traces.SOURCES.items():
        told = {key: value for key, value in source.items() if key != "keep"}
        assert told.items() <= recordings.index()[name].items()


def test_a_recordings_regime_is_what_exercise_2_calls_it():
    for recording in recordings.lettered().values():
        found = regime.regime(replace(recording.facts, flop_share=0.1, byte_share=0.6))
        assert {"memory": "the device"}.get(found, found) == recording.regime
    assert {r.regime for r in recordings.lettered().values()} == {"launch", "loader", "the device"}


def test_lesson_07_says_what_the_recordings_say():
    busy = {name: recordings.load(name).facts.busy for name in NAMES}
    assert round(100 * busy["h100_bert_small_1"]) == 7
    assert round(100 * busy["h100_qwen_16"]) == 92
    bert = recordings.load("h100_bert_small_1").facts
    assert bert.kernels == 60
    assert bert.kernel_seconds == pytest.approx(5e-6, rel=0.05)
    assert bert.seconds == pytest.approx(4.4e-3, rel=0.01)
    steps = [recordings.load(f"v100_resnet50_{n}_workers").facts for n in (0, 4)]
    assert [round(1e3 * f.seconds) for f in steps] == [175, 125]
    assert steps[0].loading == pytest.approx(0.4, abs=0.02)
    assert steps[1].loading < 0.01
    qwen = recordings.load("h100_qwen_16")
    assert qwen.facts.waiting == pytest.approx(0.3, abs=0.01)
    kernels = [s for s in qwen.trace.spans if s.kind == "kernel"]
    moving = ("elementwise", "Cat", "reduce", "Memset", "index")
    share = sum(s.seconds for s in kernels if any(word in s.name for word in moving))
    assert share > 0.6 * sum(s.seconds for s in kernels), "most only move numbers"


def test_lesson_05_says_what_the_two_ranks_recording_says():
    spans = recordings.load("a100_two_ranks").trace.spans
    sent = [span for span in spans if "AllReduce" in span.name]
    assert [round(s.bytes / 1e6) for s in sent] == [8, 32, 26, 27, 10] * 2
    first, second = ([1e3 * s.seconds for s in sent[i : i + 5]] for i in (0, 5))
    assert 2.0 < min(first) < max(first) < 2.7
    assert all(5.8 < t < 6.0 for t in second[:3])
    assert all(3 < b - a < 3.5 for a, b in zip(first[:3], second[:3], strict=True))
    assert second[3:] == pytest.approx(first[3:], rel=0.1)
    assert first[1] * sent[0].bytes / sent[1].bytes == pytest.approx(0.7, abs=0.01)


def test_an_unknown_recording_is_refused():
    with pytest.raises(ValueError, match="no recording 'lunch'; there are v100_resnet50_4_workers"):
        recordings.load("lunch")


# --- slimming


def event(category, name, start, length, thread=4711, **args):
    named = {"cat": category, "name": name, "tid": thread, "pid": 4711, "args": args}
    return {"ph": "X", "ts": Decimal(start), "dur": Decimal(length), **named}


STACK = {"Call stack": "/home/me/train.py(3): <module>", "External id": 3}
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
BASE = "4458676"
FULL = {
    "traceName": "/home/me/trace.json",
    "deviceProperties": [{"name": "A card"}],
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 4711, "args": {"name": "python3"}},
        event("cpu_op", "aten::before", f"{BASE}001", "5", **STACK),
        *(
            e
            for step, at in enumerate((100, 200, 300))
            for e in (
                event("user_annotation", f"ProfilerStep#{step}", f"{BASE}{at}.5", "99.25"),
                event("user_annotation", LOADER, f"{BASE}{at + 1}", "40", **STACK),
                event("cpu_op", "aten::linear", f"{BASE}{at + 50}", "20", **STACK),
                event("cpu_op", "aten::addmm", f"{BASE}{at + 52}", "14", **STACK),
                event("cuda_runtime", "cudaLaunchKernel", f"{BASE}{at + 55}", "5", correlation=7),
                event("cuda_runtime", "cudaEventRecord", f"{BASE}{at + 61}", "1"),
                event("python_function", "train.py(3): step", f"{BASE}{at + 1}", "90"),
                event(
                    "kernel", "void a::mm<float>(int)", f"{BASE}{at + 70}", "60.125", 7, stream=7
                ),
                event("cuda_runtime", "cudaStreamSynchronize", f"{BASE}{at + 80}", "10"),
            )
        ),
    ],
}
OLDER = {
    "cpu_op": "Operator",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
    "user_annotation": "Operator",
}


def written(trace, path):
    path.write_text(json.dumps(trace, default=float), encoding="utf-8")
    return path


def test_slimming_keeps_the_figures_and_the_digits(tmp_path):
    slimmed = slim_traces.slim(FULL, slice(1, 2))
    text = json.dumps(slimmed)
    assert not any(word in text for word in ("/home", "train.py", "4711", "python", "addmm", BASE))
    kernels = [e for e in slimmed["traceEvents"] if e.get("cat") == "kernel"]
    assert [(e["name"], e["ts"], e["dur"]) for e in kernels] == [
        ("a::mm", -30.5, 60.125),  # began in the step before, and ends in this one
        ("a::mm", 69.5, 60.125),
    ]
    whole = traces.read(written(FULL, tmp_path / "full.json"))
    of_full = slim_traces.figures(traces.Trace(whole.spans, whole.kind, whole.steps[1:2]))
    of_slim = slim_traces.figures(traces.read(written(slimmed, tmp_path / "slim.json")))
    assert of_slim == pytest.approx(of_full)
    assert of_slim["loading"] == pytest.approx(40 / 99.25)
    assert of_slim["busy"] == pytest.approx((29.625 + 29.75) / 99.25)


def test_a_trace_of_2021_is_read_like_one_of_today(tmp_path):
    older = [e | {"cat": OLDER.get(e.get("cat"), "")} for e in FULL["traceEvents"]]
    today = traces.read(written(FULL, tmp_path / "today.json"))
    then = traces.read(written({"traceEvents": older}, tmp_path / "then.json"))
    assert then.spans == today.spans
    assert then.steps == today.steps != []


def test_steps_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no such steps"):
        slim_traces.slim(FULL, slice(3, 5))
    untold = {"traceEvents": [e for e in FULL["traceEvents"] if "Profiler" not in e["name"]]}
    with pytest.raises(ValueError, match=r"call p\.step\(\)"):
        traces.read(written(untold, tmp_path / "x.json")).whole_steps()


@pytest.mark.parametrize(
    ("full", "brief"),
    [
        ("void at::native::(anonymous namespace)::pick<c10::X, 2, -2>(at::T<int>, int)", "at::native::pick"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long)", "ncclKernel_AllReduce_RING_LL_Sum_float"),
        ("_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel4XXXXEEEvNT_6ParamsE", "cutlass_cudnn_train::Kernel"),
        ("sm90_xmma_gemm_bf16", "sm90_xmma_gemm_bf16"),
    ],
)  # fmt: skip
def test_a_kernels_name_loses_its_arguments(full, brief):
    assert slim_traces.short(full) == brief


def test_a_collective_tells_its_bytes(tmp_path):
    details = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Half"}
    path = written(
        {"traceEvents": [event("kernel", "ncclKernel_AllReduce", "1", "2", **details)]},
        tmp_path / "nccl.json",
    )
    assert [span.bytes for span in traces.read(path).spans] == [2000]


# --- shown


def test_facts_of_two_kinds_say_which_is_which(monkeypatch):
    shown = []
    monkeypatch.setattr(show, "show", shown.append)
    found = recordings.load("h100_bert_small_1").facts
    drawings.facts(
        {"real": found, "own": replace(found, flop_share=0.5)}, ["published", "modelled"]
    )
    real, own = (line for line in shown[0].text.splitlines() if line.startswith(("real", "own")))
    assert real.split()[-3:] == ["5.12", "µs", "published"]
    assert "–  " in real
    assert "50%" in own and own.endswith("modelled")
    assert "–: a recording does not tell" in shown[0].text
    assert "not counted" in str(found)
