"""The networks of the report: they are what their names say, and a step of one is what a program sees."""

import contextlib
import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import simgpu
from simgpu import profiles
from tools.fidelity import hold, model, stepping
from tools.fidelity.interpret import interpret
from tools.fidelity.model import LeftOut
from tools.fidelity.networks import MPT, NETWORKS
from tools.fidelity.rows import Row
from tools.fidelity.stepping import run
from tools.fidelity.workload import Interpretation, Step, Uninterpretable

# Of torchvision's and timm's tables, of Hugging Face's models; of MPT, of llm-foundry's benchmarks.
PARAMETERS = {
    "small_cnn": 145_578,
    "wide_cnn": 972_554,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnext101_32x4d": 44_177_704,
    "seresnext101_32x4d": 48_955_416,
    "vgg16": 138_357_544,
    "densenet121": 7_978_856,
    "efficientnet_b0": 5_288_548,
    "mobilenetv3_large_100": 5_483_032,
    "convnext_tiny": 28_589_128,
    "convnext_base": 88_591_464,
    "convnext_large": 197_767_336,
    "vit_tiny_patch16_224": 5_717_416,
    "vit_small_patch16_224": 22_050_664,
    "deit_small_patch16_224": 22_050_664,
    "vit_base_patch16_224": 86_567_656,
    "vit_large_patch16_224": 304_326_632,
    "bert_base": 109_482_240,
    "bert_large": 335_141_888,
    "gpt2": 124_439_808,
    "llama_2_7b": 6_738_415_616,
    "llama_2_13b": 13_015_864_320,
    "llama_3.2_3b": 3_212_749_824,
    "mpt_125m": 125_311_488,
    "mpt_350m": 355_985_408,
    "mpt_760m": 760_470_528,
    "mpt_1b": 1_315_950_592,
    "mpt_3b": 2_651_837_440,
    "mpt_7b": 6_658_859_008,
}

# Products of one image of 224×224, in 10⁹ multiplications with their additions: timm's tables.
GMACS = {
    "resnet18": 1.82,
    "resnet50": 4.11,
    "resnet101": 7.83,
    "vgg16": 15.47,
    "densenet121": 2.87,
    "efficientnet_b0": 0.4,
    "mobilenetv3_large_100": 0.23,
    "convnext_tiny": 4.47,
    "convnext_base": 15.38,
    "vit_tiny_patch16_224": 1.26,
    "vit_small_patch16_224": 4.61,
    "vit_base_patch16_224": 17.58,
}


@pytest.fixture(autouse=True)
def simulated():
    if problem := simgpu.problem():
        pytest.fail(problem)


def made(name):
    with torch.device("meta"):
        return NETWORKS[name](**({"places": 2048} if name.startswith("mpt") else {}))


@pytest.mark.parametrize("name", sorted(set(NETWORKS) | set(PARAMETERS)))
def test_a_network_has_as_many_parameters_as_its_makers_say(name):
    expected = PARAMETERS[name]
    assert sum(p.numel() for p in made(name).parameters()) == expected


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "convnext_base")) for name in GMACS],
)
def test_a_network_multiplies_as_often_as_its_makers_say(name):
    options = {"fused": False} if name.startswith("vit") else {}
    with torch.device("meta"), torch.no_grad():
        network = NETWORKS[name](**options).eval()
        with FlopCounterMode(display=False) as counter:
            network(torch.empty(1, 3, 224, 224))
    # timm's tables are rounded to 0.01, and count norms and the like.
    assert counter.get_total_flops() / 2e9 == pytest.approx(GMACS[name], rel=0.03, abs=0.02)


def test_an_mpt_grows_with_the_places_it_knows():
    with torch.device("meta"):
        networks = [NETWORKS["mpt_125m"](places=places) for places in (512, 4096)]
    sizes = [sum(p.numel() for p in network.parameters()) for network in networks]
    assert sizes == [124_131_840, 126_884_352]
    assert set(MPT) == {name.removeprefix("mpt_") for name in NETWORKS if "mpt" in name}


# --- A step


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
    without = run(step, "T4")
    run.cache_clear()
    monkeypatch.setattr(stepping, "Hollow", contextlib.nullcontext)
    with_values = run(step, "T4")
    run.cache_clear()
    # Zeros are one operation without values and two with them; so are a few more with channels innermost,
    # on PyTorch 2.10 and 2.11 with a gradient beside its copy for a moment, and so perhaps in a segment more.
    loose = step.channels_last
    assert without["seconds"] == pytest.approx(with_values["seconds"], rel=0.06 if loose else 1e-3)
    assert without["bytes"] == pytest.approx(with_values["bytes"], rel=0.01 if loose else 0)
    assert abs(without["reserved"] - with_values["reserved"]) <= (20 * 2**20 if loose else 0)


