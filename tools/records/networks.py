"""The networks that several experiments train, and a training step in a chosen precision.

All of them have random weights and see random data: what is measured is speed and memory, and neither
depends on what the numbers are.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_utils.devices import abilities

from .experiments import Unsuitable, Work

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
"""Strict float32; float32 with TF32 units; autocast to float16 with a GradScaler; autocast to bfloat16."""

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def optional(name: str) -> ModuleType:
    """Import and return an optional package; raise Unsuitable if it fails to load."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        first = (str(error).splitlines() or [""])[0]
        package = name.split(".")[0]
        raise Unsuitable(
            f"{package} is installed but does not load ({first}): install the build that belongs to "
            f"PyTorch {torch.__version__}"
        ) from error


def resnet50() -> nn.Module:
    """Return torchvision's ResNet-50 with random weights."""
    return optional("torchvision.models").resnet50(weights=None)


def bert(size: str) -> nn.Module:
    """Return transformers' BERT for two classes, with random weights; ``size`` is "base" or "large"."""
    wide = {"hidden_size": 1024, "intermediate_size": 4096}
    wide |= {"num_hidden_layers": 24, "num_attention_heads": 16}
    transformers = optional("transformers")
    config = transformers.BertConfig(num_labels=2, **(wide if size == "large" else {}))
    return transformers.BertForSequenceClassification(config)


def need_precision(device: torch.device, precision: str) -> None:
    """Raise Unsuitable if a device lacks a precision; emulated bfloat16 is slow, and allowed."""
    if precision == "tf32" and not abilities(device).tf32:
        raise Unsuitable("it has no TF32 units")
    if precision == "fp16" and device.type == "cpu":
        raise Unsuitable("a CPU computes float16 too slowly for training")


def need_accelerator(device: torch.device, why: str) -> None:
    """Raise Unsuitable, with the reason ``why``, if the device is the CPU."""
    if device.type == "cpu":
        raise Unsuitable(f"it needs an accelerator: {why}")


@contextlib.contextmanager
def float32_precision(tf32: bool) -> Iterator[None]:
    """Within the context, allow or forbid TF32 in matrix products and convolutions; restore the settings."""
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.allow_tf32 = before[1]


def training_step(
    loss_of: Callable[[], Tensor],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    precision: str = "fp32",
) -> Work:
    """Return a function that does one training step in one of `PRECISIONS`.

    ``loss_of`` runs the model on its batch and returns the loss.
    """
    dtype = DTYPES.get(precision)
    # With the default scale, 2**16, gradients may overflow, and the first steps would be skipped.
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**10, enabled=precision == "fp16")

    def step() -> None:
        with float32_precision(tf32=precision == "tf32"):
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype, enabled=dtype is not None):
                loss = loss_of()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return step


def image_step(
    model: nn.Module,
    device: torch.device,
    batch: int,
    pixels: int,
    precision: str = "fp32",
    channels_last: bool = False,
) -> Work:
    """Return a step of SGD with momentum on one batch of random square images, stored on the device."""
    need_precision(device, precision)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = model.to(device).to(memory_format=layout)
    images = torch.randn(batch, 3, pixels, pixels).to(device).to(memory_format=layout)
    labels = torch.randint(10, (batch,)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return training_step(lambda: cross_entropy(model(images), labels), optimizer, device, precision)


def text_step(size: str, device: torch.device, batch: int, tokens: int, precision: str = "fp32") -> Work:
    """Return a step of AdamW with BERT on one batch of random tokens, stored on the device."""
    need_precision(device, precision)
    model: Any = bert(size).to(device).train()
    words = torch.randint(1000, 30000, (batch, tokens)).to(device)
    labels = torch.randint(2, (batch,)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    return training_step(lambda: model(input_ids=words, labels=labels).loss, optimizer, device, precision)
