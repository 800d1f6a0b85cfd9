"""Known answers to 06.accumulate."""

from contextlib import nullcontext


def _forward_outside(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    optimizer.zero_grad()
    for i, (x, y) in enumerate(parts):
        loss = loss_fn(model(x), y) * len(x) / rows
        with nullcontext() if i == len(parts) - 1 else model.no_sync():
            loss.backward()
    optimizer.step()


def _in_one_loop(model, parts, loss_fn, optimizer):
    optimizer.zero_grad()
    rows = sum(y.numel() for _, y in parts)
    for i, (x, y) in enumerate(parts, 1):
        with model.no_sync() if i < len(parts) else nullcontext():
            loss = loss_fn(model(x), y)
            (loss * (y.numel() / rows)).backward()
    optimizer.step()


def _by_the_attribute(model, parts, loss_fn, optimizer):
    optimizer.zero_grad()
    rows = sum(len(x) for x, _ in parts)
    for i, (x, y) in enumerate(parts, 1):
        model.require_backward_grad_sync = i == len(parts)
        (loss_fn(model(x), y) * len(x) / rows).backward()
    optimizer.step()


def _then_divide(model, parts, loss_fn, optimizer):
    model.zero_grad()
    with model.no_sync():
        for x, y in parts[:-1]:
            (loss_fn(model(x), y) * len(x)).backward()
    x, y = parts[-1]
    (loss_fn(model(x), y) * len(x)).backward()
    for p in model.parameters():
        p.grad /= sum(len(x) for x, _ in parts)
    optimizer.step()


_LOSS = "(loss_fn(model(x), y) * len(x) / rows)"
WRONG = {
    "forward-outside": _forward_outside,
    "never-sends": {"loss_fn(model(x), y)": "loss_fn(model.module(x), y)"},
    "changed-input": {_LOSS: f"x.div_(x.norm())\n{_LOSS}"},
    "wrong-value": ({"optimizer.zero_grad()": ""}, {_LOSS: f"model(x)\n{_LOSS}"}),
}
RIGHT = {
    "by the inner model": {
        "with model.no_sync():": "if True:",
        "add_gradient(*part)": "(loss_fn(model.module(part[0]), part[1]) * len(part[0]) / rows).backward()",
    },
    "in one loop": _in_one_loop,
    "by the attribute": _by_the_attribute,
    "divided at the end": _then_divide,
}
