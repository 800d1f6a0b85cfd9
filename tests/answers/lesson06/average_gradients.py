"""Known answers to 06.average_gradients."""

import torch

from course_lessons.lesson06.average_gradients import average_gradients


def _by_bucket(model, dist):
    trained = [p for p in model.parameters() if p.requires_grad]
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trained])
    dist.all_reduce(flat)
    for p, values in zip(trained, flat.split([p.numel() for p in trained]), strict=True):
        p.grad = values.view_as(p) / dist.get_world_size()


def _by_gathering(model, dist):
    n = dist.get_world_size()
    for p in model.parameters():
        if p.requires_grad:
            own = torch.zeros_like(p) if p.grad is None else p.grad
            each = [torch.empty_like(own) for _ in range(n)]
            dist.all_gather(each, own)
            p.grad = torch.stack(each).mean(0)


def _in_the_background(model, dist):
    works = []
    for p in reversed(list(model.parameters())):
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad / dist.get_world_size()
            works.append(dist.all_reduce(p.grad, async_op=True))
    for work in works:
        work.wait()


_FILL = "if parameter.grad is None:\n    parameter.grad = torch.zeros_like(parameter)"
_SEND, _DIVIDE = "dist.all_reduce(parameter.grad)", "parameter.grad /= dist.get_world_size()"
WRONG = {
    "not-all-call": lambda model, dist: dist.get_rank() or average_gradients(model, dist),
    "none-skipped": {_FILL: "if parameter.grad is None:\n    continue"},
    "wrong-value": (
        {"if parameter.requires_grad:": "if True:"},
        {_SEND: "dist.broadcast(parameter.grad, 0)", _DIVIDE: ""},
    ),
}
RIGHT = {
    "by AVG": {_SEND: "dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)", _DIVIDE: ""},
    "by a bucket": _by_bucket,
    "by gathering": _by_gathering,
    "in the background": _in_the_background,
}
