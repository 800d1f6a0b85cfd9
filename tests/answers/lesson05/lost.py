"""Known answers to 05.lost: wrong ones by their diagnosis, right ones by a name."""

import torch


def _lost_by_counting(gradients, dtype):
    before = torch.count_nonzero(gradients)
    gone = before - torch.count_nonzero(gradients.to(dtype))
    return gone / before if before else 0.0


def _by_numpy(gradients, dtype):
    kept = gradients.double().numpy()
    gone = gradients.to(dtype).double().numpy()[kept != 0] == 0
    return gone.mean() if gone.size else 0


RIGHT = {"by counting": _lost_by_counting, "by NumPy": _by_numpy}
