"""Known wrong answers to 07.average_loss."""

import torch


def _average_of_list(model, batches, loss_fn):
    batches = list(batches)
    with torch.no_grad():
        total = sum(loss_fn(model(x), y).item() * len(x) for x, y in batches)
    return total / sum(len(x) for x, _ in batches)


_GRAPH = {"with torch.inference_mode():": "if True:"}
WRONG = {
    "leak": {**_GRAPH, ".item() *": " *", "total / count": "(total / count).item()"},
    "graph": (_GRAPH, {**_GRAPH, "model(x)": "model(x).detach()"}),
    "keeps-batches": (
        _average_of_list,
        {"total = count": "kept = []\ntotal = count", "count +=": "kept.append(y)\ncount +="},
    ),
    "mean-of-means": {" * len(x)": "", "count += len(x)": "count += 1"},
    "grad-off": {"with torch.inference_mode():": "torch.set_grad_enabled(False)\nif True:"},
    "wrong-type": {"inference_mode": "no_grad", ".item() *": " *"},
    "wrong-value": (
        {"total = count": "model.requires_grad_(False)\ntotal = count"},
        {"return": "model.train()\nreturn"},
    ),
}
