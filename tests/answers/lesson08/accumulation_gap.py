"""Known wrong answers to 08.accumulation_gap, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson08.accumulation_gap import GAP_TWINS


def _gap_on_the_model(model, loss_fn, x, y, size):
    def gradient(parts):
        model.zero_grad()
        for rows, labels in parts:
            (loss_fn(model(rows), labels) * len(rows) / len(x)).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    whole = gradient([(x, y)])
    parts = gradient(zip(x.split(size), y.split(size), strict=True))
    return ((parts - whole).norm() / whole.norm()).item()


WRONG = {
    "by-parts": GAP_TWINS["by-parts"],
    "sum-of-means": GAP_TWINS["sum-of-means"],
    "full-weight": GAP_TWINS["full-weight"],
    "drops-tail": GAP_TWINS["drops-tail"],
    "eval-mode": GAP_TWINS["eval-mode"],
    "absolute": GAP_TWINS["absolute"],
    "changes-the-model": _gap_on_the_model,
}
