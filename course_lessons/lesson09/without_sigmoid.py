"""Out with the sigmoid, and then?"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_language import _
from course_utils.exercises import Exercise
from course_utils.exercises.values import nearly


def without_sigmoid(model):
    return model[:-1], nn.BCEWithLogitsLoss(), lambda logits: logits > 0


def _check_answer(answer, judge):
    """Check network, loss and decision for two models."""
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(5))
    for scale in (1.0, 3.0):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1), nn.Sigmoid())
        with torch.no_grad():
            model[2].weight.mul_(scale)
            probabilities, logits = model(x), model[:-1](x)
        own = {id(p) for p in model.parameters()}
        got = judge.is_a(answer(model), (tuple, list), _("a tuple: network, loss, decide"))
        judge.expect(_("number of things"), len(got), 3)
        network, loss_fn, decide = got
        if not list(judge.is_a(network, nn.Module, _("first the network")).parameters()):
            judge.no(seen=_("first {network}").format(network=network), expected=_("first the network"))
        outputs = judge.is_a(network(x), Tensor, _("a tensor from the network")).detach()
        if not nearly(1e-4, 1e-4)(outputs, logits):
            stays = nearly()(outputs, probabilities)
            judge.no("sigmoid-stays" if stays else "wrong-value", seen=outputs, expected=logits)
        if {id(p) for p in network.parameters()} != own:
            judge.no("copies", seen=_("other parameter objects"), expected=_("those of the model"))
        _judge_loss(loss_fn, logits, judge)
        _judge_decide(decide, logits, judge)


def _judge_loss(loss_fn, logits, judge):
    """Compare the loss for hard targets, for soft ones, and where the sigmoid would be rounded to 0 or 1."""
    if isinstance(loss_fn, type):
        judge.no("loss-class", seen=loss_fn, expected=f"{loss_fn.__name__}()")
    hard = (torch.arange(len(logits)) % 3 == 0).float().unsqueeze(1)
    for targets in (hard, 0.9 * hard + 0.05):
        try:
            loss = judge.is_a(loss_fn(logits, targets), Tensor, _("a tensor with the loss"))
        except RuntimeError as error:  # nn.BCELoss refuses what is not between 0 and 1
            judge.no(seen=str(error), expected=_("a loss of logits"))
        right = F.binary_cross_entropy_with_logits(logits, targets).item()
        judge.expect("loss", judge.number(loss), right, alike=nearly(1e-4))
    for size in (18.0, 200.0):  # the sigmoid of 18 is 1 in float32
        far = torch.tensor([[size], [-size]])
        loss = judge.number(loss_fn(far, torch.tensor([[0.0], [1.0]])))
        if not math.isclose(loss, size, rel_tol=1e-4):
            seen = _("{loss:g} for logits of ±{size:g}").format(loss=loss, size=size)
            judge.no("saturates" if size < 200 else "wrong-value", seen=seen, expected=f"{size:g}")


def _judge_decide(decide, logits, judge):
    """Refuse decisions that are not a bool tensor equal to ``logits > 0``."""
    if not callable(decide):
        judge.no(seen=decide, expected=_("a function of logits"))
    edges = torch.tensor([[-2.0], [-0.6], [-0.1], [0.0], [0.2], [0.7], [3.0]])
    for values in (edges, logits):
        got, right = judge.is_a(decide(values), Tensor, _("a tensor from decide")), values > 0
        judge.expect(_("dtype from decide"), got.dtype, torch.bool)
        judge.expect(_("shape from decide"), tuple(got.shape), tuple(right.shape))
        if not torch.equal(got, right):
            old = torch.equal(got, values > 0.5) or torch.equal(got, values >= 0.5)
            at = int((got != right).flatten().nonzero()[0])
            judge.no(
                "old-threshold" if old else "wrong-value",
                seen=_("{got} for the logit {value:.2g}").format(
                    got=bool(got.flatten()[at]), value=values.flatten()[at]
                ),
                expected=str(bool(right.flatten()[at])),
            )


EXERCISE = Exercise(
    id="09.without_sigmoid",
    title="Out with the sigmoid, and then?",
    level=2,
    minutes=8,
    task="""
A tutorial trains `nn.Sequential(…, nn.Linear(64, 1), nn.Sigmoid())` with `nn.BCELoss`, which CUDA's autocast
refuses. Write `without_sigmoid(model)` for a `Sequential` that ends in a sigmoid. Return three things:

- the **network** that gives logits, made of the same parameters (the optimiser holds them);
- the **loss function** that equals `BCELoss` on the old outputs, is allowed under autocast, and is exact
  where the sigmoid was rounded to 0 or 1 (logits of ±200 cost up to 200);
- **decide**, a function from logits to a bool tensor: True where the old output was above 0.5.
""",
    hints=(
        "When the sigmoid leaves the network, two other things have to change with it: the loss and the "
        "threshold. For each of them, ask whether it expects probabilities or logits.",
        "A slice of a `Sequential` is a new `Sequential` with the same layers in it, so the optimiser's "
        'parameters stay the same objects. For the loss, look in `torch.nn` for one with "Logits" in its '
        "name. It has the sigmoid inside, and never rounds it to 0 or 1. For the decision, ask which logit "
        "has a sigmoid of 0.5.",
        """The same change exists for many classes, where `LogSoftmax` leaves the network:

```python
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LogSoftmax(dim=1))
x, y = torch.ones(4, 2), torch.tensor([0, 1, 2, 0])
old = torch.nn.NLLLoss()(net(x), y)
new = torch.nn.CrossEntropyLoss()(net[:1](x), y)
print(torch.allclose(old, new))  # True, because this loss has the softmax inside
```""",
    ),
    reference=without_sigmoid,
    check_answer=_check_answer,
    why="Three lines change together: the last layer, the loss, and the threshold. If you forget the third, "
    "you measure another accuracy and look for the fault in the training.",
    diagnoses={
        "sigmoid-stays": "The network still ends in its sigmoid. With a loss that has one inside there would "
        "be two.",
        "copies": "These are other parameters than the model's. The optimiser would go on training the old "
        "ones.",
        "loss-class": "That is the class of a loss. Make one of it: put parentheses after its name.",
        "saturates": "For logits far from 0 the loss is wrong: the sigmoid is rounded to 0 and to 1 there "
        "before the logarithm is taken.",
        "old-threshold": "0.5 is the threshold for probabilities. Which logit belongs to it?",
    },
)
