"""An evaluation that leaves no trace."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge

from .checking import made_batches, small_model


def mean_loss(model, batches):
    was_training = model.training
    model.eval()
    total = count = 0
    with torch.inference_mode():
        for x, y in batches:
            total += F.cross_entropy(model(x), y, reduction="sum")
            count += len(y)
    model.train(was_training)
    return total.item() / count


def _check_mean_loss(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes, training in (((6, 6, 2), True), ((3, 5), False)):
        batches = made_batches(sizes, seed=len(sizes))
        model = small_model(dropout=0.5).train(training)
        before = copy.deepcopy(model.state_dict())
        modes, graphs = [], []
        model.register_forward_pre_hook(lambda m, _, seen=modes: seen.append(m.training))
        model.register_forward_hook(lambda m, i, out, seen=graphs: seen.append(out.requires_grad))
        got = answer(model, batches)
        if any(modes):
            judge.no("train-mode", seen="forward passes in train mode", expected="eval mode")
        if any(graphs):
            judge.no("builds-graph", seen="outputs that require a gradient", expected="no graph")
        if model.training != training:
            words = {True: "train mode", False: "eval mode"}
            judge.no("mode-left", seen=words[model.training], expected=words[training])
        if any(not torch.equal(before[key], value) for key, value in model.state_dict().items()):
            judge.no("model-changed", seen="other weights or statistics", expected="the same model")
        if not torch.is_grad_enabled():
            judge.no("gradients-off", seen="gradients switched off", expected="on, as before")
        if not all(p.requires_grad for p in model.parameters()):
            judge.no("gradients-off", seen="requires_grad = False", expected="True, as before")
        number = judge.is_a(got, float, "a Python float")
        x, y = (torch.cat(part) for part in zip(*batches, strict=True))
        with torch.no_grad():
            expected = F.cross_entropy(copy.deepcopy(model).eval()(x), y).item()
        judge.close(number, expected, "ragged-mean", rel=1e-4)


EXERCISE = Exercise(
    id="03.mean_loss",
    title="An evaluation that leaves no trace",
    level=2,
    minutes=8,
    task="""
Write `mean_loss(model, batches)`: the mean cross-entropy of one digit over a list of `(x, y)` batches
of unequal size, as a Python float. It evaluates in eval mode, builds no graph, and leaves the model in
the mode it found it in: train **or** eval.
""",
    hints=(
        "`model.training` is True or False, and `model.train(mode)` takes either.",
        '`F.cross_entropy(..., reduction="sum")` adds the losses of a batch; divide once, at the '
        "end, by the number of digits.",
        "Remember `model.training`; `model.eval()`; loop inside `with torch.inference_mode():`; "
        "then `model.train(remembered)`.",
    ),
    reference=mean_loss,
    check_answer=_check_mean_loss,
    why="A function that measures must not change what it measures. This one can be called in the "
    "middle of a training loop, or by someone who never trains.",
    diagnoses={
        "train-mode": "The model ran in train mode: dropout threw values away, and BatchNorm "
        "learned from the evaluation data.",
        "builds-graph": "The outputs carry a graph, so autograd kept every activation for a "
        "backward pass that never comes.",
        "mode-left": "The model came back in another mode than it went in. Whoever called you "
        "goes on in the wrong mode, and no error says so.",
        "ragged-mean": "The mean over batches is not the mean over digits when batches differ in "
        "size.",
        "model-changed": "The model's weights or its BatchNorm statistics changed.",
        "gradients-off": "Gradients stay off after the evaluation, so the next `backward()` fails. "
        "A `with` block switches them off and on again.",
    },
)
