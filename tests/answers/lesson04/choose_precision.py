"""Known wrong answers to 04.choose_precision, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson04.choose_precision import choose_precision


def _choose_by_library(can):
    if torch.cuda.is_bf16_supported():
        return torch.bfloat16, False
    return (torch.float32, False) if can.device.type == "cpu" else (torch.float16, True)


def _choose_scaler_always(can):
    dtype, _ = choose_precision(can)
    return dtype, dtype is not torch.float32


def _choose_scaler_never(can):
    return choose_precision(can)[0], False


def _choose_bf16_everywhere(can):
    return (torch.float32 if can.device.type == "cpu" else torch.bfloat16), False


def _choose_by_capability(can):
    if can.device.type == "cpu":
        return choose_precision(can)
    return (torch.bfloat16, False) if can.capability >= "8.0" else (torch.float16, True)


def _choose_for_cuda(can):
    if can.device.type == "cuda" or can.bf16:
        return choose_precision(can)
    return torch.float32, False


def _choose_by_text(can):
    if can.bf16:
        return torch.bfloat16, False
    return (torch.float16, True) if can.device == "cuda" else (torch.float32, False)


def _choose_float16(can):
    return (torch.bfloat16, False) if can.bf16 else (torch.float16, True)


WRONG = {
    "asks-the-machine": _choose_by_library,
    "scaler-with-bf16": _choose_scaler_always,
    "no-scaler": _choose_scaler_never,
    "no-units": _choose_bf16_everywhere,
    "bf16-missed": _choose_by_capability,
    "accelerator-left-out": _choose_for_cuda,
    "cpu-float16": _choose_float16,
    "device-as-text": _choose_by_text,
}
