"""Known answers to 05.average_gradients."""

import torch

from course_lessons.lesson05.average_gradients import average_gradients


def _average_not_kept(model, dist):
    for parameter in model.parameters():
        if parameter.requires_grad:
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(grad)
            grad /= dist.get_world_size()


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
_SEND = "dist.all_reduce(parameter.grad)"
_DIVIDE = "parameter.grad /= dist.get_world_size()"
_DIVIDE_ON_0 = f"if dist.get_rank() == 0:\n    {_DIVIDE}"
_BROADCAST = "dist.broadcast(parameter.grad, 0)"
_USERS = "users = torch.tensor(float(parameter.grad is not None))"
WRONG = {
    "not-all-call": (_average_called_by_one, _average_sent_in_own_order),
    "none-skipped": {_FILL: "if parameter.grad is None:\n    continue"},
    "not-kept": _average_not_kept,
    "nobodys": {_FILL: f"{_USERS}\ndist.all_reduce(users)\nif not users:\n    continue\n{_FILL}"},
    "not-divided": {_DIVIDE: ""},
    "other-count": (
        {"dist.get_world_size()": "2"},
        {"dist.get_world_size()": "(dist.get_rank() + 1)"},
        {_DIVIDE: f"{_DIVIDE}\n{_DIVIDE}"},
    ),
    "own": {_SEND: "", _DIVIDE: ""},
    "own-divided": {_SEND: "dist.all_reduce(parameter.grad.clone())"},
    "of-rank-0": ({_SEND: _BROADCAST, _DIVIDE: ""}, {_SEND: _BROADCAST}),
    "rank-0-alone": (
        {_SEND: "dist.reduce(parameter.grad, 0)", _DIVIDE: _DIVIDE_ON_0},
        {_DIVIDE: _DIVIDE_ON_0},
    ),
    "some-left": {"parameter.requires_grad:": "parameter.requires_grad and parameter.dim() > 1:"},
    "some-sums": _average_of_the_last_parameter,
    "zeros": {"if parameter.grad is None:": "if True:"},
    "ones": {"torch.zeros_like": "torch.ones_like"},
    "users-only": {
        _FILL: f"{_USERS}\n{_FILL}",
        _SEND: f"{_SEND}\ndist.all_reduce(users)",
        "dist.get_world_size()": "users.clamp(min=1)",
    },
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