def test_a_step_is_run_on_a_device_of_its_own_and_leaves_nothing():
    device = simgpu.enable("T4")
    before = torch.sim.memory_allocated(device), len(simgpu.machine.MACHINE.devices)
    run(Step("resnet18", 2, 64, "amp"), "A100")
    assert (torch.sim.memory_allocated(device), len(simgpu.machine.MACHINE.devices)) == before


def test_a_card_with_more_memory_bandwidth_takes_less_time_for_the_same_step():
    step = Step("resnet18", 64, 64, "fp32")
    t4, a100 = run(step, "T4"), run(step, "A100")
    assert t4["seconds"] > 2 * a100["seconds"]
    assert t4["bytes"] == a100["bytes"]


def test_channels_that_are_innermost_stay_so_without_values_too(monkeypatch):
    turned = []
    monkeypatch.setattr(
        stepping.simgpu.latency, "seconds", lambda work, _: turned.append(work) or 1e-6
    )
    for innermost in (True, False):
        run(Step("resnet18", 2, 64, "amp", "momentum", channels_last=innermost), "H200")
        assert any(work.turned for work in turned) is not innermost
    run.cache_clear()


@pytest.mark.slow
def test_gradients_that_are_kept_while_the_network_runs_forward_take_memory():
    peaks = {
        clear: run(Step("vgg16", 1, 32, "fp32", "sgd", clear=clear), "A100")["bytes"]
        for clear in ("before", "between", "never")
    }
    weights = 4 * PARAMETERS["vgg16"]
    assert peaks["before"] <= peaks["between"] <= peaks["never"]
    assert peaks["before"] == pytest.approx(2 * weights, rel=0.05)


def test_scores_that_are_kept_until_the_next_are_there_take_memory():
    step = Step("vgg16", 512, 32, "fp32")
    once, twice = (run(step._replace(kept=kept), "A100")["bytes"] for kept in (False, True))
    scores = 512 * 1000 * 4
    assert once + scores <= twice <= once + 2 * scores


def test_the_library_of_products_has_memory_to_work_in():
    sizes = {name: stepping.workspace(profiles.load(name)) for name in ("T4", "A100", "H100")}
    assert sizes == {"T4": 8_519_680, "A100": 8_519_680, "H100": 32 * 2**20}


def test_weights_of_16_bits_take_half_the_memory_and_adam_three_times_the_weights():
    def peak(precision, mode):
        return run(Step("vgg16", 1, 32, precision, mode), "A100")["bytes"]

    assert peak("fp32", "infer") == pytest.approx(4 * PARAMETERS["vgg16"], rel=0.05)
    assert peak("bf16", "infer") == pytest.approx(2 * PARAMETERS["vgg16"], rel=0.05)
    # Parameters, gradients, two averages, and the square root of one of these.
    assert peak("fp32", "adam") == pytest.approx(5 * 4 * PARAMETERS["vgg16"], rel=0.05)


@pytest.mark.slow
def test_computing_layers_again_saves_memory_and_costs_time():
    step = Step("mpt_125m", 2, 128, "amp_bf16", "backward")
    keep, again = (
        run(step._replace(options=(("places", 128), ("again", twice))), "A100")
        for twice in (False, True)
    )
    assert again["bytes"] < keep["bytes"] and again["seconds"] > keep["seconds"]


def test_what_does_not_fit_is_left_out():
    step = Step("vgg16", 100_000, 224, "fp32")
    with pytest.raises(Uninterpretable, match="does not fit into the memory of the modelled T4"):
        run(step, "T4")


# --- Rows of networks


def row(workload, params, dtype="amp", value="100", unit="samples/s", **more):
    given = {"hardware": "Tesla T4", "metric": "throughput"} | more
    return Row("a.csv", 2, workload, params, dtype=dtype, value=value, unit=unit, **given)


TIMM = "batch=64 img=224 GMACs=1.8 params_M=11 file="
NVIDIA = "NVIDIA DeepLearningExamples in NGC container; gpus="


