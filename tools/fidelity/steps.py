"""Readers of rows of whole networks: which network, and which step its program runs.

A reader returns the row's `Reading`. It raises `Unsupported` if the row does not say what it needs, if the
network is not in `NETWORKS`, or if the step cannot be modelled.
"""

from __future__ import annotations

import math
import re
from typing import Any

from .networks import NETWORKS, input_shapes
from .stepping import OPTIMIZERS
from .table import BYTES, RATES, SAMPLE_RATES, TOKEN_RATES, Row, Unsupported, field, match, unit_of
from .work import Reading, Step

COMPILED = "it was compiled"
SEVERAL = "several cards shared the work"


def _reading(step: Step, kind: str = "", **more: Any) -> Reading:
    """Return the reading of a network's step; ``more`` are fields of `Reading`.

    Raises
    ------
    Unsupported
        If the network is not in `NETWORKS`.
    """
    if step.network not in NETWORKS:
        raise Unsupported("the network is not known here")
    return Reading(f"network: {kind or ('inference' if step.mode == 'infer' else 'training')}", step, **more)


_OWN = {"fp32": "strict", "tf32": "tf32", "fp16": "amp", "bf16": "amp_bf16"}


def own_step(row: Row) -> Reading:
    """Read ``step:NETWORK`` with ``batch=8 size=224 mode=momentum``; dtypes of 16 bits mean autocast.

    ``mode`` is as in `Step`; ``channels_last=True`` and ``fused=True`` may follow, and ``images=100`` if the
    time is of that many images. A rate counts samples, or the tokens of a text. Unsupported for another mode,
    dtype or rate.
    """
    known = dict(re.findall(r"(\w+)=(\w+)", row.params))
    mode, dtype, unit = known.get("mode", ""), row.dtype, unit_of(row)
    modes = ("infer", "backward", *OPTIMIZERS)
    if mode not in modes:
        raise Unsupported(f"its mode {mode!r} is not known: {', '.join(modes)} are")
    if dtype not in _OWN:
        raise Unsupported(f"its dtype {dtype!r} is not known: {', '.join(_OWN)} are")
    batch, size = field(row, "batch size")
    options = (("fused", True),) if known.get("fused") == "True" else ()
    last, scaled = known.get("channels_last") == "True", dtype == "fp16" and mode != "infer"
    network = row.workload.removeprefix("step:")
    step = Step(network, batch, size, _OWN[dtype], mode, last, scaled, options=options)
    reading = _reading(step)
    if unit not in RATES:
        images = batch if unit in BYTES else int(known.get("images", batch))
        return reading._replace(amount=images / batch)
    text = len(input_shapes(step)[0]) == 2
    if unit not in SAMPLE_RATES and not (unit in TOKEN_RATES and text):
        raise Unsupported(f"a rate in {unit!r} does not count what this step does")
    return reading._replace(amount=batch if unit in SAMPLE_RATES else batch * size)


def _amount(row: Row, batch: int) -> int:
    """Return the `Reading.amount`: ``batch`` for a rate; 1 for a time, which is of one step."""
    return batch if "/s" in row.unit else 1


def timm(row: Row) -> Reading:
    """Return what a row of pytorch-image-models says: a step of training with Nesterov, or of inference.

    Parameters give the batch and the image's side; the file's name precision, layout and PyTorch's version:
    before 2.0, attention is not fused. A rate is of images, a time of one step.

    Raises
    ------
    Unsupported
        If the parameters lack one of these, the model was compiled, or the network is not in `NETWORKS`.
    """
    task, name = row.workload.split()
    pattern = r"batch=(\d+)(?:\.0)? img=(\d+) .*file=(\w+)-(nchw|nhwc)-pt(\d+)\S*"
    parts = match(row, pattern, "batch, img and file")
    if "dynamo" in parts[0]:
        raise Unsupported(COMPILED)
    old = name.startswith(("vit", "deit")) and int(parts[5]) < 200  # before PyTorch 2.0
    options = (("fused", False),) if old else ()
    mode, batch = "nesterov" if task == "train" else "infer", int(parts[1])
    step = Step(name, batch, int(parts[2]), parts[3], mode, parts[4] == "nhwc", options=options)
    return _reading(step, amount=_amount(row, batch))


# --- NVIDIA's own programs (DeepLearningExamples, and Lambda's runs of them)

_NVIDIA = {"resnet50": "resnet50", "resnet50v1.5": "resnet50"}
_NVIDIA |= {"resnext101-32x4d": "resnext101_32x4d", "se-resnext101-32x4d": "seresnext101_32x4d"}
# Batch sizes in their configs.yml, which rows do not state. The rate hardly depends on them.
_BATCH = {
    "resnet50": {"amp": 256, "tf32": 256, "fp32": 112},
    "resnext101_32x4d": {"amp": 128, "tf32": 128, "fp32": 64},
    "seresnext101_32x4d": {"amp": 112, "tf32": 128, "fp32": 64},
}


def _require_one_gpu(row: Row) -> None:
    """Raise Unsupported unless the row is of one GPU."""
    if field(row, "gpus") != [1]:
        raise Unsupported(SEVERAL)


