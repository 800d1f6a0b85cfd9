"""A loss with weights."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.edited import variants
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference, nearly

from .checking import equal, run_once, second_device


def weighted_loss(counts, device):
    counts = torch.tensor(counts)
    weight = counts.sum() / (len(counts) * counts)
    return nn.CrossEntropyLoss(weight=weight).to(device)


def _expected_weights(counts):
    """Return the right weights of the classes, a float32 tensor."""
    c = torch.tensor(counts, dtype=torch.float32)
    return c.sum() / (len(c) * c)


_returning = variants(_expected_weights, "c.sum() / (len(c) * c)")
_MISTAKES = {
    "upside-down": _returning("len(c) * c / c.sum()", "c / c.sum()"),
    "other-order": _returning("(c.sum() / (len(c) * c)).flip(0)"),
}
_COUNTS = ([6, 3, 1], [40, 10, 20, 30], [5, 5], [2, 9, 4, 7, 3], [12, 12, 36])


def _fallback_diagnosis(got, right, counts):
    """Return the diagnosis of weights that are proportional to the right ones, or to their inverse."""
    for diagnosis, weights in {"not-scaled": right, "upside-down": 1 / right}.items():
        ratio = got.detach().double() / weights
        if torch.allclose(ratio, ratio[0], rtol=1e-4):
            return diagnosis
    return "wrong-value"


_compare_to_reference = ComparesToReference(
    _expected_weights,
    [(counts,) for counts in _COUNTS],
    _MISTAKES,
    read=lambda judge, got: got,
    alike=nearly(1e-4, 1e-6),
    otherwise=_fallback_diagnosis,
)


def _validated_loss(answer, counts, device, judge):
    """Call the answer and return its loss module; refuse it unless its weights are float32 on ``device``."""
    loss = judge.is_a(answer(counts, device), nn.CrossEntropyLoss, _("an nn.CrossEntropyLoss"))
    if loss.weight is None:
        judge.no(seen="weight: None")
    judge.expect(_("device of the weight"), str(loss.weight.device), str(device), "stays")
    if loss.weight.is_floating_point() and loss.weight.dtype != torch.float32:
        judge.no(seen=_("weights of {dtype}").format(dtype=loss.weight.dtype), expected="float32")
    return loss


def _check_answer(answer, judge):
    """Check the weights, the other settings of the loss, and its value on two devices."""
    device, cpu = second_device(), torch.device("cpu")
    _compare_to_reference(lambda counts: _validated_loss(answer, counts, cpu, judge).weight, judge)
    torch.manual_seed(3)
    for counts, target in zip(_COUNTS, (device, device, cpu, device, cpu), strict=True):
        loss = _validated_loss(answer, counts, target, judge)
        judge.expect("reduction", loss.reduction, "mean", "reduction")
        if loss.label_smoothing:
            judge.no(seen=f"label_smoothing={loss.label_smoothing}", expected=_("none"))
        logits, labels = torch.randn(7, len(counts)), torch.arange(7) % len(counts)
        expected = F.cross_entropy(logits, labels, _expected_weights(counts))
        applied = partial(loss, target=labels.to(target))
        value = run_once(applied, logits.to(target), "stays", judge)
        if not equal(value, expected):
            judge.no(seen=value.cpu(), expected=expected)
        if target.type != "meta" and loss.to(cpu).weight.device != cpu:
            judge.no("stays", seen=_("a weight that .to() does not move"))


EXERCISE = Exercise(
    id="02.weighted_loss",
    title="A loss with weights",
    task="`counts` is a list of integers, and `counts[k]` says how often class `k` occurs in the "
    "training data. Return an `nn.CrossEntropyLoss`, ready for logits on `device`, in which class `k` "
    "has the weight total / (number of classes · `counts[k]`): a rare class counts for more.",
    level=1,
    minutes=6,
    hints=(
        "Forget the device for a moment, and find the three weights for `counts = [6, 3, 1]` on paper. "
        "Which class gets the largest one? Then ask where a loss keeps its weights, and who takes them "
        "to the device.",
        "Turn `counts` into a tensor, and one line computes the formula for all classes at once. "
        "`nn.CrossEntropyLoss(weight=...)` keeps that tensor as a buffer, because a loss is a module "
        "too. The logits lie on `device`, so the weights must be there as well. You know already what "
        "moves a module's buffers.",
        "Here is another loss with a weight. It has two labels that can each be true.\n\n"
        """```python
yes, no = torch.tensor([20.0, 5.0]), torch.tensor([80.0, 95.0])
criterion = torch.nn.BCEWithLogitsLoss(pos_weight=no / yes)
print(dict(criterion.named_buffers()))  # pos_weight is 4 and 19
criterion.to(torch.float64)  # changes the module's buffers in place
print(criterion.pos_weight.dtype)  # torch.float64
```""",
    ),
    reference=weighted_loss,
    check_answer=_check_answer,
    why="A loss without weights has nothing to move, but with weights it's a module like any other. So "
    "call `.to(device)` on every loss, because it costs nothing and is never wrong.",
    diagnoses={
        "stays": "The weight is not on the device where the logits are. `.to` moves a loss like any module.",
        "upside-down": "The frequent classes got the large weights. It should be the rare ones.",
        "other-order": "The weights are right, but in another order: weight `k` belongs to class `k`.",
        "reduction": "The loss should be the weighted mean over the batch, as `nn.CrossEntropyLoss` gives by "
        "itself.",
        "not-scaled": "Rare classes count for more, in the right proportion. But all are off by the same "
        "factor.",
    },
)
