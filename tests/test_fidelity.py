"""The simulated device beside real ones: what is read and refused, and how near the model is."""

import contextlib
import csv
import gzip
import json
import math
import re
from statistics import median

import pytest
import torch
from harness import ROOT
from torch.utils.flop_counter import FlopCounterMode

import simgpu
from simgpu import host, latency, profiles
from tools.fidelity import (
    Comparison,
    LeftOut,
    Row,
    Unreadable,
    compare,
    compare_row,
    read,
    stepping,
)
from tools.fidelity import __main__ as command
from tools.fidelity.compare import interpret
from tools.fidelity.networks import NETWORKS
from tools.fidelity.operators import CALLS, kernels_of
from tools.fidelity.report import LONG, NEAR, as_text, groups
from tools.fidelity.stepping import model_step
from tools.fidelity.table import OPERATORS, POINTS, Unsupported, is_held_out, measured, profile_of
from tools.fidelity.work import Calls, Reading, Step

EVIDENCE = ROOT / "tools" / "fidelity" / "evidence"
POINT = ("op:add", "B128 H64", "Tesla T4", "fp32", "latency", "0.1", "ms")


@pytest.fixture(autouse=True)
def simulated():
    if problem := simgpu.unavailable_reason():
        pytest.fail(problem)


@pytest.fixture(scope="module")
def operators():
    return read(EVIDENCE / "operators.csv.gz")


@pytest.fixture(scope="module")
def points():
    return read(EVIDENCE / "points.csv.gz")


def row(workload="op:add", params="B128 H64", value="0.1", unit="ms", **more):
    given = {"hardware": "Tesla T4", "dtype": "fp32", "metric": "latency"} | more
    return Row("a.csv", 2, workload, params, value=value, unit=unit, **given)


def write(path, columns, *lines, pack=False):
    with (gzip.open if pack else open)(path, "wt", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *lines])
    return path


# --- Reading


def test_both_forms_of_table_give_the_same_rows(tmp_path):
    path = write(tmp_path / "p.csv", (*POINTS, "source_repo", "x"), (*POINT, "a/b", ""), POINT)
    assert read(path) == [Row("p.csv", 2, *POINT, source="a/b"), Row("p.csv", 3, *POINT)]
    line = ("add", "Tesla T4", "B128 H64", "0.1")
    (found,) = read(write(tmp_path / "n.csv.gz", OPERATORS, line, pack=True))
    assert found[2:9] == POINT


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
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


def test_the_part_held_out_is_two_fifths_and_the_same_wherever_a_row_stands():
    rows = [row(params=f"B{i} H{i}") for i in range(2000)]
    assert 0.35 < sum(map(is_held_out, rows)) / len(rows) < 0.45
    for each in rows[:50]:
        twin = each._replace(params=each.params + "; torch 2.1.0", file="b.csv", value="7")
        assert is_held_out(twin) == is_held_out(each)


UNITS = """ms 1 seconds 2e-3|us (derived from rounded GB/s) 1 seconds 2e-6|s 1 seconds 2|min 1000 seconds 0.12
TFLOP/s 4e12 seconds 2|GB/s 4e9 seconds 2|TB/s 4e12 seconds 2|G elements/s (unit inferred) 4e9 seconds 2
img/s 64 seconds 32|samples/s 64 seconds 32|tokens/s/GPU 64 seconds 32
GB 1 bytes 2e9|MiB per GPU 1 bytes 2097152|GiB 1 bytes 2147483648"""


@pytest.mark.parametrize("line", re.split(r"[|\n]", UNITS))
def test_a_figure_in_seconds_or_bytes(line):
    unit, amount, quantity, expected = line.rsplit(" ", 3)
    found = measured(row(value="2", unit=unit), float(amount))
    assert found == (quantity, pytest.approx(float(expected)))


