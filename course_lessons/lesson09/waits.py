"""Count the waits."""

import io
from contextlib import redirect_stdout

import torch
from torch import nn
from torch.nn import functional as F

import simgpu
from course_lessons.shared import memory
from course_utils.exercises import Exercise


def waits():
    copies = 4 * 2
    decisions = 4
    printed = 2
    at_the_end = 1
    return copies + decisions + printed + at_the_end


def four_steps(model, loader, optimizer, device):
    total = torch.zeros((), device=device)
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        outputs = model(x)
        loss = F.cross_entropy(outputs, y)
        if loss > 100:
            break
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += (outputs.argmax(1) == y).sum()
        if step % 2 == 0:
            print(f"loss {loss:.3f}")
    return total.item()


WAITS = 15
"""What ``four_steps`` counts on the simulated device; for a PyTorch that cannot have it."""


def count_waits():
    """Return how often the host waits in ``four_steps`` on a simulated device; ``WAITS`` without one."""
    if simgpu.unavailable_reason():
        return WAITS
    with memory.temporary_device("1 GB") as device:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(4)]
        with simgpu.count() as counted, redirect_stdout(io.StringIO()):
            four_steps(model, loader, optimizer, device)
    return counted.synchronizations


def _check_answer(answer, judge):
    """Check the number; a known difference from the right one gets its diagnosis."""
    got, right = judge.number(answer), count_waits()
    diagnoses = {1 - right: "end-only", -8: "eight-few", -4: "four-few", -2: "two-few"}
    diagnoses |= dict.fromkeys((4, 8, 12), "four-many")
    if got != right:
        judge.no(diagnoses.get(got - right, "wrong-value"), seen=f"{got:g}")


EXERCISE = Exercise(
    id="09.waits",
    title="Count the waits",
    level=2,
    minutes=6,
    task="""
How often does the host wait for the device in this loop? The loader gives **four** batches, pairs of tensors
in ordinary (pageable) memory, and no loss is above 100. Answer with a number. The check runs the loop and
counts.

```python
def four_steps(model, loader, optimizer, device):
    total = torch.zeros((), device=device)
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        outputs = model(x)
        loss = F.cross_entropy(outputs, y)
        if loss > 100:
            break
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += (outputs.argmax(1) == y).sum()
        if step % 2 == 0:
            print(f"loss {loss:.3f}")
    return total.item()
```
""",
    hints=(
        "The host waits where Python itself needs a value from the device: to decide, to print, or to return "
        "a number. It also waits for a copy from memory that isn't pinned. Go through the loop, and mark "
        "every line of these kinds.",
        "`argmax`, `==`, `total +=` and the clipping leave their results on the device, so the host doesn't "
        "wait for them. For each line that you've marked, count how often it runs. One line may also wait "
        "more than once.",
        """Here's the count for another loop. Imagine that `total` is on a GPU.

```python
total = torch.zeros(())
for step in range(6):
    total += step  # no wait: Python doesn't need the sum
    if step % 3 == 0:  # no wait: `step` is Python's own number
        print(total.item())  # a wait in step 0 and one in step 3
print(bool(total > 9))  # the last wait, so 3 in all
```""",
    ),
    reference=waits,
    check_answer=_check_answer,
    why="None of these lines is called `synchronize`. Copies from ordinary memory, an `if` on a tensor and a "
    "print are the waits that profiles find, and the first of them goes away with pinned memory and "
    "`non_blocking=True`.",
    diagnoses={
        "eight-few": "Eight are missing. A copy from pageable memory makes the host wait until the data have "
        "left, and there are two in each step.",
        "four-few": "Four are missing, as many as there are steps. Each step waits for the copy of `x`, for "
        "the copy of `y`, and for the truth value that `if loss > 100` needs.",
        "two-few": "Two are missing, as many as there are losses printed: to print a loss the host must have "
        "it.",
        "end-only": "`.item()` is not the only line that waits. What does an `if` need, and a copy from "
        "ordinary memory?",
        "four-many": "Too many, by a whole number for each step. The lines whose result stays on the device "
        "do not wait: `argmax`, `==`, `total +=`, the clipping.",
    },
)
