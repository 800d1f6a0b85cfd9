"""Known answers to 04.lost: wrong ones by the diagnosis that each must get, right ones by a name."""

from __future__ import annotations

import torch


def _lost_by_counting(gradients, dtype):
    before = torch.count_nonzero(gradients)
    gone = before - torch.count_nonzero(gradients.to(dtype))
    return gone / before if before else 0.0


WRONG = {"wrong-value": lambda gradients, dtype: float("nan")}
RIGHT = {"by counting": _lost_by_counting}
