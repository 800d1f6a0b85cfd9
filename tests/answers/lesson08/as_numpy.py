"""Known answers to 08.as_numpy."""

import numpy as np
import torch

_IS_BFLOAT16 = "host.dtype == torch.bfloat16"

WRONG = {
    "not-float": {_IS_BFLOAT16: "host.dtype != torch.float64"},
    "loses-digits": {_IS_BFLOAT16: "host.is_floating_point()"},
    "overflow": {"host.float()": "host.half()"},
    "wider": (
        lambda tensor: np.array(tensor.tolist()),
        {_IS_BFLOAT16: "host.dtype in (torch.bfloat16, torch.float16)"},
    ),
    "other-bf16": {"host.float()": "host.double()"},
    "other-shape": {"host.numpy()": "host.flatten().numpy()"},
    "other-values": {"host.numpy()": "host.abs().numpy()"},
    "changes-the-tensor": (
        {"tensor.detach()": "tensor.detach_()"},
        {"tensor.detach()": "tensor.requires_grad_(False)"},
    ),
    "still-a-tensor": {"host.numpy()": "host"},
}
RIGHT = {
    "by force": lambda tensor: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(
        force=True
    )
}
