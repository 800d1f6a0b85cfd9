"""Known wrong answers to 07.mend_a, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson07.mend_a import a_clipped, a_sums


def _a_each_step(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm().item())
        optimizer.step()
    return norms


def _a_cpu(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm().cpu() for p in model.parameters()]).norm())
        optimizer.step()
    return torch.stack(norms).tolist()


def _a_tensors(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())
        optimizer.step()
    return norms


def _a_too_early(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())
        optimizer.step()
    return torch.stack(norms).to("cpu", non_blocking=True).tolist()


def _a_without_norms(model, batches, optimizer):
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return []


WRONG = {
    "each-step": _a_each_step,
    "each-parameter": _a_cpu,
    "tensors": _a_tensors,
    "sum-of-norms": a_sums,
    "clipped": a_clipped,
    "other-length": _a_without_norms,
    "too-early": _a_too_early,
}
