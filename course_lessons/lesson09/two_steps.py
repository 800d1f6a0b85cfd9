"""Two optimisers, one scaler."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.checking import made_batches
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import nearly


def two_steps(model, x, y, loss_fn, optimizers, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    for optimizer in optimizers:
        optimizer.zero_grad()
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _make_case(*overflows):
    """Return the arguments of the last of ``len(overflows)`` steps; the earlier ones have been made.

    Each of ``overflows`` names the part whose gradients overflow in that step: "first", "second" or "none".
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    model.overflows, model.dtypes, model.backwards = overflows, set(), []
    for part, layer in (("first", model[0]), ("second", model[2])):
        for p in layer.parameters():
            p.register_hook(lambda g, part=part: g * (math.inf if model.now == part else 1.0))
        layer.register_forward_hook(lambda *args: model.dtypes.add(str(args[2].dtype)))
    optimizers = [
        torch.optim.SGD(model[0].parameters(), lr=0.1),
        torch.optim.SGD(model[2].parameters(), lr=0.05, momentum=0.5),
    ]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    *earlier, (x, y) = made_batches((4, 5)[: len(overflows)])
    for (x_before, y_before), model.now in zip(earlier, overflows, strict=False):
        two_steps(model, x_before, y_before, F.cross_entropy, optimizers, scaler, torch.float16)
    model.now = overflows[-1]
    model[0].bias.register_hook(lambda _: model.backwards.append(1))
    model.dtypes.clear()
    for p in model.parameters():
        p.grad = torch.full_like(p, 0.5)  # left over from an earlier step
    return model, x, y, F.cross_entropy, optimizers, scaler, torch.float16


def _validated_result(judge, got):
    """Return the loss, or refuse anything else than a tensor without a graph."""
    loss = judge.is_a(got, torch.Tensor, _("a tensor"))
    if loss.requires_grad:
        judge.no(seen=loss, expected=_("the loss without its graph"))
    return loss


def _compared_value(got, model, x, y, loss_fn, optimizers, scaler, dtype):
    """Return what is compared; the learner reads the keys."""
    return {
        "loss": got,
        "dtypes out of the layers": sorted(model.dtypes),
        "backward passes": len(model.backwards),
        "scale": scaler.get_scale(),
        "first part": list(model[0].parameters()),
        "second part": list(model[2].parameters()),
    }


_STEP = "scaler.step(optimizer)"
_FINITE = "all(p.grad.isfinite().all() for p in model.parameters())"
_MISTAKES = {
    "update-each": {"scaler.update()": "    scaler.update()"},
    "skips-both": {_STEP: f"scaler.unscale_(optimizer)\nif {_FINITE}:\n    {_STEP}"},
    "bare-step": {_STEP: "scaler.unscale_(optimizer)\noptimizer.step()"},
    "still-scaled": {
        f"for optimizer in optimizers:\n    {_STEP}": "scaler.step(optimizers[0])\noptimizers[1].step()"
    },
    "twice": {_STEP: f"{_STEP}\noptimizer.step()"},
}


EXERCISE = Exercise(
    id="09.two_steps",
    title="Two optimisers, one scaler",
    level=3,
    minutes=12,
    task="""
A network's two parts have an optimiser each: one for an embedding, say, one for the rest. Write
`two_steps(model, x, y, loss_fn, optimizers, scaler, dtype)`: one mixed-precision step, from one loss and one
backward pass, with **both** `optimizers`, which together hold all parameters. Where the gradients of one part
overflow, only that part's step is left out. Gradients of an earlier step may still be there. Return the loss
as a tensor, unscaled and without its graph.
""",
    hints=(
        "Three calls of the scaler have to find their place: `scale`, `step` and `update`. Ask what each of "
        "them works with. Is it the loss, one optimiser, or the scaler itself?",
        "All gradients of one backward pass carry the same scale. So until when must the scale stay as it "
        "is? `scaler.step(optimizer)` notices by itself whether that optimiser's gradients have overflowed, "
        "and then skips only that step. Old gradients have to be gone from both parts before backward, and "
        "autocast goes around the forward pass and the loss.",
        """Here's the order for one optimiser, without autocast. Which of the last two lines do you need
once for each optimiser?

```python
layer = torch.nn.Linear(2, 1)
sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loss = layer(torch.ones(1, 2)).square().mean()
scaler.scale(loss).backward()
scaler.step(sgd)
scaler.update()
```""",
    ),
    reference=two_steps,
    check_answer=ComparesToReference(
        two_steps,
        lambda: [
            *(_make_case("none"), _make_case("none", "none"), _make_case("first", "none")),
            *(_make_case("first"), _make_case("none", "second")),
        ],
        known_mistakes_of(two_steps, _MISTAKES),
        read=_validated_result,
        look=_compared_value,
        alike=nearly(1e-3, 1e-5),
        situation=lambda model, *__: _("steps in which these parts overflow: {overflows}").format(
            overflows=", ".join(model.overflows)
        ),
    ),
    why="`scaler.step` keeps its books by optimiser, so one part can skip its step while the other goes on. "
    "`update()` closes the books of all of them, so after it, a gradient that's still scaled would be "
    "divided by another scale.",
    diagnoses={
        "update-each": "The scaler was updated between the two steps. The second one's gradients still had "
        "the old scale.",
        "skips-both": "One part overflowed, and both steps were left out.",
        "bare-step": "`optimizer.step()` was called in the place of `scaler.step`, and takes gradients that "
        "overflowed too.",
        "still-scaled": "One of the optimisers stepped by itself, with gradients that still had the scale.",
        "twice": "Each optimiser makes two steps: `scaler.step` has made one.",
    },
)
