"""Known answers to 07.frugal_step."""

import torch
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from course_lessons.lesson07.challenge import plain_step
from course_lessons.lesson07.frugal_step import FRUGAL_MISTAKES


def _frugal_on_cpu(model, x, y, loss_fn, optimizer):
    with torch.autograd.graph.save_on_cpu():
        return plain_step(model, x, y, loss_fn, optimizer)


def in_parts(parts, dtype=None, scale=1.0, check=None):
    """Return a step that divides the batch into ``parts`` micro-batches.

    ``dtype`` is autocast's, if given; ``scale`` multiplies the loss; ``check(model, rows)`` is a forward pass
    with checkpoints, if given.
    """

    def frugal_step(model, x, y, loss_fn, optimizer):
        optimizer.zero_grad()
        total = 0.0
        for rows, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
            with torch.autocast(x.device.type, dtype or torch.bfloat16, enabled=dtype is not None):
                outputs = check(model, rows) if check else model(rows)
                loss = loss_fn(outputs.float(), labels) * len(rows) / len(x)
            (loss * scale).backward()
            total += loss.detach()
        for p in model.parameters():
            p.grad /= scale
        optimizer.step()
        return total

    return frugal_step


def _each_block(model, x):
    """Checkpoint each block."""
    for block in model:
        x = checkpoint(block, x, use_reentrant=False)
    return x


def _five_pieces(model, x):
    """Checkpoint the model in five segments."""
    return checkpoint_sequential(model, 5, x, use_reentrant=False)


def _with_grad_scaler(model, x, y, loss_fn, optimizer):
    scaler = torch.amp.GradScaler(x.device.type, init_scale=1024.0)
    optimizer.zero_grad()
    with torch.autocast(x.device.type, torch.float16):
        loss = loss_fn(_each_block(model, x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


_SPLIT = {"x.chunk(4), y.chunk(4)": "x.split(8192), y.split(8192)"}
_STEP_EACH = {
    "loss.backward()": "loss.backward()\noptimizer.step()",
    "optimizer.step()\nreturn total": "return total",
}
WRONG = {
    **FRUGAL_MISTAKES,
    "many-steps": _STEP_EACH,
    "does-not-fit": (plain_step, in_parts(2), in_parts(1, torch.float16, 1024.0)),
    "too-dear": (in_parts(8), in_parts(16), _frugal_on_cpu),
    "wrong-value": (
        {"optimizer.zero_grad()": ""},
        {"total += loss.detach()": "total += loss.detach() / 4"},
    ),
}
RIGHT = {
    "four micro-batches": in_parts(4),
    "five micro-batches": in_parts(5),
    "micro-batches of 8,192 rows": _SPLIT,
    "a checkpoint a block": in_parts(1, check=_each_block),
    "five checkpoints": in_parts(1, check=_five_pieces),
    "float16, two micro-batches": in_parts(2, torch.float16, 1024.0),
    "float16, checkpoints, GradScaler": _with_grad_scaler,
    "float16, five checkpoints": in_parts(1, torch.float16, 1024.0, _five_pieces),
}
