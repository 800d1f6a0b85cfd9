"""Experiments of lesson 01: the parts of a device's speed, each by itself."""

from __future__ import annotations

import torch

from tools.fidelity.convolutional import small_cnn

from .experiments import Parameters, Work, experiment, grid
from .networks import DTYPES, float32_precision, image_step, need_precision, resnet50, text_step


def _powers(name: str, exponents: range) -> list[Parameters]:
    """Return parameters with powers of two."""
    return [{name: 2**exponent} for exponent in exponents]


@experiment(
    sweep=[*_powers("size", range(5, 13)), {"size": 5000}, {"size": 8192}],
    quick=_powers("size", range(5, 12, 2)),
    flops=lambda p: 2 * p["size"] ** 3,
    matrix_units=False,
)
def matmul(device: torch.device, size: int) -> Work:
    """Multiply two float32 matrices of ``size`` × ``size``: 2·size³ FLOPs.

    Claimed: a GPU is faster than a CPU (the seeds, at large); the lesson says from which size on.
    Refuted by: a GPU that is slower at every size, or faster at the smallest.
    """
    a, b = torch.rand(2, size, size, device=device)
    return lambda: a @ b


@experiment(
    sweep=_powers("numbers", range(0, 26)),
    quick=_powers("numbers", range(0, 25, 6)),
    bytes=lambda p: 12 * p["numbers"],
    matrix_units=False,
)
def add(device: torch.device, numbers: int) -> Work:
    """Add one float32 vector to another in place: one FLOP and 12 bytes moved a number.

    Claimed: nothing; it shows the cost of a call, and beyond the last-level cache the memory's rate.
    Refuted by: a time that is proportional to the size from one number on.
    """
    a, b = torch.rand(2, numbers, device=device)
    return lambda: a.add_(b)


@experiment(
    sweep=_powers("numbers", range(20, 26)),
    quick=_powers("numbers", range(24, 25)),
    bytes=lambda p: 8 * p["numbers"],
)
def copy(device: torch.device, numbers: int) -> Work:
    """Copy a float32 vector within the device: 8 bytes moved a number.

    Claimed: nothing; it gives the memory's rate, from vectors that are larger than the last-level cache.
    Refuted by: a rate above the published bandwidth of the device for such vectors. Smaller ones are
    served by the cache, whose rate is higher.
    """
    source = torch.rand(numbers, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


@experiment()
def launch(device: torch.device) -> Work:
    """Add 1 to a single float32 number: nearly all of it is the cost of a call.

    Claimed: nothing; it is an example of what a call costs. It is not the least: adding two tensors can
    take less, because here PyTorch first makes a tensor of the number.
    Refuted by: a time that is far from that of other short operations.
    """
    x = torch.zeros(1, device=device)
    return lambda: x.add_(1)


@experiment(sweep=[{"batch": 64}, {"batch": 1024}], seconds=5, longest=10.0)
def cifar_step(device: torch.device, batch: int) -> Work:
    """Train a small CNN in float32 on synthetic images of the shape of CIFAR-10 for one step of SGD.

    Claimed: training is 10 to 100 times as fast on a GPU
    (seed "PyTorch学习指南"); 100 epochs of CIFAR-10 in 25 s on a CPU and 2.5 s on a GPU
    (seed "PyTorch GPU加速训练核心技术指南", part 3), which is 200,000 and 2,000,000 images
    a second; from hours to less than 20 minutes (seed "深度学习 GPU 两种使用方法").
    Refuted by: rates and a ratio outside those ranges at both batch sizes.
    """
    return image_step(small_cnn(), device, batch, 32)


@experiment(
    sweep=grid(batch=(1, 32, 100), precision=("fp32", "fp16")),
    quick=[{"batch": 1, "precision": "fp32"}],
    seconds=30,
    longest=60.0,
    needs=("torchvision",),
)
def resnet50_inference(device: torch.device, batch: int, precision: str) -> Work:
    """Classify 100 synthetic images of 224 × 224 with ResNet-50, ``batch`` at a time.

    Claimed: 8.7 s on a CPU, 0.9 s on a GPU, 9.7 times as fast
    (seed "PyTorch GPU加速训练核心技术指南", part 3).
    Refuted by: a speed-up far from 9.7 times at every batch size. The images are on the device already.
    """
    need_precision(device, precision)
    model = resnet50().to(device).eval()
    batches = torch.randn(100, 3, 224, 224).to(device).split(batch)
    dtype = DTYPES.get(precision)

    @torch.inference_mode()
    def classify() -> None:
        with (
            float32_precision(tf32=False),
            torch.autocast(device.type, dtype, enabled=dtype is not None),
        ):
            for images in batches:
                model(images)

    return classify


@experiment(sweep=[{"batch": 8}, {"batch": 32}], seconds=25, longest=30.0, needs=("transformers",))
def bert_base_step(device: torch.device, batch: int) -> Work:
    """Fine-tune BERT-base in float32 on synthetic texts of 128 tokens for one step of AdamW.

    Claimed: 3 hours on a CPU, 18 minutes on a GPU, 10 times as fast
    (seed "PyTorch GPU加速训练核心技术指南", part 3).
    Refuted by: a speed-up far from 10 times at both batch sizes.
    """
    return text_step("base", device, batch, 128)
