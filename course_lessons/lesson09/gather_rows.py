"""Collect what differs in length."""

import torch

from course_language import _
from course_lessons.shared.checking import on_ranks
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import same


def gather_rows(rows, dist):
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    counts = [count.item() for count in counts]
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[: counts[rank]] for rank, part in enumerate(parts)])


_CASES = (
    ((2, 2), (3,), torch.float32),
    ((3, 1, 4), (2,), torch.float64),
    ((1, 0, 2, 5), (), torch.int64),
    ((4,), (2, 2), torch.float32),
    ((0, 0), (3,), torch.float32),
    ((3, 5, 2), (3,), torch.float32),
    ((5, 3), (2,), torch.float16),
)


def _run_case(function, sizes, shape, dtype):
    """Return each rank's result, where rank r has ``sizes[r]`` rows, the second of them zeros.

    Raises what the judge raises for a hang, unequal sizes or a wrong type.
    """

    def run_rank(dist, call):
        rank = dist.get_rank()
        numbers = torch.arange(1, 1 + sizes[rank] * torch.Size(shape).numel()) + 50 * rank
        rows = numbers.view(sizes[rank], *shape).to(dtype)
        rows[1:2] = 0
        return call(rows, dist)

    judge = Judge()
    results = on_ranks(run_rank, function, len(sizes), judge, "hang", "unequal").results
    for rank, got in enumerate(results):
        if got is None and rank:
            judge.no(
                "one-rank",
                seen=_("None on rank {rank}").format(rank=rank),
                expected=_("all rows on all ranks"),
            )
        judge.is_a(got, torch.Tensor, _("a tensor"))
    return {f"rank {rank}": rows for rank, rows in enumerate(results)}


_CAT = "return torch.cat("
_CUT = f"{_CAT}[part[: counts[rank]] for rank, part in enumerate(parts)])"
_NONZERO = """whole = torch.cat(parts)
kept = whole.flatten(1).any(1) if whole.dim() > 1 else whole != 0
return whole[kept]"""
_MISTAKES = {
    "own-count": {"counts[rank]]": "len(rows)]"},
    "zeros-lost": {_CUT: _NONZERO},
    "one-rank": {_CAT: "return rows if dist.get_rank() else torch.cat("},
    "own-alone": {_CUT: "return rows"},
}


EXERCISE = Exercise(
    id="09.gather_rows",
    title="Collect what differs in length",
    level=3,
    minutes=12,
    task="""
A metric needs all predictions at once. Write `gather_rows(rows, dist)`: on every rank, the rows of rank 0,
then those of rank 1, and so on, in one tensor of the same dtype. Ranks may hold unequally many rows, or none;
the other dimensions are alike. But `dist.all_gather(list, tensor)` wants the same shape on every rank.
""",
    hints=(
        "`all_gather` wants the same shape on every rank, but no rank knows how many rows the others have. "
        "Which number must travel before the rows can?",
        "First gather the counts, as tensors of one whole number. They have the same shape everywhere. Then "
        "every rank knows the largest count, and can pad its own rows to it. For each `all_gather`, the list "
        "holds one empty tensor of the right shape and dtype for each of the `dist.get_world_size()` ranks. "
        "A rank without rows must make the same calls, or the others wait forever.",
        """Here two sentences of unequal length go into one tensor and come out again. The counts say where
the padding begins, so a real 0 isn't lost.

```python
rows = [torch.tensor([4, 0, 7]), torch.tensor([5])]
table = torch.zeros(2, 3, dtype=torch.int64)
for i, row in enumerate(rows):
    table[i, : len(row)] = row
print(table[0, :3], table[1, :1])  # 4, 0, 7 and 5
```""",
    ),
    reference=gather_rows,
    check_answer=ComparesToReference(
        gather_rows,
        _CASES,
        known_mistakes_of(gather_rows, _MISTAKES),
        run=_run_case,
        alike=same,
        situation=lambda sizes, *__: _("ranks with {sizes} rows").format(sizes=list(sizes)),
    ),
    why="Shapes must agree because a collective doesn't negotiate: each rank writes into memory of a size "
    "that it knew before, and on GPUs a mismatch often hangs instead of raising an error. Where a sum is "
    "enough, send the sum, because it's smaller and nobody has to pad.",
    diagnoses={
        "unequal": "The ranks hand tensors of unequal shape to the same collective.",
        "own-count": "Each part was cut to the count of the rank that gathers. Its own rank's count is "
        "needed.",
        "zeros-lost": "Rows of zeros are gone. A row that a rank holds can be all zeros: only the count "
        "tells it from padding.",
        "one-rank": "Every rank is to have all rows, not rank 0 alone.",
        "own-alone": "Each rank has only its own rows.",
    },
)
