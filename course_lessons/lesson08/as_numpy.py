"""Any tensor to NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_utils.exercises import Exercise, Judge

from .checking import other_device


def as_numpy(tensor):
    host = tensor.detach().cpu()
    if host.dtype == torch.bfloat16:
        host = host.float()
    return host.numpy()


def _check_as_numpy(answer: Callable[..., Any], judge: Judge) -> None:
    with other_device() as other:
        places = ["cpu"] if other.type == "meta" else ["cpu", other]
        for values, dtype, grad in (
            ([[1.5, -2.0]], torch.float32, False),
            ([0.1, 1e-30], torch.float64, False),
            ([2**40, -3], torch.int64, False),
            ([True, False], torch.bool, False),
            ([0.1, 300.0], torch.float16, False),
            ([1e30, -0.1], torch.bfloat16, False),
            ([[1.25], [7.0]], torch.float32, True),
            ([0.5, 3e8], torch.bfloat16, True),
        ):
            for place in places:
                tensor = torch.tensor(values, dtype=dtype).to(place).requires_grad_(grad)
                right = as_numpy(tensor)
                _judge_array(answer(tensor), right, tensor, judge)


def _judge_array(got: Any, right: np.ndarray, tensor: Tensor, judge: Judge) -> None:
    if isinstance(got, Tensor):
        judge.no("still-a-tensor", seen=got, expected="a NumPy array")
    judge.is_a(got, np.ndarray, "a NumPy array")
    what = f"{got.dtype} {got.tolist()} from {tensor.dtype}"
    if got.dtype == right.dtype and np.array_equal(got, right):
        return
    if tensor.dtype == torch.bfloat16:
        kind = "overflow" if not np.isfinite(got.astype(float)).all() else "other-bf16"
    elif not tensor.dtype.is_floating_point:
        kind = "not-float"
    else:
        kind = "through-lists" if got.dtype == np.float64 else "loses-digits"
    judge.no(kind, seen=what, expected=f"{right.dtype} {right.tolist()}")


EXERCISE = Exercise(
    id="08.as_numpy",
    title="Any tensor to NumPy",
    level=1,
    minutes=5,
    task="""
`tensor.numpy()` has three ways to fail: the tensor is on a device, it needs a gradient, or it is bfloat16, which
NumPy does not have. Write `as_numpy(tensor)`, which returns an array of the same values for any tensor. The dtype stays what
it is; only bfloat16 becomes float32.
""",
    hints=(
        "Each of the three errors names its own cure. Provoke them one after the other.",
        "`.detach()`, `.cpu()`, and `.float()` for one dtype only.",
    ),
    reference=as_numpy,
    check_answer=_check_as_numpy,
    why="`.float()` for all would turn labels into floats and double precision into single, without a word. "
    "And each call waits for the device and copies: keep it out of the training loop.",
    diagnoses={
        "overflow": "float16 cannot hold what bfloat16 can: its largest number is 65504. float32 can.",
        "other-bf16": "bfloat16 must become float32, with the same values.",
        "not-float": "Whole numbers and truth values must keep their dtype.",
        "loses-digits": "Another floating-point dtype came back than was given: digits are lost, or the "
        "caller's dtype is.",
        "through-lists": "Through Python numbers every float becomes float64. The dtype should stay.",
        "still-a-tensor": "That is still a tensor.",
    },
)
