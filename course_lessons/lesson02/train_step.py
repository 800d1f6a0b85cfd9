"""Three faults in one step."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference, nearly

from .checking import TOO_EARLY, counted_copies, second


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


def _on_cpu(step):
    """The same step on the CPU: the same numbers, in a tenth of the time."""
    return lambda *case: step(*case[:-1], torch.device("cpu"))


MISTAKES = known_mistakes_of(
    train_step,
    {
        "piles-up": {"optimizer.zero_grad()": ""},
        "softmax-twice": {"cross_entropy(logits,": "cross_entropy(logits.softmax(1),"},
    },
)


def _place() -> torch.device:
    """Where the steps are run: the simulated device, or the CPU where there is none."""
    device = second()
    return torch.device("cpu") if device.type == "meta" else device


def _made(sizes: tuple[int, ...] = (5, 16)) -> list[tuple[Any, ...]]:
    """A model that holds the gradients of an earlier step, its optimiser, a batch and the device."""
    cases = []
    for seed, n in enumerate(sizes):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        optimizer.steps = 0
        optimizer.register_step_pre_hook(_count)
        model(torch.randn(9, 6)).square().mean().backward()
        cases.append((model, optimizer, torch.randn(n, 6), torch.arange(n) % 3, _place()))
    return cases


def _count(optimizer: Any, *_: Any) -> None:
    optimizer.steps += 1


def _look(logits: Any, model: nn.Module, optimizer: Any, *_: Any) -> dict[str, Any]:
    weights = [p.detach().cpu() for p in model.parameters()]
    return {"steps": optimizer.steps, "weights": weights, "logits": logits}


_STEPS = ComparesToReference(
    _on_cpu(train_step),
    _made,
    {name: _on_cpu(mistake) for name, mistake in MISTAKES.items()},
    look=_look,
    alike=nearly(1e-4, 1e-4),
    situation=lambda model, optimizer, images, *_: f"a batch of {len(images)}",
)


def _check_train_step(answer: Any, judge: Judge) -> None:
    device = _place()
    ((model, optimizer, *_),) = _made((5,))
    for n in (5, 16):
        images, labels = torch.randn(n, 6), torch.arange(n) % 3
        right = copy.deepcopy(model).cpu()(images).detach().numpy()
        with counted_copies() as counted:
            got = answer(model, optimizer, images, labels, device)
        judge.is_a(got, np.ndarray, "a NumPy array")
        at = next(model.parameters()).device
        if at != device:
            judge.no("stays", seen=f"model on {at}", expected=f"model on {device}")
        copies = counted.copies if counted is not None else []
        early = any(c.code == "d2h" and c.non_blocking for c in copies)
        if early and not (got.shape == right.shape and np.allclose(got, right, atol=1e-3)):
            judge.no("too-early", seen="a copy to the host that is not waited for")
    _STEPS(answer, judge)
    if counted is not None:  # in the second step, when the model was there already
        there, back = counted.bytes_to_device, counted.bytes_to_host
        batch = images.nbytes + labels.nbytes
        if back >= 2 * got.nbytes:
            judge.no(seen=f"{back} bytes to the host", expected=f"{got.nbytes} bytes")
        if there > batch:
            judge.no(
                "loss-on-host" if there == images.nbytes + got.nbytes else "wrong-value",
                seen=f"{there} bytes to the device in the second step",
                expected=f"{batch} bytes",
            )


EXERCISE = Exercise(
    id="02.train_step",
    title="Three faults in one step",
    task="The step below has three device faults. Mend one, run the check, read the message "
    "that comes, mend the next; one of the messages is not about devices. It should train `model` on `device` and return the logits as a NumPy array. "
    "The optimiser was made before the model was moved.",
    level=2,
    minutes=8,
    hints=(
        "A message about devices names two places. Which of them isn't `device`? Find out what still "
        "lies there, and which line should have moved it.",
        "`model.to(device)` changes the model itself. A tensor's `.to(device)` doesn't change the "
        "tensor but returns a copy, so somebody has to keep that copy. Who moves the labels? At the "
        "end, the logits have a gradient history and live on the device. NumPy can use neither, so "
        "each of the two needs a call of its own.",
        "The same happens when `.to` changes a dtype, and you can watch it on any machine.\n\n"
        """```python
pixels = torch.tensor([0, 128, 255])
pixels.to(torch.float32)  # nobody keeps the copy
print(pixels.dtype)  # torch.int64, as before
weight = torch.ones(3, requires_grad=True)
curve = weight * 2
print(curve.requires_grad, curve.detach().requires_grad)  # True False
```""",
    ),
    reference=train_step,
    check_answer=_check_train_step,
    why="The model, the images and the labels each go to the device once, and only the result comes "
    "back. The optimiser needed no change, because the parameters that it holds are the very ones "
    "that moved.",
    diagnoses={
        "stays": "After the step the model you were given is not on `device`. The step should train it, and no other, there.",
        "loss-on-host": "The loss is computed on the host, and its gradient goes back to the device. Bring the labels to "
        "the logits, not the logits to the labels.",
        "too-early": f"{TOO_EARLY} `.cpu()` waits for you.",
        "piles-up": "The gradients of an earlier step are still in the sum when the optimiser steps: `backward()` adds.",
        "softmax-twice": "There is a softmax before the loss, and `cross_entropy` makes one itself: give it the logits.",
    },
)
