"""Known answers to 05.choose_precision: wrong ones by their diagnosis, right ones by a name."""

import numpy as np
import torch

from course_lessons.lesson05.choose_precision import choose_precision


def _by_the_library(can):
    if torch.cuda.is_bf16_supported():
        return torch.bfloat16, False
    return (torch.float32, False) if can.device.type == "cpu" else (torch.float16, True)


def _bf16_everywhere(can):
    return (torch.float32 if can.device.type == "cpu" else torch.bfloat16), False


def _in_one_line(can):
    dtype = torch.bfloat16 if can.bf16 else torch.float32 if can.device.type == "cpu" else torch.float16
    return dtype, dtype == torch.float16


_IF_CPU = 'can.device.type == "cpu"'
WRONG = {
    "asks-the-machine": _by_the_library,
    "scaler-with-bf16": {"torch.bfloat16, False": "torch.bfloat16, True"},
    "no-scaler": {"torch.float16, True": "torch.float16, False"},
    "no-units": _bf16_everywhere,
    "cpu-float16": ({_IF_CPU: "False"}, {_IF_CPU: 'can.device == "cpu"'}),
    "wrong-type": lambda can: torch.float32,
}
RIGHT = {
    "in one line": _in_one_line,
    "a list": lambda can: list(choose_precision(can)),
    "a bool of NumPy's": lambda can: (choose_precision(can)[0], np.bool_(choose_precision(can)[1])),
}
