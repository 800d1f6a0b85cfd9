"""Known answers to 07.mend_f."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lessons.lesson07.mend_f import (
    accuracy,
    f_aliased,
    f_mean_of_means,
    f_per_batch,
    f_with,
    stepped,
)


def _prefixes(outputs: list[Tensor], labels: list[Tensor]) -> list[float]:
    found = [
        accuracy(torch.cat(outputs[: i + 1]), torch.cat(labels[: i + 1]))
        for i in range(len(outputs))
    ]
    return torch.stack(found).tolist()


_f_at_the_end = f_with(_prefixes)


_f_last_only = f_with(lambda o, y: [accuracy(torch.cat(o), torch.cat(y)).item()])


def _f_by_item(model, batches, optimizer):
    accuracies, hits, seen = [], 0, 0
    for x, y in batches:
        output = model(x)
        stepped(F.cross_entropy(output, y), optimizer)
        hits += (output.argmax(1) == y).sum().item()
        seen += len(y)
        accuracies.append(hits / seen)
    return accuracies


def _f_keeps_predictions(model, batches, optimizer):
    accuracies, outputs, labels = [], [], []
    for x, y in batches:
        output = model(x)
        stepped(F.cross_entropy(output, y), optimizer)
        outputs.append(output.detach())
        labels.append(y)
        accuracies.append(accuracy(torch.cat(outputs).clone(), torch.cat(labels)))
    return torch.stack(accuracies).tolist()


def _f_keeps_hits(model, batches, optimizer):
    accuracies, hits = [], []
    for x, y in batches:
        output = model(x)
        stepped(F.cross_entropy(output, y), optimizer)
        hits.append(output.argmax(1) == y)
        accuracies.append(torch.cat(hits).float().mean())
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


WRONG = {
    "still-grows": (_f_keeps_predictions, _f_keeps_hits),
    "moved-to-the-end": _f_at_the_end,
    "waits-each-step": _f_by_item,
    "per-batch": f_per_batch,
    "mean-of-means": f_mean_of_means,
    "aliased": f_aliased,
    "other-length": _f_last_only,
    "wrong-value": lambda model, batches, optimizer: [float("nan")] * 8,
}
RIGHT = {
    "by cumulative sums": _f_by_cumulative_sums,
    "by kept hits": _f_by_kept_hits,
}