@pytest.mark.parametrize(
    ("given", "step", "amount"),
    [
        (
            row("infer resnet18", TIMM + "amp-nhwc-pt240-cu124-rtx4090"),
            Step("resnet18", 64, 224, "amp", channels_last=True),
            64,
        ),
        (
            row("train vit_tiny_patch16_224", TIMM + "amp_bf16-nchw-pt112-cu113-rtx3090"),
            Step(
                "vit_tiny_patch16_224", 64, 224, "amp_bf16", "nesterov", options=(("fused", False),)
            ),
            64,
        ),
        (
            row("resnext101-32x4d inference", "batch=8", "fp32", unit="img/s"),
            Step("resnext101_32x4d", 8, 224, "fp32"),
            8,
        ),
        (
            row("resnet50v1.5 inference", "batch=8", "amp", unit="ms"),
            Step("resnet50", 8, 224, "amp", channels_last=True),
            1,
        ),
        (
            row("resnet50v1.5 training", "gpus=1", "tf32", unit="img/s"),
            Step("resnet50", 256, 224, "tf32", "momentum"),
            256,
        ),
        (
            row("train resnet50", NVIDIA + "1; batch per GPU=1280", "amp fp16", unit="img/s"),
            Step("resnet50", 1280, 224, "amp", "momentum", scaled=True),
            1280,
        ),
        (
            row("train bert_base_squad", NVIDIA + "1; batch per GPU=24", "fp32/tf32 default"),
            Step("bert_base", 24, 384, "tf32", "adamw_fused", options=(("head", "span"),)),
            24,
        ),
        (
            row("train bert_large_squad", NVIDIA + "1; batch per GPU=8", "amp fp16"),
            Step("bert_large", 8, 384, "fp16", "adamw_fused", options=(("head", "span"),)),
            8,
        ),
        (
            row("BERT-base inference forward", "batch=2 seq=128 attention=sdpa", "fp16", unit="ms"),
            Step("bert_base", 2, 128, "fp16", options=(("head", "words"), ("fused", True))),
            1,
        ),
        (  # the last of the passes that write on: the text and 127 words
            row(
                "BERT-base inference forward",
                "batch=2 seq=128 attention=sdpa",
                "fp16",
                metric="peak_memory",
                unit="MB",
            ),
            Step(
                "bert_base", 2, 255, "fp16", kept=True, options=(("head", "words"), ("fused", True))
            ),
            1,
        ),
        (
            row("BERT-base training step", "batch=4 seq=256 attention=eager", "fp16", unit="ms"),
            Step(
                "bert_base",
                4,
                256,
                "fp16",
                "backward",
                loss="sum",
                kept=True,
                options=(("head", "words"), ("fused", False)),
            ),
            1,
        ),
        (
            row("inference ConvNeXT", "HF model, batch=4, eager, torch 2.0.1", "fp32", unit="ms"),
            Step("convnext_large", 4, 224, "fp32"),
            1,
        ),
        (
            row(
                "train MPT (llm-foundry)",
                "MPT-1b params=1 seq=2048 gpus=8 micro_bs=4 accum=2 act_ckpt=True",
                "amp_bf16",
                unit="tokens/s/GPU",
            ),
            Step(
                "mpt_1b",
                4,
                2048,
                "amp_bf16",
                "backward",
                clear="never",
                options=(("places", 2048), ("again", True)),
            ),
            4 * 2048,
        ),
        (
            row(
                "finetune/infer (litgpt)",
                "Size=13 B Model=Llama 2 Quantization=None GPU=1 | Single-GPU Inference",
                unit="GB",
            ),
            Step("llama_2_13b", 1, 1, "bf16"),
            1,
        ),
        (
            row(
                "finetune (torchtune)",
                "Llama 3.2 3B full_finetune_single_device batch=2 cumulative: + Packed Dataset",
                unit="tokens/s",
            ),
            Step("llama_3.2_3b", 2, 4096, "bf16", "adamw_fused", clear="never"),
            8192,
        ),
        (
            row("ResNet50 CIFAR10 epoch", "non_compiled, batch 128", "fp32/tf32", unit="s"),
            Step("resnet50", 128, 224, "tf32", "adam", clear="between", options=(("classes", 10),)),
            391,
        ),
    ],
    ids=lambda value: value.workload if isinstance(value, Row) else None,
)
def test_a_row_names_a_step(given, step, amount):
    meaning = interpret(given)
    assert meaning.workload == step
    assert meaning.amount == amount


