"""Known wrong answers to 08.train_watched, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def _watch_with(
    bad: Callable[[Tensor], Tensor] = lambda losses: losses.isfinite().logical_not(),
    each: bool = False,
    at_end: bool = True,
    first: bool = True,
    offset: int = 0,
    stop: bool = True,
) -> Callable[..., Any]:
    def train_watched(model, batches, optimizer, every):
        recent, found = [], None
        for step, (x, y) in enumerate(batches, start=1):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recent.append(loss.detach())
            if each:
                loss.item()
            if step % every == 0 or (at_end and step == len(batches)):
                flags = bad(torch.stack(recent)).tolist()
                if True in flags and found is None:
                    found = step - 1
                    if first:
                        found = step - len(flags) + flags.index(True) + offset
                    if stop:
                        return found
                recent = []
        return found

    return train_watched


def _watch_rarely(model, batches, optimizer, every):
    return _watch_with()(model, batches, optimizer, 2 * every)


WRONG = {
    "reads-often": _watch_with(each=True),
    "never-stops": _watch_with(stop=False),
    "stops-late": _watch_rarely,
    "no-last-look": _watch_with(at_end=False),
    "misses": _watch_with(bad=lambda losses: losses.isnan()),
    "counts-from-one": _watch_with(offset=1),
    "block-only": _watch_with(first=False),
}
