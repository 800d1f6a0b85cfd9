"""Traces of real GPUs: what is shipped is what the full files say, and no more than the lessons need."""

import gzip
import json
import re
from dataclasses import replace

import pytest

from course_lessons.lesson08 import drawings, regime
from course_lessons.shared import recordings, traces
from course_utils import show

NAMES = list(recordings.index())
FACTS = ("seconds", "busy", "loading", "waiting", "kernels", "kernel_seconds")


def content(name):
    return json.loads(gzip.decompress(recordings.load(name).path.read_bytes()))


@pytest.mark.parametrize("name", NAMES)
def test_the_slimmed_file_has_the_figures_of_the_full_one(name):
    about, recording = recordings.index()[name], recordings.load(name)
    steps = len(recording.trace.steps)
    figures = {"steps": steps, **{fact: getattr(recording.facts, fact) for fact in FACTS}}
    figures["launches"] = sum(s.kind == "launch" for s in recording.trace.spans) / steps
    assert figures == pytest.approx(about["kept"], rel=1e-5)
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


def test_a_recordings_regime_is_what_exercise_2_calls_it():
    for recording in recordings.lettered().values():
        found = regime.regime(replace(recording.facts, flop_share=0.1, byte_share=0.6))
        assert {"memory": "the device"}.get(found, found) == recording.regime
    assert {r.regime for r in recordings.lettered().values()} == {"launch", "loader", "the device"}


def test_lesson_08_says_what_the_recordings_say():
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


def test_an_unknown_recording_is_refused():
    with pytest.raises(ValueError, match="no recording 'lunch'; there are v100_resnet50_4_workers"):
        recordings.load("lunch")


# --- reading


def event(category, name, start, length, **args):
    named = {"cat": category, "name": name, "tid": 7, "pid": 1, "args": args}
    return {"ph": "X", "ts": start, "dur": length, **named}


def written(events, path):
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return path


def test_a_trace_of_2021_is_read_like_one_of_today(tmp_path):
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [
        event("user_annotation", "ProfilerStep#1", 0.5, 99.25),
        event("user_annotation", loader, 1, 40),
        event("cpu_op", "aten::linear", 50, 20),
        event("cuda_runtime", "cudaLaunchKernel", 55, 5),
        event("kernel", "mm", 70, 60.125),
    ]
    names = {"cuda_runtime": "Runtime", "kernel": "Kernel"}  # the others were "Operator"
    older = [each | {"cat": names.get(each["cat"], "Operator")} for each in events]
    today = traces.read(written(events, tmp_path / "today.json"))
    then = traces.read(written(older, tmp_path / "then.json"))
    assert then.spans == today.spans and len(then.spans) == 4
    assert then.steps == today.steps != []
    untold = traces.read(written(events[1:], tmp_path / "no_step.json"))
    with pytest.raises(ValueError, match=r"call p\.step\(\)"):
        untold.whole_steps()


def test_a_collective_tells_its_bytes(tmp_path):
    details = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Half"}
    path = written([event("kernel", "ncclKernel_AllReduce", 1, 2, **details)], tmp_path / "a.json")
    assert [span.bytes for span in traces.read(path).spans] == [2000]


# --- shown


def test_facts_of_two_kinds_say_which_is_which(monkeypatch):
    shown = []
    monkeypatch.setattr(show, "show", shown.append)
    found = recordings.load("h100_bert_small_1").facts
    drawings.facts({"real": found, "own": replace(found, flop_share=0.5)}, ["published", "modelled"])
    real, own = (line for line in shown[0].text.splitlines() if line.startswith(("real", "own")))
    assert real.split()[-3:] == ["5.12", "µs", "published"]
    assert "–  " in real
    assert "50%" in own and own.endswith("modelled")
    assert "–: a recording does not tell" in shown[0].text
    assert "not counted" in str(found)
