"""Which dtype comes out?"""

import torch
from torch.nn import functional as F

import simgpu
from course_language import _
from course_lessons.shared import memory
from course_utils.exercises import Exercise


def leaving():
    product = "float16"
    residual = "float32"
    activated = "float16"
    mean = "float16"
    total = "float32"
    added_in_place = "float16"
    return product, residual, activated, mean, total, added_in_place


def six_results(x, w):
    h = x @ w
    return h, h + x, F.gelu(h), h.mean(), h.sum(), h.add_(x)


LEAVING = ("float16", "float32", "float16", "float16", "float32", "float16")
"""What leaves ``six_results`` on a GPU under float16 autocast; for a PyTorch without the simulated device."""


def traced_dtypes():
    """Return the dtypes of ``six_results`` under autocast on a simulated device; ``LEAVING`` without one."""
    if simgpu.unavailable_reason():
        return LEAVING
    with memory.temporary_device("1 GB") as device:
        x, w = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device)
        with torch.autocast(device.type, dtype=torch.float16):
            dtypes = tuple(str(t.dtype).removeprefix("torch.") for t in six_results(x, w))
        del x, w
    return dtypes


_RESULTS = {
    "the product": "product",
    "h + x": "residual",
    "gelu(h)": "wrong-value",
    "h.mean()": "mean",
    "h.sum()": "sum",
    "h.add_(x)": "in-place",
}
"""Each result's diagnosis."""


def _check_answer(answer, judge):
    """Check the six names, and tell how many are right."""
    given = judge.listed(answer, _("six names of dtypes"))
    names = [str(name).removeprefix("torch.") for name in given]
    right = traced_dtypes()
    if len(names) != len(right):
        judge.no(seen=_("{n_names} names").format(n_names=len(names)), expected=_("six names"))
    for name in names:
        if name not in ("float16", "float32"):
            judge.no(seen=name, expected="float16, float32")
    if len(set(names)) == 1:
        judge.no(seen=names[0], expected=_("some of each"))
    hits = sum(map(str.__eq__, names, right))
    if not hits:
        judge.no(seen=_("0 of 6 are right"))
    for (what, diagnosis), got, expected in zip(_RESULTS.items(), names, right, strict=True):
        if got != expected:
            judge.no(
                diagnosis,
                seen=_("{got} for {what}; {hits} of 6 are right").format(got=got, what=what, hits=hits),
            )


EXERCISE = Exercise(
    id="09.leaving",
    title="Which dtype comes out?",
    level=1,
    minutes=5,
    task="""
On a GPU, under `torch.autocast(…, dtype=torch.float16)`, with **float32** matrices `x` and `w`: which dtype
has each of these six results? Answer with six dtypes, or with their names, `"float16"` or `"float32"`.

```python
def six_results(x, w):
    h = x @ w
    return h, h + x, F.gelu(h), h.mean(), h.sum(), h.add_(x)
```
""",
    hints=(
        "Ask the same question about each of the six. Is it a matrix product, does it add up many terms, or "
        "is it something else? Autocast has a list for the first group and another one for the second.",
        "Matrix products leave in 16 bits. Operations on the second list, such as a sum, go to float32, "
        "because they'd lose digits in 16 bits. But `mean` is on no list, and what's on no list takes its "
        "inputs as they are. If they differ, the result has the wider dtype. And an operation in place can't "
        "change the dtype of the tensor that it writes into.",
        """The last two rules hold without autocast too. Here they are with float32 and float64.

```python
a = torch.ones(3)  # float32
b = torch.ones(3, dtype=torch.float64)
print((a * b).dtype)  # torch.float64, the wider one
a.mul_(b)  # it works, and a stays what it was
print(a.dtype)  # torch.float32
```""",
    ),
    reference=leaving,
    check_answer=_check_answer,
    why="The second is the surprise that costs memory: a residual stream that begins in float32 stays in "
    "float32, whatever its blocks compute in. It is one reason why autocast does not halve the activations.",
    diagnoses={
        "product": "Matrix products are what autocast runs in 16 bits.",
        "residual": "An addition is on no list. Of a float16 and a float32 input, which one is the wider?",
        "mean": "Not every reduction is on the list of those that go to float32. `mean` is not.",
        "sum": "A sum of many terms is on the list of those that go to float32.",
        "in-place": "What is written in place must fit the tensor that is there.",
    },
)
