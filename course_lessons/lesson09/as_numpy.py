"""Any tensor to NumPy."""

import numpy as np
import torch

from course_language import _
from course_utils.exercises import Exercise

from .checking import other_device


def as_numpy(tensor):
    host = tensor.detach().cpu()
    if host.dtype == torch.bfloat16:
        host = host.float()
    return host.numpy()


_VALUES = (
    ([[1.5, -2.0]], torch.float32),
    ([0.1, 1e-30], torch.float64),
    ([2**40, -3], torch.int64),
    ([7, -3], torch.int32),
    ([200, 3], torch.uint8),
    ([True, False], torch.bool),
    ([0.1, 300.0], torch.float16),
    ([1e30, -0.1], torch.bfloat16),
    (2.5, torch.float32),
    ([[]], torch.bfloat16),
)


def _check_answer(answer, judge):
    """Check arrays of several dtypes, from leaves and results, on the CPU and a simulated device."""
    with other_device() as other:
        for device in ("cpu",) if other.type == "meta" else ("cpu", other):
            for values, dtype in _VALUES:
                leaf = torch.tensor(values, dtype=dtype).to(device)
                _judge_array(answer(leaf), leaf, judge)
                if not dtype.is_floating_point:
                    continue
                for tensor in (leaf.requires_grad_(), 2 * leaf):
                    graph = tensor.requires_grad, tensor.grad_fn is None
                    _judge_array(answer(tensor), tensor, judge)
                    after = tensor.requires_grad, tensor.grad_fn is None
                    what = _("requires_grad, and whether there is no grad_fn, after the call")
                    judge.expect(what, after, graph, "changes-the-tensor")


def _judge_array(got, tensor, judge):
    """Refuse a result that is not the array of the tensor's values, or has a wrong shape or dtype."""
    if isinstance(got, torch.Tensor):
        judge.no("still-a-tensor", seen=got, expected=_("a NumPy array"))
    judge.is_a(got, np.ndarray, _("a NumPy array"))
    right = as_numpy(tensor)
    judge.expect("shape", got.shape, right.shape)
    equal = np.array_equal(got.astype(float), right.astype(float))
    if got.dtype == right.dtype and equal:
        return
    diagnosis = "wrong-value"
    if tensor.dtype == torch.bfloat16:
        diagnosis = "other-bf16" if equal or np.isfinite(got.astype(float)).all() else "overflow"
    elif tensor.dtype.is_floating_point and got.dtype.itemsize < right.dtype.itemsize:
        diagnosis = "loses-digits"
    seen = _("{dtype} {got} from {tensor_dtype}").format(
        dtype=got.dtype, got=got.tolist(), tensor_dtype=tensor.dtype
    )
    judge.no(diagnosis, seen=seen, expected=f"{right.dtype} {right.tolist()}")


EXERCISE = Exercise(
    id="09.as_numpy",
    title="Any tensor to NumPy",
    level=1,
    minutes=5,
    task="""
`tensor.numpy()` fails in three ways: the tensor is on a device, needs a gradient, or is bfloat16, which NumPy
does not have. Write `as_numpy(tensor)`: an array of the same values and the same dtype, for any tensor; only
bfloat16 becomes float32. `tensor` itself stays as it is.
""",
    hints=(
        "Make a tensor that needs a gradient, call `.numpy()` on it, and read the error to the end. Then do "
        "the same with a tensor in bfloat16. Does each message tell you what to do?",
        "`detach()` gives you a tensor without the graph, and `cpu()` gives you one in the host's memory. "
        "Neither does any harm to a tensor that doesn't need it, so you can always call both. Only bfloat16 "
        "needs a step of its own, and `tensor.dtype` tells you when. If you called `.float()` on everything, "
        "labels would become floats, and float64 would lose digits.",
        """Here only some tensors are converted, because `mean()` refuses whole numbers. The name `numbers`
gets a new tensor, so the caller's tensor stays as it is.

```python
def mean_of(numbers):
    if not numbers.is_floating_point():
        numbers = numbers.double()
    return numbers.mean()

print(mean_of(torch.tensor([1, 2, 6])))  # 3 in float64
print(mean_of(torch.tensor([0.5, 1.5])))  # 1 in float32
```""",
    ),
    reference=as_numpy,
    check_answer=_check_answer,
    why="If you call `.float()` on every tensor, labels become floats and double precision becomes single, "
    "without a word. Each call also waits for the device and copies, so keep it out of the training loop.",
    diagnoses={
        "overflow": "float16 cannot hold what bfloat16 can: its largest number is 65504. float32 can.",
        "other-bf16": "bfloat16 must become float32, with the same values.",
        "loses-digits": "A narrower dtype came back than was given, and digits are lost. The dtype stays "
        "what it is.",
        "changes-the-tensor": "The caller's tensor has lost its place in the graph: nothing can be trained "
        "with it any more. `detach()` makes a new tensor, `detach_()` and `requires_grad_()` change the one "
        "they are called on.",
        "still-a-tensor": "That is still a tensor.",
    },
)
