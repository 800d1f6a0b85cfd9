"""Known wrong answers to 07.mend_a, by the diagnosis that each must get."""

from __future__ import annotations

from torch.nn import functional as F

from course_lessons.lesson07.mend_a import a_clipped, a_sums, mend_a
from course_utils.exercises.edited import edited


def _a_without_norms(model, batches, optimizer):
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return []


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
    "tensors": edited(mend_a, {"torch.stack(norms).tolist()": "norms"}),
    "sum-of-norms": a_sums,
    "clipped": a_clipped,
    "other-length": _a_without_norms,
    "too-early": edited(mend_a, {"norms).tolist(": 'norms).to("cpu", non_blocking=True).tolist('}),
}
