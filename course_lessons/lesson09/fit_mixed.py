"""A tutorial's mixed precision, on any device."""

import re
import warnings
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.checking import made_batches
from course_utils.exercises import Exercise
from course_utils.exercises.values import nearly

from .checking import other_device


def fit_mixed(model, batches, optimizer):
    device = next(model.parameters()).device
    dtype = torch.bfloat16 if device.type == "cpu" else torch.float16
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
    for x, y in batches:
        with torch.autocast(device.type, dtype=dtype):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def _train_and_record(fit, device):
    """Train a small model on three batches; return a namespace of what was recorded.

    On another device than a CPU, the second batch overflows float16.
    """
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = made_batches((4, 5, 3), seed=12)
    if device.type != "cpu":
        batches[1] = (batches[1][0] * 1e6, batches[1][1])
    seen = SimpleNamespace(dtypes=set(), rows=[], gradients=[], steps=[])
    for layer in (model[0], model[2]):
        layer.register_forward_hook(lambda *args: seen.dtypes.add(str(args[2].dtype)))
    model.register_forward_hook(lambda *args: seen.rows.append(len(args[2])))
    model[2].bias.register_hook(lambda g: seen.gradients.append(float(g.abs().max())))
    optimizer.register_step_pre_hook(lambda *_: seen.steps.append(1))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        fit(model, batches, optimizer)
    seen.warnings = [str(warning.message).split("\n")[0] for warning in warned]
    seen.weights = list(model.parameters())
    return seen


def _check_answer(answer, judge):
    """Check the answer's training against the reference's, on the CPU and on a simulated device."""
    with other_device() as other:
        for device in (torch.device("cpu"), other):
            if device.type != "meta":
                _judge_on_device(
                    device, _train_and_record(answer, device), _train_and_record(fit_mixed, device), judge
                )


def _judge_on_device(device, got, right, judge):
    """Compare the record of an answer's training on a device with the reference's."""
    where = _(" on {device}").format(device=device.type)
    for text in got.warnings:
        if re.search("torch.cuda.amp|CUDA is not available|'cuda'", text):
            judge.no("names-cuda", seen=text)
    dtypes = {str(p.dtype) for p in got.weights}
    judge.expect(_("dtype of the weights"), dtypes, {"torch.float32"}, "half-model")
    judge.expect(_("device of the model"), got.weights[0].device.type, device.type)
    judge.expect(_("rows of the forward passes"), got.rows, right.rows)
    judge.expect(_("backward passes"), len(got.gradients), len(right.gradients))
    judge.expect(_("dtypes out of the layers{where}").format(where=where), got.dtypes, right.dtypes)
    scales = [g / r for g, r in zip(got.gradients, right.gradients, strict=True)]
    if device.type == "cpu":
        if scales[0] > 1e3:
            judge.no("scaler-for-bf16", seen=_("scaled gradients with bfloat16"), expected=_("not scaled"))
        first = got.gradients[0], right.gradients[0]
        judge.expect(_("largest gradient of the last bias"), *first, alike=nearly(0.1))
    elif scales[0] < 1e-4:
        judge.no("no-scaler", seen=_("a backward pass of the loss as it is"), expected=_("scaled"))
    elif (later := scales[2] / scales[0]) > 1.5:
        seen = _("a scale {later:.4g} times too large after an overflow").format(later=later)
        judge.no("new-scaler", seen=seen)
    judge.expect(_("steps of the optimiser{where}").format(where=where), len(got.steps), len(right.steps))
    judge.expect(f"weights{where}", got.weights, right.weights, alike=nearly(0.02, 2e-3))


EXERCISE = Exercise(
    id="09.fit_mixed",
    title="A tutorial's mixed precision, on any device",
    level=2,
    minutes=10,
    task="""
A tutorial trains in mixed precision:

```python
scaler = torch.cuda.amp.GradScaler()
for inputs, targets in loader:
    with torch.cuda.amp.autocast():
        loss = criterion(model(inputs.to(device)), targets.to(device))
    …
```

`torch.cuda.amp` is deprecated, and without CUDA it disables itself: all of it runs in float32. Write
`fit_mixed(model, batches, optimizer)` with `torch.amp`, for whatever device the model is on: one step with
cross-entropy for each `(x, y)` of `batches`, which are on the host. On an accelerator use float16 and a
scaler, on a CPU bfloat16, which needs none. The weights stay float32.
""",
    hints=(
        "The tutorial names CUDA for its scaler and for autocast. What could decide instead, so that the "
        "same lines run everywhere? Look for something that the function is given anyway.",
        "`next(model.parameters()).device` says where the model is. Both `torch.autocast` and "
        "`torch.amp.GradScaler` want its `.type`, and the dtype follows from it. Make one scaler before the "
        "loop, because it learns its scale from step to step. With `enabled=False` it lets everything "
        "through, so the same lines serve the CPU. Keep `backward()` outside autocast.",
        """Here you see what a disabled scaler does, which is nothing.

```python
w = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.5)
scaler = torch.amp.GradScaler("cpu", enabled=False)
scaler.scale(w.sum()).backward()
scaler.step(optimizer)  # the same as optimizer.step()
scaler.update()
print(w, scaler.get_scale())  # 0.5 everywhere, and a scale of 1
```""",
    ),
    reference=fit_mixed,
    check_answer=_check_answer,
    why="Code that names one device in its innermost lines works on one kind of machine only. A scaler "
    "that's made again for each batch, as you often see it, forgets the scale that it has found and can skip "
    "every step.",
    diagnoses={
        "names-cuda": "CUDA was named here, wherever the model is. Ask for autocast and scaler on the "
        "model's device.",
        "half-model": "The weights themselves are in 16 bits now. Leave the model as it is.",
        "no-scaler": "In float16 the loss goes into the backward pass as it is: small gradients are lost. A "
        "scaler multiplies it first.",
        "scaler-for-bf16": "bfloat16 has the range of float32 and needs no scaler.",
        "new-scaler": "After an overflow the scale is not half of the one before. A scaler that is made in "
        "each step begins at its first value again.",
    },
)
