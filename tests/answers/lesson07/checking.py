"""What wrong answers to several exercises share."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson07.mend_f import stepped


def _f_keeps_hits(model, batches, optimizer):
    accuracies, hits = [], []
    for x, y in batches:
        output = model(x)
        stepped(F.cross_entropy(output, y), optimizer)
        hits.append(output.argmax(1) == y)
        accuracies.append(torch.cat(hits).float().mean())
    return torch.stack(accuracies).tolist()
