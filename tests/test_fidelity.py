"""The report of the simulated device beside real ones: what is read, what is refused, what is counted."""

import csv
import gzip
import json
import math

import pytest

from simgpu import host, latency, profiles
from tools.fidelity import __main__ as command
from tools.fidelity import hold, model, read
from tools.fidelity.calls import CALLS, asked_by
from tools.fidelity.hardware import profile_of
from tools.fidelity.interpret import interpret
from tools.fidelity.model import Found, LeftOut
from tools.fidelity.report import as_json, as_text, groups, worst
from tools.fidelity.rows import OPERATORS, POINTS, Row, Unreadable, held_out, without_repeats
from tools.fidelity.units import measured
from tools.fidelity.workload import Calls, Interpretation, Uninterpretable


def row(workload="op:add", params="B128 H64", value="0.1", unit="ms", **more):
    given = {"hardware": "Tesla T4", "dtype": "fp32", "metric": "latency"} | more
    return Row("a.csv", 2, workload, params, value=value, unit=unit, **given)


def write(path, columns, *lines, pack=False):
    with (gzip.open if pack else open)(path, "wt", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *lines])
    return path


POINT = ("op:add", "B128 H64", "Tesla T4", "fp32", "latency", "0.1", "ms")


# --- Reading


def test_a_table_of_workloads_is_read_line_by_line(tmp_path):
    path = write(
        tmp_path / "p.csv", (*POINTS, "source_repo", "x"), (*POINT, "a/b", ""), (*POINT, "", "")
    )
    assert read(path) == [Row("p.csv", 2, *POINT, source="a/b"), Row("p.csv", 3, *POINT, source="")]