CARDS = """Tesla T4: T4|NVIDIA L4: L4|NVIDIA DGX-1 (1x V100 16GB): V100|NVIDIA DGX A100 (8x A100 80GB): A100
A100 80GB PCIe: A100|NVIDIA A100-SXM4-80GB: A100|NVIDIA A100-PCIE-40GB: A100-40GB|A100-SXM4-40GB: A100-40GB
a100_40gb: A100-40GB|H100 80GB HBM3: H100|H200 141GB: H200|NVIDIA B200 SXM: B200|rtx3090: RTX 3090
1x 4090: RTX 4090|5090: RTX 5090|NVIDIA GeForce RTX 5090: RTX 5090"""
CARDS = dict(entry.split(": ") for entry in re.split(r"[|\n]", CARDS))
UNKNOWN = """H100 PCIe|NVIDIA GH200 SXM|1x A6000|pro6000maxq|NVIDIA L40S|NVIDIA T400
NVIDIA GeForce RTX 3090 Ti|NVIDIA GeForce RTX 4090 D|Simulated NVIDIA T4|MI-250x"""
UNKNOWN = re.split(r"[|\n]", UNKNOWN)


def test_a_card_finds_its_profile_or_is_named(monkeypatch):
    for card, profile in CARDS.items():
        assert profile_of(card) == profile
    for card in UNKNOWN:
        with pytest.raises(Unsupported, match=card):
            profile_of(card)
    monkeypatch.setattr(profiles, "names", lambda: ("A100",))
    assert profile_of("a100_40gb") == "A100", "for want of its own"


# --- Single operators, copies and collectives


def test_one_eager_call_is_the_kernel_and_the_hosts_work_on_it():
    found, t4 = compare_row(row()), profiles.load("T4")
    (work,) = kernels_of(found.meaning.workload).works
    assert (work.flops, work.bytes) == (128 * 64, 3 * 128 * 64 * 4) and found.meaning.host
    kernel = latency.seconds(work, t4)
    assert found.modelled == pytest.approx(host.seconds_between_events(kernel, t4, factor=compare.HOST))
    assert (found.quantity, found.measured) == ("seconds", pytest.approx(1e-4))


def test_a_kernel_from_a_profiler_is_the_kernel_alone():
    params = "meta-llama/Llama-2-7b-hf d=4096 ffn=11008 heads=32 kv=32 gated=True tokens=8 tp=4"
    found = compare_row(row("op:attn_pre_proj", params, dtype="fp16", hardware="A100 80GB (DGX)"))
    (work,) = kernels_of(found.meaning.workload).works
    assert work.flops == 2 * 8 * 4096 * 3 * 4096 / 4 and work.unit == "fp16"
    assert found.modelled == latency.seconds(work, profiles.load("A100")) and not found.meaning.host


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
    (work,) = [work for work in kernels_of(meaning.workload).works if work.matrix]
    assert work.flops == flops


def test_float32_is_multiplied_without_tf32_unless_the_row_says_so():
    a100 = {"hardware": "A100", "workload": "gemm cublasLt", "params": "m=4096 n=4096 k=4096"}
    assert (
        compare_row(row(**a100, dtype="fp32")).modelled > 3 * compare_row(row(**a100, dtype="tf32")).modelled
    )
    (conv,) = kernels_of(interpret(row("op:conv", "N6 Cin27 Cout285 k3 in5 s1 p1")).workload).works
    assert conv.unit == "fp32"


def test_bandwidths_copies_and_collectives_take_what_their_bytes_take():
    h200, card = profiles.load("H200"), {"hardware": "H200 141GB"}
    triad = compare_row(row("BabelStream Triad", "", "3", "TB/s", dtype="fp64", **card))
    (work,) = kernels_of(triad.meaning.workload).works
    assert triad.measured == pytest.approx(work.bytes / 3e12)
    copy = compare_row(row("nvbandwidth Host to Device", "", "52.8", "GB/s", **card))
    assert copy.ratio == pytest.approx(52.8e9 / h200.bus_pinned, rel=1e-3)
    ring = compare_row(row("nccl all_reduce in-place", "8 GPUs one node; message=1G", "450", "GB/s", **card))
    assert ring.measured == pytest.approx(14 / 8 * 2**30 / 450e9)
    assert ring.ratio == pytest.approx(450e9 / h200.peer, rel=0.05)
    pinned, pageable = (compare_row(row("copy:h2d", f"MiB=64 source={s}")) for s in ("pinned", "pageable"))
    assert pinned.meaning.workload.bytes == 2**26 and pinned.modelled < pageable.modelled
    small = "elements=4096; bytes moved=65536"
    stream, graph = (
        compare_row(row("repeated small scale kernel", f"{how}; {small}", dtype="fp64", **card)).modelled
        for how in ("stream launches", "cuda graph")
    )
    assert stream == h200.launch > graph


