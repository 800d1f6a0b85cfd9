"""A loss curve for one read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional as F

import simgpu
from course_lessons.shared.checking import Calls, keeps, made_batches
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge

from .checking import SLIPS, over, sgd, small_model, weights_after

_READS = {"item", "tolist", "numpy", "cpu", "__float__", "__int__", "__bool__", "__index__"}
_READS |= {"__array__", "__format__", "__repr__", "__contains__"}
_MAKES = {"tensor", "as_tensor", "asarray", "new_tensor"}


def _reads_of(name: str, args: Any, kwargs: Any) -> int:
    """Return how many values a call reads out of tensors: on a GPU each read waits for the device."""
    if name in _MAKES:  # makes numbers of the tensors in a list, one after the other
        return sum(map(_tensors_inside, [*args, *kwargs.values()]))
    return name in _READS


def _tensors_inside(value: object) -> int:
    """How many tensors lie in lists and tuples, nested ones too; a tensor itself holds none."""
    if not isinstance(value, (list, tuple)):
        return 0
    return sum(isinstance(item, torch.Tensor) or _tensors_inside(item) for item in value)


@contextmanager
def _reads(device: torch.device) -> Iterator[tuple[Callable[[], int], Callable[[], bool]]]:
    """Count reads: on the simulated device by what waits or is copied, on the CPU by the calls.

    The second function says whether a copy went to the host without waiting.
    """
    if device.type == "cpu":
        found: list[int] = []
        with Calls(lambda *call: found.append(_reads_of(*call))):
            yield lambda: sum(found), lambda: False
    else:
        with simgpu.count() as asked:

            def sent() -> int:  # waits for a copy to the device read nothing
                copies = [c for c in asked.copies if c.code == "h2d"]
                return sum(not (c.pinned and c.non_blocking) for c in copies)

            yield (
                lambda: max(asked.synchronizations - sent(), asked.copies_to_host),
                lambda: any(c.code == "d2h" and c.non_blocking for c in asked.copies),
            )


def step_losses(model, batches, optimizer):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


_LEARNS = known_mistakes_of(step_losses, SLIPS)
_GIVES = known_mistakes_of(
    step_losses, {"after-step": {"loss.detach()": "F.cross_entropy(model(x), y).detach()"}}
)
_SIZES = ((5, 3, 2, 2), (4,) * 9, (6, 2, 3))


def _case(at):
    """A model in train mode, batches and an optimiser."""
    model = small_model()
    return model, made_batches(_SIZES[at], seed=at + 1), sgd(model)


_WEIGHTS = weights_after(step_losses, _case, len(_SIZES), _LEARNS)


def _read(judge: Judge, got: Any) -> list[float]:
    judge.is_a(got, (list, tuple), "a list of Python floats")
    return [judge.is_a(value, float, "a Python float") for value in got]


_LOSSES = over(step_losses, _case, len(_SIZES), _GIVES, read=_read)


def _check_step_losses(answer: Callable[..., Any], judge: Judge) -> None:
    _WEIGHTS(keeps(answer, judge, 1), judge)
    _LOSSES(answer, judge)
    device = torch.device("cpu") if simgpu.problem() else simgpu.first()
    batches = [(x.to(device), y.to(device)) for x, y in made_batches((4, 4, 4, 4))]
    model, in_training = small_model().to(device), [0]
    optimizer = sgd(model)
    with _reads(device) as (reads, unwaited):
        optimizer.register_step_post_hook(lambda *_: in_training.append(reads()))
        answer(model, batches, optimizer)
        count = reads()
    if count > (1 if device.type == "sim" else 2):  # on the CPU .cpu() before .tolist() counts too
        diagnosis = "wrong-value"
        if not unwaited() and len(set(in_training)) > 2:
            diagnosis = "reads-each-step"
        elif not unwaited() and count > 2 and not in_training[-1]:
            diagnosis = "reads-at-the-end"
        judge.no(
            diagnosis,
            seen=f"{count} reads for {len(batches)} batches",
            expected="one read, however many batches there are",
        )


EXERCISE = Exercise(
    id="03.step_losses",
    title="A loss curve for one read",
    level=2,
    minutes=8,
    task="""
Write `step_losses(model, batches, optimizer)`: one right training step for each `(x, y)` in `batches`,
and back comes the list of the losses, one Python float a step. The model comes in train mode. Read
from the device once at the end, not once a step: the check counts.
""",
    hints=(
        "`.item()`, `float(loss)`, `print(loss)` and `if loss > 3:` all read a value, and on a GPU "
        "each of them waits for it. What can you keep in a list without reading it?",
        "A loss is a tensor, and a list can hold it as it is. But it also holds on to its graph, so "
        "keep `loss.detach()`, which has the value without the graph. After the loop, `torch.stack` "
        "joins the losses into one tensor on the device, and `.tolist()` reads it all at once. "
        "`torch.tensor(losses)` won't do, because it reads them one by one.",
        "Here you want only the largest of three norms, and you read only that one.\n\n"
        """```python
tables = [torch.full((4,), size) for size in (1.0, 2.0, 3.0)]
norms = [table.norm() for table in tables]  # nothing is read here
largest = torch.stack(norms).max()  # still a tensor, and still where it was
print(largest.item())  # 6.0, the only read
```""",
    ),
    reference=step_losses,
    check_answer=_check_step_losses,
    why="If the batches are on the device already, Python waits only at the end of this loop, so it "
    "can send the next step while the device is still at work. The same trick works for accuracy, "
    "gradient norms and everything else that you plot.",
    diagnoses={
        "reads-each-step": "The training reads a value from the device again and again. On an "
        "accelerator each read stops the queue; so does a copy into a tensor on the CPU.",
        "reads-at-the-end": "No step was held up, but at the end the losses are read one by one, each "
        "with a copy of its own. `torch.tensor` on a list of tensors does that too: it reads every "
        "element. First join them on the device.",
        "piles-up": "The gradients of earlier batches are still in the sum when a step is taken: `backward()` adds.",
        "summed": "The steps follow the sum of a batch's losses. A right step follows their mean.",
        "after-step": "These losses were computed anew after each step. The losses that the steps used are asked for.",
    },
    may_change=True,  # else the checker's own comparison of the batches would count as reads
)
