"""Known answers to 07.mend_a."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from course_lessons.lesson07.mend_a import a_clipped, a_sums, mend_a
from course_lessons.lesson07.mend_f import stepped
from course_utils.exercises.edited import edited


def _a_without_norms(model, batches, optimizer):
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return []


def _a_by_clipping(model, batches, optimizer):
    norms = []
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), float("inf")))
        optimizer.step()
    return [norm.item() for norm in norms]


def _a_by_squares(model, batches, optimizer):
    squares = torch.zeros(len(batches), device=batches[0][0].device)
    for i, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            squares[i] += p.grad.square().sum()
        optimizer.step()
    return squares.sqrt().cpu().numpy().tolist()


def _a_by_foreach(model, batches, optimizer):
    norms = []
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        each = torch._foreach_norm([p.grad for p in model.parameters()])
        norms.append(torch.linalg.vector_norm(torch.stack(each)))
        optimizer.step()
    host = torch.stack(norms).to("cpu", non_blocking=True)
    torch.accelerator.synchronize(batches[0][0].device)
    return host.tolist()


def _norms_of_weights(model, batches, optimizer):
    norms = []
    for x, y in batches:
        stepped(F.cross_entropy(model(x), y), optimizer)
        norms.append(torch.stack([p.norm() for p in model.parameters()]).norm())
    return torch.stack(norms).tolist()


def _clipped_at_5(model, batches, optimizer):
    norms = []
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 5.0))
        optimizer.step()
    return torch.stack(norms).tolist()


WRONG = {
    "each-step": edited(
        mend_a,
        {
            "(torch.stack([p.grad.norm() for p in model.parameters()]).norm())": "(torch.stack([p.grad.norm() for p in model.parameters()]).norm().item())",
            "torch.stack(norms).tolist()": "norms",
        },
    ),
    "each-parameter": edited(
        mend_a,
        {
            "norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())": "norms.append(torch.stack([p.grad.norm().cpu() for p in model.parameters()]).norm())"
        },
    ),
    "tensors": (
        edited(mend_a, {"torch.stack(norms).tolist()": "norms"}),
        lambda model, batches, optimizer: torch.zeros(3),
    ),
    "sum-of-norms": a_sums,
    "clipped": a_clipped,
    "other-length": _a_without_norms,
    "too-early": edited(mend_a, {"norms).tolist(": 'norms).to("cpu", non_blocking=True).tolist('}),
    "other-numbers": _norms_of_weights,
    "other-result": _clipped_at_5,
    "returned-nothing": lambda model, batches, optimizer: None,
    "wrong-type": lambda model, batches, optimizer: (1.0, 2.0, 3.0),
}
RIGHT = {
    "by clipping": _a_by_clipping,
    "by squares": _a_by_squares,
    "by foreach": _a_by_foreach,
}
