"""Known answers to 09.steady_loop."""

import torch
from torch.nn import functional as F


def _without_a_tensor(model, batches, optimizer, device):
    hits = torch.zeros((), dtype=torch.int64, device=device)
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        optimizer.zero_grad()
        F.cross_entropy(logits, y).backward()
        optimizer.step()
        hits += (logits.argmax(1) == y).sum()
    return int(hits)


def _in_a_function(model, batches, optimizer, device):
    def step(x, y):
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probabilities = logits.detach().softmax(1)
        return (probabilities.argmax(1) == y).sum()

    return sum(step(x.to(device), y.to(device)) for x, y in batches).item()


_SUM = ".sum()\ndel probabilities"
_READ = ".sum().item()\ndel probabilities"
_RETURN = "return hits.item()"
WRONG = {
    "emptied": {"del probabilities": "torch.get_device_module(device).empty_cache()\ndel probabilities"},
    "collects": {"del probabilities": "del probabilities\nimport gc\ngc.collect()"},
    "higher-peak": ({"del probabilities": ""}, {"del probabilities": "del x, y, logits, loss"}),
    "grows": {
        "hits = 0": "hits, kept = 0, []",
        "del probabilities": "kept.append(logits.detach())",
    },
    "waits": (
        {_SUM: _READ, _RETURN: "return hits"},
        {"del probabilities": "del probabilities\nloss.item()"},
    ),
}
RIGHT = {
    "no tensor": _without_a_tensor,
    "a function": _in_a_function,
    "a tensor": {_RETURN: "return hits"},
}
