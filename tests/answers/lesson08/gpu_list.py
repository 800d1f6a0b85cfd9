"""Known answers to 08.gpu_list."""

import torch

from course_lessons.lesson08.gpu_list import MISTAKES, gpu_list


def _by_name(cuda):
    return [
        f"cuda:{i} {cuda.get_device_name(i)}, "
        f"{cuda.get_device_properties(f'cuda:{i}').total_memory / 1024**3:.1f} GiB"
        for i in range(cuda.device_count())
    ]


def _by_device(cuda):
    cards = [
        cuda.get_device_properties(torch.device("cuda", i)) for i in range(cuda.device_count())
    ]
    sizes = [round(card.total_memory / 2**30, 1) for card in cards]
    return [
        f"cuda:{i} {c.name}, {n}" + " GiB"
        for i, (c, n) in enumerate(zip(cards, sizes, strict=True))
    ]


WRONG = {
    **MISTAKES,
    "no-card": {"range(cuda.device_count())": "range(cuda.device_count() or 1)"},
}
RIGHT = {"by name": _by_name, "by device": _by_device, "a tuple": lambda cuda: (*gpu_list(cuda),)}