def test_a_packed_table_of_operators_gives_the_same_rows(tmp_path):
    path = write(
        tmp_path / "n.csv.gz", OPERATORS, ("add", "Tesla T4", "B128 H64", "0.1"), pack=True
    )
    (found,) = read(path)
    assert found[2:9] == POINT


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "There is no file"),
        (b"", "has not the columns"),
        (b"a,b\n1,2\n", "has not the columns"),
        (",".join(POINTS).encode(), "has columns and no rows"),
        (b"\xff\xfe\x00", "is not text"),
        (b"\x1f\x8b broken", "cannot be read"),
    ],
)
def test_what_is_no_table_is_refused_in_one_sentence(tmp_path, capsys, content, says):
    path = tmp_path / "bad.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Unreadable, match=says):
        read(path)
    assert command.main([str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and len(err.splitlines()) == 1


def test_a_folder_is_refused_and_so_is_one_that_is_not_there_to_write_to(tmp_path, capsys):
    assert command.main([str(tmp_path)]) == 2
    path = write(tmp_path / "p.csv", POINTS, POINT)
    assert command.main([str(path), "--json", str(tmp_path / "no" / "f.json")]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_a_row_of_an_earlier_file_counts_once_and_a_repeated_measurement_twice():
    first, other = row(), row(params="B1 H1")
    kept, again = without_repeats([[first, first], [first._replace(file="b.csv", line=9), other]])
    assert kept == [first, first, other] and [each.file for each in again] == ["b.csv"]


def test_the_part_held_out_is_two_fifths_and_the_same_wherever_a_row_stands():
    rows = [row(params=f"B{i} H{i}") for i in range(2000)]
    share = sum(map(held_out, rows)) / len(rows)
    assert 0.35 < share < 0.45
    for each in rows[:50]:
        twin = each._replace(params=each.params + "; torch 2.1.0", file="b.csv", value="7")
        assert held_out(twin) == held_out(each)


# --- Units


@pytest.mark.parametrize(
    ("value", "unit", "amount", "expected"),
    [
        ("2", "ms", 1, ("seconds", 2e-3)),
        ("2", "us (derived from rounded GB/s)", 1, ("seconds", 2e-6)),
        ("2", "s", 1, ("seconds", 2.0)),
        ("2", "min", 1000, ("seconds", 0.12)),
        ("2", "TFLOP/s", 4e12, ("seconds", 2.0)),
        ("2", "GB/s", 4e9, ("seconds", 2.0)),
        ("2", "TB/s", 4e12, ("seconds", 2.0)),
        ("2", "G elements/s (unit inferred)", 4e9, ("seconds", 2.0)),
        ("2", "img/s", 64, ("seconds", 32.0)),
        ("2", "samples/s", 64, ("seconds", 32.0)),
        ("2", "tokens/s/GPU", 64, ("seconds", 32.0)),
        ("2", "GB", 1, ("bytes", 2e9)),
        ("2", "MiB per GPU", 1, ("bytes", 2.0**21)),
        ("2", "GiB", 1, ("bytes", 2.0**31)),
    ],
)
def test_a_figure_in_seconds_or_bytes(value, unit, amount, expected):
    assert measured(row(value=value, unit=unit), amount) == pytest.approx(expected)


@pytest.mark.parametrize("value", ["", "fast", "0", "-1", "nan", "inf"])
def test_what_is_no_positive_number_is_left_out(value):
    found = hold(row(value=value))
    assert isinstance(found, LeftOut) and "no positive number" in found.reason


def test_an_unknown_unit_is_left_out():
    assert "'%'" in hold(row(unit="%")).reason


# --- What a row means


def at(profile, calls):
    return sum(latency.seconds(work, profiles.load(profile)) for work in asked_by(calls).works)


def test_one_eager_call_is_the_kernel_and_the_hosts_work_on_it():
    found = hold(row())
    t4 = profiles.load("T4")
    (work,) = asked_by(found.meaning.workload).works
    assert (work.flops, work.bytes) == (128 * 64, 3 * 128 * 64 * 4)
    assert found.meaning.host
    assert found.modelled == pytest.approx(
        host.between_events(latency.seconds(work, t4), t4, factor=model.HOST)
    )
    assert (found.quantity, found.measured) == ("seconds", pytest.approx(1e-4))


def test_a_kernel_from_a_profiler_is_the_kernel_alone():
    params = "meta-llama/Llama-2-7b-hf d=4096 ffn=11008 heads=32 kv=32 gated=True tokens=8 tp=4"
    found = hold(row("op:attn_pre_proj", params, dtype="fp16", hardware="A100 80GB (DGX)"))
    assert not found.meaning.host
    (work,) = asked_by(found.meaning.workload).works
    assert work.flops == 2 * 8 * 4096 * 3 * 4096 / 4 and work.unit == "fp16"
    assert found.modelled == latency.seconds(work, profiles.load("A100"))


@pytest.mark.parametrize(
    ("workload", "params", "dtype", "flops"),
    [
        ("op:linear", "B1 M10 N(reduce)20 K(out)30", "fp32", 2 * 10 * 20 * 30),
        ("op:bmm", "B3 M10 N(reduce)20 K(out)30", "fp32", 2 * 3 * 10 * 20 * 30),
        ("op:conv", "N6 Cin27 Cout285 k3 in5 s2 p1", "fp32", 2 * 6 * 285 * 3 * 3 * 27 * 9),
        ("gemm cuBLAS (DeepBench)", "M=10 N=20 K=30 transA=T transB=N CUDA", "fp32", 2 * 6000),
        ("gemm cublasLt", "m=10 n=20 k=30 random init", "fp16", 2 * 6000),
        ("mamf matmul best shape", "MxNxK=10x20x30; torch 2.6", "bf16", 2 * 6000),
        ("matmul", "M=10 N=20 K=30", "fp16", 2 * 6000),
        ("call:mm", "sizes=10x20x30", "bf16", 2 * 6000),
    ],
)
def test_products_have_the_flops_that_their_sizes_say(workload, params, dtype, flops):
    meaning = interpret(row(workload, params, dtype=dtype))
    (work,) = [work for work in asked_by(meaning.workload).works if work.matrix]
    assert work.flops == flops


def test_float32_is_multiplied_without_tf32_unless_the_row_says_so():
    a100 = {"hardware": "A100", "workload": "gemm cublasLt", "params": "m=4096 n=4096 k=4096"}
    plain, tf32 = hold(row(**a100, dtype="fp32")), hold(row(**a100, dtype="tf32"))
    assert plain.modelled > 3 * tf32.modelled
    (conv,) = asked_by(interpret(row("op:conv", "N6 Cin27 Cout285 k3 in5 s1 p1")).workload).works
    assert conv.unit == "fp32"


def test_a_transposed_side_is_a_view_and_costs_nothing():
    plain = asked_by(Calls("mm", (512, 64, 32), "float32"))
    for sides in ((1, 0), (0, 1), (1, 1)):
        assert asked_by(Calls("mm", (512, 64, 32, *sides), "float32")) == plain


def test_memory_bandwidth_counts_the_bytes_that_its_benchmark_counts():
    found = hold(row("BabelStream Triad", "", "3", "TB/s", hardware="H200 141GB", dtype="fp64"))
    (work,) = asked_by(found.meaning.workload).works
    assert found.meaning.amount == work.bytes
    assert found.measured == pytest.approx(work.bytes / 3e12)


def test_a_kernel_launched_again_and_again_waits_for_its_launch_and_one_from_a_graph_does_not():
    small = "elements=4096; bytes moved=65536"
    made = {
        how: hold(
            row("repeated small scale kernel", f"{how}; {small}", dtype="fp64", hardware="H200")
        ).modelled
        for how in ("stream launches", "cuda graph")
    }
    assert made["stream launches"] == profiles.load("H200").launch
    assert made["cuda graph"] < made["stream launches"]


def test_copies_and_collectives_take_what_their_bytes_take():
    h200 = profiles.load("H200")
    copy = hold(row("nvbandwidth Host to Device", "", "52.8", "GB/s", hardware="H200"))
    assert copy.ratio == pytest.approx(52.8e9 / h200.bus_pinned, rel=1e-3)
    ring = row(
        "nccl all_reduce in-place", "8 GPUs one node; message=1G", "450", "GB/s", hardware="H200"
    )
    assert hold(ring).measured == pytest.approx(14 / 8 * 2**30 / 450e9)
    assert hold(ring).ratio == pytest.approx(450e9 / h200.peer, rel=0.05)


def test_a_time_is_of_all_its_images_and_a_peak_of_memory_of_one_batch():
    timed = row("step:resnet50", "batch=4 size=224 mode=infer images=100")
    assert interpret(timed).amount == 25
    assert interpret(timed._replace(unit="MB", metric="peak_memory")).amount == 1


@pytest.mark.parametrize("unit", ["samples/s", "img/s", "images/s"])
def test_a_rate_of_a_step_says_what_its_time_says(unit):
    params = "batch=512 size=224 mode=momentum channels_last=True"
    rate, time = 3481.78, 512 / 3481.78
    timed = row("step:resnet18", params, str(time), "s")
    by_rate = row("step:resnet18", params, str(rate), unit)
    assert hold(by_rate).measured == pytest.approx(hold(timed).measured)
    assert hold(by_rate._replace(params=params + " images=5120")).measured == pytest.approx(time)


def test_a_rate_counts_samples_or_the_tokens_of_a_text():
    text = row("step:gpt2", "batch=8 size=1024 mode=adamw", "1000", "tokens/s")
    assert interpret(text).amount == 8 * 1024
    assert interpret(text._replace(unit="seq/s")).amount == 8
    with pytest.raises(Uninterpretable, match="'tokens/s' does not count"):
        interpret(row("step:resnet18", "batch=8 size=224 mode=infer", "1", "tokens/s"))


@pytest.mark.parametrize(
    ("workload", "params", "more", "reason"),
    [
        ("play chess", "", {}, "workload is not known"),
        ("op:cumsum", "B1 H2", {}, "operator is not known"),
        ("op:add", "H2", {}, "do not say B"),
        ("op:add", "B1 H2", {"dtype": "int4"}, "dtype 'int4'"),
        ("op:add", "B1 H2", {"hardware": "MI-250x"}, "no profile stands for the card 'MI-250x'"),
        ("call:mm", "sizes=1x2x3", {"hardware": "T400"}, "no profile stands for the card 'T400'"),
        ("call:nothing", "sizes=1", {}, "no call 'nothing'"),
        ("call:mm", "", {}, "sizes="),
        ("layernorm", "M=1 N=2", {}, "compiled"),
        ("stream:3pt", "occupancy=100.0%", {}, "reads memory in this way"),
        ("stream:read", "occupancy=25.0%", {}, "occupancy"),
        (
            "collective:send_recv",
            "size=9 bytes workers=2 devices_per_node=1",
            {},
            "more than one machine",
        ),
        ("nvbandwidth Device to Device read", "", {}, "is not said"),
        ("copy:d2d", "MiB=1 source=pinned", {}, "not h2d or d2h"),
        ("copy:h2d", "MiB=1 source=pinned on the spot", {}, "source="),
        ("step:chess", "batch=1 size=8 mode=sgd", {}, "network is not known"),
        ("step:resnet50", "batch=1 size=8 mode=magic", {}, "mode 'magic' is not known: infer, "),
        (
            "step:resnet50",
            "batch=1 size=8 mode=sgd",
            {"dtype": "amp"},
            "dtype 'amp' is not known: fp32,",
        ),
        ("step:resnet50", "size=8 mode=sgd", {}, "do not say batch"),
        ("collective:shuffle", "size=9 bytes workers=2 devices_per_node=2", {}, "is not known"),
    ],
)
def test_what_cannot_be_modelled_says_why(workload, params, more, reason):
    found = hold(row(workload, params, **more))
    assert isinstance(found, LeftOut) and reason in found.reason


def test_calls_in_a_loop_take_as_long_as_the_slower_of_host_and_device():
    def seconds(size, how):
        return hold(row("call:mm", f"sizes={size}x{size}x{size}{how}")).modelled

    assert seconds(16, " timed=loop") > 3 * seconds(16, "")
    assert seconds(16, " timed=loop") == host.issued(profiles.load("T4"), library=True)
    assert seconds(4096, " timed=loop") == seconds(4096, "")


def test_a_pageable_copy_is_slower_than_a_pinned_one():
    pinned, pageable = (hold(row("copy:h2d", f"MiB=64 source={s}")) for s in ("pinned", "pageable"))
    assert pinned.meaning.workload.bytes == 2**26 and pinned.modelled < pageable.modelled


def test_every_call_can_be_made():
    sizes = {
        "linear": (1, 2, 3, 4, 1),
        "mm": (2, 3, 4),
        "bmm": (1, 2, 3, 4),
        "conv": (1, 3, 4, 3, 8, 1, 1),
        "layer_norm": (2, 4),
        "embedding": (2, 9, 4),
        "rotate": (2, 4),
        "gate": (2, 8),
        "attention": (1, 2, 4, 4, 8, 1),
    }
    for name in CALLS:
        made = asked_by(Calls(name, sizes.get(name, (64,)), "float32")).works
        assert made, name
        assert not any(work.guessed for work in made), name


# --- Cards


@pytest.mark.parametrize(
    ("card", "profile"),
    [
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA DGX-1 (1x V100 16GB)", "V100"),
        ("NVIDIA DGX A100 (8x A100 80GB)", "A100"),
        ("A100 80GB PCIe", "A100"),
        ("H100 80GB HBM3", "H100"),
        ("H200 141GB", "H200"),
        ("NVIDIA B200 SXM", "B200"),
        ("rtx3090", "RTX 3090"),
        ("1x 4090", "RTX 4090"),
        ("5090", "RTX 5090"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
    ],
)
def test_a_card_finds_its_profile_or_says_which_is_missing(card, profile):
    if profile in profiles.names():
        assert profile_of(card) == profile
    else:
        with pytest.raises(Uninterpretable, match=f"no profile '{profile}' yet"):
            profile_of(card)


def test_the_smaller_a100_has_its_own_profile_where_there_is_one(monkeypatch):
    for there, expected in ((("A100",), "A100"), (("A100", "A100-40GB"), "A100-40GB")):
        monkeypatch.setattr(profiles, "names", lambda names=there: names)
        for card in ("NVIDIA A100-PCIE-40GB", "A100-SXM4-40GB", "a100_40gb"):
            assert profile_of(card) == expected


UNKNOWN = ["H100 PCIe", "NVIDIA GH200 SXM", "1x A6000", "pro6000maxq", "NVIDIA L40S", "NVIDIA T400"]
UNKNOWN += ["NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 D", "Simulated NVIDIA T4"]


@pytest.mark.parametrize("card", UNKNOWN)
def test_a_card_that_no_profile_stands_for_is_named(card):
    with pytest.raises(Uninterpretable, match=card):
        profile_of(card)


# --- The report


def planted(ratio, kind="product", seconds=1e-3, profile="T4", quantity="seconds"):
    meaning = Interpretation(kind, Calls("add", (1,), "float32"))
    return Found(row(), meaning, profile, quantity, seconds, ratio * seconds)


def test_groups_sum_up_what_was_planted():
    found = [planted(r) for r in (0.5, 0.8, 1.05, 1.2, 2.0)] + [planted(3.0, seconds=1e-5)]
    below, above = sorted(groups(found), key=lambda group: group.n)
    assert (below.size, below.n, below.ratio) == ("below 0.1 ms", 1, 3.0)
    assert (above.size, above.n, above.ratio) == ("0.1 ms and more", 5, 1.05)
    assert above.error == pytest.approx(0.2)
    assert (above.near, above.very_near) == (0.6, 0.2)


def test_furthest_off_is_a_factor_in_either_direction():
    assert [each.ratio for each in worst([planted(r) for r in (0.1, 1.0, 5.0)], 2)] == [0.1, 5.0]


def test_the_report_names_what_it_left_out_and_how_often():
    left = [LeftOut(row("play chess"), "it is a game")] * 3
    left.append(LeftOut(row("play go"), "it is a game"))
    text = as_text([planted(0.5)], left, 7, 1)
    assert text.startswith("1 rows modelled, 4 not, and 7 given in an earlier file already.")
    assert "4  because it is a game: play chess (3), play go (1)" in text


def test_a_known_answer_goes_through_the_command(tmp_path, capsys, monkeypatch):
    exact = at("T4", Calls("mm", (4096, 4096, 4096), "float16")) * 1e3
    said = write(
        tmp_path / "p.csv",
        POINTS,
        ("call:mm", "sizes=4096x4096x4096", "Tesla T4", "fp16", "latency", repr(2 * exact), "ms"),
        ("play chess", "", "Tesla T4", "fp16", "latency", "1", "ms"),
    )
    out = tmp_path / "f.json"
    assert command.main([str(said), "--json", str(out)]) == 0
    text = capsys.readouterr().out
    assert "0.50" in text and "play chess (1)" in text
    content = json.loads(out.read_text(encoding="utf-8"))
    assert list(content) == ["schema", "kind", "rows", "groups", "not_modelled", "given_twice"]
    (found,) = content["rows"]
    assert found["measured"] == pytest.approx(2 * found["modelled"])
    assert (found["kind"], found["profile"], found["host"]) == ("product", "T4", False)
    assert content["not_modelled"] == [
        {"workload": "play chess", "reason": "the workload is not known", "rows": 1}
    ]
    # Where the device takes twice as long, the answer is no longer one half.
    right = latency.seconds
    monkeypatch.setattr(latency, "seconds", lambda work, profile: 2 * right(work, profile))
    assert command.main([str(said)]) == 0
    assert "1.00" in capsys.readouterr().out


def test_json_has_figures_and_nothing_else(tmp_path):
    text = json.dumps(as_json([planted(0.5)], [], 0))
    assert all(math.isfinite(g["ratio"]) for g in json.loads(text)["groups"])


def test_a_part_is_what_is_modelled(tmp_path, capsys):
    lines = [("op:add", f"B{i} H64", *POINT[2:]) for i in range(1, 60)]
    path = write(tmp_path / "p.csv", POINTS, *lines)
    counts = []
    for part in ("fit", "held-out"):
        assert command.main([str(path), "--part", part]) == 0
        counts.append(int(capsys.readouterr().out.split()[0]))
    assert sum(counts) == len(lines) and min(counts) > 0


def test_long_work_says_how_far_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "PATIENCE", 0.0)
    path = write(tmp_path / "p.csv", POINTS, POINT, POINT)
    assert command.main([str(path)]) == 0
    assert "2 of 2 rows" in capsys.readouterr().err
