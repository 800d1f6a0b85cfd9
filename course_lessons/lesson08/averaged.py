"""An average that moves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases


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
        self.said = f"{len(values)} {str(dtype).removeprefix('torch.')} states, {values[0]:g} … {values[-1]:g}"
        self.changed = False
        self._values = list(values)
        self._step = 0
        self._state = {
            "weight": torch.zeros(2, 3, dtype=dtype),
            "bias": torch.zeros(3, dtype=dtype),
            "running_mean": torch.zeros(3),
            "num_batches_tracked": torch.tensor(0),
        }
        self._versions = self._now()

    def _now(self) -> list[int]:
        """Count the changes of each tensor."""
        return [value._version for value in self._state.values()]

    def __next__(self) -> dict[str, Tensor]:
        self.changed |= self._now() != self._versions
        self._step += 1
        over = self._step > len(self._values)
        value = 77.0 if over else self._values[self._step - 1]
        self._state["weight"].fill_(value)
        self._state["bias"].copy_(torch.tensor([value, -value, 0.5]))
        self._state["running_mean"].fill_(value / 2)
        self._state["num_batches_tracked"].fill_(77 if over else 10 * self._step)
        self._versions = self._now()
        if over:
            raise StopIteration
        return self._state


_COURSES = (
    (torch.bfloat16, [1.0, *[1.25] * 15], 0.99),
    (torch.float16, [2.0, *[2.125] * 11], 0.998),
    (torch.float32, [3.0, 1.0, 2.0, 5.0], 0.75),
    (torch.float32, [0.5, 4.0, -1.0], 0.9),
    (torch.float32, [0.5], 0.9),
    (torch.bfloat16, [0.25, 0.5], 0.25),
    (torch.float32, [1.0, 1.0, 3.0, 2.0, 2.5], 0.6),
)


def _of_copies(of: Callable[[list[dict[str, Tensor]], float], Any]) -> Callable[..., Any]:
    """Return the twin that averages copies of the states; its counter is right."""

    def twin(states, decay):
        kept = [copy.deepcopy(state) for state in states]
        return of(kept, decay) | {"num_batches_tracked": kept[-1]["num_batches_tracked"]}

    return twin


def _mean_of_all(kept, decay):
    return {n: torch.stack([s[n].float() for s in kept]).mean(0) for n in kept[0]}


_FIRST = "value.to(torch.float32, copy=True)"
_COUNTER = "average[name] = value.clone()"
_IN_PLACE = "average[name].lerp_("
_ANEW = "average[name] = average[name].lerp("
_FORMULA = "average[name] = decay * average[name] + (1 - decay) * value.float()"
_IN_16_BITS = {_FIRST: "value.clone()", "value.float()": "value"}
_ALL_FLOAT = "return {n: v if v.dtype == torch.int64 else v.float() for n, v in average.items()}"
_TWINS = {
    "in-16-bits": _IN_16_BITS,
    "rounds-each": {**_IN_16_BITS, "return average": _ALL_FLOAT},
    "plain-mean": _of_copies(_mean_of_all),
    "alias": tuple(
        {_FIRST: first, **later, **counter}
        for first, later in (
            ("value.float()", {}),
            ("value.float()", {_IN_PLACE: _ANEW}),
            ("value", {_IN_PLACE: _ANEW.replace("lerp", "float().lerp")}),
            ("value", {f"{_IN_PLACE}value.float(), 1 - decay)": _FORMULA}),
        )
        for counter in ({}, {_COUNTER: f"{_COUNTER} if name in average else value"})
    ),
    "averages-counter": {"not value.is_floating_point()": "False"},
}

_Seen = tuple[dict[str, Tensor], bool]


def _read(judge: Judge, got: Any) -> dict[str, Tensor]:
    judge.is_a(got, Mapping, "a dict of tensors")
    names = sorted(next(_Course(torch.float32, [0.0])))
    if sorted(got) != names:
        judge.no(seen=sorted(got), expected=names)
    for value in got.values():
        judge.is_a(value, Tensor, "a tensor in each place")
    return dict(got)


def _alike(got: _Seen, right: _Seen) -> bool:
    (a, changed), (b, also) = got, right
    close = (torch.allclose(a[n].double(), b[n].double(), rtol=1e-5, atol=1e-6) for n in b)
    return changed == also and all(a[n].dtype == b[n].dtype for n in b) and all(close)


def _otherwise(got: _Seen, right: _Seen, *case: Any) -> str:
    count, last = (seen[0]["num_batches_tracked"] for seen in (got, right))
    if got[1]:
        return "wrong-value"
    if count != last:
        told = "live-counter" if count == 77 else "other-count"  # as `_Course` ends
        return "averages-counter" if count.is_floating_point() else told
    if count.dtype != last.dtype:
        return "wrong-value"
    other = any(got[0][n].dtype != torch.float32 for n in ("weight", "bias", "running_mean"))
    if other:
        return "in-16-bits"
    return "wrong-value"


def _shown(seen: _Seen) -> str:
    return ", ".join(f"{n} {v.flatten()[0].item():.6g} ({v.dtype})" for n, v in seen[0].items())


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
        "With a decay of 0.999, how large is one update beside the average? Can bfloat16 hold the sum?",
        "A copy that shares memory with the model changes with it. For a tensor that is float32 already, `.float()` makes "
        "no copy.",
        "`old.lerp_(new.float(), 1 - decay)` does the update in place.",
    ),
    reference=averaged,
    check_answer=OverCases(
        averaged,
        lambda: ((_Course(dtype, values), decay) for dtype, values, decay in _COURSES),
        twins_of(averaged, _TWINS),
        read=_read,
        look=lambda got, states, decay: (got, states.changed),
        alike=_alike,
        otherwise=_otherwise,
        situation=lambda states, decay: f"{states.said}, decay {decay}",
        shown=_shown,
    ),
    why="In 16 bits the updates of a slow average are smaller than half a gap between two numbers, and it stays where it began. You would "
    "evaluate the network as it was at the start. (`torch.optim.swa_utils.AveragedModel` keeps its average in the "
    "dtype of the model that you give it.)",
    diagnoses={
        "in-16-bits": "The average itself is to be in float32.",
        "rounds-each": "Each update was rounded to 16 bits, and small ones are lost. Converting at the end does not bring "
        "them back.",
        "alias": "The average shares its memory with the model: it has changed along with it.",
        "plain-mean": "That is the mean of all states. A moving average forgets.",
        "averages-counter": "A counter has no average: keep its last value, as a whole number.",
    },
)
