"""An average that moves."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
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


class _LiveStates:
    """A network's states in training: the same tensors each time; ``changed`` if the answer writes to one."""

    def __init__(self, dtype, values):
        kind = str(dtype).removeprefix("torch.")
        self.text = _("{n_values} {kind} states, {first_value:g} … {last_value:g}").format(
            n_values=len(values), kind=_(kind), first_value=values[0], last_value=values[-1]
        )
        self.values, self.changed = values, False
        self.state = {
            "weight": torch.zeros(2, 3, dtype=dtype),
            "bias": torch.zeros(3, dtype=dtype),
            "running_mean": torch.zeros(3),
            "num_batches_tracked": torch.tensor(0),
        }

    def __iter__(self):
        for step, value in enumerate(self.values, 1):
            self._train(step, value)
            versions = [tensor._version for tensor in self.state.values()]
            yield self.state
            self.changed |= versions != [tensor._version for tensor in self.state.values()]
        self._train(77, 77.0)  # the training goes on

    def _train(self, step, value):
        """Overwrite the tensors in place, as a training step would."""
        self.state["weight"].fill_(value)
        self.state["bias"].copy_(torch.tensor([value, -value, 0.5]))
        self.state["running_mean"].fill_(value / 2)
        self.state["num_batches_tracked"].fill_(10 * step)


_CASES = (
    (torch.bfloat16, [1.0, *[1.25] * 15], 0.99),
    (torch.float16, [2.0, *[2.125] * 11], 0.998),
    (torch.float32, [3.0, 1.0, 2.0, 5.0], 0.75),
    (torch.float32, [0.5], 0.9),
    (torch.bfloat16, [0.25, 0.5], 0.25),
)


def _mean_of_all(states, decay):
    """Return the plain mean of all states, whatever ``decay`` is: a known mistake."""
    kept = [copy.deepcopy(state) for state in states]
    mean = {n: torch.stack([state[n].float() for state in kept]).mean(0) for n in kept[0]}
    return mean | {"num_batches_tracked": kept[-1]["num_batches_tracked"]}


_FIRST = "value.to(torch.float32, copy=True)"
_IN_16_BITS = {_FIRST: "value.clone()", "value.float()": "value"}
_ALL_FLOAT = "return {n: v if v.dtype == torch.int64 else v.float() for n, v in average.items()}"
_NEW_TENSOR = {"average[name].lerp_(": "average[name] = average[name].float().lerp("}
_MISTAKES = {
    "in-16-bits": _IN_16_BITS,
    "rounds-each": {**_IN_16_BITS, "return average": _ALL_FLOAT},
    "plain-mean": _mean_of_all,
    "alias": ({_FIRST: "value.float()"}, {_FIRST: "value", **_NEW_TENSOR}),
    "averages-counter": {"not value.is_floating_point()": "False"},
}


def _validated_result(judge, got):
    """Return the result as a dict, or refuse anything else than a mapping to tensors."""
    for value in judge.is_a(got, Mapping, _("a dict of tensors")).values():
        judge.is_a(value, Tensor, _("a tensor in each place"))
    return dict(got)


EXERCISE = Exercise(
    id="09.averaged",
    title="An average that moves",
    level=2,
    minutes=10,
    task="""
Write `averaged(states, decay)`: the moving average of the weights that many trainings evaluate. `states`
gives the model's `state_dict()` after each step: always the same dict of **live** tensors, whose values the
training changes (and you do not), with weights perhaps in 16 bits. Return a dict of the same names. It begins
with the first state; with each later one every entry becomes decay · old + (1 - decay) · new, in float32.
Whole numbers (counters) have their last value.
""",
    hints=(
        "With a decay of 0.999, one update moves the average by a thousandth of the difference. bfloat16 "
        "keeps only two or three digits. What's left of the update if the average is in bfloat16 too?",
        "Keep a dict of your own, in float32. The states are live, so every entry that you keep needs memory "
        "of its own. Be careful here, because `.float()` on a tensor that's float32 already returns that "
        "same tensor. Counters have no average, and `is_floating_point()` tells you which entries they are.",
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
        lambda: ((_LiveStates(dtype, values), decay) for dtype, values, decay in _CASES),
        known_mistakes_of(averaged, _MISTAKES),
        read=_validated_result,
        look=lambda got, states, decay: {
            "live tensors changed": states.changed,
            **{name: (value.dtype, value) for name, value in got.items()},
        },
        alike=nearly(),
        situation=lambda states, decay: _("{text}, decay {decay}").format(text=states.text, decay=decay),
    ),
    why="In 16 bits, one update of a slow average is smaller than half the gap between two numbers, so the "
    "average stays where it began. `torch.optim.swa_utils.AveragedModel` keeps its average in the dtype of "
    "the model that you give it, so look at that dtype first.",
    diagnoses={
        "in-16-bits": "The average itself is to be in float32.",
        "rounds-each": "Each update was rounded to 16 bits, and the small ones are lost.",
        "alias": "The average shares its memory with the model: it has changed along with it.",
        "plain-mean": "That is the mean of all states. A moving average forgets.",
        "averages-counter": "A counter has no average: keep its last value, as a whole number.",
    },
)
