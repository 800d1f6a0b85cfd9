"""Read, but not too early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import simgpu
from course_lessons.shared.checking import keeps
from course_lessons.shared.edited import known_mistakes_of
from course_utils.devices import synchronize
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference

from .checking import other_device


def predictions(model, batches, landing, device):
    start = 0
    for x in batches:
        stop = start + len(x)
        landing[start:stop].copy_(model(x).argmax(1), non_blocking=True)
        start = stop
    synchronize(device)
    return landing[:start].tolist()


def _classifier() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)).requires_grad_(False)
    for p in model.parameters():
        p.normal_()
    return model


_SIZES = ((4, 4, 4), (3, 5, 2), (2, 4, 1), (2, 6, 1, 3), (1,))


def _case(
    sizes: tuple[int, ...], device: torch.device
) -> tuple[nn.Module, list[Tensor], Tensor, torch.device]:
    generator = torch.Generator().manual_seed(sum(sizes))
    batches = [torch.randn(n, 6, generator=generator).to(device) for n in sizes]
    landing = torch.full((sum(sizes) + 3,), -1)
    landing = landing if device.type == "cpu" else landing.pin_memory()
    return _classifier().to(device), batches, landing, device


def _read(judge: Judge, got: Any) -> list[Any]:
    return list(judge.is_a(got, (list, tuple), "a list of class numbers"))


def _of_classes(model, batches, *_):
    return [k for x in batches for k in model(x).argmax(0).tolist()]


_PLACE = "landing[start:stop]"
_RETURN = "return landing[:start].tolist()"
_MISTAKES = {
    "same-place": (
        {_PLACE: "landing[: len(x)]"},
        {
            _PLACE: "landing[: len(x)]",
            _RETURN: "return [k for x in batches for k in landing[: len(x)].tolist()]",
        },
    ),
    "equal-places": tuple(
        {
            "stop = start + len(x)": "",
            _PLACE: "landing[start : start + len(x)]",
            "start = stop": "start += len(batches[0])",
            _RETURN: f"return landing[:{end}].tolist()",
        }
        for end in ("sum(map(len, batches))", "start")
    ),
    "whole-landing": {_RETURN: "return landing.tolist()"},
}
MISTAKES = known_mistakes_of(predictions, _MISTAKES)
_VALUES = ComparesToReference(
    predictions,
    lambda: [_case(sizes, torch.device("cpu")) for sizes in _SIZES],
    MISTAKES,
    read=_read,
    alike=lambda got, right: list(got) == right,
    situation=lambda model, batches, landing, device: (
        f"batches of {', '.join(str(len(x)) for x in batches)} rows"
    ),
)


def _check_predictions(answer: Callable[..., Any], judge: Judge) -> None:
    answer = keeps(answer, judge, 1)
    _VALUES(answer, judge)  # on the CPU no copy is late
    if simgpu.problem():
        print("Judged without the simulated device: only the values, not the waits.")
        return
    with other_device() as device:
        for sizes in _SIZES:
            right = predictions(*_case(sizes, device))
            case = _case(sizes, device)
            synchronize(device)
            with simgpu.count() as counted:
                got = _read(judge, answer(*case))
            if got != right:
                judge.no("too-early", seen=got, expected=right)
            if counted.synchronizations > 1:
                judge.no(
                    "waits-each",
                    seen=f"the host waited {counted.synchronizations} times for {len(sizes)} batches",
                    expected="once",
                )


EXERCISE = Exercise(
    id="08.predictions",
    title="Read, but not too early",
    level=2,
    minutes=10,
    task="""
The loop below evaluates. `batches` are on the device; `landing`, a pinned tensor on the host, has room for all rows
and some more. The copies are `non_blocking`, but the host reads before anything has landed. Mend
`predictions(model, batches, landing, device)`: return the list of the predicted classes of all rows, in order, and let
the host wait **once**. (`synchronize(device)` is the course's.)
""",
    hints=(
        "Ask when the host may read `landing`. With `non_blocking=True`, a copy is only put into the queue, "
        "and Python goes on before it's done. When is the earliest moment at which all the copies are in "
        "the queue?",
        "Each batch needs a place of its own in `landing`, or a later batch writes over an earlier one "
        "before you've read it. The batches differ in size, so remember where the last one ended. After the "
        "loop, `synchronize(device)` waits once for all copies. Then read only the part that you've filled.",
        """Here pieces of different sizes fill a buffer from its end, and the last line reads only what was
filled:

```python
buffer = torch.zeros(8)
begin = len(buffer)
for piece in (torch.ones(2), torch.full((3,), 5.0)):
    end, begin = begin, begin - len(piece)
    buffer[begin:end].copy_(piece)
print(buffer[begin:])  # tensor([5., 5., 5., 1., 1.])
```""",
    ),
    reference=predictions,
    check_answer=_check_predictions,
    may_change=True,
    why="A copy to the device needs no wait, because the work that uses it comes later in the same queue. "
    "The host isn't in that queue, so if it reads too early, it gets old data and no error.",
    diagnoses={
        "too-early": "The host read its memory before the copies had landed. Without late copies, on the CPU, the answer is right.",
        "waits-each": "The host waited more than once. Ask for all copies, wait, and read them together.",
        "same-place": "All batches land in the same place, and each is written over the one before.",
        "equal-places": "Each batch was given as many places as the first has rows. The batches differ in size.",
        "whole-landing": "Those are more numbers than there are rows. What lies behind the last row in `landing` was there before.",
    },
)
