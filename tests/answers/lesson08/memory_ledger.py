"""Known answers to 08.memory_ledger: wrong ones by the diagnosis that each must get, and a right one."""

import torch

WRONG = {
    "not-numbers": [4, 4, 4, 8, None, 10, 6, 6, 22],
    "changes": [4, 0, 0, 4, 2, 0, -4, 0, 16],
    "other-unit": [1024 * mib for mib in (4, 4, 4, 8, 10, 10, 6, 6, 22)],
    "first": [5] * 9,
    "view": [4, 6, 6, 10, 12, 12, 10, 8, 24],
    "in-place": [4, 4, 8, 8, 10, 10, 6, 6, 22],
    "still-held": [4, 4, 4, 4, 6, 6, 6, 6, 22],
    "half": [4, 4, 4, 8, 6, 6, 2, 2, 18],
    "expand": [4, 4, 4, 8, 10, 26, 22, 20, 36],
    "let-go": [4, 4, 4, 8, 10, 10, 10, 10, 26],
    "view-holds": [4, 4, 4, 8, 10, 10, 6, 4, 20],
    "expanded": [4, 4, 4, 8, 10, 10, 6, 6, 38],
    "other-length": [4, 8],
    "wrong-type": 4,
}
RIGHT = {
    "a tuple": (4.0, 4, 4, 8, 10, 10, 6, 6, 22),
    "a tensor": torch.tensor([4, 4, 4, 8, 10, 10, 6, 6, 22]),
}
