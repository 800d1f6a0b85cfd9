"""The memory of model and optimizer state on each rank, by ZeRO stage."""

from __future__ import annotations

import torch

from course_language import N_, _

STAGES = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3 (FSDP)")
"""What is divided between the ranks: nothing, Adam's moments, gradients too, parameters too."""


def bytes_per_rank(
    parameters: float, ranks: int = 1, stage: int = 0, dtype: torch.dtype = torch.float32
) -> dict[str, float]:
    """Return the bytes on each rank of ``"parameters"``, ``"gradients"`` and ``"Adam's moments"``.

    Activations, buckets and gathered layers are not included. The moments have the parameters' dtype, as in
    PyTorch's Adam. ``parameters`` is the whole model's number of parameters. ZeRO's ``stage`` 0 divides
    nothing, 1 Adam's moments, 2 gradients too, 3 parameters too.

    Raises
    ------
    ValueError
        If ``ranks`` is less than 1, or there is no such stage.
    """
    if ranks < 1 or stage not in range(len(STAGES)):
        raise ValueError(
            _("{ranks} ranks, stage {stage}: give 1 rank or more, and a stage 0 to 3.").format(
                ranks=ranks, stage=stage
            )
        )
    each = parameters * dtype.itemsize
    return {
        "parameters": each / (ranks if stage >= 3 else 1),
        "gradients": each / (ranks if stage >= 2 else 1),
        N_("Adam's moments"): 2 * each / (ranks if stage >= 1 else 1),
    }
