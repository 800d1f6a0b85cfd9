"""Known answers to 09.memory_ledger."""

import torch

WRONG = {
    "view": [4, 6, 6, 10, 12, 12, 10, 8, 24],
    "in-place": [4, 4, 8, 8, 10, 10, 6, 6, 22],
    "still-held": [4, 4, 4, 4, 6, 6, 6, 6, 22],
    "view-holds": [4, 4, 4, 8, 10, 10, 6, 4, 20],
    "expanded": [4, 4, 4, 8, 10, 10, 6, 6, 38],
    "wrong-type": 4,
}
RIGHT = {
    "a tuple": (4.0, 4, 4, 8, 10, 10, 6, 6, 22),
    "a tensor": torch.tensor([4, 4, 4, 8, 10, 10, 6, 6, 22]),
}
