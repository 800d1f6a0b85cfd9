"""Known answers to 05.amp_step: wrong ones by their diagnosis, right ones by a name."""

import torch

from course_lessons.lesson05.amp_step import amp_step
from course_lessons.shared.edited import edited

_FORWARD = "with torch.autocast(x.device.type, dtype=dtype):\n    loss = loss_fn(model(x), y)"
_PARTED = "with torch.autocast(x.device.type, dtype=dtype):\n    outputs = model(x)\n"
_BACKWARD = "scaler.scale(loss).backward()"
_SCALED_STEP = f"{_BACKWARD}\nscaler.step(optimizer)\nscaler.update()"


def _half_model(model, x, y, loss_fn, optimizer, scaler, dtype):
    optimizer.zero_grad()
    loss = loss_fn(model.to(dtype)(x.to(dtype)), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def _half_inputs(model, x, y, loss_fn, optimizer, scaler, dtype):
    model.half()
    return amp_step(model, x.half(), y, loss_fn, optimizer, scaler, dtype)


def _by_other_names(model, x, y, loss_fn, optimizer, scaler, dtype):
    optimizer.zero_grad(set_to_none=False)
    with torch.amp.autocast(device_type=x.device.type, dtype=dtype, enabled=dtype != torch.float32):
        outputs = model(x)
        loss = loss_fn(outputs, y)
    scaled = scaler.scale(loss)
    scaled.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach().clone()


def _moves_the_data(model, x, y, loss_fn, optimizer, scaler, dtype):
    model.to(x.device)
    x = x.to(next(model.parameters()).device, non_blocking=True)
    loss = amp_step(model, x, y.to(x.device.type), loss_fn, optimizer, scaler, dtype)
    return loss.to(x.device)


def _scaling_where(condition):
    """Return the reference with the scaler used only where ``condition``, an expression, holds."""
    scaled = _SCALED_STEP.replace("\n", "\n    ")
    bare = "else:\n    loss.backward()\n    optimizer.step()"
    return edited(amp_step, {_SCALED_STEP: f"if {condition}:\n    {scaled}\n{bare}"})


_half_and_back = edited(
    _half_model,
    {
        "loss.backward()": f"{_BACKWARD}\nmodel.float()",
        "optimizer.step()": "scaler.step(optimizer)\nscaler.update()",
    },
)
_DECORATED = """\
@torch.autocast(x.device.type, dtype=dtype)
def forward():
    return loss_fn(model(x), y)
loss = forward()"""
_GRAD = """\
parameters = list(model.parameters())
gradients = torch.autograd.grad(scaler.scale(loss), parameters)
for parameter, gradient in zip(parameters, gradients, strict=True):
    parameter.grad = gradient"""
WRONG = {
    "half-model": (_half_model, _half_inputs, _half_and_back),
    "wrong-value": (
        {"torch.autocast(x.device.type, dtype=dtype)": "torch.enable_grad()"},
        {"torch.autocast(x.device.type, dtype=dtype)": "torch.autocast(x.device.type)"},
    ),
    "named-device": (
        {"x.device.type": '"cuda"'},
        {"x.device.type": '"cpu"'},
        {"torch.autocast(x.device.type, ": "torch.cuda.amp.autocast("},
    ),
    "no-scaler": {_SCALED_STEP: "loss.backward()\noptimizer.step()"},
    "waits": {"return loss.detach()": "return torch.tensor(loss.item())"},
    "steps-anyway": {"scaler.step(optimizer)": "scaler.unscale_(optimizer)\noptimizer.step()"},
}
RIGHT = {
    "by other names": _by_other_names,
    "asking the scaler": _scaling_where("scaler.is_enabled()"),
    "asking the format": _scaling_where("dtype == torch.float16"),
    "the loss in float32": {_FORWARD: f"{_PARTED}loss = loss_fn(outputs.float(), y)"},
    "by a decorator": {_FORWARD: _DECORATED},
    "by autograd": {"optimizer.zero_grad()": "", _BACKWARD: _GRAD},
    "moves the data": _moves_the_data,
}
