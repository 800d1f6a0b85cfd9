"""Loop e."""

import torch
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.edited import known_mistakes_of

from . import detective  # noqa: F401  (the stub's cell names it)
from .checking import judge_waits, limit, mend, times

_FLOAT32 = 19.5e12
"""The A100's FLOP/s in float32: a large product that is faster ran on its tensor cores."""


def mend_e(model, batches, optimizer):
    losses = []
    for x, y in batches:
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _judge_small(small, judge):
    """Refuse waits in a small run, but for those of a GradScaler, one a step."""
    kernels = (span.name for span in small.timeline.spans if span.kind == "kernel")
    scaled = sum("non_finite_check" in name for name in kernels)
    judge_waits(small, judge, own=scaled)  # a GradScaler asks once a step


def _judge_work(got, judge):
    """Judge the full run: the share of the matrix products in float32, and the modelled time."""
    products = [s for s in got.timeline.spans if s.kind == "kernel" and s.flops > 4e8]
    slow = sum(s.flops for s in products if s.flops < _FLOAT32 * s.seconds)
    share = slow / max(1, sum(s.flops for s in products))
    if share > 0.05:
        seen = times("e", got)
        seen["seen"] = _("{share:.0%} of the products' FLOP in float32; {seen}").format(
            share=share, seen=seen["seen"]
        )
        judge.no("as-slow" if share > 0.95 else "only-some", **seen)
    if got.seconds > limit("e"):
        seen = times("e", got)
        seen["seen"] = _("{calls} calls of the model in {n_steps} steps; {seen}").format(
            calls=got.calls, n_steps=len(got.steps), seen=seen["seen"]
        )
        judge.no("in-pieces" if got.calls > len(got.steps) else "wrong-value", **seen)


E_MISTAKES = known_mistakes_of(mend_e, {"summed": {"model(x), y)": 'model(x), y, reduction="sum")'}})


EXERCISE = mend(
    "e",
    reference=mend_e,
    known_mistakes=E_MISTAKES,
    judge_small=_judge_small,
    judge_work=_judge_work,
    title="Loop e",
    level=2,
    minutes=8,
    task="""
Fix the fifth loop, as `mend_e(model, batches, optimizer)`. The batches are on the device, a simulated A100
this time. It returns the list of losses. The losses and the change of the weights may be off by 5 %. The
weights stay in float32.
""",
    hints=(
        "The device is busy all the time, and near its limit of FLOP/s, so there's no wait that you could "
        "remove. At which rate do an A100's tensor cores multiply, and in which formats?",
        "Matrix products needn't run in float32. Inside `torch.autocast(...)`, PyTorch runs them in the "
        "dtype that you name, and the parameters stay in float32, as the task asks. `autocast` needs the "
        "type of the device too, and a batch can tell you that. Only the model and the loss belong inside. "
        "The backward pass follows their dtypes by itself. TF32 would help here too.",
        "Here's one layer under autocast on the CPU. Its output is in 16 bits, and its gradient isn't.\n"
        """
```python
layer, x = torch.nn.Linear(4, 2), torch.ones(3, 4)
with torch.autocast("cpu", torch.bfloat16):
    product = layer(x)
print(product.dtype, layer.weight.dtype)  # torch.bfloat16 torch.float32
product.sum().backward()
print(layer.weight.grad.dtype)  # torch.float32
```""",
    ),
    why="Where arithmetic is the limit, a cheaper number format moves the limit itself. The weights stay in "
    "float32, because a small step would be lost in 16 bits. (With float16 in bfloat16's place add a "
    "`GradScaler`, as in lesson 05. The gradients of this loop are large enough to pass without one; yours "
    "may not be.)",
    diagnoses={
        "as-slow": "The large matrix products still run in float32.",
        "only-some": "Some of the matrix products are faster, and the others still run in float32.",
        "in-pieces": "The model is called several times in a step, each time with a part of the batch. "
        "Small products leave most of the device idle.",
        "weights-dtype": "The weights were not float32 in every step. In 16 bits a small step is lost.",
        "summed": "The errors are added up. The given loop takes their mean.",
    },
)
