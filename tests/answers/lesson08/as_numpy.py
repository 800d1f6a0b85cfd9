"""Known answers to 08.as_numpy."""

from __future__ import annotations

import numpy as np
import torch

from course_lessons.lesson08.as_numpy import as_numpy
from course_lessons.shared.edited import edited

_IS_BFLOAT16 = "host.dtype == torch.bfloat16"

WRONG = {
    "not-float": edited(as_numpy, {_IS_BFLOAT16: "host.dtype != torch.float64"}),
    "loses-digits": edited(as_numpy, {_IS_BFLOAT16: "host.is_floating_point()"}),
    "overflow": edited(as_numpy, {"host.float()": "host.half()"}),
    "wider": (
        lambda tensor: np.array(tensor.tolist()),
        edited(as_numpy, {_IS_BFLOAT16: "host.dtype in (torch.bfloat16, torch.float16)"}),
    ),
    "other-bf16": edited(as_numpy, {"host.float()": "host.double()"}),
    "other-shape": edited(as_numpy, {"host.numpy()": "host.flatten().numpy()"}),
    "other-values": edited(as_numpy, {"host.numpy()": "host.abs().numpy()"}),
    "changes-the-tensor": (
        edited(as_numpy, {"tensor.detach()": "tensor.detach_()"}),
        edited(as_numpy, {"tensor.detach()": "tensor.requires_grad_(False)"}),
    ),
    "still-a-tensor": edited(as_numpy, {"host.numpy()": "host"}),
}
RIGHT = {
    "by force": lambda tensor: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(
        force=True
    )
}
