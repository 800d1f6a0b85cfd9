"""Known answers to 05.accumulate."""

from contextlib import nullcontext

import torch

from course_lessons.lesson05.accumulate import TWINS, accumulate


def _accumulate_forward_outside(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    optimizer.zero_grad()
    for i, (x, y) in enumerate(parts):
        loss = loss_fn(model(x), y) * len(x) / rows
        with nullcontext() if i == len(parts) - 1 else model.no_sync():
            loss.backward()
    optimizer.step()


def _accumulate_stepping(model, parts, loss_fn, optimizer):
    for part in parts:
        accumulate(model, [part], loss_fn, optimizer)


def _accumulate_one_backward(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    optimizer.zero_grad()
    sum(loss_fn(model(x), y) * len(x) / rows for x, y in parts).backward()
    optimizer.step()


def _accumulate_all_rows_at_once(model, parts, loss_fn, optimizer):
    optimizer.zero_grad()
    xs, ys = zip(*parts, strict=True)
    loss_fn(model(torch.cat(xs)), torch.cat(ys)).backward()
    optimizer.step()


def _accumulate_on_rank_0(model, parts, loss_fn, optimizer):
    if model._dist.get_rank() == 0:
        accumulate(model, parts, loss_fn, optimizer)


def _accumulate_in_one_loop(model, parts, loss_fn, optimizer):
    optimizer.zero_grad()
    rows = sum(y.numel() for _, y in parts)
    for i, (x, y) in enumerate(parts, 1):
        with model.no_sync() if i < len(parts) else nullcontext():
            loss = loss_fn(model(x), y)
            (loss * (y.numel() / rows)).backward()
    optimizer.step()


def _accumulate_by_the_attribute(model, parts, loss_fn, optimizer):
    optimizer.zero_grad()
    rows = sum(len(x) for x, _ in parts)
    for i, (x, y) in enumerate(parts, 1):
        model.require_backward_grad_sync = i == len(parts)
        (loss_fn(model(x), y) * len(x) / rows).backward()
    optimizer.step()


def _accumulate_then_divide(model, parts, loss_fn, optimizer):
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
_LAST = "add_gradient(*parts[-1])"
WRONG = {
    **TWINS,
    "every-part": {"with model.no_sync():": "if True:"},
    "forward-outside": _accumulate_forward_outside,
    "never-sends": (
        {_LAST: f"    {_LAST}"},
        {"loss_fn(model(x), y)": "loss_fn(model.module(x), y)"},
    ),
    "not-the-last": (
        {
            "with model.no_sync():": "add_gradient(*parts[0])\nwith model.no_sync():",
            "parts[:-1]": "parts[1:]",
            _LAST: "",
        },
        {"with model.no_sync():": "if True:", _LAST: f"with model.no_sync():\n    {_LAST}"},
    ),
    "part-left-out": lambda model, parts, loss_fn, optimizer: accumulate(
        model, parts[:-1] or parts, loss_fn, optimizer
    ),
    "other-parts": (
        lambda model, parts, loss_fn, optimizer: accumulate(
            model, [*parts, parts[-1]], loss_fn, optimizer
        ),
        {_LOSS: f"model(x)\n{_LOSS}"},
    ),
    "no-backward": {".backward()": ".detach()"},
    "no-step": {"optimizer.step()": ""},
    "steps": _accumulate_stepping,
    "all-at-once": _accumulate_one_backward,
    "larger-part": _accumulate_all_rows_at_once,
    "changed-input": {_LOSS: f"x.div_(x.norm())\n{_LOSS}"},
    "ranks-wait": _accumulate_on_rank_0,
}
RIGHT = {
    "by the inner model": {
        "with model.no_sync():": "if True:",
        "add_gradient(*part)": "(loss_fn(model.module(part[0]), part[1]) * len(part[0]) / rows).backward()",
    },
    "in one loop": _accumulate_in_one_loop,
    "by the attribute": _accumulate_by_the_attribute,
    "divided at the end": _accumulate_then_divide,
}
