"""Three faults in one step."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference, nearly

from .checking import count_copies, second_device


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
    """Return a function that calls ``step`` with the CPU as the device, which is ten times as fast."""
    return lambda *case: step(*case[:-1], torch.device("cpu"))


MISTAKES = known_mistakes_of(
    train_step,
    {
        "piles-up": {"optimizer.zero_grad()": ""},
        "softmax-twice": {"cross_entropy(logits,": "cross_entropy(logits.softmax(1),"},
    },
)


def _count_step(optimizer, *_):
    """Count a step in ``optimizer.steps`` (a pre-hook of the optimiser)."""
    optimizer.steps += 1


def _make_cases():
    """Return new arguments of ``train_step``; the models hold gradients of an earlier step."""
    cases, device = [], second_device()
    device = torch.device("cpu") if device.type == "meta" else device
    for seed, n in enumerate((5, 16)):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        optimizer.steps = 0
        optimizer.register_step_pre_hook(_count_step)
        model(torch.randn(9, 6)).square().mean().backward()
        cases.append((model, optimizer, torch.randn(n, 6), torch.arange(n) % 3, device))
    return cases


def _compared_value(logits, model, optimizer, *_):
    """Return what is compared: number of steps, weights (on the CPU) and logits."""
    weights = [p.detach().cpu() for p in model.parameters()]
    return {"steps": optimizer.steps, "weights": weights, "logits": logits}


_compare_to_reference = ComparesToReference(
    _on_cpu(train_step),
    _make_cases,
    {name: _on_cpu(mistake) for name, mistake in MISTAKES.items()},
    look=_compared_value,
    alike=nearly(1e-4, 1e-4),
    situation=lambda model, optimizer, images, *__: _("a batch of {n_images}").format(n_images=len(images)),
)


def _check_answer(answer, judge):
    """Check devices, result and weights, and the bytes of the second step: the model is there by then."""
    model, optimizer, *__, device = _make_cases()[0]
    for n in (5, 16):
        images, labels = torch.randn(n, 6), torch.arange(n) % 3
        right = copy.deepcopy(model).cpu()(images).detach().numpy()
        with count_copies() as counted:
            got = answer(model, optimizer, images, labels, device)
        judge.is_a(got, np.ndarray, _("a NumPy array"))
        model_device = next(model.parameters()).device
        judge.expect(_("device of the model"), str(model_device), str(device), "stays")
        early = any(c.code == "d2h" and c.non_blocking for c in counted.copies)
        if early and not (got.shape == right.shape and np.allclose(got, right, atol=1e-3)):
            judge.no("too-early", seen=_("a copy to the host that is not waited for"))
    _compare_to_reference(answer, judge)
    sent, batch = counted.bytes_to_device, images.nbytes + labels.nbytes
    if counted.bytes_to_host >= 2 * got.nbytes:
        judge.no(
            seen=_("{bytes_to_host} bytes to the host").format(bytes_to_host=counted.bytes_to_host),
            expected=_("{nbytes} bytes").format(nbytes=got.nbytes),
        )
    if sent > batch:
        diagnosis = "loss-on-host" if sent == images.nbytes + got.nbytes else "wrong-value"
        seen = _("{sent} bytes to the device in the second step").format(sent=sent)
        judge.no(diagnosis, seen=seen, expected=_("{batch} bytes").format(batch=batch))


EXERCISE = Exercise(
    id="02.train_step",
    title="Three faults in one step",
    task="The step below has three faults. Fix one and run the check. Read the message that comes, and "
    "fix the next one. One of the messages isn't about devices. In the end the step should train `model` "
    "on `device` and return the logits as a NumPy array. The optimiser was made before the model was "
    "moved, but that isn't one of the faults.",
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
    check_answer=_check_answer,
    why="The model, the images and the labels each go to the device once, and only the result comes "
    "back. The optimiser needed no change, because the parameters that it holds are the very ones "
    "that moved.",
    diagnoses={
        "stays": "After the step the model you were given isn't on `device`. The step should train that "
        "model, there.",
        "loss-on-host": "The loss is computed on the host, and its gradient goes back to the device. Bring "
        "the labels to the logits, not the logits to the labels.",
        "too-early": "The result is copied to the host without waiting, and read at once. On a real GPU "
        "it may be read before it has arrived. `.cpu()` waits for you.",
        "piles-up": "The gradients of an earlier step are still there when the optimiser steps, because "
        "`backward()` adds.",
        "softmax-twice": "There's a softmax before the loss, and `cross_entropy` makes one itself. Give it "
        "the logits.",
    },
)
