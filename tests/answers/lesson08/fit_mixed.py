"""Known answers to 08.fit_mixed."""

import torch
from torch.nn import functional as F


def _half_model(model, batches, optimizer):
    model.bfloat16()
    for x, y in batches:
        device = next(model.parameters()).device
        loss = F.cross_entropy(model(x.to(device).bfloat16()), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _in_two_branches(model, batches, optimizer):
    where = next(model.parameters()).device
    on_cpu = where.type == "cpu"
    scaler = None if on_cpu else torch.amp.GradScaler(where.type)
    for x, y in batches:
        optimizer.zero_grad()
        x, y = x.to(where, non_blocking=True), y.to(where, non_blocking=True)
        with torch.amp.autocast(where.type, torch.bfloat16 if on_cpu else torch.float16):
            outputs = model(x)
        loss = F.cross_entropy(outputs.float(), y)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()


_SCALER = "scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)"
_ENABLED = "enabled=dtype == torch.float16"
_AUTOCAST = "torch.autocast(device.type, dtype=dtype)"
_BACKWARD = "scaler.scale(loss).backward()"
_STEP = "scaler.step(optimizer)"
_SCALE = '(1.0 if device.type == "cpu" else 2.0**16)'
_BY_HAND = f"""({_SCALE} * loss).backward()
for p in model.parameters():
    p.grad /= {_SCALE}"""

_ZERO = "optimizer.zero_grad()"
_LOOP = "for x, y in batches:"
_HALVED = """for p in model.parameters():
    p.grad /= 2"""

WRONG = {
    "deprecated": (
        {_AUTOCAST: "torch.cuda.amp.autocast()"},
        {_SCALER: "scaler = torch.cuda.amp.GradScaler(enabled=False)"},
    ),
    "still-float32": {_AUTOCAST: "torch.autocast(device.type, enabled=False)"},
    "other-dtype": {'torch.bfloat16 if device.type == "cpu" else torch.float16': "torch.bfloat16"},
    "half-model": _half_model,
    "no-scaler": ({_ENABLED: "enabled=False"}, {_ENABLED: f"{_ENABLED}, init_scale=1.0"}),
    "scaler-for-bf16": {_ENABLED: "enabled=True"},
    "new-scaler": (
        {"optimizer.zero_grad()": f"{_SCALER}\noptimizer.zero_grad()"},
        {_ENABLED: f"{_ENABLED}, backoff_factor=0.999"},
    ),
    "steps-on": (
        {_STEP: "scaler.unscale_(optimizer)\noptimizer.step()"},
        {_BACKWARD: _BY_HAND, _STEP: "optimizer.step()", "scaler.update()": ""},
    ),
    **(
        {}
        if torch.cuda.is_available()
        else {"names-cuda": {_AUTOCAST: 'torch.autocast("cuda", dtype=dtype)'}}
    ),
    "few-passes": {_BACKWARD: "loss.detach()", _STEP: "", "scaler.update()": ""},
    "other-steps": {_STEP: f"len(x) == 3 and {_STEP}"},
    "other-loss": {"F.cross_entropy": "F.nll_loss"},
    "no-gradients": {_STEP: f"{_ZERO}\n{_STEP}"},
    "old-gradients": ({_ZERO: ""}, {_ZERO: "", _LOOP: f"{_ZERO}\n{_LOOP}"}),
    "other-batches": ({"in batches": "in batches[::-1]"}, {"in batches": "in batches[:2]"}),
    "other-gradients": {_BACKWARD: f"{_BACKWARD}\n{_HALVED}"},
    "other-weights": {"with torch.autocast": "model[0].weight.data *= 0.7\nwith torch.autocast"},
}
RIGHT = {
    "in two branches": _in_two_branches,
    "emptied behind the step": {_ZERO: "", "scaler.update()": f"scaler.update()\n{_ZERO}"},
}
