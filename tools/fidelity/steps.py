"""Rows that measured a step of a whole network: which network, and how its program was written."""

from __future__ import annotations

import math
import re

from .networks import NETWORKS, input_of
from .operators import fields
from .rows import Row
from .stepping import OPTIMIZERS
from .units import BYTES, RATES, SAMPLE_RATES, TOKEN_RATES, unit_of
from .workload import Interpretation, Step, Uninterpretable

COMPILED = "it was compiled"
SEVERAL = "several cards shared the work"

INFERENCE, TRAINING = "network: inference", "network: training"


def _known(name: str) -> str:
    if name not in NETWORKS:
        raise Uninterpretable("the network is not known here")
    return name


def _field(row: Row, name: str) -> int:
    value = fields(row.params).get(name)
    if value is None:
        raise Uninterpretable(f"its parameters do not say {name}")
    return value


_OWN = {"fp32": "strict", "tf32": "tf32", "fp16": "amp", "bf16": "amp_bf16"}


def own(row: Row) -> Interpretation:
    """``step:NETWORK`` with ``batch=8 size=224 mode=momentum``, where 16 bits mean autocast.

    ``mode`` is a `Step`'s; ``channels_last=True`` and ``fused=True`` may stand beside it, and ``images=100``
    where the time is of so many. A rate counts samples, or the tokens of a text.
    """
    known = dict(re.findall(r"(\w+)=(\w+)", row.params))
    mode, dtype = known.get("mode", ""), row.dtype
    modes = ("infer", "backward", *OPTIMIZERS)
    if mode not in modes:
        raise Uninterpretable(f"its mode {mode!r} is not known: {', '.join(modes)} are")
    if dtype not in _OWN:
        raise Uninterpretable(f"its dtype {dtype!r} is not known: {', '.join(_OWN)} are")
    step = Step(
        _known(row.workload.removeprefix("step:")),
        batch := _field(row, "batch"),
        _field(row, "size"),
        _OWN[dtype],
        mode,
        channels_last=known.get("channels_last") == "True",
        scaled=dtype == "fp16" and mode != "infer",
        options=(("fused", True),) if known.get("fused") == "True" else (),
    )
    kind = INFERENCE if mode == "infer" else TRAINING
    if unit_of(row) in RATES:
        return Interpretation(kind, step, amount=_done_in(step, unit_of(row)))
    images = batch if unit_of(row) in BYTES else int(known.get("images", batch))
    return Interpretation(kind, step, amount=images / batch)


def _done_in(step: Step, rate: str) -> int:
    """Return how much of what a rate counts is done in one step: samples, or the tokens in them."""
    if rate in SAMPLE_RATES:
        return step.batch
    shape, _ = input_of(step)
    if rate in TOKEN_RATES and len(shape) == 2:
        return step.batch * step.size
    raise Uninterpretable(f"a rate in {rate!r} does not count what this step does")


def timm(row: Row) -> Interpretation:
    """Rows of pytorch-image-models: the name of the file tells precision, layout and version."""
    task, name = row.workload.split()
    found = re.search(
        r"batch=(\d+)(?:\.0)? img=(\d+) .*file=(\w+)-(nchw|nhwc)-pt(\d+)\S*", row.params
    )
    if found is None:
        raise Uninterpretable("its parameters do not say batch, img and file")
    if "dynamo" in found[0]:
        raise Uninterpretable(COMPILED)
    batch, size = int(found[1]), int(found[2])
    options: tuple[tuple[str, object], ...] = ()
    if name.startswith(("vit", "deit")) and int(found[5]) < 200:
        options = (("fused", False),)  # before PyTorch 2.0
    training = task == "train"
    step = Step(
        _known(name),
        batch,
        size,
        found[3],
        "nesterov" if training else "infer",
        channels_last=found[4] == "nhwc",
        options=options,
    )
    return Interpretation(TRAINING if training else INFERENCE, step, amount=_samples(row, batch))


def _samples(row: Row, batch: int) -> float:
    """Return how many samples a rate counts, and for a time that it is of one step."""
    return batch if "/s" in row.unit else 1


# --- NVIDIA's own programs (DeepLearningExamples, and Lambda's runs of them)

_NVIDIA = {
    "resnet50": "resnet50",
    "resnet50v1.5": "resnet50",
    "resnext101-32x4d": "resnext101_32x4d",
    "se-resnext101-32x4d": "seresnext101_32x4d",
}

# What they train with where the row does not say: their configs.yml. The rate hardly depends on it.
_BATCH = {
    ("resnet50", "amp"): 256,
    ("resnet50", "tf32"): 256,
    ("resnet50", "fp32"): 112,
    ("resnext101_32x4d", "amp"): 128,
    ("resnext101_32x4d", "tf32"): 128,
    ("resnext101_32x4d", "fp32"): 64,
    ("seresnext101_32x4d", "amp"): 112,
    ("seresnext101_32x4d", "tf32"): 128,
    ("seresnext101_32x4d", "fp32"): 64,
}


