"""A small training in mixed precision that records what a learner's function does with it."""

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

from ..shared.checking import Calls, LiveTensors


def _logging_method(name: str) -> Callable[..., Any]:
    """Return an override of a GradScaler method that appends its name to ``self.log``.

    Calls made inside ``by_itself()`` are not logged: the scaler's own and the check's. The message of an
    AssertionError is stored as ``self.refusal``, and the override returns None; other exceptions propagate.
    The name is logged without a trailing underscore.
    """
    method = getattr(torch.amp.GradScaler, name)

    def call(self: _Scaler, *args: Any, **kwargs: Any) -> Any:
        """Log the call unless it is internal, and call the method."""
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
    """A CPU gradient scaler that appends the calls of its methods to ``log``.

    If it refuses a call because of the order, ``refusal`` keeps the message and the run continues, so that
    the check can tell which call is missing.
    """

    def __init__(self, log: list[str], **settings: Any) -> None:
        super().__init__("cpu", **settings)
        self.log = log
        self.busy = False
        self.refusal = ""

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """Don't log calls in the block: the scaler's own, or the check's."""
        outer, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = outer

    scale = _logging_method("scale")
    unscale_ = _logging_method("unscale_")
    step = _logging_method("step")
    get_scale = _logging_method("get_scale")
    update = _logging_method("update")


class Run:
    """A small classifier (6 features, 3 classes) with its optimizer and scaler; records what an answer does.

    Attributes
    ----------
    log
        Events in their order: ``"forward"``, ``"scale"``, ``"get_scale"``, ``"backward"``, ``"unscale"``,
        ``"step"`` (the scaler's), ``"made step"`` (the optimizer's), ``"bare step"`` (the optimizer's, not
        called by the scaler), ``"blind step"`` (a bare one with gradients that are not finite),
        ``"update"`` and ``"held"`` (an earlier graph still holds its activations at a forward pass).
    waits
        The names of calls by which the answer waited for the device.
    outputs
        The dtypes of the linear layers' outputs.
    sizes
        The batch size of each forward pass.
    low_loss, low_backward
        Whether the loss was computed in 16 bits outside autocast, and whether backward ran inside it.
    weight_dtypes
        The dtypes of the weights at each forward pass.
    autocast_for
        The device types that the answer gave to autocast.
    own_scalers
        How many scalers the answer created.
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
        self.hidden = LiveTensors()
        self.start = _weights(self.model)
        for parameter in self.model.parameters():  # left over from an earlier step
            parameter.grad = torch.full_like(parameter, 0.5)
        self.model.register_forward_pre_hook(self._on_forward)
        for layer in (self.model[0], self.model[2]):
            layer.register_forward_hook(lambda *args: self.outputs.add(args[2].dtype))
        self.model[1].register_forward_hook(lambda *args: self.hidden.add(args[2]))
        self.model[0].weight.register_hook(self._on_backward)
        self.optimizer.register_step_pre_hook(self._on_step)

    def loss_fn(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy; record whether it is computed in 16 bits outside autocast."""
        outside = not torch.is_autocast_enabled("cpu")
        self.low_loss |= outside and outputs.dtype != torch.float32
        return F.cross_entropy(outputs, targets)

    def _on_forward(self, _: nn.Module, args: Any) -> None:
        """A forward pre-hook of the model: log the pass."""
        self.log += ["held", "forward"] if self.hidden.bytes else ["forward"]
        self.sizes.append(len(args[0]))
        self.weight_dtypes |= {p.dtype for p in self.model.parameters()}

    def _on_backward(self, _: torch.Tensor) -> None:
        """A hook on a weight's gradient: log the backward pass."""
        self.log.append("backward")
        self.low_backward |= torch.is_autocast_enabled("cpu")

    def _on_step(self, *_: Any) -> None:
        """A pre-hook of the optimizer's step: log the step."""
        self.log.append("made step")
        if not self.scaler.busy:
            with self.scaler.by_itself():
                gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
                finite = all(g.isfinite().all() for g in gradients)
            self.log += ["bare step"] if finite else ["bare step", "blind step"]

    def step_made(self, back: float = 0.0) -> dict[str, Any]:
        """Return a step's result as a dict.

        ``"moved"`` is the change of the weights since the run began, flattened; ``"scale"`` the scaler's; and
        ``"back"`` the argument, the value that the answer returned.
        """
        with self.scaler.by_itself():
            moved = _weights(self.model) - self.start
            return {"moved": moved, "scale": self.scaler.get_scale(), "back": back}


def _weights(model: nn.Module) -> torch.Tensor:
    """Return a copy of a model's parameters as one vector."""
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


_READS = ("item", "tolist", "numpy", "cpu", "is_nonzero")
_READS += ("__array__", "__bool__", "__float__", "__index__", "__int__")
_DEVICES = ("device", "get_device", "is_cuda", "is_cpu", "is_mps", "is_xpu")


@contextmanager
def watched(run: Run, judge: object) -> Iterator[None]:
    """Clear ``run``'s log, and record in it too what its hooks cannot see of the answer in the block.

    That is: calls that wait for the device, reads of a tensor's device, device types given to autocast, and
    scalers created. Warnings are suppressed. Without a judge (falsy), as the reference is run, the block runs
    as it is, and the hooks add to the log.
    """
    if not judge:
        yield
        return
    run.log.clear()
    run.waits.clear()
    run.autocast_for.clear()
    run.device_read = False
    autocast, scaler = torch.autocast.__init__, torch.amp.GradScaler.__init__

    def note_call(name: str, args: Any, kwargs: Any) -> None:
        """Record reads of a value, moves of a scalar to a named device, and reads of a tensor's device."""
        waits = name in _READS
        if name == "to" and args[0].dim() == 0:  # to another tensor's device is no wait
            waits = isinstance(kwargs.get("device", args[1] if len(args) > 1 else None), str)
        module = sys._getframe(2).f_globals.get("__name__", "")  # the caller's, above __torch_function__
        if module.startswith("course_utils.exercises"):  # which checks whether inputs were changed
            return
        if name in _DEVICES and not module.startswith("torch"):
            run.device_read = True
        if waits and not run.scaler.busy:
            run.waits.append(name.strip("_"))

    def note_device(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        """Record the device type given to autocast."""
        run.autocast_for.append(device_type)
        autocast(self, device_type, *args, **kwargs)

    def note_scaler(self: Any, *args: Any, **kwargs: Any) -> None:
        """Count a scaler that the answer creates."""
        run.own_scalers += 1
        scaler(self, *args, **kwargs)

    def note_wait(*_: Any, **__: Any) -> None:
        """Record a synchronisation."""
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
