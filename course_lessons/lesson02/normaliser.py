"""A constant that travels."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from course_utils.exercises import Exercise, Judge
from simgpu.counters import Counters

from .checking import counted_copies, equal, run_once, second


def normaliser(mean, std):
    class Normaliser(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
            self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

        def forward(self, images):
            return (images - self.mean) / self.std

    return Normaliser()


def _check_normaliser(answer: Any, judge: Judge) -> None:
    device = second()
    for mean, std in (([0.5, 0.25, 1.5], [2.0, 0.5, 4.0]), ([0.125], [0.25])):
        module = judge.is_a(answer(mean, std), nn.Module, "a module")
        images = torch.rand(4, len(mean), 3, 5)
        right = torch.stack([(images[:, c] - mean[c]) / std[c] for c in range(len(mean))], dim=1)
        got = run_once(module, images, "made-there", judge)
        if not equal(got, right):
            judge.no("other-values", seen=got, expected=right)
        if listed := dict(module.named_parameters()):
            trained = any(p.requires_grad for p in listed.values())
            judge.no(
                "trained" if trained else "frozen",
                seen=f"parameters: {list(listed)}",
                expected="no parameters",
            )
        used = _numbers_used(module, images, right)
        module, images = module.to(device), images.to(device)
        with counted_copies() as counted:
            got = _moved_along(module, images, counted, judge)
        if got.device != device:
            judge.no(
                "wrong-place", seen=f"a result on {got.device}", expected=f"a result on {device}"
            )
        if not equal(got, right):
            judge.no("other-values", seen=got, expected=right)
        if counted and counted.copies_to_device:
            judge.no(
                "moves-by-hand",
                seen=f"{counted.bytes_to_device} bytes sent to the device by forward",
                expected="none",
            )
        if used < 2 * len(mean):
            judge.no(
                "not-held",
                seen=f"{used} numbers in buffers that the result depends on",
                expected=f"{2 * len(mean)}",
            )
        saved = sum(value.numel() for value in module.state_dict().values())
        if saved < 2 * len(mean):
            judge.no("not-saved", seen=f"state_dict(): {list(module.state_dict())}")


def _numbers_used(module: nn.Module, images: torch.Tensor, right: torch.Tensor) -> int:
    """How many numbers are in the buffers that change the result when they change."""
    used = 0
    for name, buffer in module.named_buffers():
        got = torch.func.functional_call(module, {name: buffer + 1}, (images,))
        used += 0 if equal(got, right) else buffer.numel()
    return used


def _moved_along(
    module: nn.Module, images: torch.Tensor, counted: Counters | None, judge: Judge
) -> torch.Tensor:
    """Run a module that was moved, on images that are where it is."""
    try:
        return judge.is_a(module(images), torch.Tensor, "a tensor from forward()")
    except RuntimeError as error:
        if "device" not in str(error):
            raise
        went_back = counted is not None and counted.copies_to_host
        judge.no(
            "wrong-place" if went_back else "stays",
            seen=str(error),
            expected=f"a result on {images.device}",
        )


EXERCISE = Exercise(
    id="02.normaliser",
    title="A constant that travels",
    task="`normaliser(mean, std)` builds a module that subtracts a mean and divides by a standard deviation, one for "
    "each channel (dimension 1 of a batch of images). The two constants should move with the module and be "
    "saved with it, but not be trained. Mend it.",
    level=1,
    minutes=6,
    hints=(
        "Of parameter, buffer and plain attribute: which one moves and is saved, but is not trained?",
        '`self.register_buffer("mean", ...)` takes the place of `self.mean = ...`; `forward` stays as it is.',
    ),
    reference=normaliser,
    check_answer=_check_normaliser,
    why="BatchNorm keeps its running statistics as buffers, for the same reason. A model that carries its "
    "normalisation cannot be served with another one by mistake.",
    diagnoses={
        "stays": "`.to(device)` left a constant that `forward` uses where it was: to a module, a tensor that is a plain attribute is "
        "like any other Python object.",
        "made-there": "A constant was put on one device when it was made, and the batch came on another. The module should "
        "work on the CPU until *it* is moved, and then take its constants along.",
        "wrong-place": "`forward` takes the batch to another place. Let it stay where it is, and bring the constants there.",
        "trained": "As parameters the constants move, but an optimiser will also *train* them.",
        "frozen": "They move, and are not trained, but they are still listed in `parameters()`. A buffer says what "
        "you mean.",
        "moves-by-hand": "It runs on any device, but `forward` carries constants there again at each call. Let it use "
        "what the module holds, which moves once and is in a checkpoint.",
        "not-held": "`forward` computes with constants that are not the module's buffers: a checkpoint would save "
        "others, or none.",
        "not-saved": "They move, but `state_dict()` does not hold them: with `persistent=False` a checkpoint leaves "
        "them out.",
        "other-values": "The result differs: one mean and one standard deviation for each channel, along dimension 1.",
    },
)
