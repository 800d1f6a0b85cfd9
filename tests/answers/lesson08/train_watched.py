"""Known answers to 08.train_watched: wrong ones by the diagnosis that each must get, and a right one."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson08.train_watched import train_watched
from course_utils.exercises.edited import edited


def _reading_a_flag(model, batches, optimizer, every):
    for step, (x, y) in enumerate(batches):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not loss.isfinite():
            return step
    return None


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


_LOOK = "good = torch.stack(losses).isfinite().tolist()"
_FOUND = "return good.index(False)"
WRONG = {
    "reads-often": (
        edited(
            train_watched,
            {"losses.append(loss.detach())": "losses.append(loss.detach())\nloss.item()"},
        ),
        _reading_a_flag,
    ),
    "never-stops": edited(
        train_watched,
        {_FOUND: "found = good.index(False)\nif step == len(batches):\n    return found"},
    ),
    "stops-late": edited(train_watched, {"step % every": "step % (2 * every)"}),
    "no-last-look": edited(train_watched, {" or step == len(batches)": ""}),
    "misses": edited(train_watched, {"isfinite()": "isnan().logical_not()"}),
    "counts-from-one": edited(train_watched, {_FOUND: f"{_FOUND} + 1"}),
    "block-only": edited(train_watched, {_FOUND: "return step - 1"}),
}
RIGHT = {"counter": _by_a_counter}