def test_the_books_programs_differ_as_it_says():
    def step(params, **more):
        return interpret(row("train GPT-2 124M (book code)", params, **more)).workload

    first = step("00_orig baseline, batch and context")
    halfway = step("cumulative: 5 Using bfloat16")
    assert (first.precision, first.mode) == ("fp32", "adamw")
    assert (halfway.precision, halfway.mode) == ("bf16", "adamw_fused")
    assert dict(first.options)["by_hand"] and dict(halfway.options)["by_hand"]
    last = dict(step("cumulative: 7 Using FlashAttention").options)
    assert last["fused"] and not last["by_hand"]
    memory = interpret(
        row("train GPT-2 124M (book code)", "00_orig baseline", unit="GB", value="1")
    )
    assert memory.meter == "reserved"
    assert 1e9 * memory.amount == 2**30


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (row("infer resnet18", TIMM + "amp-nchw-pt240-cu124-4090-dynamo"), "it was compiled"),
        (row("infer efficientnet_b9", TIMM + "amp-nchw-pt240-cu124-4090"), "network is not known"),
        (row("train ssd", NVIDIA + "1; batch per GPU=24"), "network is not known"),
        (row("train resnet50", NVIDIA + "8; batch per GPU=24"), "several cards"),
        (row("resnet50v1.5 training", "gpus=8"), "several cards"),
        (row("inference ViT", "HF model, batch=1, torch.compile default"), "it was compiled"),
        (row("inference DETR", "HF model, batch=1, eager", "fp32"), "network is not known"),
        (
            row("BERT-base encoder inference (FasterTransformer fused)", "batch=1 seq=32"),
            "kernels are not PyTorch's",
        ),
        (row("train GPT-2 124M (book code)", "cumulative: 8 Using compile"), "it was compiled"),
        (row("ResNet50 CIFAR10 epoch", "compiled, batch 128"), "it was compiled"),
        (row("train MPT (llm-foundry)", "MPT-1b", metric="MFU"), "say it as well"),
        (
            row("finetune/infer (litgpt)", "Size=7 B Model=Llama 2 Quantization=None | LoRA"),
            "trained, on texts of unsaid length",
        ),
        (
            row("finetune/infer (litgpt)", "Quantization=bnb.nf4 | Single-GPU Inference"),
            "quantised",
        ),
        (
            row("finetune/infer (litgpt)", "Size=3 B Quantization=None | Single-GPU Inference"),
            "network is not known",
        ),
        (row("finetune (torchtune)", "Llama 3.2 3B + Packed Dataset + Compile"), "compiled"),
        (row("modded-nanogpt speedrun", "step"), "it was compiled"),
        (row("train llama3 (torchtitan)", "FSDP"), "several cards"),
    ],
    ids=lambda value: value.workload if isinstance(value, Row) else None,
)
def test_what_is_no_step_of_a_known_network_says_why(given, reason):
    found = hold(given)
    assert isinstance(found, LeftOut) and reason in found.reason


def test_a_measured_step_is_held_against_the_modelled_one():
    step = Step("resnet18", 2, 64, "fp32")
    seconds = run(step, "T4")["seconds"]
    given = row("infer resnet18", "batch=2 img=64 GMACs=1 params_M=1 file=fp32-nchw-pt240-x-t4")
    found = hold(given._replace(value=str(2 / seconds)))
    assert found.meaning == Interpretation("network: inference", step, amount=2)
    assert found.ratio == pytest.approx(1)
    assert hold(given._replace(value=str(4 / seconds))).ratio == pytest.approx(2)


def test_memory_is_held_against_what_was_measured_of_it(monkeypatch):
    figures = {"seconds": 1.0, "bytes": 2e9, "reserved": 3 * 2.0**30}
    monkeypatch.setattr(model, "run", lambda step, profile: figures)
    bert = row("BERT-base inference forward", "batch=1 seq=8", "fp16", unit="MB", value="1000")
    book = row("train GPT-2 124M (book code)", "00_orig baseline", unit="GB", value="2")
    assert hold(bert).ratio == pytest.approx(2)
    assert hold(book).ratio == pytest.approx(1.5)
    assert json.dumps(hold(bert).quantity) == '"bytes"'


def test_a_traced_network_waits_less_for_its_host():
    step = Step("bert_base", 1, 32, "fp16", options=(("head", ""), ("embedded", False)))
    traced, eager = (run(step._replace(traced=t), "V100")["seconds"] for t in (True, False))
    assert 0.6 * eager < traced < 0.85 * eager