def nvidia_images(row: Row) -> Interpretation:
    """Return inference or training of a ResNet: with autocast, images have their channels innermost."""
    name, task = row.workload.split()
    network, amp = _NVIDIA[name], row.dtype == "amp"
    if task == "inference":
        batch = _field(row, "batch")
        step = Step(network, batch, 224, row.dtype, channels_last=amp)
        return Interpretation(INFERENCE, step, amount=_samples(row, batch))
    if _field(row, "gpus") != 1:
        raise Uninterpretable(SEVERAL)
    batch = _BATCH[network, row.dtype]
    step = Step(network, batch, 224, row.dtype, "momentum", channels_last=amp, scaled=amp)
    return Interpretation(TRAINING, step, amount=batch)


def lambda_labs(row: Row) -> Interpretation:
    """Return training of a ResNet-50 on images or of BERT on questions of 384 tokens.

    They start NVIDIA's program of the ResNet-50 without its option for the layout, and get its default:
    channels stand second, with autocast too. Their images are made up, so no loader is waited for.
    """
    name = row.workload.removeprefix("train ")
    if name not in ("resnet50", "bert_base_squad", "bert_large_squad"):
        raise Uninterpretable("the network is not known here")
    if _field(row, "gpus") != 1:
        raise Uninterpretable(SEVERAL)
    found = re.search(r"batch per GPU=(\d+)", row.params)
    if found is None:
        raise Uninterpretable("its parameters do not say the batch")
    batch, amp = int(found[1]), row.dtype.startswith("amp")
    precision = "amp" if amp else "tf32"
    if name == "resnet50":
        step = Step(name, batch, 224, precision, "momentum", scaled=amp)
    else:
        # Their mixed precision is Apex's O2: weights and activations of 16 bits.
        network, options = name.removesuffix("_squad"), (("head", "span"),)
        half = "fp16" if amp else "tf32"
        step = Step(network, batch, 384, half, "adamw_fused", options=options)
    return Interpretation(TRAINING, step, amount=batch)


# --- Hugging Face's models

WORDS_WRITTEN = 128
"""Words that BERT writes on: not stated, but its peak of memory grows with the batch as if it were these."""


def hugging_face(row: Row) -> Interpretation:
    """BERT with a score for every word; and images, attention by hand and in three products.

    BERT is trained on the sum of its scores. What is said of its inference is of writing on, one word
    after the other, each time with the whole text: the last pass has the most memory.
    """
    if "compile default" in row.params:
        raise Uninterpretable(COMPILED)
    batch = _field(row, "batch")
    if row.workload.startswith("BERT-base"):
        fused = "attention=sdpa" in row.params
        options = (("head", "words"), ("fused", fused))
        training = "training" in row.workload
        step = Step("bert_base", batch, _field(row, "seq"), "fp16", options=options)
        if training:
            step = step._replace(mode="backward", loss="sum", kept=True)
        elif row.metric == "peak_memory":
            step = step._replace(size=step.size + WORDS_WRITTEN - 1, kept=True)
        return Interpretation(TRAINING if training else INFERENCE, step)
    name = row.workload.removeprefix("inference ")
    networks = {
        "ViT": ("vit_base_patch16_224", (("fused", False), ("joint", False))),
        "ConvNeXT": ("convnext_large", ()),
        "ResNet": ("resnet50", ()),
    }
    if name not in networks:
        raise Uninterpretable("the network is not known here")
    network, options = networks[name]
    return Interpretation(INFERENCE, Step(network, batch, 224, "fp32", options=options))


def faster_transformer(row: Row) -> Interpretation:
    """BERT's layers alone, traced; that TorchScript joins small operations is not modelled."""
    if "TorchScript" not in row.workload:
        raise Uninterpretable("its kernels are not PyTorch's")
    options = (("head", ""), ("embedded", False))
    precision = row.dtype.lower()
    batch, tokens = _field(row, "batch"), _field(row, "seq")
    step = Step("bert_base", batch, tokens, precision, traced=True, options=options)
    return Interpretation("network: traced", step)


# --- Courses and books


def cifar_epoch(row: Row) -> Interpretation:
    """One epoch of ResNet-50 over the 50,000 images of CIFAR-10, made 224 pixels wide."""
    if not row.params.startswith("non_compiled"):
        raise Uninterpretable(COMPILED)
    step = Step("resnet50", 128, 224, "tf32", "adam", clear="between", options=(("classes", 10),))
    return Interpretation(TRAINING, step, amount=math.ceil(50_000 / 128))


_VIT = {  # batch, precision, optimiser, whether the loss is scaled, when gradients are dropped
    "01_pytorch-vit": (64, "fp32", "adam", False, "between"),
    "01-2_pytorch-fabric": (64, "fp32", "adam", False, "between"),
    "02_mixed-precision": (64, "amp", "adam", True, "between"),
    "03_bfloat16": (64, "bf16", "adam", False, "between"),
    "04_lower-batchsize": (16, "bf16", "adam", False, "between"),
    "05_gradient-accum": (4, "bf16", "adam", False, "never"),
    "06_sgd-with-scheduler": (4, "bf16", "sgd", False, "never"),
}


