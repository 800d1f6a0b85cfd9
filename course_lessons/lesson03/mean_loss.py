"""An evaluation that leaves no trace."""

import copy

import torch
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.checking import made_batches, small_model
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise

from .checking import over, python_float


def mean_loss(model, batches):
    was_training = model.training
    model.eval()
    total = count = 0
    with torch.inference_mode():
        for x, y in batches:
            total += F.cross_entropy(model(x), y, reduction="sum")
            count += len(y)
    model.train(was_training)
    return total.item() / count


_MISTAKES = known_mistakes_of(
    mean_loss,
    {
        "ragged-mean": {
            ', reduction="sum"': "",
            "total.item() / count": "total.item() / len(batches)",
        }
    },
)
_SIZES = ((6, 6, 2), (3, 5), (4, 1, 1, 7), (2, 9, 4))


def _make_case(i):
    """Return case number ``i``: a model in eval mode, and batches."""
    return small_model(dropout=0.5).eval(), made_batches(_SIZES[i], seed=i + 2)


_compare_to_reference = over(mean_loss, _make_case, len(_SIZES), _MISTAKES, read=python_float)


def _state_snapshot(model):
    """Return what an evaluation must not change, as ``(diagnosis if it changed, name, value)`` tuples."""
    *body, head = model
    return [
        ("mode-left", "model.training", model.training),
        ("wrong-value", _("training, of each layer"), [part.training for part in model.modules()]),
        ("wrong-value", "weights and statistics", copy.deepcopy(model.state_dict())),
        ("gradients-off", "torch.is_grad_enabled()", torch.is_grad_enabled()),
        (
            "gradients-off",
            _("requires_grad of all but the last layer"),
            [p.requires_grad for part in body for p in part.parameters()],
        ),
        ("wrong-value", _("requires_grad of the last layer"), head.weight.requires_grad),
        ("wrong-value", "gradients", copy.deepcopy([p.grad for p in body[0].parameters()])),
    ]


def _check_answer(answer, judge):
    """Check that model and gradient mode are as before the call, then the mean."""
    for sizes, training in (((6, 6, 2), True), ((3, 5), False)):
        batches = made_batches(sizes, seed=len(sizes))
        model = small_model(dropout=0.5).train(training)
        F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
        model[-1].requires_grad_(training)
        before = _state_snapshot(model)
        modes, graphs = [], []
        for part in model.modules():
            part.register_forward_pre_hook(lambda m, _, modes=modes: modes.append(m.training))
        model.register_forward_hook(lambda m, i, out, seen=graphs: seen.append(out.requires_grad))
        answer(model, batches)
        if any(modes):
            judge.no("train-mode", seen=_("forward passes in train mode"), expected=_("eval mode"))
        if any(graphs):
            judge.no("builds-graph", seen=_("outputs that require a gradient"), expected=_("no graph"))
        for (diagnosis, name, old), (*__, new) in zip(before, _state_snapshot(model), strict=True):
            judge.expect(name, new, old, diagnosis)
    _compare_to_reference(answer, judge)


EXERCISE = Exercise(
    id="03.mean_loss",
    title="An evaluation that leaves no trace",
    level=2,
    minutes=8,
    task="""
Write `mean_loss(model, batches)`. It returns the mean cross-entropy per digit, as a Python float. Here
`batches` is a list of `(x, y)` of unequal size, and all digits count the same. It evaluates
in eval mode and builds no graph. It leaves the model as it found it, with the same gradients and in the
same mode, train **or** eval.
""",
    hints=(
        "Before you change anything in the model, ask what you'll have to put back. What does the "
        "model do differently in train mode? And what does autograd keep that an evaluation never "
        "needs?",
        "Note `model.training` before you call `model.eval()`, because `model.train(mode)` takes "
        "either True or False. Inside `with torch.inference_mode():` autograd builds no graph, and "
        'after the block it\'s on again. For the mean, `reduction="sum"` makes `cross_entropy` add up '
        "the losses of a batch. Divide only once, at the end, by the number of digits.",
        "Here the need is the opposite one. Dropout has to be on for a moment, and then the layer gets "
        "its old mode back.\n\n"
        """```python
layer = torch.nn.Dropout(0.5).eval()
before = layer.training
layer.train()
print(layer(torch.ones(4)))  # zeros and twos, by chance
layer.train(before)
print(layer(torch.ones(4)), layer.training)  # four ones, False
```""",
    ),
    reference=mean_loss,
    check_answer=_check_answer,
    why="A function that measures must not change what it measures. This one can be called in the "
    "middle of a training loop, or by someone who never trains.",
    diagnoses={
        "train-mode": "The model ran in train mode: dropout threw values away, and BatchNorm "
        "learned from the evaluation data.",
        "builds-graph": "The outputs carry a graph, so autograd kept every activation for a "
        "backward pass that never comes.",
        "mode-left": "The model came back in another mode than it went in. Whoever called you "
        "goes on in the wrong mode, and no error says so.",
        "ragged-mean": "The mean over batches is not the mean over digits when batches differ in size.",
        "gradients-off": "Gradients stay off after the evaluation, so the next `backward()` fails. "
        "A `with` block switches them off and on again.",
    },
)
