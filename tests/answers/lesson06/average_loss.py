"""Known wrong answers to 06.average_loss."""

import torch

from course_lessons.lesson06.average_loss import LOSS_TWINS, average_loss


def _average_of_list(model, batches, loss_fn):
    batches = list(batches)
    with torch.no_grad():
        total = sum(loss_fn(model(x), y).item() * len(x) for x, y in batches)
    return total / sum(len(x) for x, _ in batches)


def _average_of_outputs(model, batches, loss_fn):
    outputs, targets = [], []
    with torch.no_grad():
        for x, y in batches:
            outputs.append(model(x))
            targets.append(y.clone())
        return loss_fn(torch.cat(outputs), torch.cat(targets)).item()


def _average_without_the_first(model, batches, loss_fn):
    next(batches)
    return average_loss(model, batches, loss_fn)


def _average_then_on(model, batches, loss_fn):
    torch.set_grad_enabled(False)
    mean = average_loss(model, batches, loss_fn)
    torch.set_grad_enabled(True)
    return mean


_GRAPH = {"with torch.inference_mode():": "if True:"}
WRONG = {
    "grad-on": _average_then_on,
    "leak": {**_GRAPH, ".item() *": " *", "total / count": "(total / count).item()"},
    "graph": (_GRAPH, {**_GRAPH, "model(x)": "model(x).detach()"}),
    "keeps-batches": (
        _average_of_list,
        {"total = count": "kept = []\ntotal = count", "count +=": "kept.append(y)\ncount +="},
    ),
    "keeps-outputs": _average_of_outputs,
    **{name: twin for name, twin in LOSS_TWINS.items() if name != "first-left-out"},
    "first-left-out": _average_without_the_first,
    "mode": (
        {"return": "model.train()\nreturn"},
        {"total = count": "model.train()\ntotal = count", "return": "model.eval()\nreturn"},
    ),
    "frozen": {"total = count": "model.requires_grad_(False)\ntotal = count"},
    "grad-off": {"with torch.inference_mode():": "torch.set_grad_enabled(False)\nif True:"},
    "tensor": {"inference_mode": "no_grad", ".item() *": " *"},
    "wrong-value": {"return total": "return 2 * total"},
    "rounded": tuple({"total / count": f"round(total / count, {n})"} for n in (1, 2, 3, 4, 5)),
}
