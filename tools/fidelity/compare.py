"""Compares measured values with the simulated device's for the same work; no tensor data are computed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from simgpu import latency, profiles
from simgpu.clock import Clock, HostClock
from simgpu.cluster import collective_seconds
from simgpu.host import eager_call_seconds, seconds_between_events
from simgpu.profiles import Profile

from . import operators, steps
from .operators import kernels_of
from .stepping import model_step
from .table import Row, Unsupported, measured, profile_of
from .work import Calls, Collective, Copy, Reading, Step

READERS: tuple[tuple[str, str, Callable[[Row], Reading]], ...] = (
    (r"op:", r"\bd=\d+ ffn=", operators.layer),
    (r"op:", r"", operators.eager),
    (r"call:", r"", operators.own_call),
    (r"copy:", r"", operators.own_copy),
    (r"step:", r"", steps.own_step),
    (r"gemm .*DeepBench", r"", operators.deepbench),
    (r"gemm cublasLt|mamf matmul", r"", operators.rate_of_product),
    (r"(matmul|softmax|layernorm)$", r"M=\d+ N=\d+", operators.wall_clock),
    (r"stream:|BabelStream ", r"", operators.stream),
    (r"repeated small scale kernel", r"", operators.small_kernels),
    (r"nvbandwidth ", r"", operators.nvbandwidth),
    (r"collective:|nccl all_reduce", r"", operators.collective),
    (r"(infer|train) \w+$", r"img=\d+ GMACs=", steps.timm),
    (r"(se-)?resne[x]?t\S+ (inference|training)$", r"", steps.nvidia_images),
    (r"train \w+$", r"DeepLearningExamples", steps.lambda_labs),
    (r"BERT-base (inference forward|training step)|inference \S+$", r"batch=", steps.hugging_face),
    (r"BERT-base encoder inference", r"", steps.faster_transformer),
    (r"ResNet50 CIFAR10 epoch", r"", steps.cifar_epoch),
    (r"ViT-L/16 .*finetune", r"", steps.vit_finetuning),
    (r"train GPT-2 124M \(book code\)", r"", steps.book),
    (r"train MPT \(llm-foundry\)", r"", steps.llm_foundry),
    (r"finetune/infer \(litgpt\)", r"", steps.lit_gpt),
    (r"finetune \(torchtune\)", r"", steps.torchtune),
    (r"modded-nanogpt|LLM decode .*gpt-fast|CIFAR-10 .*airbench", r"", steps.compiled),
    (r"train llama3 \(torchtitan\)", r"", steps.several),
)
"""Regular expressions for workload and parameters, and the reader of such rows; the first match is used."""


def interpret(row: Row) -> Reading:
    """Return what a row measured, read by the first of `READERS` that matches it.

    Raises
    ------
    Unsupported
        If none matches, or the row cannot be modelled.
    """
    for workload, params, reader in READERS:
        if re.match(workload, row.workload) and re.search(params, row.params):
            return reader(row)
    raise Unsupported("the workload is not known")


class Comparison(NamedTuple):
    """A row's measured and modelled value; ``quantity`` is "seconds" or "bytes", ``profile`` the card's."""

    row: Row
    meaning: Reading
    profile: str
    quantity: str
    measured: float
    modelled: float

    @property
    def ratio(self) -> float:
        """Modelled over measured."""
        return self.modelled / self.measured


class LeftOut(NamedTuple):
    """A row that was not modelled, and the reason, which ends the sentence "not modelled, because …"."""

    row: Row
    reason: str


HOST = 1.0
"""The speed of the host in timings of single calls, relative to the reference host."""


def seconds_of(workload: Calls | Copy | Collective, profile: Profile, host: bool = False) -> float:
    """Return the modelled seconds on the device; with ``host``, of an eager call with the host's work.

    A copy or collective doesn't use ``host``. Calls in a loop take the longer of kernels and launches.
    """
    if isinstance(workload, Copy):
        clock = Clock(0, profile, HostClock())
        return clock.copy_seconds(workload.direction, workload.bytes, workload.pinned)
    if isinstance(workload, Collective):
        return collective_seconds(workload.name, workload.bytes, workload.ranks, profile)
    kernels = kernels_of(workload)
    seconds = sum(latency.seconds(work, profile) for work in kernels.works)
    if workload.looped:
        return max(
            seconds, eager_call_seconds(profile, kernels.library, kernels.views) if host else profile.launch
        )
    if not host:
        return seconds
    of_call = {"library": kernels.library, "views": kernels.views}
    return seconds_between_events(seconds, profile, **of_call, factor=HOST)


def compare_row(row: Row) -> Comparison | LeftOut:
    """Return a row's measured value with the modelled one, or why it is not modelled.

    Only a row that raises `Unsupported`, or whose memory isn't modelled, is a `LeftOut`. Other exceptions are
    raised.
    """
    try:
        meaning, profile = interpret(row), profile_of(row.hardware)
        quantity, real = measured(row, meaning.amount)
        if isinstance(meaning.workload, Step):
            modelled = model_step(meaning.workload, profile)
        else:
            seconds = seconds_of(meaning.workload, profiles.load(profile), meaning.host)
            modelled = {"seconds": seconds}
    except Unsupported as reason:
        return LeftOut(row, str(reason))
    figure = modelled.get(meaning.meter if quantity == "bytes" else quantity)
    if figure is None:
        return LeftOut(row, "its memory is not modelled")
    return Comparison(row, meaning, profile, quantity, real, figure)
