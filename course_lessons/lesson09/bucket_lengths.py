"""How many shapes are worth it?"""

import math
from collections import Counter

from course_language import _
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def bucket_lengths(lengths, per_shape, per_token):
    best = {0: (0, [])}
    for longest in sorted(set(lengths)):
        best[longest] = min(
            (
                cost + per_shape + per_token * longest * sum(shorter < n <= longest for n in lengths),
                [*chosen, longest],
            )
            for shorter, (cost, chosen) in best.items()
        )
    _, chosen = best[max(lengths, default=0)]
    return chosen


def _total_seconds(chosen, lengths, per_shape, per_token):
    """Return the cost in seconds when each sequence is padded to the next length in ``chosen``."""
    padded = sum(min(b for b in chosen if b >= n) for n in lengths)
    return per_shape * len(chosen) + per_token * padded


_CASES = (
    ((5, 5, 5, 9, 9, 30), 0.02, 1e-3),
    ((), 1.0, 1e-3),
    ((64, 70, 90, 128, 130, 200, 256, 300), 0.081, 1e-3),
    ((20,) * 5 + (60,) * 5 + (70,) * 2 + (80, 110), 0.2, 1e-3),
    ((20,) * 4 + (60,) * 6 + (70,) * 3 + (80, 120), 0.2, 1e-3),
)


def _random_case(rng):
    """Return a random ``(lengths, per_shape, per_token)`` with 2 to 5 different lengths."""
    some = rng.sample((10, 12, 20, 30, 35, 50, 64, 70, 90, 100), rng.randint(2, 5))
    lengths = [n for n in some for _ in range(rng.randint(1, 5))]
    rng.shuffle(lengths)
    return lengths, rng.choice((0.0, 0.011, 0.05, 0.1, 0.3)), rng.choice((1e-3, 2e-3, 0.03))


def _one_by_one(lengths, *costs):
    """Return lengths chosen greedily, one at a time, as long as the total gets cheaper: a known mistake."""
    chosen = sorted(set(lengths))[-1:]
    while True:
        longer = [sorted({*chosen, n}) for n in lengths]
        best = min([chosen, *longer], key=lambda some: _total_seconds(some, lengths, *costs))
        if best == chosen:
            return chosen
        chosen = best


_MISTAKES = {
    "once-each": lambda lengths, *costs: bucket_lengths(sorted(set(lengths)), *costs),
    "one-by-one": _one_by_one,
    "every-length": lambda lengths, *costs: sorted(set(lengths)),
    "one-length": lambda lengths, *costs: sorted(set(lengths))[-1:],
    "all-or-one": lambda lengths, *costs: min(
        sorted(set(lengths))[-1:], sorted(set(lengths)), key=lambda b: _total_seconds(b, lengths, *costs)
    ),
}


def _compared_value(got, lengths, *costs):
    """Return ``(seconds, lengths)``; NaN seconds if the list is unsorted, too short or repeats a length."""
    fits = got == sorted(set(got)) and max(got, default=0) >= max(lengths, default=0)
    return _total_seconds(got, lengths, *costs) if fits else math.nan, got


def _format_value(seen):
    """Return the list, and its seconds if it has any, as text."""
    numbers = f"[{', '.join(f'{n:g}' for n in seen[1])}]"
    if math.isnan(seen[0]):
        return numbers
    return _("{numbers} at {first_seen:.6g} s").format(numbers=numbers, first_seen=seen[0])


def _describe_case(lengths, per_shape, per_token):
    """Return the case in words."""
    counts = ", ".join(_("{k} of {n}").format(k=k, n=n) for n, k in sorted(Counter(lengths).items()))
    return _("{counts}; {per_shape:g} s per length, {per_token:g} s per token").format(
        counts=counts or _("no sequences"), per_shape=per_shape, per_token=per_token
    )


EXERCISE = Exercise(
    id="09.bucket_lengths",
    title="How many shapes are worth it?",
    level=3,
    minutes=15,
    task="""
`torch.compile`, CUDA graphs and `torch.backends.cudnn.benchmark = True` pay for each new shape, so sequences
are padded to a few lengths. Write `bucket_lengths(lengths, per_shape, per_token)`: the ascending list of
lengths to pad to that costs least. `lengths` lists the sequences' lengths, at most ten different ones; each
sequence is padded to the next length in your list. A length in the list costs `per_shape` seconds, a token,
padded or not, `per_token` seconds. No sequences, no lengths.
""",
    hints=(
        "Can it ever pay to pad to a length that no sequence has? And which length must be in your list in "
        "any case? The answers leave you with only a few candidates.",
        "There are at most ten different lengths, and the longest one is always in. That makes at most 512 "
        "lists, so you can try them all. For each list, work out what it costs in all. You pay `per_shape` "
        "for every length in the list, and `per_token` for every token after padding. A length counts as "
        "often as it occurs.",
        """Here you try every choice of parcels, and take the one whose weight is closest to 30.

```python
from itertools import combinations

weights = [5, 8, 13, 20]
choices = [c for k in range(5) for c in combinations(weights, k)]
print(len(choices))  # 16, and the first one is empty
print(min(choices, key=lambda chosen: abs(sum(chosen) - 30)))  # (8, 20)
```""",
    ),
    reference=bucket_lengths,
    check_answer=ComparesToReference(
        bucket_lengths,
        lambda: [(list(lengths), *costs) for lengths, *costs in _CASES],
        _MISTAKES,
        draw=_random_case,
        read=lambda judge, got: [
            judge.number(n) for n in judge.is_a(got, (list, tuple), _("a list of lengths"))
        ],
        look=_compared_value,
        alike=lambda got, right: math.isclose(got[0], right[0], rel_tol=1e-9),
        situation=_describe_case,
        shown=_format_value,
    ),
    why="Neither extreme is right in general: with one shape for each length your program never stops "
    "compiling, and with one length for all it can spend most of its time on padding. You can measure both "
    "costs in a minute, from the first call with a new shape and from the time of a token.",
    diagnoses={
        "every-length": "Every length has its own shape here. Some of them cost more than they save.",
        "one-length": "Everything is padded to the longest here. A second shape would cost less than the "
        "padding.",
        "all-or-one": "You compared the longest length alone with all of them. A list between the two costs "
        "less.",
        "once-each": "Each length was counted once. It counts as often as it occurs.",
        "one-by-one": "You changed the list one length at a time for as long as that paid. A list further "
        "off costs less.",
    },
)