def test_calls_in_a_loop_take_as_long_as_the_slower_of_host_and_device():
    def seconds(size, how):
        return compare_row(row("call:mm", f"sizes={size}x{size}x{size}{how}")).modelled

    assert seconds(16, " timed=loop") > 3 * seconds(16, "")
    assert seconds(16, " timed=loop") == host.eager_call_seconds(profiles.load("T4"), library=True)
    assert seconds(4096, " timed=loop") == seconds(4096, "")


def test_every_call_can_be_made():
    sizes = {"linear": (1, 2, 3, 4, 1), "mm": (2, 3, 4), "bmm": (1, 2, 3, 4), "layer_norm": (2, 4)}
    sizes |= {
        "conv": (1, 3, 4, 3, 8, 1, 1),
        "embedding": (2, 9, 4),
        "rotate": (2, 4),
        "gate": (2, 8),
    }
    sizes |= {"attention": (1, 2, 4, 4, 8, 1)}
    for name in CALLS:
        made = kernels_of(Calls(name, sizes.get(name, (64,)), "float32")).works
        assert made and not any(work.guessed for work in made), name


# --- Steps of networks


def step_of(workload, params, dtype="amp", unit="samples/s", **more):
    meaning = interpret(row(workload, params, dtype=dtype, unit=unit, **more))
    return meaning.workload, meaning.amount


TIMM = "batch=64 img=224 GMACs=1.8 params_M=11 file="
NVIDIA = "NVIDIA DeepLearningExamples in NGC container; gpus="
BERT, MPT, LIT = "BERT-base inference forward", "train MPT (llm-foundry)", "finetune/infer (litgpt)"
TUNE, BOOK, CIFAR = "finetune (torchtune)", "train GPT-2 124M (book code)", "ResNet50 CIFAR10 epoch"
SPAN, WORDS = (("head", "span"),), (("head", "words"), ("fused", True))


@pytest.mark.parametrize(
    ("given", "step", "amount"),
    [
        (("infer resnet18", TIMM + "amp-nhwc-pt240-cu124-rtx4090"),
         Step("resnet18", 64, 224, "amp", channels_last=True), 64),
        (("train vit_tiny_patch16_224", TIMM + "amp_bf16-nchw-pt112-cu113-rtx3090"),
         Step("vit_tiny_patch16_224", 64, 224, "amp_bf16", "nesterov", options=(("fused", False),)), 64),
        (("resnext101-32x4d inference", "batch=8", "fp32", "img/s"),
         Step("resnext101_32x4d", 8, 224, "fp32"), 8),
        (("resnet50v1.5 inference", "batch=8", "amp", "ms"),
         Step("resnet50", 8, 224, "amp", channels_last=True), 1),
        (("resnet50v1.5 training", "gpus=1", "tf32", "img/s"),
         Step("resnet50", 256, 224, "tf32", "momentum"), 256),
        (("train resnet50", NVIDIA + "1; batch per GPU=1280", "amp fp16", "img/s"),
         Step("resnet50", 1280, 224, "amp", "momentum", scaled=True), 1280),
        (("train bert_base_squad", NVIDIA + "1; batch per GPU=24", "fp32/tf32 default"),
         Step("bert_base", 24, 384, "tf32", "adamw_fused", options=SPAN), 24),
        (("train bert_large_squad", NVIDIA + "1; batch per GPU=8", "amp fp16"),
         Step("bert_large", 8, 384, "fp16", "adamw_fused", options=SPAN), 8),
        ((BERT, "batch=2 seq=128 attention=sdpa", "fp16", "ms"),
         Step("bert_base", 2, 128, "fp16", options=WORDS), 1),
        (("BERT-base training step", "batch=4 seq=256 attention=sdpa", "fp16", "ms"),
         Step("bert_base", 4, 256, "fp16", "backward", loss="sum", kept=True, options=WORDS), 1),
        (("inference ConvNeXT", "HF model, batch=4, eager, torch 2.0.1", "fp32", "ms"),
         Step("convnext_large", 4, 224, "fp32"), 1),
        ((MPT, "MPT-1b params=1 seq=2048 gpus=8 micro_bs=4 accum=2 act_ckpt=True", "amp_bf16"),
         Step("mpt_1b", 4, 2048, "amp_bf16", "backward", clear="never",
              options=(("places", 2048), ("again", True))), 4 * 2048),
        ((LIT, "Size=13 B Model=Llama 2 Quantization=None GPU=1 | Single-GPU Inference", "x", "GB"),
         Step("llama_2_13b", 1, 1, "bf16"), 1),
        ((TUNE, "Llama 3.2 3B full_finetune_single_device batch=2 cumulative: + Packed Dataset"),
         Step("llama_3.2_3b", 2, 4096, "bf16", "adamw_fused", clear="never"), 8192),
        ((CIFAR, "non_compiled, batch 128", "fp32/tf32", "s"),
         Step("resnet50", 128, 224, "tf32", "adam", clear="between", options=(("classes", 10),)), 391),
    ],
    ids=lambda value: value[0] if type(value) is tuple else None,
)  # fmt: skip
def test_a_row_names_a_step(given, step, amount):
    metric = {"metric": "throughput"} if given[0] == MPT else {}
    assert step_of(*given, **metric) == (step, amount)