def nvidia_images(row: Row) -> Reading:
    """Return NVIDIA's step of inference or training of a ResNet; with autocast, in channels_last.

    Training's batch is that of `_BATCH`, because rows don't state it. A rate is of images.
    Unsupported for another network or, in training, another dtype than `_BATCH` has.
    """
    name, task = row.workload.split()
    if name not in _NVIDIA:
        raise Unsupported("the network is not known here")
    network, amp = _NVIDIA[name], row.dtype == "amp"
    if task == "inference":
        (batch,) = field(row, "batch")
        return _reading(Step(network, batch, 224, row.dtype, "infer", amp), amount=_amount(row, batch))
    _require_one_gpu(row)
    batch = _BATCH.get(network, {}).get(row.dtype)
    if batch is None:
        raise Unsupported("the batch is not known here")
    return _reading(Step(network, batch, 224, row.dtype, "momentum", amp, amp), amount=batch)


def lambda_labs(row: Row) -> Reading:
    """Return Lambda's training step of a ResNet-50 on images, or of BERT on questions of 384 tokens.

    They run NVIDIA's ResNet-50 without its option for the layout, so channels come second, also with
    autocast. Their images are synthetic, so no loader is waited for. The value is a rate, of
    samples. Unsupported for other networks or several cards.
    """
    name = row.workload.removeprefix("train ")
    if name not in ("resnet50", "bert_base_squad", "bert_large_squad"):
        raise Unsupported("the network is not known here")
    _require_one_gpu(row)
    batch, amp = (
        int(match(row, r"batch per GPU=(\d+)", "the batch")[1]),
        row.dtype.startswith("amp"),
    )
    if name == "resnet50":
        step = Step(name, batch, 224, "amp" if amp else "tf32", "momentum", scaled=amp)
    else:  # their mixed precision is Apex's O2: weights and activations of 16 bits
        half, options = "fp16" if amp else "tf32", (("head", "span"),)
        step = Step(name.removesuffix("_squad"), batch, 384, half, "adamw_fused", options=options)
    return _reading(step, amount=batch)


# --- Hugging Face's models

_WRITTEN = 128
"""Tokens that BERT generates; not stated, but inferred from its peak memory at several batch sizes."""
_IMAGES: dict[str, tuple[str, tuple[tuple[str, object], ...]]] = {
    "ViT": ("vit_base_patch16_224", (("fused", False), ("joint", False))),
    "ConvNeXT": ("convnext_large", ()),
    "ResNet": ("resnet50", ()),
}


def hugging_face(row: Row) -> Reading:
    """Return Hugging Face's step: BERT with a score for each word, or image models with unfused attention.

    BERT is trained on the sum of its scores. Its inference generates one word after the other from the whole
    text: the last pass has the most memory. Unsupported if it was compiled, or for another image model.
    """
    if "compile default" in row.params:
        raise Unsupported(COMPILED)
    (batch,) = field(row, "batch")
    if row.workload.startswith("BERT-base"):
        options = (("head", "words"), ("fused", "attention=sdpa" in row.params))
        step = Step("bert_base", batch, *field(row, "seq"), "fp16", options=options)
        if "training" in row.workload:
            step = step._replace(mode="backward", loss="sum", kept=True)
        elif row.metric == "peak_memory":
            step = step._replace(size=step.size + _WRITTEN - 1, kept=True)
        return _reading(step)
    network, options = _IMAGES.get(row.workload.removeprefix("inference "), ("", ()))
    return _reading(Step(network, batch, 224, "fp32", options=options))


def faster_transformer(row: Row) -> Reading:
    """Return FasterTransformer's step: BERT's layers alone, in TorchScript, whose fusion is not modelled.

    Unsupported for its other rows, whose kernels are not PyTorch's.
    """
    if "TorchScript" not in row.workload:
        raise Unsupported("its kernels are not PyTorch's")
    options = (("head", ""), ("embedded", False))
    sizes = field(row, "batch seq")
    step = Step("bert_base", *sizes, row.dtype.lower(), traced=True, options=options)
    return _reading(step, "traced")


# --- Courses and books


def cifar_epoch(row: Row) -> Reading:
    """Return the step of ResNet-50 on CIFAR-10's images, enlarged to 224 × 224; Unsupported if compiled.

    The value is the time of an epoch, 50,000 images.
    """
    if not row.params.startswith("non_compiled"):
        raise Unsupported(COMPILED)
    step = Step("resnet50", 128, 224, "tf32", "adam", clear="between", options=(("classes", 10),))
    return _reading(step, amount=math.ceil(50_000 / 128))


_VIT = {  # batch, precision, optimiser, when gradients are cleared
    "01_pytorch-vit": (64, "fp32", "adam", "between"),
    "01-2_pytorch-fabric": (64, "fp32", "adam", "between"),
    "02_mixed-precision": (64, "amp", "adam", "between"),
    "03_bfloat16": (64, "bf16", "adam", "between"),
    "04_lower-batchsize": (16, "bf16", "adam", "between"),
    "05_gradient-accum": (4, "bf16", "adam", "never"),
    "06_sgd-with-scheduler": (4, "bf16", "sgd", "never"),
}


