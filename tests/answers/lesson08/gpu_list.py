"""Known wrong answers to 08.gpu_list, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lessons.lesson08.gpu_list import Cuda, gpu_list


def _gpus_with(
    size: float = 2**30, unit: str = "GiB", count: int | None = None, index: bool = True
) -> Callable[..., Any]:
    def gpu_list(cuda):
        lines = []
        for i in range(cuda.device_count() if count is None else count):
            card = cuda.get_device_properties(i)
            prefix = f"cuda:{i} " if index else ""
            lines.append(f"{prefix}{card.name}, {card.total_memory / size:.1f} {unit}")
        return lines

    return gpu_list


def _gpus_of_this_machine(cuda):
    return gpu_list(Cuda([]) if cuda is not torch.cuda else cuda)


def _gpus_without_a_card(cuda):
    first = cuda.get_device_properties(0)
    return [f"cuda:0 {first.name}, {first.total_memory / 2**30:.1f} GiB", *gpu_list(cuda)[1:]]


WRONG = {
    "asks-the-machine": _gpus_of_this_machine,
    "first-only": _gpus_with(count=1),
    "decimal": _gpus_with(size=1e9),
    "unit-name": _gpus_with(unit="GB"),
    "no-index": _gpus_with(index=False),
    "no-card": _gpus_without_a_card,
}
