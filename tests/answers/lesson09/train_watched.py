"""Known answers to 09.train_watched."""

import numpy as np
import torch
from torch.nn import functional as F

from course_lessons.lesson09.train_watched import MISTAKES


def _by_a_counter(model, batches, optimizer, every):
    first = torch.full((), len(batches), device=batches[0][0].device)
    for step, (x, y) in enumerate(batches):
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        bad = torch.where(loss.detach().isfinite(), len(batches), step)
        first = torch.minimum(first, bad)
        if (step + 1) % every == 0 or step + 1 == len(batches):
            found = int(first)
            if found < len(batches):
                return found
    return None


def _by_arrays(model, batches, optimizer, every):
    for first in range(0, len(batches), every):
        losses = []
        for x, y in batches[first : first + every]:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach().clone())
        bad = np.flatnonzero(~np.isfinite(torch.stack(losses).cpu().numpy()))
        if len(bad):
            return first + bad[0]
    return None


WRONG = {
    **MISTAKES,
    "reads-each-step": {"losses.append(loss.detach())": "losses.append(loss.detach())\nloss.item()"},
    "changed-input": {"loss.backward()": "loss.backward()\nx.zero_()"},
}
RIGHT = {"counter": _by_a_counter, "arrays": _by_arrays}
