"""Known answers to 09.as_numpy."""

import torch

_IS_BFLOAT16 = "host.dtype == torch.bfloat16"

WRONG = {
    "loses-digits": {_IS_BFLOAT16: "host.is_floating_point()"},
    "overflow": {"host.float()": "host.half()"},
    "other-bf16": {"host.float()": "host.double()"},
    "changes-the-tensor": {"tensor.detach()": "tensor.detach_()"},
    "still-a-tensor": {"host.numpy()": "host"},
}
RIGHT = {
    "by force": lambda tensor: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(
        force=True
    )
}
