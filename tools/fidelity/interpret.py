"""What a row measured: the readers of the known kinds of rows, and who reads which."""

from __future__ import annotations

import re
from collections.abc import Callable

from . import operators, steps, transfers
from .rows import Row
from .workload import Interpretation, Uninterpretable

READERS: tuple[tuple[str, str, Callable[[Row], Interpretation]], ...] = (
    (r"op:", r"\bd=\d+ ffn=", operators.layer),
    (r"op:", r"", operators.eager),
    (r"call:", r"", operators.own),
    (r"copy:", r"", transfers.own),
    (r"step:", r"", steps.own),
    (r"gemm .*DeepBench", r"", operators.deepbench),
    (r"gemm cublasLt|mamf matmul", r"", operators.rate_of_product),
    (r"(matmul|softmax|layernorm)$", r"M=\d+ N=\d+", operators.wall_clock),
    (r"stream:|BabelStream ", r"", transfers.stream),
    (r"repeated small scale kernel", r"", transfers.small_kernels),
    (r"nvbandwidth ", r"", transfers.copies),
    (r"collective:|nccl all_reduce", r"", transfers.collective),
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
"""A pattern for the workload, one for its parameters, and who reads such a row; the first that fits."""


def interpret(row: Row) -> Interpretation:
    """Return what a row measured.

    Raises
    ------
    Uninterpretable
        Where nobody here knows.
    """
    for workload, params, reader in READERS:
        if re.match(workload, row.workload) and re.search(params, row.params):
            return reader(row)
    raise Uninterpretable("the workload is not known")
