"""Whether float32 products may run on tensor cores, for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

if hasattr(torch.backends.cudnn, "conv"):  # the settings that newer releases keep
    _PLACES = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)
    _NAMES, _VALUES = ("fp32_precision", "fp32_precision"), ("ieee", "tf32")
else:
    _PLACES = (torch.backends.cuda.matmul, torch.backends.cudnn)
    _NAMES, _VALUES = ("allow_tf32", "allow_tf32"), (False, True)


@contextlib.contextmanager
def tf32_allowed(matmul: bool, conv: bool) -> Iterator[None]:
    """Allow TF32 in products and in convolutions, or forbid it, and put the settings back."""
    switches = [*zip(_PLACES, _NAMES, strict=True)]
    before = [getattr(place, name) for place, name in switches]
    for (place, name), allowed in zip(switches, (matmul, conv), strict=True):
        setattr(place, name, _VALUES[allowed])
    try:
        yield
    finally:
        for (place, name), value in zip(switches, before, strict=True):
            setattr(place, name, value)
