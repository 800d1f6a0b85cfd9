"""A loss curve for one read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import simgpu
from course_utils.exercises import Exercise, Judge

from .checking import alike, differ, made_batches, sgd, small_model


class _Reads(TorchFunctionMode):
    """Count how often a value is read out of a tensor: on a GPU each read waits for the device."""

    names = frozenset(
        {"item", "tolist", "numpy", "cpu", "__float__", "__int__", "__bool__", "__index__"}
        | {"__array__", "__format__", "__repr__", "__contains__"}
    )
    makers = frozenset({"tensor", "as_tensor", "asarray", "new_tensor"})

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Count the call where it reads, then make it."""
        name = getattr(func, "__name__", "")
        self.count += name in self.names
        if name in self.makers:  # makes numbers of the tensors in a list, one after the other
            self.count += sum(map(_tensors_inside, [*args, *(kwargs or {}).values()]))
        return func(*args, **(kwargs or {}))


def _tensors_inside(value: object) -> int:
    """How many tensors lie in lists and tuples, nested ones too; a tensor itself holds none."""
    if not isinstance(value, (list, tuple)):
        return 0
    return sum(isinstance(item, torch.Tensor) or _tensors_inside(item) for item in value)


@contextmanager
def _reads(device: torch.device) -> Iterator[Callable[[], int]]:
    """Count reads: on the simulated device by what waits or is copied, on the CPU by the calls."""
    if device.type == "cpu":
        with _Reads() as reads:
            yield lambda: reads.count
    else:
        with simgpu.count() as asked:
            yield lambda: max(asked.synchronizations, asked.copies_to_host)


def step_losses(model, batches, optimizer):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _check_step_losses(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes in ((4,) * 9, (5, 3, 2, 2)):
        batches = made_batches(sizes)
        model, right = small_model(), small_model()
        expected = step_losses(right, batches, sgd(right))
        got = answer(model, batches, sgd(model))
        judge.is_a(got, list, "a list of Python floats")
        if not all(isinstance(value, float) for value in got):
            judge.no("not-floats", seen=got, expected="Python floats")
        if len(got) != len(batches):
            judge.no("one-per-step", seen=f"{len(got)} numbers", expected=f"{len(batches)} numbers")
        if not alike(model, right):
            judge.no("weights", seen=differ(model, right), expected="one right step for each batch")
        for value, wanted in zip(got, expected, strict=True):
            judge.close(value, wanted, "wrong-loss", rel=1e-4)
    device = torch.device("cpu") if simgpu.problem() else simgpu.first()
    batches = [(x.to(device), y.to(device)) for x, y in made_batches((4, 4, 4, 4))]
    model, in_training = small_model().to(device), [0]
    optimizer = sgd(model)
    with _reads(device) as reads:
        optimizer.register_step_post_hook(lambda *_: in_training.append(reads()))
        answer(model, batches, optimizer)
        count = reads()
    if count > 2:
        judge.no(
            "reads-each-step" if in_training[-1] else "reads-at-the-end",
            seen=f"{count} reads for {len(batches)} batches",
            expected="one read (two at most), however many batches there are",
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
        "`.item()`, `float(...)`, `print(loss)` and `if loss > 3:` all read, and on a GPU all wait. "
        "What can you keep in a list without reading it?",
        "Keep `loss.detach()`: it stays on the device, without its graph.",
        "`torch.stack(losses)` makes one tensor of many; its `.tolist()` is one read.",
    ),
    reference=step_losses,
    check_answer=_check_step_losses,
    why="On an accelerator this loop never waits before its end: Python can send the next step "
    "while the device is still at work. The same trick serves for accuracy, gradient norms, and everything else you plot.",
    diagnoses={
        "reads-each-step": "The training reads a value from the device again and again. On an "
        "accelerator each read stops the queue; so does a copy into a tensor on the CPU.",
        "reads-at-the-end": "No step was held up, but at the end the losses are read one by one, each "
        "with a copy of its own. `torch.tensor` on a list of tensors does that too: it reads every "
        "element. First join them on the device.",
        "not-floats": "The list holds something else than Python floats.",
        "one-per-step": "There must be one loss for each batch.",
        "weights": "The model was not trained by one right step for each batch.",
        "wrong-loss": "The numbers are not the losses of the steps, each taken before its update.",
    },
    may_change=True,  # else the checker's own comparison of the batches would count as reads
)