def test_memory_is_of_the_last_pass_that_writes_on_and_a_book_s_programs_differ_as_it_says():
    memory = {"metric": "peak_memory"}
    step, _ = step_of(BERT, "batch=2 seq=128 attention=sdpa", "fp16", "MB", **memory)
    assert step == Step("bert_base", 2, 255, "fp16", kept=True, options=WORDS)
    first, _ = step_of(BOOK, "00_orig baseline, batch and context")
    halfway, _ = step_of(BOOK, "cumulative: 5 Using bfloat16")
    assert (first.precision, first.mode) == ("fp32", "adamw")
    assert (halfway.precision, halfway.mode) == ("bf16", "adamw_fused")
    assert dict(first.options)["by_hand"] and dict(halfway.options)["by_hand"]
    last = dict(step_of(BOOK, "cumulative: 7 Using FlashAttention")[0].options)
    assert last["fused"] and not last["by_hand"]


def test_a_time_is_of_all_its_images_a_peak_of_one_batch_and_a_rate_of_samples_or_tokens():
    timed = ("step:resnet50", "batch=4 size=224 mode=infer images=100", "fp32")
    assert step_of(*timed, "ms")[1] == 25 and step_of(*timed, "MB")[1] == 1
    for unit in ("samples/s", "img/s", "images/s"):
        assert step_of(*timed, unit)[1] == 4
    text = ("step:gpt2", "batch=8 size=1024 mode=adamw", "fp32")
    assert step_of(*text, "tokens/s")[1] == 8 * 1024 and step_of(*text, "seq/s")[1] == 8


SUPPORTED_NOT = [
    ("play chess", "", "workload is not known"),
    ("op:cumsum", "B1 H2", "operator is not known"),
    ("op:add", "H2", "do not say B"),
    ("call:nothing", "sizes=1", "no call 'nothing'"),
    ("call:mm", "", "sizes="),
    ("layernorm", "M=1 N=2", "compiled"),
    ("stream:3pt", "occupancy=100.0%", "reads memory in this way"),
    ("stream:read", "occupancy=25.0%", "occupancy"),
    ("collective:send_recv", "size=9 bytes workers=2 devices_per_node=1", "more than one machine"),
    ("collective:shuffle", "size=9 bytes workers=2 devices_per_node=2", "is not known"),
    ("nvbandwidth Device to Device read", "", "is not said"),
    ("copy:d2d", "MiB=1 source=pinned", "not h2d or d2h"),
    ("copy:h2d", "MiB=1 source=pinned on the spot", "source="),
    ("step:chess", "batch=1 size=8 mode=sgd", "network is not known"),
    ("step:resnet50", "batch=1 size=8 mode=magic", "mode 'magic' is not known: infer, "),
    ("step:resnet50", "size=8 mode=sgd", "do not say batch"),
    ("infer resnet18", TIMM + "amp-nchw-pt240-cu124-4090-dynamo", "it was compiled"),
    ("infer efficientnet_b9", TIMM + "amp-nchw-pt240-cu124-4090", "network is not known"),
    ("train ssd", NVIDIA + "1; batch per GPU=24", "network is not known"),
    ("train resnet50", NVIDIA + "8; batch per GPU=24", "several cards"),
    ("resnet50v1.5 training", "gpus=8", "several cards"),
    ("inference ViT", "HF model, batch=1, torch.compile default", "it was compiled"),
    ("inference DETR", "HF model, batch=1, eager", "network is not known"),
    ("BERT-base encoder inference (FasterTransformer fused)", "batch=1 seq=32", "not PyTorch's"),
    (BOOK, "cumulative: 8 Using compile", "it was compiled"),
    (CIFAR, "compiled, batch 128", "it was compiled"),
    (MPT, "MPT-1b", "say it as well"),
    (LIT, "Size=7 B Model=Llama 2 Quantization=None | LoRA", "trained, on texts of unsaid length"),
    (LIT, "Quantization=bnb.nf4 | Single-GPU Inference", "quantised"),
    (LIT, "Size=3 B Quantization=None | Single-GPU Inference", "network is not known"),
    (TUNE, "Llama 3.2 3B + Packed Dataset + Compile", "compiled"),
    ("modded-nanogpt speedrun", "step", "it was compiled"),
    ("train llama3 (torchtitan)", "FSDP", "several cards"),
]


