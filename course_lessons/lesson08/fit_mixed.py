"""A tutorial's mixed precision, on any device."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import values_of
from course_utils.exercises import Exercise, Judge

from .checking import labelled, other_device


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


class _Fit:
    """A model on a device; notes what its layers return, how often the scaler's work is done, and by whom."""

    def __init__(self, device: torch.device, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.dtypes: set[torch.dtype] = set()
        self.steps: list[float] = []  # of each step, its largest gradient
        self.seen: list[float] = []  # of each backward pass, the largest at the last bias
        self.ways: list[Tensor] = []  # and its direction
        self.rows: list[int] = []
        for layer in (self.model[0], self.model[2]):
            layer.register_forward_hook(lambda *args: self.dtypes.add(args[2].dtype))
        self.model.register_forward_hook(lambda *args: self.rows.append(len(args[2])))
        self.model[2].bias.register_hook(self._gradient)
        self.optimizer.register_step_pre_hook(self._step)

    def _gradient(self, gradient: Tensor) -> None:
        gradient = gradient.detach().cpu()
        self.seen.append(float(gradient.abs().max()))
        self.ways.append(gradient / self.seen[-1])

    def _step(self, *_: Any) -> None:
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        self.steps.append(max((float(g.abs().max()) for g in gradients), default=0.0))

    def weights(self) -> Tensor:
        """All weights, on the host."""
        return torch.cat([p.detach().cpu().flatten() for p in self.model.parameters()])

    def off(self, other: _Fit) -> float:
        """How far the weights are from another's, at the most."""
        return float((self.weights() - other.weights()).abs().max())

    def same_as(self, other: _Fit) -> bool:
        """Whether the weights are another's, but for the rounding of 16 bits."""
        return torch.allclose(self.weights(), other.weights(), rtol=0.02, atol=2e-3)


_ZERO, _STEP = "optimizer.zero_grad()", "scaler.step(optimizer)"
_TWINS = {}


def _check_fit_mixed(answer: Callable[..., Any], judge: Judge) -> None:
    with other_device() as other:
        devices = [torch.device("cpu")] + ([other] if other.type != "meta" else [])
        for device in devices:
            batches = labelled((4, 5, 3))
            if device.type != "cpu":  # the second batch overflows in float16: its step is left out
                batches[1] = (batches[1][0] * 1e6, batches[1][1])
            runs = []
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                for function in (answer, fit_mixed):
                    runs.append(_Fit(device, 1))
                    function(runs[-1].model, list(batches), runs[-1].optimizer)
            fit, right = runs
            _judge_amp(fit, right, device, [str(w.message) for w in warned], judge)
            _judge_scaler(fit, right, device, judge)
            _judge_weights(fit, right, device, batches, judge)


def _judge_amp(
    fit: _Fit, right: _Fit, device: torch.device, warned: list[str], judge: Judge
) -> None:
    for text in warned:
        if "torch.cuda.amp" in text and "deprecated" in text:
            judge.no(seen=text.split("\n")[0])
        if "CUDA is not available" in text or "'cuda'" in text:
            judge.no("names-cuda", seen=text.split("\n")[0])
    if {p.dtype for p in fit.model.parameters()} != {torch.float32}:
        judge.no("half-model", seen="weights in 16 bits", expected="weights in float32")
    where = next(fit.model.parameters()).device
    if where.type != device.type:
        judge.no(seen=where.type, expected=device.type)
    if fit.rows != right.rows:
        judge.no(seen=f"batches of {fit.rows} rows", expected=f"{right.rows}")
    if len(fit.seen) < len(right.seen):
        judge.no(seen=f"{len(fit.seen)} backward passes", expected=len(right.seen))
    found = ", ".join(sorted(str(d) for d in fit.dtypes))
    shown = {"seen": f"{found} out of the layers on {device.type}", "expected": str(*right.dtypes)}
    if fit.dtypes == {torch.float32}:
        judge.no(**shown)
    if fit.dtypes != right.dtypes:
        judge.no(**shown)


def _judge_scaler(fit: _Fit, right: _Fit, device: torch.device, judge: Judge) -> None:
    factor = fit.seen[0] / right.seen[0]
    if device.type == "cpu":
        if factor > 1e3:
            judge.no(
                "scaler-for-bf16", seen="scaled gradients with bfloat16", expected="not scaled"
            )
        if not 0.9 < factor < 1.1 or (fit.ways[0] - right.ways[0]).abs().max() > 0.05:
            seen = f"{values_of(fit.ways[0] * fit.seen[0])} at the last bias"
            judge.no(seen=seen, expected=values_of(right.ways[0] * right.seen[0]))
    elif factor < 1e-4:
        judge.no("no-scaler", seen="a backward pass of the loss as it is", expected="scaled")
    elif (later := fit.seen[2] / right.seen[2] / factor) > 1.5:
        judge.no("new-scaler", seen=f"a scale {later:.4g} times too large after an overflow")
    made, wanted = len(fit.steps), len(right.steps)
    if made != wanted:
        kind = "steps-on" if made > wanted and device.type != "cpu" else "other-steps"
        expected = f"{wanted}" + (", none where they overflow" if kind == "steps-on" else "")
        judge.no(kind, seen=f"{made} steps of the optimiser on {device.type}", expected=expected)


def _judge_weights(
    fit: _Fit, right: _Fit, device: torch.device, batches: list[Any], judge: Judge
) -> None:
    if fit.same_as(right):
        return
    if not any(fit.steps):
        judge.no(seen="no gradients when the steps were made", expected="some")
    for kind, twin in _TWINS.items():
        twin((run := _Fit(device, 1)).model, list(batches), run.optimizer)
        if fit.same_as(run):
            judge.no(kind, seen=f"weights off by {fit.off(right):.2g}", expected="0")
    for step, (one, other) in enumerate(zip(fit.steps, right.steps, strict=True), 1):
        if not 0.8 * other < one < 1.25 * other:
            seen = f"a largest gradient of {one:.3g} at step {step} on {device.type}"
            judge.no(seen=seen, expected=f"{other:.3g}")
    judge.no(seen=f"weights off by {fit.off(right):.2g}", expected="0")


EXERCISE = Exercise(
    id="08.fit_mixed",
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
cross-entropy for each `(x, y)` of `batches`, which are on the host. On an accelerator use float16 and a scaler, on a
CPU bfloat16, which needs none. The weights stay float32.
""",
    hints=(
        "`next(model.parameters()).device` says where the model is. Nothing else should decide.",
        "`torch.amp.GradScaler(device.type, enabled=…)`: a disabled scaler lets everything through, so the same "
        "lines serve. Make it once, before the loop.",
    ),
    reference=fit_mixed,
    check_answer=_check_fit_mixed,
    why="Code that names a device in its innermost lines is right on one machine. A scaler that is made anew for each batch, as one "
    "often sees, forgets the scale it has found, and can skip every step.",
    diagnoses={
        "names-cuda": "CUDA was named here, wherever the model is. Ask for autocast and scaler on the model's device.",
        "half-model": "The weights themselves are in 16 bits now. Leave the model as it is.",
        "no-scaler": "In float16 the loss goes into the backward pass as it is: small gradients are lost. A scaler multiplies it first.",
        "scaler-for-bf16": "bfloat16 has the range of float32 and needs no scaler.",
        "new-scaler": "After an overflow the scale is not half of the one before. (A scaler made anew for each batch begins at "
        "its first value again.)",
    },
)
