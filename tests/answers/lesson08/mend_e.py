"""Known answers to 08.mend_e."""

import copy

import torch
from torch.nn import functional as F

from answers.lesson08 import stepped
from course_lessons.lesson08 import loops
from course_lessons.lesson08.mend_e import E_MISTAKES, mend_e


def _e_one_layer(model, batches, optimizer):
    losses = []
    for x, y in batches:
        with torch.autocast(x.device.type, torch.bfloat16):
            first = model[0](x)
        losses.append(stepped(F.mse_loss(model[1:](first.float()), y), optimizer))
    return torch.stack(losses).tolist()


def _e_weights_in_16_bits(model, batches, optimizer):
    model.to(torch.bfloat16)
    losses = []
    for x, y in batches:
        loss = F.mse_loss(model(x.to(torch.bfloat16)), y.to(torch.bfloat16))
        losses.append(stepped(loss, optimizer).float())
    return torch.stack(losses).tolist()


def _e_after_changing(change):
    """Return an answer that runs the given loop after ``change()``, which sets a precision."""

    def mend_e(model, batches, optimizer):
        change()
        return loops.loop_e(model, batches, optimizer)

    return mend_e


def _tf32_by_the_newer_switch():
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):
        matmul.fp32_precision = "tf32"
    else:
        matmul.allow_tf32 = True


def _tf32_by_the_older_switch():
    torch.backends.cuda.matmul.allow_tf32 = True


def _e_float16_scaled(model, batches, optimizer, read=torch.Tensor.detach):
    device = batches[0][0].device
    scaler = torch.amp.GradScaler(device.type, init_scale=128.0)
    losses = []
    for x, y in batches:
        with torch.autocast(device.type, dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(read(loss))
    return [float(loss) for loss in losses]


def _in_16_bits_and_back(model, batches, optimizer):
    model.half()
    losses = [stepped(F.mse_loss(model(x.half()), y.half()), optimizer) for x, y in batches]
    model.float()
    return torch.stack(losses).tolist()


def _scaled_and_read_in_each_step(model, batches, optimizer):
    return _e_float16_scaled(model, batches, optimizer, torch.Tensor.item)


def _numbers_without_training(model, batches, optimizer):
    """Train a copy, so that the losses are right and the model is as before."""
    twin = copy.deepcopy(model)
    return mend_e(twin, batches, torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9))


_CAST = "with torch.autocast(x.device.type, torch.bfloat16):"
_LOSS = "loss = F.mse_loss(model(x), y)"
WRONG = {
    **E_MISTAKES,
    "as-slow": {_CAST: f"output = model(x)\n{_CAST}", "model(x), y": "output, y"},
    "only-some": _e_one_layer,
    "in-pieces": {
        _LOSS: "output = torch.cat([model(row) for row in x.split(max(1, len(x) // 32))])\n"
        "loss = F.mse_loss(output, y)"
    },
    "weights-dtype": (_e_weights_in_16_bits, _in_16_bits_and_back),
    "wrong-value": (_numbers_without_training, _scaled_and_read_in_each_step),
}
RIGHT = {
    "by a precision": _e_after_changing(lambda: torch.set_float32_matmul_precision("high")),
    "by the newer switch": _e_after_changing(_tf32_by_the_newer_switch),
    "by the older switch": _e_after_changing(_tf32_by_the_older_switch),
    "float16, scaled": _e_float16_scaled,
    "loss outside": {
        f"{_CAST}\n    {_LOSS}": f"{_CAST}\n    output = model(x)\nloss = F.mse_loss(output.float(), y)"
    },
}
