"""A loss that survives autocast."""

import math

import torch

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import nearly

from ..shared.checking import Calls
from .checking import listed


def logits_loss(logits, targets):
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)


_CALL = "with_logits(logits, targets)"
MISTAKES = known_mistakes_of(
    logits_loss,
    {
        "sum": {_CALL: 'with_logits(logits, targets, reduction="sum")'},
        "sigmoid-twice": {_CALL: "with_logits(logits.sigmoid(), targets)"},
    },
)
_CASES = (
    (torch.tensor([0.5, -1.25, 2.0, 0.75]), torch.tensor([1.0, 0.0, 0.25, 1.0])),
    (torch.tensor([[3.0, -2.0], [0.5, 8.0], [-6.0, 1.0]]), torch.eye(3)[:, :2]),
    (torch.tensor([[1.5]]), torch.tensor([[0.7]])),
)


def _random_case(rng):
    """Return random ``(logits, targets)``, 2-D tensors of equal shape; targets are from 0 to 1."""
    rows, columns = rng.randint(1, 3), rng.randint(2, 3)
    values = [[rng.uniform(-6, 6) for _ in range(columns)] for _ in range(rows)]
    chances = [[rng.choice([0.0, 1.0, rng.random()]) for _ in range(columns)] for _ in values]
    return torch.tensor(values), torch.tensor(chances)


def _describe_case(logits, targets):
    """Return the case in words."""
    return _("the logits {logits}, targets {targets}").format(logits=listed(logits), targets=listed(targets))


def _validated_result(judge, got):
    """Return the loss as a float; refuse anything else than a tensor with one element."""
    got = judge.is_a(got, torch.Tensor, _("a tensor"))
    if got.numel() != 1:
        judge.no(seen=_("{got} numbers").format(got=got.numel()), expected=_("their mean"))
    return got.item()


_compare_to_reference = ComparesToReference(
    logits_loss,
    lambda: [(logits.clone(), targets.clone()) for logits, targets in _CASES],
    MISTAKES,
    read=_validated_result,
    draw=_random_case,
    alike=nearly(2e-5, 1e-6),
    situation=_describe_case,
    shown=lambda value: f"{value:.6g}",
)


def _check_answer(answer, judge):
    """Check the values, the calls under autocast, and large logits."""

    def under_autocast_too(logits, targets):
        calls = []
        note = Calls(lambda name, *_: calls.append((name, torch.is_autocast_enabled("cpu"))))
        with torch.autocast("cpu", dtype=torch.float16), note:
            answer(logits, targets)
        if ("binary_cross_entropy", True) in calls:  # which CUDA refuses there
            judge.no("refused", seen=_("binary_cross_entropy under autocast"), expected=_("not that one"))
        return answer(logits, targets)

    _compare_to_reference(under_autocast_too, judge)
    _judge_large_logits(answer, judge)


def _judge_large_logits(answer, judge):
    """Refuse a wrong loss or gradient for large logits, in float32, and in 16 bits under autocast."""
    values, targets = torch.tensor([[200.0, -200.0, 200.0, -30.0], [0.0, 1.0, 1.0, 1.0]])
    right = logits_loss(values, targets).item()
    slope = (values.sigmoid() - targets) / len(targets)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 2e-2), (torch.bfloat16, 2e-2)):
        logits = values.to(dtype, copy=True).requires_grad_()
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
            got = answer(logits, targets)
        loss = _validated_result(judge, got)
        if not math.isclose(loss, right, rel_tol=tolerance):
            wrong = "saturates" if loss < right else "wrong-value"
            seen = _("{loss:.6g} for {situation}")
            seen = seen.format(loss=loss, situation=_describe_case(values, targets))
            judge.no(wrong if math.isfinite(loss) else "overflows", seen=seen, expected=f"{right:.6g}")
        if not got.requires_grad:
            judge.no(seen=repr(got), expected=_("a loss that can be differentiated"))
        gradient = torch.autograd.grad(got, logits)[0].float()
        if not torch.allclose(gradient, slope, atol=2e-3):
            seen = _("the gradient {gradient} for the logits {logits}")
            seen = seen.format(gradient=listed(gradient), logits=listed(logits))
            judge.no(seen=seen, expected=listed(slope))


EXERCISE = Exercise(
    id="05.logits_loss",
    title="A loss that survives autocast",
    level=1,
    minutes=6,
    task="""
Write `logits_loss(logits, targets)`: the mean binary cross entropy of a model that ends in a linear layer,
without a sigmoid. Targets go from 0 to 1. CUDA's autocast must allow it. For logits of ±200 the sigmoid
is 0 or 1 in every format of this lesson. There, too, the loss and its gradients must be right.
""",
    hints=(
        "Where does `nn.BCELoss` break? The sigmoid of 200 is rounded to exactly 1, and then the logarithm "
        "of 1 - 1 tells you nothing any more. In 16 bits this happens to much smaller logits. That's why "
        "autocast on CUDA refuses `nn.BCELoss`, which takes probabilities.",
        "What if the sigmoid and the logarithm were never apart? On paper, the logarithm of a sigmoid can "
        "be written without a number that gets stuck at 0 or 1. PyTorch has a loss that computes it this "
        "way. Look in `torch.nn.functional` for a name that ends in `_with_logits`.",
        """Softmax has the same trouble. Here the right class is the first, and the model is very wrong:

```python
scores, label = torch.tensor([[0.0, 200.0]]), torch.tensor([0])
apart = -scores.softmax(1).log()[0, 0]
together = torch.nn.functional.cross_entropy(scores, label)
print(apart, together)  # tensor(inf) tensor(200.)
```""",
    ),
    reference=logits_loss,
    check_answer=_check_answer,
    why="Taken together, the logarithm and the exponential of the sigmoid cancel, so nothing is rounded to 0 "
    "or 1 on the way. That is better in float32 too: confident mistakes keep their gradient.",
    diagnoses={
        "refused": "`binary_cross_entropy` (the function behind `nn.BCELoss`) was called under autocast. "
        "CUDA refuses it there with an error, though a CPU does not.",
        "saturates": "For large logits the loss is too small: it stopped growing on the way, as the sigmoid "
        "does at exactly 0 and 1. Such examples get no gradient, however wrong they are.",
        "overflows": "For large logits the loss is not finite. An exponential of 200 is infinite in float32, "
        "and so is the logarithm of 0.",
        "sigmoid-twice": "The sigmoid came in twice. A loss that takes logits has its own.",
        "sum": "That is the sum over all entries; the task asks for the mean.",
    },
)
