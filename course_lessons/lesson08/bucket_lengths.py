"""How many shapes are worth it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from course_utils.exercises import Exercise, Judge


def bucket_lengths(lengths, per_shape, per_token):
    best = {0: (0, [])}
    for longest in sorted(set(lengths)):
        best[longest] = min(
            (
                cost
                + per_shape
                + per_token * longest * sum(shorter < n <= longest for n in lengths),
                [*chosen, longest],
            )
            for shorter, (cost, chosen) in best.items()
        )
    _, chosen = best[max(lengths, default=0)]
    return chosen


def _bucket_seconds(
    chosen: Sequence[int], lengths: Sequence[int], per_shape: float, per_token: float
) -> float:
    padded = sum(min(b for b in chosen if b >= n) for n in lengths)
    return per_shape * len(set(chosen)) + per_token * padded


_BUCKETS = (
    ((5, 5, 5, 9, 9, 30), 0.0, 1e-3),
    ((5, 5, 5, 9, 9, 30), 100.0, 1e-3),
    ((5, 5, 5, 9, 9, 30), 0.02, 1e-3),
    ((), 1.0, 1e-3),
    ((12,) * 4, 1.0, 1e-3),
    ((100, 101, 102, 103, 500, 510, 505), 0.05, 1e-3),
    ((10,) * 40 + (20,) * 2 + (30,) * 30 + (40,), 0.03, 1e-3),
    ((64, 70, 90, 128, 130, 200, 256, 300), 0.08, 1e-3),
    ((3, 17, 18, 33, 34, 35, 66, 67, 129), 0.02, 1e-3),
    ((20,) * 5 + (60,) * 5 + (70,) * 2 + (80, 110), 0.2, 1e-3),
)


def _check_bucket_lengths(answer: Callable[..., Any], judge: Judge) -> None:
    for lengths, per_shape, per_token in _BUCKETS:
        best = bucket_lengths(lengths, per_shape, per_token)
        got = judge.is_a(answer(list(lengths), per_shape, per_token), list, "a list of lengths")
        numbers = [judge.number(n) for n in got]
        case = f"{got} for {sorted(set(lengths))}, {per_shape:g} s a shape"
        if not lengths:
            if got:
                judge.no("none", seen=case, expected="[]")
            continue
        if numbers != sorted(set(numbers)):
            judge.no("not-ascending", seen=case, expected="each length once, ascending")
        if max(numbers, default=0) < max(lengths):
            judge.no("too-short", seen=case, expected=f"one for the longest, {max(lengths)}")
        costs = _bucket_seconds(numbers, lengths, per_shape, per_token)
        least = _bucket_seconds(best, lengths, per_shape, per_token)
        if costs > least * (1 + 1e-9):
            judge.no(
                _why_dear(numbers, lengths),
                seen=f"{case}: {costs:.4g} s in all",
                expected=f"{least:.4g} s",
            )


def _why_dear(numbers: Sequence[float], lengths: Sequence[int]) -> str:
    if not set(numbers) <= set(lengths):
        return "needless"
    if len(numbers) == len(set(lengths)):
        return "every-length"
    return "one-length" if len(numbers) == 1 else "not-least"


EXERCISE = Exercise(
    id="08.bucket_lengths",
    title="How many shapes are worth it?",
    level=3,
    minutes=15,
    task="""
Many a script begins with `torch.backends.cudnn.benchmark = True`, "for speed". cuDNN then tries its algorithms out
at every new shape of a convolution. `torch.compile` and CUDA graphs pay for each new shape too. With data of many
lengths this hardly ends, so one pads them up to a few lengths. Write `bucket_lengths(lengths, per_shape, per_token)`: the ascending list of lengths
to pad to. `lengths` lists the sequences' lengths. Each is padded to the next length in your list. Each length
in the list costs `per_shape` seconds, each token `per_token` seconds, padded or not. The total must be the
least there is; no sequences, no lengths. There are at most ten different lengths.
""",
    hints=(
        "Can it pay to pad to a length that no sequence has? Which length must be in the list in any case?",
        "Try every set of the different lengths that holds the longest: there are at most 512. What does one "
        "cost in all?",
        "Or go from short to long: the best list up to a length is the best list up to some shorter one, and "
        "this length. Keep the cost and the list of each in a dict, beginning with `{0: (0, [])}`.",
    ),
    reference=bucket_lengths,
    check_answer=_check_bucket_lengths,
    why="Neither end is right in general: a compilation for each length never stops compiling, and one length "
    "for all can spend most of its time on padding. Your two costs are measured in a minute: the first call of "
    "a new shape, and the time of a token.",
    diagnoses={
        "too-short": "The longest sequence fits into none of these lengths.",
        "every-length": "Every length has its own shape here. Some of them cost more than they save.",
        "one-length": "Everything is padded to the longest here. A second shape would cost less than the "
        "padding.",
        "needless": "A length is longer than the longest sequence that is padded to it.",
        "not-least": "There is a list that costs less. Does each length count as often as it occurs? And have you tried "
        "every list, not only those that differ in one length from the best so far?",
        "not-ascending": "Each length stands in the list once, in ascending order.",
        "none": "Without sequences no length is needed.",
    },
)
