"""Known answers to 02.weighted_loss: wrong ones by their diagnosis, right ones by a name."""

import torch
from torch import nn

from course_lessons.lesson02.weighted_loss import _MISTAKES

_WEIGHT = "counts.sum() / (len(counts) * counts)"


def _made_there(counts, device):
    share = torch.tensor([c / sum(counts) for c in counts], device=device)
    return nn.CrossEntropyLoss(weight=1 / (share * len(counts)))


def _with_weights(mistake):
    """Return an answer whose weights a known mistake computes."""
    return lambda counts, device: nn.CrossEntropyLoss(weight=mistake(counts)).to(device)


WRONG = {
    **{name: tuple(map(_with_weights, known_mistakes)) for name, known_mistakes in _MISTAKES.items()},
    "reduction": {"weight=weight": "weight=weight, reduction='sum'"},
    "stays": {".to(device)": ""},
    "not-scaled": {_WEIGHT: f"2 * {_WEIGHT}"},
}
RIGHT = {"made on the device": _made_there}
