"""Known answers to 08.mend_a."""

import torch
from torch.nn import functional as F

from answers.lesson08 import stepped
from course_lessons.lesson08.mend_a import A_MISTAKES


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


def _a_by_kept_gradients(model, batches, optimizer):
    kept = []
    for x, y in batches:
        stepped(F.cross_entropy(model(x), y), optimizer)
        kept.append([p.grad for p in model.parameters()])
    norms = [torch.cat([g.flatten() for g in gradients]).norm() for gradients in kept]
    return tuple(torch.stack(norms).cpu().numpy())


_NORM = "torch.stack([p.grad.norm() for p in model.parameters()]).norm()"
_CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), {})"
WRONG = {
    **A_MISTAKES,
    "each-step": (
        {f"({_NORM})": f"({_NORM}.item())", "torch.stack(norms).tolist()": "norms"},
        {f"norms.append({_NORM})": f"norms.append({_NORM})\nassert loss == loss"},
    ),
    "each-parameter": {_NORM: _NORM.replace("norm() for", "norm().cpu() for")},
    "too-early": {"norms).tolist(": 'norms).to("cpu", non_blocking=True).tolist('},
    "wrong-value": (
        {"optimizer.step()": "pass"},
        {  # waits twice, both times in the second step of three
            f"norms.append({_NORM})": f"norms.append({_NORM})\n"
            "assert len(norms) != 2 or all(n >= 0 for n in norms)"
        },
    ),
}
RIGHT = {
    "by get_total_norm": {_NORM: "torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])"},
    "by clipping": {_NORM: _CLIP.format('float("inf")')},
    "by squares": _a_by_squares,
    "by foreach": _a_by_foreach,
    "by kept gradients": _a_by_kept_gradients,
}