def vit_finetuning(row: Row) -> Reading:
    """Return the training step of ViT-L/16 in a row over CIFAR-10: 45,000 images to train, 5,000 to validate.

    In GB it is the peak of reserved memory, else the time of an epoch, as so many steps: an image of
    validation counts a third.

    Raises
    ------
    Unsupported
        If the program is none of `_VIT`, or for a time if it steps the optimiser once in four batches.
    """
    known = _VIT.get(row.params.partition(".py")[0])
    if known is None:
        raise Unsupported("several cards shared the work, or the network is not known here")
    batch, precision, mode, clear = known
    how = {"scaled": precision == "amp", "clear": clear, "options": (("classes", 10),)}
    step = Step("vit_large_patch16_224", batch, 224, precision, mode, **how)
    if row.unit == "GB":
        return _reading(step, meter="reserved")
    if clear == "never":
        raise Unsupported("its optimiser steps once in four batches")
    # A batch of validation counts as a third of one of training.
    return _reading(step, amount=(45_000 + 5_000 / 3) / batch)


# The changes of settings in each version of the program.
_BOOK: tuple[dict[str, object], ...] = (
    {"precision": "fp32", "mode": "adamw", "by_hand": True, "fused": False, "joint": False},
    {},  # the mask is created in each call
    {"precision": "tf32"},
    {"mode": "adamw_fused"},
    {},  # pinned memory
    {"precision": "bf16"},
    {"by_hand": False},
    {"fused": True, "joint": True},
)


def book(row: Row) -> Reading:
    """Return GPT-2's step, a batch of 8 × 1,024 tokens, in a version of a book's program that becomes faster.

    In GB, which are of 2^30 bytes, it is the peak of reserved memory, else a rate of tokens. Unsupported for
    the versions that are compiled.
    """
    program = re.match(r"(?:00_orig|cumulative: (\d+)) ", row.params)
    number = int(program[1] or 0) if program else len(_BOOK)
    if number >= len(_BOOK):
        raise Unsupported(COMPILED)
    settings = {k: v for change in _BOOK[: number + 1] for k, v in change.items()}
    precision, mode = settings.pop("precision"), settings.pop("mode")
    options = (*settings.items(), ("bias", False), ("tied", False), ("dropout", 0.1))
    step = Step("gpt2", 8, 1024, precision, mode, options=options)
    memory = row.unit == "GB"  # of 2^30 bytes
    more = {"amount": 2**30 / 1e9, "meter": "reserved"} if memory else {"amount": 8 * 1024}
    return _reading(step, **more)


def llm_foundry(row: Row) -> Reading:
    """Return the step of an MPT whose weights are sharded over one machine's cards: what one card computes.

    The optimiser is left out, because each card updates its own shard once in many batches, and so is the
    communication among the cards. The rate is of tokens. Unsupported for other metrics than the throughput,
    for more than 8 cards, and for dtypes without bfloat16.
    """
    if row.metric != "throughput":
        raise Unsupported("the same run's tokens a second say it as well")
    gpus, batch, tokens = field(row, "gpus micro_bs seq")
    if gpus > 8:
        raise Unsupported("the cards stand in more than one machine")
    if row.dtype not in ("amp_bf16", "bf16"):
        raise Unsupported(f"the dtype {row.dtype!r} is not modelled")
    network = row.params.split()[0].lower().replace("-", "_")
    options = (("places", tokens), ("again", "act_ckpt=True" in row.params))
    step = Step(network, batch, tokens, "amp_bf16", "backward", clear="never", options=options)
    return _reading(step, "shared training", amount=batch * tokens)


def lit_gpt(row: Row) -> Reading:
    """Return the step of a Llama 2 that generates one token at a time; its key-value cache is neglected.

    Unsupported if it is trained, quantised, or another network.
    """
    if "Single-GPU Inference" not in row.params:
        raise Unsupported("a part of its weights is trained, on texts of unsaid length")
    if "Quantization=None" not in row.params:
        raise Unsupported("its weights are quantised")
    size = re.search(r"Size=(\d+) B Model=Llama 2 ", row.params)
    return _reading(Step(f"llama_2_{size[1]}b" if size else "", 1, 1, "bf16"))


def torchtune(row: Row) -> Reading:
    """Return the training step of Llama 3.2 3B on two packed texts of 4,096 tokens.

    A rate is of tokens, a time of one step. Unsupported unless packing is the setting that was added last.
    """
    if not row.params.endswith("+ Packed Dataset"):
        raise Unsupported("its texts are of unsaid length, or it was compiled or quantised")
    step = Step("llama_3.2_3b", 2, 4096, "bf16", "adamw_fused", clear="never")
    return _reading(step, amount=_amount(row, 2 * 4096))


def compiled(row: Row) -> Reading:
    """Raise Unsupported: the row is of a compiled model, mostly with kernels of its own."""
    raise Unsupported(COMPILED)


def several(row: Row) -> Reading:
    """Raise Unsupported: the row is of several cards."""
    raise Unsupported(SEVERAL)
