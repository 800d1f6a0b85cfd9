"""Known answers to 04.accumulate: wrong ones by the diagnosis that each must get, right ones by a name."""

import torch

from course_lessons.lesson04.accumulate import TWINS, accumulate
from course_lessons.lesson04.amp_step import amp_step
from course_lessons.shared.edited import edited


def _joined(model, batches, loss_fn, optimizer, scaler, dtype):
    x, y = (torch.cat(part) for part in zip(*batches, strict=True))
    amp_step(model, x, y, loss_fn, optimizer, scaler, dtype)


def _with_its_own_scaler(model, batches, loss_fn, optimizer, scaler, dtype):
    mine = torch.amp.GradScaler("cpu", enabled=scaler.is_enabled())
    accumulate(model, batches, loss_fn, optimizer, mine, dtype)


def _by_shares(model, batches, loss_fn, optimizer, scaler, dtype):
    total = sum(x.shape[0] for x, _ in batches)
    for parameter in model.parameters():
        parameter.grad = None
    for x, y in batches:
        with torch.autocast(x.device.type, dtype):
            loss = loss_fn(model(x), y)
        scaler.scale(loss * (y.shape[0] / total)).backward()
    scaler.step(optimizer)
    scaler.update()


def _skips_by_hand(model, batches, loss_fn, optimizer, scaler, dtype):
    _unscaled(model, batches, loss_fn, optimizer, scaler, dtype)
    if all(p.grad.isfinite().all() for p in model.parameters()):
        optimizer.step()
    scaler.update()


_BACKWARD, _STEP = "scaler.scale(loss).backward()", "scaler.step(optimizer)\nscaler.update()"
_ZERO, _TOTAL = "optimizer.zero_grad()", "scaler.scale(total).backward()"
_EACH = f"for loss in losses:\n    {_BACKWARD}"
_MEND = "for parameter in model.parameters():\n    parameter.grad.nan_to_num_(0.0)"
_FINITE = "all(p.grad.isfinite().all() for p in model.parameters())"
_unscaled = edited(accumulate, {_STEP: "scaler.unscale_(optimizer)"})
WRONG = {
    **TWINS,
    "scale-off": {_STEP: f"if not {_FINITE}:\n    return\n{_STEP}"},
    "steps-anyway": {_STEP: "scaler.unscale_(optimizer)\noptimizer.step()\nscaler.update()"},
    "steps": {_STEP: "    scaler.step(optimizer)\n    scaler.update()"},
    "updates": {_BACKWARD: f"{_BACKWARD}\nscaler.update()", "scaler.update()": ""},
    "large-batch": _joined,
    "one-backward": (
        {
            _ZERO: f"{_ZERO}\ntotal = 0",
            _BACKWARD: "total = total + loss",
            _STEP: f"{_TOTAL}\n{_STEP}",
        },
        {
            _ZERO: f"{_ZERO}\nlosses = []",
            _BACKWARD: "losses.append(loss)",
            _STEP: f"{_EACH}\n{_STEP}",
        },
    ),
    "left-out": {_BACKWARD: f"if loss.isfinite():\n    {_BACKWARD}"},
    "overflow-kept": ({_BACKWARD: f"{_BACKWARD}\n{_MEND}"}, {_STEP: f"{_MEND}\n{_STEP}"}),
    "backward-inside": {_BACKWARD: f"    {_BACKWARD}"},
    "own-scaler": _with_its_own_scaler,
    "wrong-length": {" / count": " / (count - 1)"},
    "not-all": {"for x, y in batches:": "for x, y in batches[1:] or batches:"},
    "graph-kept": {".backward()": ".backward(retain_graph=True)"},
    "step-bypassed": {"scaler.step(optimizer)": "optimizer.step()"},
    "piles-up": (TWINS["piles-up"], edited(TWINS["by-batches"][0], {"optimizer.zero_grad()": ""})),
    "no-scaler": {"scaler.scale(loss)": "loss", _STEP: "optimizer.step()"},
    "named-device": {"x.device.type": '"cuda"'},
}
RIGHT = {"by shares": _by_shares, "skips by hand": _skips_by_hand}
