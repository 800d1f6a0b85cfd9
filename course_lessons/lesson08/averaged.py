"""An average that moves."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import nearly


def averaged(states, decay):
    average = {}
    for state in states:
        for name, value in state.items():
            if not value.is_floating_point():
                average[name] = value.clone()
            elif name in average:
                average[name].lerp_(value.float(), 1 - decay)
            else:
                average[name] = value.to(torch.float32, copy=True)
    return average


class _Course(Iterator[dict[str, Tensor]]):
    """The live state of a network while it is trained: the same tensors each time, with new values.

    The training goes on after the last state that is given: every value is another one then.
    """

    def __init__(self, dtype: torch.dtype, values: Sequence[float]) -> None:
        kind = str(dtype).removeprefix("torch.")
        self.text = f"{len(values)} {kind} states, {values[0]:g} … {values[-1]:g}"
        self.changed = False
        self._to_come = list(enumerate(values, 1))
        self._state = {
            "weight": torch.zeros(2, 3, dtype=dtype),
            "bias": torch.zeros(3, dtype=dtype),
            "running_mean": torch.zeros(3),
            "num_batches_tracked": torch.tensor(0),
        }
        self._before = self._changes()

    def _changes(self) -> int:
        return sum(value._version for value in self._state.values())

    def __next__(self) -> dict[str, Tensor]:
        self.changed |= self._changes() != self._before
        over = not self._to_come
        step, value = (77, 77.0) if over else self._to_come.pop(0)
        self._state["weight"].fill_(value)
        self._state["bias"].copy_(torch.tensor([value, -value, 0.5]))
        self._state["running_mean"].fill_(value / 2)
        self._state["num_batches_tracked"].fill_(10 * step)
        self._before = self._changes()
        if over:
            raise StopIteration
        return self._state


_CASES = (
    (torch.bfloat16, [1.0, *[1.25] * 15], 0.99),
    (torch.float16, [2.0, *[2.125] * 11], 0.998),
    (torch.float32, [3.0, 1.0, 2.0, 5.0], 0.75),
    (torch.float32, [0.5, 4.0, -1.0], 0.9),
    (torch.float32, [0.5], 0.9),
    (torch.bfloat16, [0.25, 0.5], 0.25),
    (torch.float32, [1.0, 1.0, 3.0, 2.0, 2.5], 0.6),
)


def _mean_of_all(states: _Course, decay: float) -> dict[str, Tensor]:
    kept = [copy.deepcopy(state) for state in states]
    mean = {n: torch.stack([state[n].float() for state in kept]).mean(0) for n in kept[0]}
    return mean | {"num_batches_tracked": kept[-1]["num_batches_tracked"]}


_FIRST = "value.to(torch.float32, copy=True)"
_IN_PLACE = "average[name].lerp_("
_ANEW = "average[name] = average[name].float().lerp("
_IN_16_BITS = {_FIRST: "value.clone()", "value.float()": "value"}
_ALL_FLOAT = "return {n: v if v.dtype == torch.int64 else v.float() for n, v in average.items()}"
_MISTAKES = {
    "in-16-bits": _IN_16_BITS,
    "rounds-each": {**_IN_16_BITS, "return average": _ALL_FLOAT},
    "plain-mean": _mean_of_all,
    "alias": (
        {_FIRST: "value.float()"},
        {_FIRST: "value.float()", _IN_PLACE: _ANEW},
        {_FIRST: "value", _IN_PLACE: _ANEW},
    ),
    "averages-counter": {"not value.is_floating_point()": "False"},
}


def _read(judge: Judge, got: Any) -> dict[str, Tensor]:
    for value in judge.is_a(got, Mapping, "a dict of tensors").values():
        judge.is_a(value, Tensor, "a tensor in each place")
    return dict(got)


def _look(got: dict[str, Tensor], states: _Course, decay: float) -> dict[str, Any]:
    entries = {name: (value.dtype, value) for name, value in got.items()}
    return {"live tensors changed": states.changed, **entries}


EXERCISE = Exercise(
    id="08.averaged",
    title="An average that moves",
    level=2,
    minutes=10,
    task="""
Write `averaged(states, decay)`: the moving average of the weights that many trainings evaluate. `states` gives the
model's `state_dict()` after each step: always the same dict of **live** tensors, whose values the training changes
(and you do not), with weights perhaps in 16 bits. Return a dict of the same names. It begins with the first state;
with each later one every entry becomes decay · old + (1 - decay) · new, in float32. Whole numbers (counters) have
their last value.
""",
    hints=(
        "With a decay of 0.999, one update moves the average by a thousandth of the difference. bfloat16 "
        "keeps only two or three digits. What's left of the update if the average is in bfloat16 too?",
        "Keep a dict of your own, in float32. The states are live, so every entry that you keep needs "
        "memory of its own. Be careful here, because `.float()` on a tensor that's float32 already returns "
        "that same tensor. Counters have no average, and `is_floating_point()` tells you which entries "
        "they are.",
        """Here is a running average of a loss, in float32, though the loss comes in float16. `lerp_` moves
a tensor towards another one, in place.

```python
loss = torch.tensor(4.0, dtype=torch.float16)
smooth = loss.clone().float()
for value in (3.0, 2.0):
    loss.fill_(value)  # the same tensor has a new value
    smooth.lerp_(loss.float(), 0.1)  # nine tenths are old, one tenth is new
print(smooth)  # 3.71
```""",
    ),
    reference=averaged,
    check_answer=ComparesToReference(
        averaged,
        lambda: ((_Course(dtype, values), decay) for dtype, values, decay in _CASES),
        known_mistakes_of(averaged, _MISTAKES),
        read=_read,
        look=_look,
        alike=nearly(),
        situation=lambda states, decay: f"{states.text}, decay {decay}",
    ),
    why="In 16 bits, one update of a slow average is smaller than half the gap between two numbers, so the "
    "average stays where it began, and you'd evaluate the network as it was at the start. "
    "`torch.optim.swa_utils.AveragedModel` keeps its average in the dtype of the model that you give "
    "it, so look at that dtype first.",
    diagnoses={
        "in-16-bits": "The average itself is to be in float32.",
        "rounds-each": "Each update was rounded to 16 bits, and small ones are lost. Converting at the end does not bring "
        "them back.",
        "alias": "The average shares its memory with the model: it has changed along with it.",
        "plain-mean": "That is the mean of all states. A moving average forgets.",
        "averages-counter": "A counter has no average: keep its last value, as a whole number.",
    },
)
