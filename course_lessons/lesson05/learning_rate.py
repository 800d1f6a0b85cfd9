"""The learning rate for more ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from course_utils.exercises import Exercise, Judge


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


def _check_learning_rate(answer: Callable[..., Any], judge: Judge) -> None:
    for case in _RATES:
        warmup = case[-1]
        for step in (warmup, warmup + 100, 0, warmup // 2, warmup - 1, warmup + 1, 1):
            if step < 0:
                continue
            got, right = judge.number(answer(step, *case)), learning_rate(step, *case)
            if not math.isclose(got, right, rel_tol=1e-6, abs_tol=1e-12):
                like = [
                    name
                    for name, twin in _RATE_TWINS.items()
                    if math.isclose(got, twin(step, *case), rel_tol=1e-6, abs_tol=1e-12)
                ]
                base, base_batch, batch, ranks, _ = case
                judge.no(
                    like[0] if like else "wrong-value",
                    seen=f"{got:.6g} in step {step}, warm-up {warmup} steps, {ranks} ranks × {batch} "
                    f"samples; {base:g} was good for {base_batch}",
                    expected=f"{right:.6g}",
                )


def rate_not_scaled(step, base, base_batch, batch_per_rank, ranks, warmup):
    return base


def rate_by_ranks(step, base, base_batch, batch_per_rank, ranks, warmup):
    return learning_rate(step, base, base_batch, base_batch, ranks, warmup)


def rate_by_batch(step, base, base_batch, batch_per_rank, ranks, warmup):
    return learning_rate(step, base, base_batch, batch_per_rank, 1, warmup)


def rate_by_root(step, base, base_batch, batch_per_rank, ranks, warmup):
    root = math.sqrt(batch_per_rank * ranks / base_batch)
    return learning_rate(step, base, 1, 1, root, warmup)


def rate_from_zero(step, base, base_batch, batch_per_rank, ranks, warmup):
    target = base * batch_per_rank * ranks / base_batch
    return target * min(1, step / max(warmup, 1)) if warmup else target


def rate_at_once(step, base, base_batch, batch_per_rank, ranks, warmup):
    return base * batch_per_rank * ranks / base_batch


def rate_without_end(step, base, base_batch, batch_per_rank, ranks, warmup):
    target = base * batch_per_rank * ranks / base_batch
    return base + (target - base) * step / max(warmup, 1) if warmup else target


def rate_one_late(step, base, base_batch, batch_per_rank, ranks, warmup):
    return learning_rate(max(step - 1, 0), base, base_batch, batch_per_rank, ranks, warmup)


def rate_one_early(step, base, base_batch, batch_per_rank, ranks, warmup):
    return learning_rate(step + 1, base, base_batch, batch_per_rank, ranks, warmup)


_RATE_TWINS: Mapping[str, Callable[..., float]] = {
    "not-scaled": rate_not_scaled,
    "by-ranks": rate_by_ranks,
    "by-batch": rate_by_batch,
    "by-root": rate_by_root,
    "at-once": rate_at_once,
    "from-zero": rate_from_zero,
    "without-end": rate_without_end,
    "one-off": rate_one_late,
    "one-early": rate_one_early,
}


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
    check_answer=_check_learning_rate,
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
