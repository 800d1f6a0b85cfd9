"""Known answers to 05.average_gradients."""

import torch

from course_lessons.lesson05.average_gradients import TWINS, average_gradients


def _average_called_by_one(model, dist):
    if dist.get_rank() == 0:
        average_gradients(model, dist)


def _average_parameters(model, dist):
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size() + 1


def _average_thawed(model, dist):
    average_gradients(model, dist)
    model.requires_grad_(True)


def _average_by_bucket(model, dist):
    trained = [p for p in model.parameters() if p.requires_grad]
    flat = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trained]
    )
    dist.all_reduce(flat)
    for p, values in zip(trained, flat.split([p.numel() for p in trained]), strict=True):
        p.grad = values.view_as(p) / dist.get_world_size()


def _average_by_gathering(model, dist):
    n = dist.get_world_size()
    for p in model.parameters():
        if p.requires_grad:
            own = torch.zeros_like(p) if p.grad is None else p.grad
            each = [torch.empty_like(own) for _ in range(n)]
            dist.all_gather(each, own)
            p.grad = torch.stack(each).mean(0)


def _average_divided_first(model, dist):
    for p in reversed(list(model.parameters())):
        if p.requires_grad:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad.div_(dist.get_world_size())
            dist.all_reduce(p.grad)


def _average_in_the_background(model, dist):
    works = []
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad / dist.get_world_size()
            works.append(dist.all_reduce(p.grad, async_op=True))
    for work in works:
        work.wait()


def _average_sent_in_own_order(model, dist):
    parameters = [p for p in model.parameters() if p.requires_grad]
    for p in parameters if dist.get_rank() else reversed(parameters):
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def _average_of_the_last_parameter(model, dist):
    for p in (p for p in model.parameters() if p.requires_grad):
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad)
    p.grad /= dist.get_world_size()


_FILL = "if parameter.grad is None:\n    parameter.grad = torch.zeros_like(parameter)"
_SEND, _DIVIDE = "dist.all_reduce(parameter.grad)", "parameter.grad /= dist.get_world_size()"


def _halved_and_not_kept(model, dist):
    for parameter in model.parameters():
        if parameter.requires_grad:
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(grad)
            grad /= 2


WRONG = {
    **TWINS,
    "not-all-call": (_average_called_by_one, _average_sent_in_own_order),
    "none-skipped": {_FILL: "if parameter.grad is None:\n    continue"},
    "other-count": (
        {"dist.get_world_size()": "2"},
        {"dist.get_world_size()": "(dist.get_rank() + 1)"},
        {_DIVIDE: f"{_DIVIDE}\n{_DIVIDE}"},
        _halved_and_not_kept,
    ),
    "some-left": {"parameter.requires_grad:": "parameter.requires_grad and parameter.dim() > 1:"},
    "some-sums": _average_of_the_last_parameter,
    "parameters": (
        _average_parameters,
        _average_thawed,
        {
            _SEND: "dist.all_reduce(parameter.data)",
            _DIVIDE: "parameter.data /= dist.get_world_size()",
        },
    ),
    "frozen": {"if parameter.requires_grad:": "if True:"},
    "wrong-value": (
        {_SEND: "dist.all_reduce(parameter.grad, dist.ReduceOp.MAX)", _DIVIDE: ""},
        {_SEND: f"parameter.grad.abs_()\n{_SEND}"},
    ),
}
RIGHT = {
    "by AVG": {_SEND: "dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)", _DIVIDE: ""},
    "by a bucket": _average_by_bucket,
    "by gathering": _average_by_gathering,
    "divided first": _average_divided_first,
    "in the background": _average_in_the_background,
}