@pytest.mark.parametrize(("workload", "params", "reason"), SUPPORTED_NOT)
def test_what_cannot_be_modelled_says_why(workload, params, reason):
    found = compare_row(row(workload, params))
    assert isinstance(found, LeftOut) and reason in found.reason


STEP = {"workload": "step:resnet50", "params": "batch=1 size=8 mode=infer"}


@pytest.mark.parametrize(
    ("reason", "more"),
    [
        ("dtype 'int4'", {"dtype": "int4"}),
        ("no profile stands for the card 'MI-250x'", {"hardware": "MI-250x"}),
        ("'%'", {"unit": "%"}),
        ("known: fp32,", STEP | {"params": "batch=1 size=8 mode=sgd", "dtype": "amp"}),
        ("count", STEP | {"unit": "tokens/s"}),
        *(("no positive number", {"value": v}) for v in ("", "fast", "0", "-1", "nan", "inf")),
    ],
)
def test_what_a_row_says_that_cannot_be_modelled_is_named(reason, more):
    found = compare_row(row(**more))
    assert isinstance(found, LeftOut) and reason in found.reason


# Parameters, and 10⁹ multiply-adds of an image of 224×224, by the tables of torchvision, timm and llm-foundry
# and by Hugging Face's models.
MADE = """small_cnn 145_578 | wide_cnn 972_554 | resnet18 11_689_512 1.82 | resnet34 21_797_672
resnet50 25_557_032 4.11 | resnet101 44_549_160 7.83 | resnext101_32x4d 44_177_704
seresnext101_32x4d 48_955_416 | vgg16 138_357_544 15.47 | densenet121 7_978_856 2.87
efficientnet_b0 5_288_548 0.4 | mobilenetv3_large_100 5_483_032 0.23 | convnext_tiny 28_589_128 4.47
convnext_base 88_591_464 15.38 | convnext_large 197_767_336 | vit_tiny_patch16_224 5_717_416 1.26
vit_small_patch16_224 22_050_664 4.61 | deit_small_patch16_224 22_050_664
vit_base_patch16_224 86_567_656 17.58 | vit_large_patch16_224 304_326_632 | bert_base 109_482_240
bert_large 335_141_888 | gpt2 124_439_808 | llama_2_7b 6_738_415_616 | llama_2_13b 13_015_864_320
llama_3.2_3b 3_212_749_824 | mpt_125m 125_311_488 | mpt_350m 355_985_408 | mpt_760m 760_470_528
mpt_1b 1_315_950_592 | mpt_3b 2_651_837_440 | mpt_7b 6_658_859_008"""
SAID = [row.split() for row in re.split(r" \| |\n", MADE)]
PARAMETERS = {name: int(count) for name, count, *_ in SAID}
GMACS = {name: float(more[0]) for name, _, *more in SAID if more}


