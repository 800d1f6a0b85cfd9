"""Known wrong answers to 08.left_behind, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


def _names_registered(module, device):
    named = [*module.named_parameters(), *module.named_buffers()]
    return sorted(name for name, t in named if t.device != device)


def _names_with(
    buffers: bool = True, deep: bool = True, private: bool = True, own: bool = False
) -> Callable[..., Any]:
    """The list with something missing, or with torch's own dicts in it."""

    def tensors(value):
        if isinstance(value, nn.Module):
            return list(value.parameters())
        if isinstance(value, (list, tuple, dict)) and deep:
            items = value.values() if isinstance(value, dict) else value
            return [t for item in items for t in tensors(item)]
        return [value] if isinstance(value, Tensor) else []

    def left_behind(module, device):
        named = [*module.named_parameters(), *(module.named_buffers() if buffers else ())]
        for path, part in module.named_modules():
            for name, value in vars(part).items():
                registered = name in ("_parameters", "_buffers", "_modules")
                if own if registered else private or not name.startswith("_"):
                    named.append((f"{path}.{name}".lstrip("."), value))
        return sorted(n for n, value in named if any(t.device != device for t in tensors(value)))

    return left_behind


WRONG = {
    "registered-only": _names_registered,
    "no-buffers": _names_with(buffers=False),
    "containers": _names_with(deep=False),
    "private": _names_with(private=False),
    "torchs-own": _names_with(own=True),
}
