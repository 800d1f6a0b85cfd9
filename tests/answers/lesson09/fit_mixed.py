"""Known answers to 09.fit_mixed."""

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

_ZERO = "optimizer.zero_grad()"

WRONG = {
    "half-model": _half_model,
    "no-scaler": ({_ENABLED: "enabled=False"}, {_ENABLED: f"{_ENABLED}, init_scale=1.0"}),
    "scaler-for-bf16": {_ENABLED: "enabled=True"},
    "new-scaler": (
        {"optimizer.zero_grad()": f"{_SCALER}\noptimizer.zero_grad()"},
        {_ENABLED: f"{_ENABLED}, backoff_factor=0.999"},
    ),
    **(
        {}
        if torch.cuda.is_available()
        else {"names-cuda": {_AUTOCAST: 'torch.autocast("cuda", dtype=dtype)'}}
    ),
}
RIGHT = {
    "in two branches": _in_two_branches,
    "emptied behind the step": {_ZERO: "", "scaler.update()": f"scaler.update()\n{_ZERO}"},
}
