"""An average that moves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from course_utils.exercises import Exercise, Judge


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


def _check_averaged(answer: Callable[..., Any], judge: Judge) -> None:
    for dtype, values, decay in _COURSES:
        got = judge.is_a(answer(_course(dtype, values), decay), dict, "a dict of tensors")
        right = averaged(_course(dtype, values), decay)
        if set(got) != set(right):
            judge.no("other-names", seen=sorted(got), expected=sorted(right))
        count = got["num_batches_tracked"]
        if count.dtype != torch.int64 or int(count) != len(values):
            judge.no("averages-counter", seen=count, expected=right["num_batches_tracked"])
        if got["weight"].dtype != torch.float32:
            judge.no("in-16-bits", seen=got["weight"].dtype, expected=torch.float32)
        off = [
            n for n in right if not torch.allclose(got[n].double(), right[n].double(), rtol=1e-5)
        ]
        if not off:
            continue
        name = off[0]
        case = f"from {values[0]} to {values[-1]} in {len(values)} {dtype} states, decay {decay}"
        known = {n: twin(_course(dtype, values), decay) for n, twin in AVERAGE_TWINS.items()}
        like = [
            n for n, d in known.items() if torch.allclose(d["bias"].float(), got["bias"], rtol=1e-4)
        ]
        judge.no(
            like[0] if like else "wrong-average",
            seen=f"{name}: {got[name].flatten()[0].item():.6g} {case}",
            expected=f"{right[name].flatten()[0].item():.6g}",
        )


def average_with(
    first: Callable[[Tensor], Tensor] = lambda v: v.to(torch.float32, copy=True),
    mix: Callable[[Tensor, Tensor, float], Tensor] = lambda a, v, d: d * a + (1 - d) * v.float(),
    whole: Callable[[Tensor], bool] = lambda v: not v.is_floating_point(),
    last: Callable[[Tensor], Tensor] = lambda a: a,
) -> Callable[..., Any]:
    """The average with one thing done otherwise."""

    def averaged(states, decay):
        average = {}
        for state in states:
            for name, value in state.items():
                if whole(value):
                    average[name] = value.clone()
                else:
                    old = average[name] if name in average else first(value)
                    average[name] = mix(old, value, decay) if name in average else old
        return {name: last(value) if not whole(value) else value for name, value in average.items()}

    return averaged


def _average_in_place(states, decay):
    average = {}
    for state in states:
        for name, value in state.items():
            if value.is_floating_point() and name in average:
                average[name].lerp_(value.float(), 1 - decay)
            else:
                average[name] = value.float() if value.is_floating_point() else value.clone()
    return average


def _mean_of_all(states, decay):
    kept = [copy.deepcopy(state) for state in states]
    mean = {n: torch.stack([s[n].float() for s in kept]).mean(0) for n in kept[0]}
    return mean | {"num_batches_tracked": kept[-1]["num_batches_tracked"]}


def rounded_mix(average: Tensor, value: Tensor, decay: float) -> Tensor:
    return (decay * average.to(value.dtype) + (1 - decay) * value).to(value.dtype)


AVERAGE_TWINS: dict[str, Callable[..., Any]] = {
    "rounds-each": average_with(
        first=torch.clone, mix=rounded_mix, last=lambda average: average.float()
    ),
    "swapped": average_with(mix=lambda a, v, d: (1 - d) * a + d * v.float()),
    "from-zero": average_with(
        first=lambda v: torch.zeros(v.shape),
        mix=lambda a, v, d: d * a + (1 - d) * v.float(),
    ),
    "plain-mean": _mean_of_all,
    "alias": _average_in_place,
}


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
    check_answer=_check_averaged,
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
