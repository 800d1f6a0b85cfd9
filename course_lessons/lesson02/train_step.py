"""Three faults in one step."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge
from simgpu.counters import Counters

from .checking import TOO_EARLY, counted_copies, equal, second


def train_step(model, optimizer, images, labels, device):
    model.to(device)
    images = images.to(device)
    labels = labels.to(device)
    logits = model(images)
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return logits.detach().cpu().numpy()


def _check_train_step(answer: Any, judge: Judge) -> None:
    device = second()
    device = torch.device("cpu") if device.type == "meta" else device
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    twin = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    twin_optimizer = torch.optim.SGD(twin.parameters(), lr=0.5)
    for n in (5, 16):
        images, labels = torch.randn(n, 6), torch.arange(n) % 3
        right = train_step(twin, twin_optimizer, images, labels, torch.device("cpu"))
        with counted_copies() as counted:
            got = answer(model, optimizer, images, labels, device)
        if isinstance(got, torch.Tensor):
            judge.no("tensor", seen=got, expected="a NumPy array")
        judge.is_a(got, np.ndarray, "a NumPy array")
        weights = list(model.parameters())
        if any(p.device != device for p in weights):
            judge.no("stays", seen=f"model on {weights[0].device}", expected=f"model on {device}")
        if got.shape != right.shape or not np.allclose(got, right, atol=1e-4):
            back = [c for c in counted.copies if c.code == "d2h"] if counted else []
            early = any(c.non_blocking for c in back)
            judge.no("too-early" if early else "other-logits", seen=got, expected=right)
        if not all(equal(p, q) for p, q in zip(weights, twin.parameters(), strict=True)):
            judge.no(
                "not-trained",
                seen=f"a weight {weights[0][0, 0].item():.4f}",
                expected=f"{next(twin.parameters())[0, 0].item():.4f}",
            )
        if counted is not None:
            _judge_journeys(counted, images, labels, right.nbytes, judge, first=n == 5)


def _judge_journeys(
    counted: Counters,
    images: torch.Tensor,
    labels: torch.Tensor,
    logits: int,
    judge: Judge,
    *,
    first: bool,
) -> None:
    """Judge what a step sent; ``logits`` is their bytes, and the first step sends the model too."""
    there, back = counted.bytes_to_device, counted.bytes_to_host
    batch = images.nbytes + labels.nbytes
    if back >= 2 * logits:
        judge.no("round-trip", seen=f"{back} bytes to the host", expected=f"{logits} bytes")
    if there > batch and not first:
        judge.no(
            "loss-on-host" if there == images.nbytes + logits else "sends-more",
            seen=f"{there} bytes to the device in the second step",
            expected=f"{batch} bytes",
        )


EXERCISE = Exercise(
    id="02.train_step",
    title="Three faults in one step",
    task="The step below has the three device faults that tutorials warn of most. Mend one, run the check, read the message "
    "that comes, mend the next; one message of the four is not about devices. It should train `model` on `device` and return the logits as a NumPy array. "
    "The optimiser was made before the model was moved.",
    level=2,
    minutes=8,
    hints=(
        "A device message names two places. Which of them is not `device`? What lies there, and which line should have moved it?",
        "A tensor's `.to` moves nothing: it returns a copy. Who keeps it? And who moves the labels?",
        "The logits have a gradient history, and live on the device: two things NumPy does not have.",
    ),
    reference=train_step,
    check_answer=_check_train_step,
    why="Model, images and labels, each once; results back at the end. The optimiser needed nothing: the parameters it holds "
    "are the ones that moved.",
    diagnoses={
        "stays": "The model you were given is still on the CPU. The step should train it, and no other, on `device`.",
        "round-trip": "The logits go to the host twice: once for the loss, and once as the result. Bring the labels to the "
        "logits, not the logits to the labels.",
        "loss-on-host": "The loss is computed on the host, and its gradient goes back to the device. Bring the labels to "
        "the logits, not the logits to the labels.",
        "sends-more": "More than images and labels goes to the device in the second step. Each should go once.",
        "too-early": f"{TOO_EARLY} `.cpu()` waits for you.",
        "tensor": "This is a tensor, not yet a NumPy array.",
        "other-logits": "These are not the logits of the images before the step.",
        "not-trained": "The weights are not what one optimiser step should leave. Are the lines of the step all there, "
        "and is it the optimiser you were given?",
    },
    may_change=True,
)
