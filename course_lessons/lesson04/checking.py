"""What several checks of this lesson share."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from course_utils.exercises import Judge

Batches = list[tuple[torch.Tensor, torch.Tensor]]


class _Scaler(torch.amp.GradScaler):
    """A scaler for the CPU that notes what is asked of it.

    Where calls come in an order that it refuses, ``refusal`` keeps its sentence and the run goes on, so
    that the check can say which call was left out.
    """

    def __init__(self, log: list[str], **settings: Any) -> None:
        super().__init__("cpu", **settings)
        self.log = log
        self.busy = False
        self.refusal = ""

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """Let what happens here not count as the answer's."""
        outer, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = outer

    @contextmanager
    def _noted(self, call: str) -> Iterator[None]:
        """Note a call that the answer makes, and keep the sentence where it is refused."""
        if not self.busy:
            self.log.append(call)
        try:
            with self.by_itself():
                yield
        except AssertionError as error:
            self.refusal = str(error)

    def scale(self, outputs: Any) -> Any:
        """Note the call, then make it."""
        with self._noted("scale"):
            return super().scale(outputs)

    def unscale_(self, optimizer: Any) -> None:
        """Note the call, then make it."""
        with self._noted("unscale"):
            super().unscale_(optimizer)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Note the call, then make it."""
        with self._noted("step"):
            return super().step(optimizer, *args, **kwargs)

    def get_scale(self) -> float:
        """Note the call, then make it."""
        with self._noted("get_scale"):
            return super().get_scale()

    def update(self, new_scale: Any = None) -> None:
        """Note the call, then make it."""
        with self._noted("update"):
            super().update(new_scale)


class Run:
    """A small classifier (6 features, 3 classes), its optimizer and its scaler; notes what happens.

    Attributes
    ----------
    log
        ``"forward"``, ``"loss"``, ``"scale"``, ``"get_scale"``, ``"backward"``, ``"unscale"``,
        ``"step"``, ``"bare step"`` (not from within the scaler's), ``"empty step"`` (the gradients of a
        backward pass are gone), ``"made step"`` (the optimizer's own) and ``"update"``, in their order.
    waits
        The calls by which the answer waited for the device.
    outputs
        The dtypes that came out of the linear layers.
    sizes
        How many rows went through the model at a time.
    inside
        Which of ``"loss"`` and ``"backward"`` ran under autocast.
    asked
        For which devices autocast was asked.
    own_scalers
        How many scalers the answer made.
    """

    def __init__(
        self,
        *,
        use_scaler: bool = True,
        scale: float = 1024.0,
        interval: int = 3,
        between: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), between(), nn.Linear(8, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.log: list[str] = []
        self.waits: list[str] = []
        self.scaler = _Scaler(
            self.log, init_scale=scale, growth_interval=interval, enabled=use_scaler
        )
        self.outputs: list[torch.dtype] = []
        self.sizes: list[int] = []
        self.inside: set[str] = set()
        self.low_loss = False
        self.asked: list[str] = []
        self.own_scalers = 0
        self.start = _weights(self.model)
        for parameter in self.model.parameters():  # left over from an earlier step
            parameter.grad = torch.full_like(parameter, 0.5)
        self.model.register_forward_pre_hook(self._forward)
        for layer in (self.model[0], self.model[2]):
            layer.register_forward_hook(lambda *args: self.outputs.append(args[2].dtype))
        self.model[0].weight.register_hook(lambda _: self._note("backward"))
        self.optimizer.register_step_pre_hook(self._step)

    def loss_fn(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy, and note whether autocast is on."""
        self._note("loss")
        outside = not torch.is_autocast_enabled("cpu")
        self.low_loss |= outside and outputs.dtype != torch.float32
        return F.cross_entropy(outputs, targets)

    def _note(self, what: str) -> None:
        self.log.append(what)
        if torch.is_autocast_enabled("cpu"):
            self.inside.add(what)

    def _forward(self, _: nn.Module, args: Any) -> None:
        self.log.append("forward")
        self.sizes.append(len(args[0]))

    def _step(self, *_: Any) -> None:
        self.log.append("made step")
        if not self.scaler.busy:
            self.log.append("bare step")
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        with self.scaler.by_itself():
            if "backward" in self.log and not any(g.any() for g in gradients):
                self.log.append("empty step")

    def apart(self, other: Run) -> float:
        """Return how far the weights are from another run's, as a share of the way that one went."""
        way = float((other.start - _weights(other.model)).abs().max())
        off = float((_weights(self.model) - _weights(other.model)).abs().max())
        return off if way == 0 else off / way

    def is_like(self, other: Run) -> bool:
        """Whether weights and scale are those of another run, but for 16-bit rounding."""
        alike = self.scaler.get_scale() == other.scaler.get_scale()
        return alike and self.apart(other) < 0.02


def _weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


def made_batches(sizes: Sequence[int], seed: int = 1) -> Batches:
    """Batches of the given sizes; the labels are random, so no batch is like another."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(n, 6, generator=generator), torch.randint(0, 3, (n,), generator=generator))
        for n in sizes
    ]


_READS = ("item", "tolist", "numpy", "cpu", "is_nonzero")
_READS += ("__array__", "__bool__", "__float__", "__index__", "__int__")


class _Waits(TorchFunctionMode):
    """Note where the answer reads a tensor's value, or moves a single number to the CPU by name.

    A move to a device that is no text is none: the data may have told it. What the checker reads, to see
    whether the answer changed what it was given, does not count.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Note the call, then make it."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        waits = name in _READS
        if name == "to" and args[0].dim() == 0:
            waits = isinstance(kwargs.get("device", args[1] if len(args) > 1 else None), str)
        module = sys._getframe(1).f_globals.get("__name__", "")
        own = not module.startswith("course_utils.exercises")
        if waits and own and not self.run.scaler.busy:
            self.run.waits.append(name.strip("_"))
        return func(*args, **kwargs)


@contextmanager
def watched(run: Run) -> Iterator[None]:
    """Note what an answer asks for; warnings are not shown, the diagnoses say more."""
    run.log.clear()
    run.waits.clear()
    run.asked.clear()
    autocast, scaler = torch.autocast.__init__, torch.amp.GradScaler.__init__

    def note_device(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        run.asked.append(device_type)
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
        _Waits(run),
    ):
        warnings.simplefilter("ignore")
        yield


def judge_precision(run: Run, dtype: torch.dtype, judge: Judge) -> None:
    """Refuse a run that did not compute in the asked dtype, with float32 weights."""
    if {p.dtype for p in run.model.parameters()} != {torch.float32}:
        judge.no("half-model", seen=f"weights in {run.model[0].weight.dtype}", expected="float32")
    if not run.outputs or set(run.outputs) != {dtype}:
        others = [name for name in run.asked if name != "cpu"]
        if others:
            judge.no(
                "named-device",
                seen=f"autocast for {others[0]!r}, while the data is on the CPU",
                expected="autocast for the device of the data",
            )
        found = ", ".join(sorted({str(d) for d in run.outputs})) or "nothing"
        judge.no("no-autocast", seen=f"{found} out of the linear layers", expected=str(dtype))
    if run.low_loss:
        judge.no("loss-outside", seen="the loss outside autocast", expected="inside")
    if "backward" in run.inside:
        judge.no("backward-inside", seen="backward() inside autocast", expected="after it")


def judge_scaler(run: Run, judge: Judge) -> None:
    """Refuse a run that passed a scaler by that is enabled."""
    if run.own_scalers:
        judge.no("own-scaler", seen="a scaler made by the answer", expected="the one that is given")
    if "empty step" in run.log:
        judge.no("zeroed-late", seen="no gradients at the step", expected="those of backward()")
    if not run.scaler.is_enabled():
        return
    if "scale" not in run.log and "get_scale" in run.log:
        judge.no("reads-scale", seen="get_scale() and no scale(loss)", expected="scale(loss)")
    if "bare step" in run.log:
        judge.no("step-bypassed", seen="optimizer.step() by itself", expected="by the scaler")
    if "scale" not in run.log and ("backward" in run.log or "step" in run.log):
        judge.no("not-scaled", seen="the backward pass of the loss itself", expected="scaled")
    if "step" in run.log and "update" not in run.log:
        judge.no("no-update", seen="the scaler's step, no update", expected="both")
    if run.scaler.refusal:
        judge.no("refused-by-scaler", seen=run.scaler.refusal, expected="calls in their order")


def judge_result(run: Run, right: Run, judge: Judge, wrong: dict[str, Run]) -> None:
    """Refuse other weights or another scale than the right run's; say which wrong run they are of."""
    if run.is_like(right):
        return
    known = [name for name, other in wrong.items() if run.is_like(other)]
    scales = [
        f", scale {r.scaler.get_scale():g}" if r.scaler.is_enabled() else "" for r in (run, right)
    ]
    alike = "scale-off" if run.apart(right) < 0.02 else "weights"
    judge.no(
        known[0] if known else alike,
        seen=f"weights that are off by {run.apart(right):.0%} of the step{scales[0]}",
        expected=f"the weights of a right step{scales[1]}",
    )


def listed(values: torch.Tensor) -> str:
    """Write a tensor's values, whatever its shape, with few digits."""
    return f"[{', '.join(f'{value:.4g}' for value in values.flatten().tolist())}]"


REFUSED = {
    "own-scaler": "That is not the scaler you were given: a new one knows nothing of the steps before.",
    "reads-scale": "The loss was multiplied by hand. `get_scale()` waits for the device, and the scaler does not "
    "know that the loss is scaled: `scaler.scale` does both without waiting.",
    "zeroed-late": "The gradients were set to zero between the backward pass and the step: nothing was left for it.",
    "scale-off": "The weights are right, the scale is not. The scaler must see every step, one that overflows too.",
    "refused-by-scaler": "The scaler was called in an order that it refuses: scale, backward, step, update. "
    "Where gradients are set to zero after the backward pass, it finds none to look at.",
}
