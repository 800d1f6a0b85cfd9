"""A format for each machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from course_utils.devices import Abilities
from course_utils.exercises import Exercise, Judge


def choose_precision(can):
    if can.bf16:
        return torch.bfloat16, False
    if can.device.type == "cpu":
        return torch.float32, False
    return torch.float16, True


def _machines() -> Iterator[tuple[Abilities, torch.dtype]]:
    """Machines, and the dtype for each."""
    gib = 2**30
    for name, device, memory, bf16, tf32, capability, dtype in (
        ("NVIDIA A100", "cuda", 80 * gib, True, True, "8.0", torch.bfloat16),
        ("Tesla T4", "cuda", 15 * gib, False, False, "7.5", torch.float16),
        ("a CPU with AMX", "cpu", None, True, False, "", torch.bfloat16),
        ("a CPU without 16-bit units", "cpu", None, False, False, "", torch.float32),
        ("Apple M1 GPU", "mps", None, False, False, "", torch.float16),
        ("NVIDIA B200", "cuda:1", 180 * gib, True, True, "10.0", torch.bfloat16),
        ("Intel Arc", "xpu", 16 * gib, True, True, "", torch.bfloat16),
        ("AMD MI250", "cuda", 64 * gib, True, False, "", torch.bfloat16),
    ):
        yield Abilities(torch.device(device), name, memory, bf16, tf32, capability), dtype


def _check_choose_precision(answer: Callable[..., Any], judge: Judge) -> None:
    here: list[str] = []

    def supported(*_: Any, **__: Any) -> bool:
        here.append("is_bf16_supported")
        return True

    names = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}
    with mock.patch.object(torch.cuda, "is_bf16_supported", supported):
        for can, dtype in _machines():
            what = f"{can.name} ({can.device}, bf16={can.bf16})"
            got = judge.is_a(answer(can), tuple, "a pair: dtype and True or False")
            if here:
                judge.no(
                    "asks-the-machine", seen="torch.cuda.is_bf16_supported()", expected="can.bf16"
                )
            if len(got) != 2 or not isinstance(got[0], torch.dtype) or not isinstance(got[1], bool):
                judge.no("not-a-pair", seen=got, expected="such as (torch.float32, False)")
            right = (dtype, dtype is torch.float16)
            if got == right:
                continue
            diagnosis = "wrong-choice"
            if got == (torch.bfloat16, True):
                diagnosis = "scaler-with-bf16"
            elif got == (torch.float16, False):
                diagnosis = "no-scaler"
            elif got[0] is torch.bfloat16:
                diagnosis = "no-units"
            elif can.bf16:
                diagnosis = "bf16-missed"
            elif got[0] is torch.float16:
                diagnosis = "cpu-float16"
            elif can.device.type == "cuda":
                diagnosis = "device-as-text"
            elif dtype is torch.float16:
                diagnosis = "accelerator-left-out"
            judge.no(
                diagnosis,
                seen=f"{names.get(got[0], got[0])}, {got[1]} for {what}",
                expected=f"{names[dtype]}, {right[1]}",
            )


EXERCISE = Exercise(
    id="04.choose_precision",
    title="A format for each machine",
    level=1,
    minutes=6,
    task="""
Write `choose_precision(can)`: the pair `(dtype, use_scaler)` for a device, where `can` is what
`abilities(device)` returns: look at `can.bf16` and `can.device.type`. With units for bfloat16: bfloat16.
An accelerator without them (any kind, not only CUDA): float16. A CPU without them gains nothing from
16 bits: float32. `use_scaler` is True exactly where the format's range needs it.
""",
    hints=(
        '`can.bf16` is True only where the hardware has units for it. `can.device.type` is `"cpu"` '
        "or the name of an accelerator.",
        "Which of the three formats has a smaller range than float32? Only that one needs a scaler.",
    ),
    reference=choose_precision,
    check_answer=_check_choose_precision,
    why="One choice at the top of a script, and the same training step runs on a T4, an A100, a Mac "
    "and a CPU. `torch.cuda.is_bf16_supported()` says yes on a T4 too, where bfloat16 is emulated and slow.",
    diagnoses={
        "asks-the-machine": "`torch.cuda.is_bf16_supported()` asks about the current CUDA device and "
        "counts emulation. The device in question is described by `can`.",
        "scaler-with-bf16": "bfloat16 has the exponent of float32: its gradients do not vanish, and a "
        "scaler has nothing to do.",
        "no-scaler": "float16 without a scaler: small gradients become zero and are gone.",
        "no-units": "This device has no units for bfloat16.",
        "bf16-missed": "This device has units for bfloat16. Ask what it can do, not what it is called: a "
        'capability is no text to compare either, because as texts "10.0" comes before "8.0".',
        "cpu-float16": "A CPU has no float16 units that help here: this device is better off in float32. "
        "(If you did ask for a CPU: `can.device` is no text, and is never equal to one. Its type is.)",
        "device-as-text": "This card computes in float16. `can.device` is no text, and is never equal to one: "
        "its type is.",
        "accelerator-left-out": "This is an accelerator too, if not a CUDA one: it can compute in float16.",
        "not-a-pair": "The answer must be a pair of a `torch.dtype` and a `bool`.",
        "wrong-choice": "That is not the pair the task asks for here.",
    },
)
