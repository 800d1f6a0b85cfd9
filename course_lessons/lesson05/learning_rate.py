"""The learning rate for more ranks."""

from __future__ import annotations

from course_utils.exercises import Exercise
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases


def learning_rate(step, base, base_batch, batch_per_rank, ranks, warmup):
    target = base * batch_per_rank * ranks / base_batch
    if step >= warmup:
        return target
    return base + (target - base) * step / warmup


_RATES = (  # base, base_batch, batch_per_rank, ranks, warmup
    (0.1, 256, 32, 64, 10),
    (0.1, 256, 32, 8, 10),
    (0.05, 64, 64, 4, 7),
    (0.4, 128, 32, 2, 5),
    (2.0, 3, 5, 7, 4),
    (0.1, 256, 32, 64, 0),
    (0.3, 20, 25, 3, 1),
)

_CASES = [
    (step, *rates, warmup)
    for *rates, warmup in _RATES
    for step in (warmup, warmup + 100, 0, warmup // 2, warmup - 1, warmup + 1, 1)
    if step >= 0
]

_LINE = "base + (target - base) * step / warmup"
_TWINS = {
    "not-scaled": (
        lambda step, base, *rest: base,
        edited(learning_rate, {"return target": "return base if step > warmup else target"}),
    ),
    "by-ranks": edited(learning_rate, {" * batch_per_rank * ranks / base_batch": " * ranks"}),
    "by-batch": edited(learning_rate, {" * ranks": ""}),
    "by-root": edited(
        learning_rate,
        {"batch_per_rank * ranks / base_batch": "(batch_per_rank * ranks / base_batch) ** 0.5"},
    ),
    "at-once": edited(learning_rate, {"step >= warmup": "True"}),
    "from-zero": edited(learning_rate, {_LINE: "target * step / warmup"}),
    "without-end": (
        edited(learning_rate, {"step >= warmup": "not warmup"}),
        edited(learning_rate, {"step >= warmup": "not warmup", _LINE: f"min(target, {_LINE})"}),
    ),
    "one-off": lambda step, *rates: learning_rate(max(step - 1, 0), *rates),
    "one-early": lambda step, *rates: learning_rate(step + 1, *rates),
}


def _situation(step: int, base: float, before: int, batch: int, ranks: int, warmup: int) -> str:
    return (
        f"step {step}, warm-up {warmup} steps, {ranks} ranks × {batch} samples; "
        f"{base:g} was good for {before}"
    )


EXERCISE = Exercise(
    id="05.learning_rate",
    title="The learning rate for more ranks",
    level=1,
    minutes=8,
    task="""
With 32 digits on each of two ranks, a step is made on 64: the **effective batch**. An epoch has half as many steps then, so each should
be longer. A learning rate of `base` was good for batches of `base_batch` samples, and now each of `ranks` ranks takes `batch_per_rank`
a step. Write `learning_rate(step, base, base_batch, batch_per_rank, ranks, warmup)` by the rule of Goyal and others (2017,
arXiv 1706.02677): the rate grows as the batch does, and a warm-up leads there. It is `base` in step 0, rises by the same amount in
each step, and has reached the new rate in step `warmup`, where it stays. `warmup` may be 0.
""",
    hints=(
        "DDP averages over the ranks. How many samples are in the gradient of one step?",
        "The new rate is `base` times the new batch divided by the old one. The warm-up is a straight line from `base` to it.",
        "Return the new rate where `step >= warmup`. Before that, add `step / warmup` of the way from `base` to it.",
    ),
    reference=learning_rate,
    check_answer=OverCases(learning_rate, _CASES, _TWINS, situation=_situation),
    why="k ranks make one step where one rank makes k, so each step must go about k times as far. The rule is "
    "an approximation: it fails in the first steps, hence the warm-up, and for very large batches. For Adam a "
    "root is often used in its place. Try a few rates before you trust any rule.",
    diagnoses={
        "not-scaled": "The rate stays `base`. The batch is larger than `base_batch` here, so there are fewer steps "
        "in an epoch.",
        "by-ranks": "Only the number of ranks counts here. The batch of a rank need not be `base_batch`.",
        "by-batch": "The batch of one rank is not the batch of a step: all ranks' samples are in the gradient.",
        "by-root": "The rate grows with the root of the batch. The rule of the task is linear.",
        "at-once": "The full rate comes before the warm-up is over.",
        "from-zero": "The warm-up begins at 0. This one begins at `base`, which was good for the small batch.",
        "without-end": "After the warm-up the rate goes on along the line. (The new rate can be below `base` too: then "
        "the line falls.)",
        "one-off": "The warm-up is one step late. Step 0 has `base`, step `warmup` the new rate.",
        "one-early": "The warm-up is one step early. Step 0 has `base`, step `warmup` the new rate.",
    },
)
