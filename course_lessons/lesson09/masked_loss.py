"""A mask that nobody waits for."""

import math

import torch
from torch.nn import functional as F

import simgpu
from course_language import _
from course_lessons.shared import memory
from course_lessons.shared.checking import one_thread, refuse_changed_inputs
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import nearly


def masked_loss(logits, targets, mask):
    clean = logits.masked_fill(~mask[:, None], 0)
    kept = targets.masked_fill(~mask, -100)
    total = F.cross_entropy(clean, kept, reduction="sum")
    return total / mask.sum().clamp(min=1)


def _make_case(kept, rows=12, classes=5, nan=()):
    """Return ``(logits, targets, mask)``: rows in ``kept`` count, other targets are -1; ``nan`` are NaN."""
    generator = torch.Generator().manual_seed(10 * rows + len(kept))
    mask = torch.zeros(rows, dtype=torch.bool)
    mask[list(kept)] = True
    targets = torch.randint(classes, (rows,), generator=generator).masked_fill(~mask, -1)
    logits = torch.randn(rows, classes, generator=generator)
    logits[list(nan)] = math.nan
    return logits.requires_grad_(), targets, mask


def _validated_result(judge, got):
    """Return the result if it is a tensor with one element, else refuse it."""
    judge.is_a(got, torch.Tensor, _("a tensor with one number"))
    judge.expect(_("numbers in the loss"), got.numel(), 1)
    return got


def _compared_value(got, logits, targets, mask):
    """Return the loss and the gradient of the logits; for a loss of NaN only whether it has a graph."""
    if got.requires_grad:
        got.sum().backward()
    nan = math.isnan(got.item())
    return {"loss": got.item(), "gradient": got.requires_grad if nan else logits.grad}


def _describe_case(logits, targets, mask):
    """Return the case in words."""
    nan = logits[:, 0].isnan().nonzero().flatten().tolist()
    text = _("{sum} of {n_mask} rows that count").format(sum=int(mask.sum()), n_mask=len(mask))
    return _("{text}; rows with NaN: {nonzero}").format(text=text, nonzero=nan) if nan else text


_CLEAN = {"logits.masked_fill(~mask[:, None], 0)": "logits"}
MISTAKES = {
    "nan-gradient": _CLEAN,
    "divided-by-all": {"mask.sum().clamp(min=1)": "len(mask)"},
    "nan-in-padding": {
        **_CLEAN,
        "targets.masked_fill(~mask, -100)": "targets.clamp(min=0)",
        'reduction="sum")': 'reduction="none")',
        "return total": "return (total * mask).sum()",
    },
    "hides-nan": (
        {"(clean, kept": "(clean.nan_to_num(), kept"},
        {"return total": "return total.nan_to_num(0.0)"},
    ),
}
_compare_to_reference = ComparesToReference(
    masked_loss,
    lambda: [
        *map(_make_case, ((0, 3, 4, 9), (7,), range(12), ())),
        _make_case((1, 2, 5), nan=[2]),
        _make_case((0, 1), rows=4, nan=[0, 1]),
        _make_case((0, 3, 4), rows=7, classes=3, nan=[1]),
        _make_case((), rows=4, nan=[0, 3]),
    ],
    known_mistakes_of(masked_loss, MISTAKES),
    read=_validated_result,
    look=_compared_value,
    alike=nearly(1e-4, 1e-6),
    situation=_describe_case,
)


@one_thread()
def _check_answer(answer, judge):
    """Check that the host does not wait, on a simulated device, then loss and gradient."""
    if problem := simgpu.unavailable_reason():
        text = _("Judged without the simulated device, so waits are not counted. {problem}")
        print(text.format(problem=problem))
    else:
        with memory.temporary_device("1 GB") as device:
            case = [t.detach().to(device) for t in _make_case((0, 3, 4, 9))]
            with simgpu.count() as counters:
                answer(*case)
            del case
        judge.expect(_("waits of the host"), counters.synchronizations + counters.copies_to_host, 0, "waits")
    _compare_to_reference(refuse_changed_inputs(answer, judge, 0, 1, 2), judge)


EXERCISE = Exercise(
    id="09.masked_loss",
    title="A mask that nobody waits for",
    level=2,
    minutes=6,
    task="""
Text is padded, and padding must not count. With `F.cross_entropy(logits[mask], targets[mask])` the host waits
in every step. Write `masked_loss(logits, targets, mask)`: the same mean over the rows where `mask` is True,
as a tensor with its graph, without a wait. In the other rows the target is -1, and the logits may be NaN.
Their gradient is 0 all the same. If no row counts, the loss is 0. If a row that counts has NaN, the loss
stays NaN.
""",
    hints=(
        "Why does the host have to wait for `logits[mask]`? Ask what shape the result has. It depends on how "
        "many entries of `mask` are True, and only the device knows that number.",
        "So keep every row, and make the padding harmless. `F.cross_entropy` skips rows whose target is its "
        "`ignore_index`, which is -100 by default. Ask it for a sum, and divide by the number of rows that "
        "count, which may be 0. One trap is left: a NaN that the loss skips still comes back in backward, "
        "because 0 × NaN is NaN. The padding's logits need another value before the loss.",
        """Here's the same idea for the mean square root of all numbers that aren't negative:

```python
x = torch.tensor([4.0, -1.0, 9.0], requires_grad=True)
valid = x >= 0
safe = x.masked_fill(~valid, 1)  # before sqrt, which would make NaN
mean = (safe.sqrt() * valid).sum() / valid.sum().clamp(min=1)
mean.backward()  # the mean is 2.5, and x.grad[1] is 0
```""",
    ),
    reference=masked_loss,
    check_answer=_check_answer,
    may_change=True,  # the guard would look at the inputs, and wait
    why="The shape of `logits[mask]` depends on values that are on the device, so Python waits until they're "
    "known, as it does for `nonzero`, `unique` and `if mask.any():`. If the shape is fixed and the padding "
    "holds something neutral, you pay a little arithmetic and no wait.",
    diagnoses={
        "waits": "The host waits, because something here needs values that are on the device.",
        "nan-gradient": "The gradient of the padding is NaN: a NaN that is left out of the loss comes back "
        "in backward, where 0 × NaN is NaN. Fill the logits before the loss.",
        "divided-by-all": "The sum is divided by the number of all rows, not of those that count.",
        "nan-in-padding": "A NaN in the padding spoils the loss, because 0 × NaN is NaN.",
        "hides-nan": "A loss that is NaN has become a number, which hides that training diverged.",
    },
)
