"""Known answers to 08.mend_f."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from answers.lesson08 import stepped
from course_lessons.lesson08.mend_f import F_MISTAKES


def accuracy(output: Tensor, y: Tensor) -> Tensor:
    """Return the share of right predictions, as a tensor."""
    return (output.argmax(1) == y).float().mean()


def _f_at_the_end(model, batches, optimizer):
    outputs, labels = [], []
    for x, y in batches:
        output = model(x)
        stepped(F.cross_entropy(output, y), optimizer)
        outputs.append(output.detach())
        labels.append(y)
    counts = range(1, len(batches) + 1)
    found = [accuracy(torch.cat(outputs[:n]), torch.cat(labels[:n])) for n in counts]
    return torch.stack(found).tolist()


def _f_keeps_predictions(model, batches, optimizer):
    accuracies, outputs, labels = [], [], []
    for x, y in batches:
        output = model(x)
        stepped(F.cross_entropy(output, y), optimizer)
        outputs.append(output.detach())
        labels.append(y)
        accuracies.append(accuracy(torch.cat(outputs).clone(), torch.cat(labels)))
    return torch.stack(accuracies).tolist()


def _f_by_cumulative_sums(model, batches, optimizer):
    hits, sizes = [], []
    for x, y in batches:
        output = model(x)
        stepped(F.cross_entropy(output, y), optimizer)
        hits.append((output.argmax(1) == y).sum())
        sizes.append(len(y))
    seen = torch.tensor(sizes).cumsum(0)
    return (torch.stack(hits).cumsum(0).cpu() / seen).tolist()


def _f_by_kept_hits(model, batches, optimizer):
    hits = []
    for x, y in batches:
        output = model(x)
        stepped(F.cross_entropy(output, y), optimizer)
        hits.append(output.detach().argmax(dim=-1).eq(y))
    found, right, seen = [], 0, 0
    for part in torch.cat(hits).cpu().split([len(h) for h in hits]):
        right, seen = right + int(part.sum()), seen + len(part)
        found.append(right / seen)
    return found


_HITS = "(output.argmax(1) == y)"
WRONG = {
    **F_MISTAKES,
    "still-grows": _f_keeps_predictions,
    "moved-to-the-end": _f_at_the_end,
    "waits-each-step": {
        f"{_HITS}.sum()": f"{_HITS}.sum().item()",
        "torch.stack(accuracies).tolist()": "accuracies",
    },
    "wrong-value": {"argmax(1)": "argmin(1)"},
}
RIGHT = {"by cumulative sums": _f_by_cumulative_sums, "by kept hits": _f_by_kept_hits}
