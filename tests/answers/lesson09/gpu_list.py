"""Known answers to 09.gpu_list."""

import torch

from course_lessons.lesson09.gpu_list import MISTAKES, gpu_list


def _by_name(cuda):
    return [
        f"cuda:{i} {cuda.get_device_name(i)}, "
        f"{cuda.get_device_properties(f'cuda:{i}').total_memory / 1024**3:.1f} GiB"
        for i in range(cuda.device_count())
    ]


def _by_device(cuda):
    devices = [torch.device("cuda", i) for i in range(cuda.device_count())]
    cards = [(device, cuda.get_device_properties(device)) for device in devices]
    return [f"{d} {card.name}, {round(card.total_memory / 2**30, 1)} GiB" for d, card in cards]


WRONG = {
    **MISTAKES,
    "no-card": {"range(cuda.device_count())": "range(cuda.device_count() or 1)"},
}
RIGHT = {"by name": _by_name, "by device": _by_device, "a tuple": lambda cuda: (*gpu_list(cuda),)}