@pytest.mark.parametrize("name", sorted(set(NETWORKS) | set(PARAMETERS)))
def test_a_network_has_as_many_parameters_as_its_makers_say(name):
    with torch.device("meta"):
        made = NETWORKS[name](**({"places": 2048} if name.startswith("mpt") else {}))
    assert sum(p.numel() for p in made.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "convnext_base")) for name in GMACS],
)
def test_a_network_multiplies_as_often_as_its_makers_say(name):
    options = {"fused": False} if name.startswith("vit") else {}
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        NETWORKS[name](**options).eval()(torch.empty(1, 3, 224, 224))
    # timm's tables are rounded to 0.01, and count norms and the like.
    assert counter.get_total_flops() / 2e9 == pytest.approx(GMACS[name], rel=0.03, abs=0.02)


# --- A step on the simulated device


STEPS = [
    Step("resnet18", 2, 64, "fp32", "nesterov", channels_last=True),
    # Without a scaler: what memory held before is in the weights, and a scaler may leave a step out.
    Step("resnet18", 2, 64, "amp", "momentum", clear="between"),
    Step("mobilenetv3_large_100", 2, 64, "amp_bf16"),
    Step("bert_base", 1, 16, "fp32", "backward", options=(("head", "words"), ("dropout", 0.0))),
]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.network} {step.mode}")
def test_a_step_without_values_takes_the_time_and_memory_of_one_with_them(step, monkeypatch):
    without = model_step(step, "T4")
    model_step.cache_clear()
    monkeypatch.setattr(stepping, "NoData", contextlib.nullcontext)
    with_values = model_step(step, "T4")
    model_step.cache_clear()
    # Zeros are one operation without values and two with them; so are a few more with channels innermost,
    # on PyTorch 2.10 and 2.11 with a gradient beside its copy for a moment, and so perhaps in a segment more.
    loose = step.channels_last
    assert without["seconds"] == pytest.approx(with_values["seconds"], rel=0.06 if loose else 1e-3)
    assert without["bytes"] == pytest.approx(with_values["bytes"], rel=0.01 if loose else 0)
    assert abs(without["reserved"] - with_values["reserved"]) <= (20 * 2**20 if loose else 0)


@pytest.mark.slow
def test_memory_of_a_step_is_of_weights_gradients_and_the_optimizers_state():
    weights = 4 * PARAMETERS["vgg16"]

    def peak(precision, mode, **more):
        return model_step(Step("vgg16", 1, 32, precision, mode, **more), "A100")["bytes"]

    assert peak("fp32", "infer") == pytest.approx(weights, rel=0.05)
    assert peak("bf16", "infer") == pytest.approx(weights / 2, rel=0.05)
    # Parameters, gradients, two averages, and the square root of one of these.
    assert peak("fp32", "adam") == pytest.approx(5 * weights, rel=0.05)
    before, between, never = (peak("fp32", "sgd", clear=clear) for clear in ("before", "between", "never"))
    assert before <= between <= never  # gradients that are kept in the forward pass take memory
    assert before == pytest.approx(2 * weights, rel=0.05)


@pytest.mark.slow
def test_computing_layers_again_saves_memory_and_costs_time():
    step = Step("mpt_125m", 2, 128, "amp_bf16", "backward")
    keep, again = (
        model_step(step._replace(options=(("places", 128), ("again", twice))), "A100")
        for twice in (False, True)
    )
    assert again["bytes"] < keep["bytes"] and again["seconds"] > keep["seconds"]


def test_what_does_not_fit_is_left_out():
    step = Step("vgg16", 100_000, 224, "fp32")
    with pytest.raises(Unsupported, match="does not fit into the memory of the modelled T4"):
        model_step(step, "T4")


def test_a_measured_step_is_held_against_the_modelled_one():
    step = Step("resnet18", 2, 64, "fp32")
    seconds = model_step(step, "T4")["seconds"]
    given = row(
        "infer resnet18",
        "batch=2 img=64 GMACs=1 params_M=1 file=fp32-nchw-pt240-x-t4",
        unit="samples/s",
    )
    found = compare_row(given._replace(value=str(2 / seconds)))
    assert found.meaning == Reading("network: inference", step, amount=2)
    assert found.ratio == pytest.approx(1)
    assert compare_row(given._replace(value=str(4 / seconds))).ratio == pytest.approx(2)


