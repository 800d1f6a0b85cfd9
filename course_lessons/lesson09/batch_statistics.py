"""One batch on four ranks."""

import torch

from course_language import _
from course_lessons.shared.checking import on_ranks
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import nearly


def batch_statistics(x, dist):
    sums = torch.stack([torch.ones_like(x), x]).sum(1)
    dist.all_reduce(sums)
    count, total = sums
    mean = total / count
    squares = (x - mean).square().sum(0)
    dist.all_reduce(squares)
    return mean, squares / count


_CASES = (
    ((4, 4), torch.float32, 0.0),
    ((5, 2, 9), torch.float64, 0.0),
    ((6,), torch.float32, 0.0),
    ((1, 7, 3, 3), torch.float32, 0.0),
    ((3, 5), torch.float32, 5000.0),
    ((2, 6, 1), torch.float32, -4000.0),
)


def _run_case(function, sizes, dtype, shift):
    """Return each rank's mean and variance, where rank r has ``sizes[r]`` rows.

    Raises what the judge raises for a hang, a mismatch or a wrong type.
    """

    def run_rank(dist, call):
        rank = dist.get_rank()
        generator = torch.Generator().manual_seed(rank)
        rows = torch.randn(sizes[rank], 3, dtype=dtype, generator=generator) * (rank + 1)
        return call(rows + torch.tensor([0.5, -1.0, 2.0], dtype=dtype) * rank + shift, dist)

    judge = Judge()
    results = on_ranks(run_rank, function, len(sizes), judge, "hang", "mismatch").results
    for pair in results:
        judge.is_a(pair, (tuple, list), _("two tensors"))
        if len(pair) != 2 or not all(isinstance(t, torch.Tensor) for t in pair):
            judge.no("wrong-type", seen=pair, expected=_("two tensors"))
    means, variances = zip(*results, strict=True)
    return {"mean": list(means), "variance": list(variances)}


_MISTAKES = {
    "own": {"dist.all_reduce(sums)": "", "dist.all_reduce(squares)": ""},
    "mean-of-means": {"total / count": "x.mean(0) / dist.get_world_size()\ndist.all_reduce(mean)"},
    "mean-of-variances": (
        {"(x - mean)": "(x - x.mean(0))"},
        {
            "(x - mean).square().sum(0)": "x.var(0, correction=0)",
            "squares / count": "squares / dist.get_world_size()",
        },
    ),
}
_close = nearly(1e-3, 1e-5)


def _fallback_diagnosis(got, right, sizes, dtype, shift):
    """Return the diagnosis of results that agree with no known mistake."""
    # The simplest cases come first: where the first wrong one is shifted, the others are right.
    return "loses-digits" if shift and _close(got["mean"], right["mean"]) else "wrong-value"


def _describe_case(sizes, dtype, shift):
    """Return the case in words."""
    return _("{sizes} rows on the ranks").format(sizes=list(sizes)) + (
        _(", means near {shift:g}").format(shift=shift) if shift else ""
    )


EXERCISE = Exercise(
    id="09.batch_statistics",
    title="One batch on four ranks",
    level=2,
    minutes=8,
    task="""
`BatchNorm` under DDP takes mean and variance of its own rank's rows, `SyncBatchNorm` those of all. Write
`batch_statistics(x, dist)`: on every rank the pair of tensors (mean, variance) of each column over the rows
of all ranks. `x` has this rank's rows, at least one; ranks may have unequally many. The variance divides by
the number of rows. A column's mean may be some thousand times its spread. `x` stays as it is.
""",
    hints=(
        "`dist.all_reduce` adds up one tensor over all ranks. Which numbers about its own rows can each rank "
        "put into that tensor, so that the sums give you the mean of all rows?",
        "You can add up counts and sums, but not means, because some ranks may have more rows. You can't "
        "average the variances either, since the ranks' means differ. So take two rounds. After the first, "
        "every rank knows the mean of all rows. In the second, each one measures its own rows from that "
        "mean. `all_reduce` overwrites the tensor that you pass.",
        """Here two ranks with 10 rows and 2 rows find their common accuracy.

```python
ranks = [torch.tensor([9.0, 10.0]), torch.tensor([1.0, 2.0])]  # hits, rows
print(sum(hits / rows for hits, rows in ranks) / 2)  # 0.7, the mean of two means
hits, rows = sum(ranks)  # this stands for an all_reduce
print(hits / rows)  # 0.8333, the accuracy over all 12 rows
```""",
    ),
    reference=batch_statistics,
    check_answer=ComparesToReference(
        batch_statistics,
        _CASES,
        known_mistakes_of(batch_statistics, _MISTAKES),
        run=_run_case,
        alike=_close,
        otherwise=_fallback_diagnosis,
        situation=_describe_case,
    ),
    why="Metrics combine in the same way: you add up sums and counts, and you divide last. DDP doesn't do "
    "this for BatchNorm, which is why four ranks of 8 rows aren't one batch of 32 rows to it.",
    diagnoses={
        "own": "These are the figures of the rank's own rows.",
        "mean-of-means": "The mean of the ranks' means counts few rows as much as many.",
        "mean-of-variances": "That is the mean of the ranks' variances. It leaves out that their means "
        "differ.",
        "loses-digits": "The variance is a small difference of two large numbers here, and float32 has only "
        "seven digits. Add up squares of distances from the mean.",
        "hang": "Some rank waits for ever: every rank must make the same calls.",
    },
)
