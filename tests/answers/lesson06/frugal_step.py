"""Known answers to 06.frugal_step."""

import torch
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from course_lessons.lesson06.frugal_step import (
    _LOSS_TWINS,
    FRUGAL_TWINS,
    ROWS,
    frugal_step,
    plain_step,
)
from course_lessons.shared.edited import edited


def _frugal_on_cpu(model, x, y, loss_fn, optimizer):
    with torch.autograd.graph.save_on_cpu():
        return plain_step(model, x, y, loss_fn, optimizer)


def in_parts(parts, dtype=None, scale=1.0, check=None):
    """Return a step that takes the batch in parts, in a dtype, with checkpoints, or all of these."""

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
    for block in model:
        x = checkpoint(block, x, use_reentrant=False)
    return x


def _five_pieces(model, x):
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
_UNWEIGHTED = {" * len(rows) / len(x)": ""}
_ZERO_EACH = {"optimizer.zero_grad()": "", "loss = ": "optimizer.zero_grad()\nloss = "}
_STEP_EACH = {
    "loss.backward()": "loss.backward()\noptimizer.step()",
    "optimizer.step()\nreturn total": "return total",
}
WRONG = {
    **FRUGAL_TWINS,
    **_LOSS_TWINS,
    "too-many-passes": in_parts(16),
    "other-dtype": lambda m, x, y, f, o: plain_step(m.bfloat16(), x.bfloat16(), y, f, o),
    "other-loss": {"return total": "return 2 * total"},
    "summed": (*FRUGAL_TWINS["summed"], {**_SPLIT, **_UNWEIGHTED}),
    "last-part": (
        *FRUGAL_TWINS["last-part"],
        {**_SPLIT, **_ZERO_EACH},
        {**_SPLIT, **_ZERO_EACH, **_UNWEIGHTED},
    ),
    "many-steps": ({**_ZERO_EACH, **_STEP_EACH}, {**_SPLIT, **_ZERO_EACH, **_STEP_EACH}),
    "does-not-fit": (plain_step, in_parts(2), in_parts(1, torch.float16, 1024.0)),
    "too-dear": (in_parts(8), _frugal_on_cpu),
    "left-out": (
        lambda m, x, y, f, o: plain_step(m, x[: ROWS // 4], y[: ROWS // 4], f, o),
        lambda m, x, y, f, o: plain_step(m, x[:9], y[:9], f, o),
    ),
    "keeps-graph": edited(
        frugal_step,
        {
            "x.chunk(4), y.chunk(4)": "[x], [y]",
            "model(rows)": "each_block(model, rows)",
            "loss.detach()": "loss",
        },
        each_block=_each_block,
    ),
    "other-step": lambda m, x, y, f, o: plain_step(m, x, y, lambda a, b: 2 * f(a, b), o),
    "changed-input": lambda m, x, y, f, o: in_parts(4)(m, x.div_(2), y, f, o),
    "no-step": lambda m, x, y, f, o: f(m(x), y).detach(),
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