def vit_finetuning(row: Row) -> Interpretation:
    """ViT-L/16 over the 45,000 images of CIFAR-10 that are trained on, and 5,000 that are not."""
    known = _VIT.get(row.params.partition(".py")[0])
    if known is None:
        raise Uninterpretable("several cards shared the work, or the network is not known here")
    batch, precision, mode, scaled, clear = known
    step = Step(
        "vit_large_patch16_224",
        batch,
        224,
        precision,
        mode,
        scaled=scaled,
        clear=clear,
        options=(("classes", 10),),
    )
    if row.unit == "GB":
        return Interpretation(TRAINING, step, meter="reserved")
    if clear == "never":
        raise Uninterpretable("its optimiser steps once in four batches")
    # A batch that is only looked at counts as a third of one that is trained on.
    return Interpretation(TRAINING, step, amount=(45_000 + 5_000 / 3) / batch)


# What changed at each of its steps, from its first program on.
_BOOK: tuple[dict[str, object], ...] = (
    {"precision": "fp32", "mode": "adamw", "by_hand": True, "fused": False, "joint": False},
    {},  # a mask that is made anew, not kept
    {"precision": "tf32"},
    {"mode": "adamw_fused"},
    {},  # pinned memory
    {"precision": "bf16"},
    {"by_hand": False},
    {"fused": True, "joint": True},
)


def book(row: Row) -> Interpretation:
    """GPT-2 in eight batches of 1,024 tokens, as a book's program becomes faster step by step."""
    found = re.match(r"(?:00_orig|cumulative: (\d+)) ", row.params)
    number = int(found[1] or 0) if found else len(_BOOK)
    if number >= len(_BOOK):
        raise Uninterpretable(COMPILED)
    settings = {k: v for change in _BOOK[: number + 1] for k, v in change.items()}
    precision, mode = settings.pop("precision"), settings.pop("mode")
    options = (*settings.items(), ("bias", False), ("tied", False), ("dropout", 0.1))
    step = Step("gpt2", 8, 1024, precision, mode, options=options)
    if row.unit == "GB":
        return Interpretation(TRAINING, step, amount=2**30 / 1e9, meter="reserved")
    return Interpretation(TRAINING, step, amount=8 * 1024)


def llm_foundry(row: Row) -> Interpretation:
    """MPT on the cards of one machine that share its weights: what one of them computes.

    The optimiser is left out, because each card does its own share once in many batches, and so is the
    exchange among the cards.
    """
    if row.metric != "throughput":
        raise Uninterpretable("the same run's tokens a second say it as well")
    if _field(row, "gpus") > 8:
        raise Uninterpretable("the cards stand in more than one machine")
    if row.dtype not in ("amp_bf16", "bf16"):
        raise Uninterpretable(f"the dtype {row.dtype!r} is not modelled")
    name, batch, tokens = row.params.split()[0], _field(row, "micro_bs"), _field(row, "seq")
    options = (("places", tokens), ("again", "act_ckpt=True" in row.params))
    network = _known(name.lower().replace("-", "_"))
    step = Step(network, batch, tokens, "amp_bf16", "backward", clear="never", options=options)
    return Interpretation("network: shared training", step, amount=batch * tokens)


def lit_gpt(row: Row) -> Interpretation:
    """Memory of a Llama that says one word after the other; the words it keeps are few."""
    if "Single-GPU Inference" not in row.params:
        raise Uninterpretable("a part of its weights is trained, on texts of unsaid length")
    if "Quantization=None" not in row.params:
        raise Uninterpretable("its weights are quantised")
    found = re.search(r"Size=(\d+) B Model=Llama 2 ", row.params)
    if found is None:
        raise Uninterpretable("the network is not known here")
    return Interpretation(INFERENCE, Step(_known(f"llama_2_{found[1]}b"), 1, 1, "bf16"))


def torchtune(row: Row) -> Interpretation:
    """Llama 3.2 3B with full texts of 4,096 tokens: every other run differs in more than a setting."""
    if not row.params.endswith("+ Packed Dataset"):
        raise Uninterpretable("its texts are of unsaid length, or it was compiled or quantised")
    step = Step("llama_3.2_3b", 2, 4096, "bf16", "adamw_fused", clear="never")
    return Interpretation(TRAINING, step, amount=2 * 4096 if "/s" in row.unit else 1)


def compiled(row: Row) -> Interpretation:
    """Refuse what was compiled, most of it with kernels of its own."""
    raise Uninterpretable(COMPILED)


def several(row: Row) -> Interpretation:
    """Refuse what many cards did together."""
    raise Uninterpretable(SEVERAL)
