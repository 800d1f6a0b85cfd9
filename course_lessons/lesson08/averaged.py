"""An average that moves."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited
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


def _course(dtype: torch.dtype, values: list[float]) -> Iterator[dict[str, Tensor]]:
    """The live state of a network while it is trained: the same tensors each time, with new values."""
    state = {
        "weight": torch.zeros(2, 3, dtype=dtype),
        "bias": torch.zeros(3, dtype=dtype),
        "running_mean": torch.zeros(3),
        "num_batches_tracked": torch.tensor(0),
    }
    for step, value in enumerate(values, start=1):
        state["weight"].fill_(value)
        state["bias"].copy_(torch.tensor([value, -value, 0.5]))
        state["running_mean"].fill_(value / 2)
        state["num_batches_tracked"].fill_(step)
        yield state


_COURSES = (
    (torch.bfloat16, [1.0, *[1.25] * 150], 0.99),
    (torch.float16, [2.0, *[2.125] * 60], 0.995),
    (torch.float32, [3.0, 1.0, 2.0, 5.0], 0.75),
    (torch.float32, [0.5], 0.9),
    (torch.bfloat16, [0.25, 0.5], 0.5),
)


def _mean_of_all(states, decay):
    kept = [copy.deepcopy(state) for state in states]
    mean = {n: torch.stack([s[n].float() for s in kept]).mean(0) for n in kept[0]}
    return mean | {"num_batches_tracked": kept[-1]["num_batches_tracked"]}


_FIRST = "value.to(torch.float32, copy=True)"
_IN_16_BITS = {_FIRST: "value.clone()", "value.float()": "value"}
_TWINS = {
    "in-16-bits": edited(averaged, _IN_16_BITS),
    "rounds-each": edited(
        averaged,
        {
            **_IN_16_BITS,
            "return average": "return {n: v if v.dtype == torch.int64 else v.float() for n, v in average.items()}",
        },
    ),
    "swapped": edited(averaged, {"1 - decay": "decay"}),
    "from-zero": edited(averaged, {_FIRST: "torch.zeros(value.shape)"}),
    "plain-mean": _mean_of_all,
    "alias": edited(averaged, {_FIRST: "value.float()"}),
    "averages-counter": edited(averaged, {"not value.is_floating_point()": "False"}),
}


def _read(judge: Judge, got: Any) -> dict[str, Tensor]:
    judge.is_a(got, dict, "a dict of tensors")
    names = sorted(next(_course(torch.float32, [0.0])))
    if sorted(got) != names:
        judge.no("other-names", seen=sorted(got), expected=names)
    return got


def _counts(got: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    count, last = got["num_batches_tracked"], right["num_batches_tracked"]
    return count.dtype == last.dtype and int(count) == int(last)


def _alike(got: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return (
        got["weight"].dtype == right["weight"].dtype
        and _counts(got, right)
        and all(torch.allclose(got[n].double(), right[n].double(), rtol=1e-5) for n in right)
    )


def _otherwise(got: dict[str, Tensor], right: dict[str, Tensor], *case: Any) -> str:
    if not _counts(got, right):
        return "averages-counter"
    return "wrong-average" if got["weight"].dtype == torch.float32 else "in-16-bits"


def _situation(states: Iterator[dict[str, Tensor]], decay: float) -> str:
    *_, (count, last) = enumerate(states, start=1)
    return f"{count} {last['weight'].dtype} states, the last weight {last['weight'][0, 0]:g}, decay {decay}"


def _shown(state: dict[str, Tensor]) -> str:
    return ", ".join(f"{n} {v.flatten()[0].item():.6g} ({v.dtype})" for n, v in state.items())


EXERCISE = Exercise(
    id="08.averaged",
    title="An average that moves",
    level=2,
    minutes=10,
    task="""
Many trainings evaluate with a moving average of the weights. Write `averaged(states, decay)`. `states` gives the model's
`state_dict()` after each step; it is always the same dict of **live** tensors, whose values the training changes, and its weights may be in
16 bits. Return a dict of the same names. It begins with the values of the first state; then with each state
every entry becomes decay · old + (1 - decay) · new. Entries that are whole numbers (counters) have their last value. The
average is in float32.
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
        lambda: ((_course(dtype, values), decay) for dtype, values, decay in _COURSES),
        _TWINS,
        read=_read,
        alike=_alike,
        otherwise=_otherwise,
        situation=_situation,
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
        "swapped": "The two shares are exchanged: the old average counts `decay`.",
        "from-zero": "The average began at zero. It should begin with the first state.",
        "plain-mean": "That is the mean of all states. A moving average forgets.",
        "averages-counter": "A counter has no average: keep its last value, as a whole number.",
        "other-names": "The names must be those of the states.",
        "wrong-average": "The average is another.",
    },
)
