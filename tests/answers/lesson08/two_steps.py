"""Known wrong answers to 08.two_steps, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson08.two_steps import TWO_TWINS, two_steps, two_with


def _two_in_float32(model, x, y, loss_fn, optimizers, scaler, dtype):
    return two_steps(model, x, y, loss_fn, optimizers, scaler, torch.bfloat16)


def _two_keeping_graph(model, x, y, loss_fn, optimizers, scaler, dtype):
    kept = []

    def keep(outputs, targets):
        kept.append(loss_fn(outputs, targets))
        return kept[0]

    two_steps(model, x, y, keep, optimizers, scaler, dtype)
    return kept[0]


WRONG = {
    **TWO_TWINS,
    "not-scaled": two_with(scale=False),
    "no-update": two_with(update=False),
    "no-autocast": _two_in_float32,
    "keeps-graph": _two_keeping_graph,
}