# --- What others measured: all of the sample is understood, and the model is near it


def test_operators_are_modelled_every_one(operators):
    found = [compare_row(row) for row in operators[::10]]
    assert all(isinstance(each, Comparison) for each in found)
    assert all(0 < each.modelled < math.inf and each.meaning.host for each in found)
    seen = {(group.kind, group.size) for group in groups(found)}
    kinds = {"product", "convolution", "elementwise", "softmax", "norm"}
    assert {kind for kind, _ in seen} == kinds and len(seen) > len(kinds)


def test_every_point_names_its_source_and_is_understood(points):
    single = []
    for row in points:
        assert row.source
        profile_of(row.hardware)
        if not interpret(row).kind.startswith("network"):
            single.append(row)
    found = [compare_row(row) for row in single[::20]]
    assert len(found) > 50 and all(isinstance(each, Comparison) for each in found)


# Reached when this was written, on rows that nothing was fitted on: T4 0.86 and 0.85 within a quarter,
# A100s (of 40 GB in the table) 0.95 and 0.92. A gate stands at two thirds of that.
GATES = {
    ("T4", "0.1 ms and more"): (0.57, 0.13),
    ("T4", "below 0.1 ms"): (0.57, 0.15),
    ("A100-40GB", "0.1 ms and more"): (0.63, 0.06),
    ("A100-40GB", "below 0.1 ms"): (0.61, 0.12),
}
"""For a card and a size: the least share of rows within 25 %, the largest median error."""


@pytest.mark.slow
def test_most_operators_take_nearly_as_long_as_was_measured(operators):
    found: dict[tuple[str, str], list[float]] = {key: [] for key in GATES}
    for row in operators:
        each = compare_row(row)
        size = "0.1 ms and more" if each.measured >= LONG else "below 0.1 ms"
        if (each.profile, size) in found:
            found[each.profile, size].append(each.ratio)
    for key, (near, error) in GATES.items():
        ratios = found[key]
        off = [abs(ratio - 1) for ratio in ratios]
        assert len(ratios) > 100
        assert 0.9 < median(ratios) < 1.1, key
        assert median(off) < error, key
        assert sum(x <= NEAR for x in off) > near * len(off), key


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["ResNet50 CIFAR10 epoch", "resnet50v1.5 training"])
def test_a_resnet_whose_channels_stand_second_trains_on_an_a100_nearly_as_long(points, workload):
    rows = [r for r in points if r.workload == workload and "A100" in r.hardware]
    near = [
        compare_row(row).ratio
        for row in rows
        if "tf32" in row.dtype and isinstance(compare_row(row), Comparison)
    ]
    assert near  # reached: 0.79 and 0.83; without the turning round of images 0.73 and 0.76
    assert all(abs(ratio - 1) <= NEAR for ratio in near)


# --- The report


def planted(ratio, kind="product", seconds=1e-3, profile="T4", quantity="seconds"):
    meaning = Reading(kind, Calls("add", (1,), "float32"))
    return Comparison(row(), meaning, profile, quantity, seconds, ratio * seconds)


def test_the_report_names_what_it_left_out_and_how_often():
    left = [LeftOut(row("play chess"), "it is a game")] * 3
    left.append(LeftOut(row("play go"), "it is a game"))
    text = as_text([planted(0.5)], left, 7, 1)
    assert text.startswith("1 rows modelled, 4 not, and 7 given in an earlier file already.")
    assert "4  because it is a game: play chess (3), play go (1)" in text


def test_a_known_answer_goes_through_the_command(tmp_path, capsys, monkeypatch):
    works = kernels_of(Calls("mm", (4096, 4096, 4096), "float16")).works
    exact = sum(latency.seconds(work, profiles.load("T4")) for work in works) * 1e3
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


def test_a_part_is_what_is_modelled(tmp_path, capsys):
    lines = [("op:add", f"B{i} H64", *POINT[2:]) for i in range(1, 60)]
    path = write(tmp_path / "p.csv", POINTS, *lines)
    counts = []
    for part in ("fit", "held-out"):
        assert command.main([str(path), "--part", part]) == 0
        counts.append(int(capsys.readouterr().out.split()[0]))
    assert sum(counts) == len(lines) and min(counts) > 0
