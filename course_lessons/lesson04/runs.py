"""A small training in mixed precision that notes what a learner's function asks of it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

from ..shared.checking import Alive, Calls


def _logged(name: str) -> Callable[..., Any]:
    """Return a scaler's method that logs calls of the answer, and keeps the message of a refused one."""
    method = getattr(torch.amp.GradScaler, name)

    def call(self: _Scaler, *args: Any, **kwargs: Any) -> Any:
        if not self.busy:
            self.log.append(name.rstrip("_"))
        try:
            with self.by_itself():
                return method(self, *args, **kwargs)
        except AssertionError as error:
            self.refusal = str(error)
            return None

    return call


class _Scaler(torch.amp.GradScaler):
    """A scaler for the CPU that logs the calls of its methods.

    Where calls come in an order that it refuses, ``refusal`` keeps its message and the run goes on, so
    that the check can say which call was left out.
    """

    def __init__(self, log: list[str], **settings: Any) -> None:
        super().__init__("cpu", **settings)
        self.log = log
        self.busy = False
        self.refusal = ""

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """Don't log what is called within: the scaler's own calls, or the check's."""
        outer, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = outer

    scale = _logged("scale")
    unscale_ = _logged("unscale_")
    step = _logged("step")
    get_scale = _logged("get_scale")
    update = _logged("update")


class Run:
    """A small classifier (6 features, 3 classes), its optimizer and its scaler; records what happens.

    Attributes
    ----------
    log
        In their order ``"forward"``, ``"scale"``, ``"get_scale"``, ``"backward"``, ``"unscale"``,
        ``"step"``, ``"made step"`` (the optimizer's own), ``"bare step"`` (not from within the scaler's),
        ``"blind step"`` (a bare one with gradients that overflowed), ``"update"`` and ``"held"`` (an earlier
        graph still holds its activations at a forward pass).
    waits
        The calls by which the answer waited for the device.
    outputs
        The dtypes that came out of the linear layers.
    sizes
        How many rows went through the model at a time.
    low_loss, low_backward
        Whether the loss was computed in 16 bits outside autocast, and the backward pass made inside.
    weight_dtypes
        The dtypes of the weights at each forward pass.
    autocast_for
        The device types that autocast was asked for.
    own_scalers
        How many scalers the answer made.
    device_read
        Whether the answer read a tensor's device.
    """

    def __init__(
        self,
        *,
        use_scaler: bool = True,
        interval: int = 3,
        between: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), between(), nn.Linear(8, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.log: list[str] = []
        self.waits: list[str] = []
        settings = {"init_scale": 1024.0, "growth_interval": interval, "enabled": use_scaler}
        self.scaler = _Scaler(self.log, **settings)
        self.outputs: set[torch.dtype] = set()
        self.sizes: list[int] = []
        self.low_backward = False
        self.low_loss = False
        self.weight_dtypes: set[torch.dtype] = set()
        self.autocast_for: list[str] = []
        self.own_scalers = 0
        self.device_read = False
        self.hidden = Alive()
        self.start = _weights(self.model)
        for parameter in self.model.parameters():  # left over from an earlier step
            parameter.grad = torch.full_like(parameter, 0.5)
        self.model.register_forward_pre_hook(self._forward)
        for layer in (self.model[0], self.model[2]):
            layer.register_forward_hook(lambda *args: self.outputs.add(args[2].dtype))
        self.model[1].register_forward_hook(lambda *args: self.hidden.add(args[2]))
        self.model[0].weight.register_hook(self._backward)
        self.optimizer.register_step_pre_hook(self._step)

    def loss_fn(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy, and record whether it is computed in 16 bits."""
        outside = not torch.is_autocast_enabled("cpu")
        self.low_loss |= outside and outputs.dtype != torch.float32
        return F.cross_entropy(outputs, targets)

    def _forward(self, _: nn.Module, args: Any) -> None:
        self.log += ["held", "forward"] if self.hidden.bytes else ["forward"]
        self.sizes.append(len(args[0]))
        self.weight_dtypes |= {p.dtype for p in self.model.parameters()}

    def _backward(self, _: torch.Tensor) -> None:
        self.log.append("backward")
        self.low_backward |= torch.is_autocast_enabled("cpu")

    def _step(self, *_: Any) -> None:
        self.log.append("made step")
        if not self.scaler.busy:
            with self.scaler.by_itself():
                gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
                finite = all(g.isfinite().all() for g in gradients)
            self.log += ["bare step"] if finite else ["bare step", "blind step"]

    def step_made(self, back: float = 0.0) -> dict[str, Any]:
        """Return how far the weights have come, the scale, and what came back of the step."""
        with self.scaler.by_itself():
            moved = _weights(self.model) - self.start
            return {"moved": moved, "scale": self.scaler.get_scale(), "back": back}


def _weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


_READS = ("item", "tolist", "numpy", "cpu", "is_nonzero")
_READS += ("__array__", "__bool__", "__float__", "__index__", "__int__")
_DEVICES = ("device", "get_device", "is_cuda", "is_cpu", "is_mps", "is_xpu")


@contextmanager
def watched(run: Run, judge: object) -> Iterator[None]:
    """Record what an answer calls, without warnings; without a judge, record nothing."""
    if not judge:
        yield
        return
    run.log.clear()
    run.waits.clear()
    run.autocast_for.clear()
    run.device_read = False
    autocast, scaler = torch.autocast.__init__, torch.amp.GradScaler.__init__

    def note_call(name: str, args: Any, kwargs: Any) -> None:
        """Record reads of a value, and moves of a single number to the CPU by its name."""
        waits = name in _READS
        if name == "to" and args[0].dim() == 0:  # to another tensor's device is no wait
            waits = isinstance(kwargs.get("device", args[1] if len(args) > 1 else None), str)
        module = sys._getframe(2).f_globals.get("__name__", "")  # behind __torch_function__
        if module.startswith("course_utils.exercises"):  # compares what the answer was given
            return
        if name in _DEVICES and not module.startswith("torch"):
            run.device_read = True
        if waits and not run.scaler.busy:
            run.waits.append(name.strip("_"))

    def note_device(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        run.autocast_for.append(device_type)
        autocast(self, device_type, *args, **kwargs)

    def note_scaler(self: Any, *args: Any, **kwargs: Any) -> None:
        run.own_scalers += 1
        scaler(self, *args, **kwargs)

    def note_wait(*_: Any, **__: Any) -> None:
        run.waits.append("synchronize")

    with (
        warnings.catch_warnings(),
        mock.patch.object(torch.accelerator, "synchronize", note_wait),
        mock.patch.object(torch.cuda, "synchronize", note_wait),
        mock.patch.object(torch.autocast, "__init__", note_device),
        mock.patch.object(torch.amp.GradScaler, "__init__", note_scaler),
        Calls(note_call),
    ):
        warnings.simplefilter("ignore")
        yield
