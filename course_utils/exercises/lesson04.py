"""Exercises of lesson 04, mixed precision.

The checks compute on the CPU, whatever the learner's device: autocast and the scaler work there too,
and an answer that names another device shows it.
"""

from __future__ import annotations

import functools
import io
import math
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..devices import Abilities
from . import core
from .core import Exercise, Judge

Batches = list[tuple[torch.Tensor, torch.Tensor]]


# What several checks use -------------------------------------------------------------------------


def _on_one_thread(check: Callable[..., None]) -> Callable[..., None]:
    """Let a check compute on one thread: several would only wait for each other, the layers are tiny."""

    @functools.wraps(check)
    def quiet(answer: Callable[..., Any], judge: Judge) -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            check(answer, judge)
        finally:
            torch.set_num_threads(threads)

    return quiet


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


class _Run:
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

    def apart(self, other: _Run) -> float:
        """Return how far the weights are from another run's, as a share of the way that one went."""
        way = float((other.start - _weights(other.model)).abs().max())
        off = float((_weights(self.model) - _weights(other.model)).abs().max())
        return off if way == 0 else off / way

    def is_like(self, other: _Run) -> bool:
        """Whether weights and scale are those of another run, but for 16-bit rounding."""
        alike = self.scaler.get_scale() == other.scaler.get_scale()
        return alike and self.apart(other) < 0.02


def _weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


def _batches(sizes: Sequence[int], seed: int = 1) -> Batches:
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

    def __init__(self, run: _Run) -> None:
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
        own = sys._getframe(1).f_globals.get("__name__") != core.__name__
        if waits and own and not self.run.scaler.busy:
            self.run.waits.append(name.strip("_"))
        return func(*args, **kwargs)


@contextmanager
def _watched(run: _Run) -> Iterator[None]:
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


def _judge_precision(run: _Run, dtype: torch.dtype, judge: Judge) -> None:
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


def _judge_scaler(run: _Run, judge: Judge) -> None:
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


def _judge_result(run: _Run, right: _Run, judge: Judge, wrong: dict[str, _Run]) -> None:
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


def _listed(values: torch.Tensor) -> str:
    """Write a tensor's values, whatever its shape, with few digits."""
    return f"[{', '.join(f'{value:.4g}' for value in values.flatten().tolist())}]"


# lost --------------------------------------------------------------------------------------------


def lost(gradients, dtype):
    nonzero = gradients[gradients != 0]
    gone = (nonzero.to(dtype) == 0).sum()
    return gone.item() / max(len(nonzero), 1)


def _check_lost(answer: Callable[..., Any], judge: Judge) -> None:
    half, bf16 = torch.float16, torch.bfloat16
    mixed = [1e-3, 1e-6, 4e-8, 2.5e-8, -1e-9, -3e-5, 0.0, 0.0, 70000.0, 1.0]
    cases = [
        (torch.tensor([0.5, 0.1, -0.3]), half),  # rounded, but not lost
        (torch.tensor([1e-6, -1e-9, 2.0, 1e-12]), half),
        (torch.tensor([0.0, 1e-9, 1.0, 0.0]), half),
        (torch.tensor([2.0**-25, 1.01 * 2.0**-25, 2.0**-24, 1.0]), half),
        (torch.tensor(mixed), half),
        (torch.tensor(mixed), bf16),
        (torch.tensor([[1e-50, 1e-9], [0.0, -1e-30]], dtype=torch.float64), bf16),
        (torch.tensor([[1e-50, 1e-9], [0.0, -1e-30]], dtype=torch.float64), torch.float32),
        (torch.tensor([1e-9]), half),
        (torch.tensor([0.0, 0.0]), half),
    ]
    twins = {
        "all-entries": _lost_of_all,
        "zero-before": _lost_zeros,
        "subnormals": _lost_below_tiny,
        "threshold": _lost_below_smallest,
        "rounded": _lost_changed,
        "dtype-ignored": _lost_in_half,
        "per-cent": _lost_per_cent,
    }
    for gradients, dtype in cases:
        expected = lost(gradients, dtype)
        got = answer(gradients, dtype)
        numeric = isinstance(got, (float, torch.Tensor))
        if numeric and not gradients.any() and torch.as_tensor(got).isnan().all():
            judge.no("nothing-to-lose", seen=f"nan for {_listed(gradients)}", expected="0")
        got = judge.number(got)
        if not math.isclose(got, expected, rel_tol=1e-5):
            like = [name for name, f in twins.items() if math.isclose(got, f(gradients, dtype))]
            judge.no(
                like[0] if like else "wrong-value",
                seen=f"{got:g} for {_listed(gradients)} in {dtype}",
                expected=f"{expected:g}",
            )


def _lost_of_all(gradients, dtype):
    return ((gradients != 0) & (gradients.to(dtype) == 0)).float().mean().item()


def _lost_zeros(gradients, dtype):
    return (gradients.to(dtype) == 0).float().mean().item()


def _lost_below_tiny(gradients, dtype):
    nonzero = gradients[gradients != 0]
    return (nonzero.abs() < torch.finfo(dtype).tiny).sum().item() / max(len(nonzero), 1)


def _lost_below_smallest(gradients, dtype):
    nonzero = gradients[gradients != 0]
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    return (nonzero.abs() < smallest).sum().item() / max(len(nonzero), 1)


def _lost_changed(gradients, dtype):
    nonzero = gradients[gradients != 0]
    return (nonzero.to(dtype).double() != nonzero.double()).sum().item() / max(len(nonzero), 1)


def _lost_in_half(gradients, dtype):
    return lost(gradients, torch.float16)


def _lost_per_cent(gradients, dtype):
    return 100 * lost(gradients, dtype)


def _lost_without_care(gradients, dtype):
    nonzero = gradients[gradients != 0]
    return (nonzero.to(dtype) == 0).float().mean()


# choose_precision --------------------------------------------------------------------------------


def choose_precision(can):
    if can.bf16:
        return torch.bfloat16, False
    if can.device.type == "cpu":
        return torch.float32, False
    return torch.float16, True


def _machines() -> Iterator[tuple[Abilities, torch.dtype]]:
    """Machines, and the dtype for each."""
    gib = 2**30
    for name, device, memory, bf16, tf32, capability, dtype in (
        ("NVIDIA A100", "cuda", 80 * gib, True, True, "8.0", torch.bfloat16),
        ("Tesla T4", "cuda", 15 * gib, False, False, "7.5", torch.float16),
        ("a CPU with AMX", "cpu", None, True, False, "", torch.bfloat16),
        ("a CPU without 16-bit units", "cpu", None, False, False, "", torch.float32),
        ("Apple M1 GPU", "mps", None, False, False, "", torch.float16),
        ("NVIDIA B200", "cuda:1", 180 * gib, True, True, "10.0", torch.bfloat16),
        ("Intel Arc", "xpu", 16 * gib, True, False, "", torch.bfloat16),
        ("AMD MI250", "cuda", 64 * gib, True, False, "", torch.bfloat16),
    ):
        yield Abilities(torch.device(device), name, memory, bf16, tf32, capability), dtype


def _check_choose_precision(answer: Callable[..., Any], judge: Judge) -> None:
    here: list[str] = []

    def supported(*_: Any, **__: Any) -> bool:
        here.append("is_bf16_supported")
        return True

    names = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}
    with mock.patch.object(torch.cuda, "is_bf16_supported", supported):
        for can, dtype in _machines():
            what = f"{can.name} ({can.device}, bf16={can.bf16})"
            got = judge.is_a(answer(can), tuple, "a pair: dtype and True or False")
            if here:
                judge.no(
                    "asks-the-machine", seen="torch.cuda.is_bf16_supported()", expected="can.bf16"
                )
            if len(got) != 2 or not isinstance(got[0], torch.dtype) or not isinstance(got[1], bool):
                judge.no("not-a-pair", seen=got, expected="such as (torch.float32, False)")
            right = (dtype, dtype is torch.float16)
            if got == right:
                continue
            diagnosis = "wrong-choice"
            if got == (torch.bfloat16, True):
                diagnosis = "scaler-with-bf16"
            elif got == (torch.float16, False):
                diagnosis = "no-scaler"
            elif got[0] is torch.bfloat16:
                diagnosis = "no-units"
            elif can.bf16:
                diagnosis = "bf16-missed"
            elif got[0] is torch.float16:
                diagnosis = "cpu-float16"
            elif can.device.type == "cuda":
                diagnosis = "device-as-text"
            elif dtype is torch.float16:
                diagnosis = "accelerator-left-out"
            judge.no(
                diagnosis,
                seen=f"{names.get(got[0], got[0])}, {got[1]} for {what}",
                expected=f"{names[dtype]}, {right[1]}",
            )


def _choose_by_library(can):
    if torch.cuda.is_bf16_supported():
        return torch.bfloat16, False
    return (torch.float32, False) if can.device.type == "cpu" else (torch.float16, True)


def _choose_scaler_always(can):
    dtype, _ = choose_precision(can)
    return dtype, dtype is not torch.float32


def _choose_scaler_never(can):
    return choose_precision(can)[0], False


def _choose_bf16_everywhere(can):
    return (torch.float32 if can.device.type == "cpu" else torch.bfloat16), False


def _choose_by_capability(can):
    if can.device.type == "cpu":
        return choose_precision(can)
    return (torch.bfloat16, False) if can.capability >= "8.0" else (torch.float16, True)


def _choose_for_cuda(can):
    if can.device.type == "cuda" or can.bf16:
        return choose_precision(can)
    return torch.float32, False


def _choose_by_text(can):
    if can.bf16:
        return torch.bfloat16, False
    return (torch.float16, True) if can.device == "cuda" else (torch.float32, False)


def _choose_float16(can):
    return (torch.bfloat16, False) if can.bf16 else (torch.float16, True)


# amp_step ----------------------------------------------------------------------------------------


def amp_step(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@_on_one_thread
def _check_amp_step(answer: Callable[..., Any], judge: Judge) -> None:
    waits: list[str] = []
    for dtype in (torch.bfloat16, torch.float16):
        run, right, piled = (_Run(use_scaler=dtype is torch.float16) for _ in range(3))
        for number, (x, y) in enumerate(_batches((4, 5, 3, 4, 4))):
            if number == 2 and dtype is torch.float16:
                x = x * 1e6  # float16 overflows: this step is to be left out
            parts = [
                (r.model, x, y, r.loss_fn, r.optimizer, r.scaler, dtype)
                for r in (run, right, piled)
            ]
            with _watched(run):
                got = answer(*parts[0])
            waits += run.waits
            if "get_scale" in run.log and run.scaler.is_enabled():
                waits.append("get_scale")
            expected = amp_step(*parts[1])
            _amp_without_zero(*parts[2])
            _judge_precision(run, dtype, judge)
            _judge_scaler(run, judge)
            _judge_result(run, right, judge, {"piles-up": piled})
            if waits and not isinstance(got, torch.Tensor):
                break
            judge.is_a(got, torch.Tensor, "a tensor")
            if got.requires_grad:
                judge.no("keeps-graph", seen=got, expected="the loss without its graph")
            if torch.isfinite(expected):
                judge.close(got, expected.item(), "scaled-loss", rel=1e-3)
    if waits:
        judge.no("waits", seen=f"{waits[0]}()", expected="no call that waits")


def _amp_without_zero(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_bare_step(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    optimizer.step()
    scaler.update()
    return loss.detach()


def _amp_without_update(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    return loss.detach()


def _amp_without_scaler(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_backward_inside(model, x, y, loss_fn, optimizer, scaler, dtype):
    optimizer.zero_grad()
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_for_cuda(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast("cuda", dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_half_model(model, x, y, loss_fn, optimizer, scaler, dtype):
    optimizer.zero_grad()
    loss = loss_fn(model.to(dtype)(x.to(dtype)), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def _amp_loss_outside(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        outputs = model(x)
    loss = loss_fn(outputs, y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_keeps_graph(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def _amp_item(model, x, y, loss_fn, optimizer, scaler, dtype):
    return amp_step(model, x, y, loss_fn, optimizer, scaler, dtype).item()


def _amp_scaled_loss(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = scaler.scale(loss_fn(model(x), y))
    optimizer.zero_grad()
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_own_scaler(model, x, y, loss_fn, optimizer, scaler, dtype):
    scaler = torch.amp.GradScaler(x.device.type)
    return amp_step(model, x, y, loss_fn, optimizer, scaler, dtype)


def _amp_scales_by_hand(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    (loss * scaler.get_scale()).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_zeroes_late(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    optimizer.zero_grad()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_leaves_out(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    if loss.isfinite():
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.detach()


# clipped_step ------------------------------------------------------------------------------------


def clipped_step(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


@_on_one_thread
def _check_clipped_step(answer: Callable[..., Any], judge: Judge) -> None:
    (x, y), *_ = _batches((8,))
    twins = {
        "piles-up": _clip_without_zero,
        "clips-scaled": _clip_scaled,
        "never-clips": _never_clip,
        "divided-twice": _clip_divided_twice,
    }
    for use_scaler, max_norm, factor in (
        (True, 10.0, 1.0),  # only scaled gradients are above the limit
        (True, 0.1, 1.0),
        (True, 1e4, 1.0),
        (True, 0.1, float("inf")),  # the gradients overflow: this step is to be left out
        (True, 2.0, 30.0),
        (False, 0.1, 1.0),
    ):
        run, right, *others = (_Run(use_scaler=use_scaler) for _ in range(2 + len(twins)))
        loss, loss_right, *losses = (
            F.cross_entropy(r.model(x), y) * factor for r in (run, right, *others)
        )
        with _watched(run):
            got = answer(loss, run.model, run.optimizer, run.scaler, max_norm)
        norm = float(clipped_step(loss_right, right.model, right.optimizer, right.scaler, max_norm))
        for other, other_loss, twin in zip(others, losses, twins.values(), strict=True):
            twin(other_loss, other.model, other.optimizer, other.scaler, max_norm)
        _judge_scaler(run, judge)
        names = [
            "unscale-late" if n == "clips-scaled" and "unscale" in run.log else n for n in twins
        ]
        _judge_result(run, right, judge, dict(zip(names, others, strict=True)))
        if not math.isfinite(norm):
            continue
        got = judge.number(got)
        if not math.isclose(got, norm, rel_tol=1e-3):
            diagnosis = "wrong-norm"
            if math.isclose(got, norm * 1024.0, rel_tol=1e-3):
                diagnosis = "scaled-norm"
            elif math.isclose(got, min(norm, max_norm), rel_tol=1e-3):
                diagnosis = "norm-after"
            judge.no(diagnosis, seen=got, expected=f"{norm:g}")


def _clip_without_zero(loss, model, optimizer, scaler, max_norm):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


def _clip_scaled(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


def _never_clip(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    scaler.step(optimizer)
    scaler.update()
    return norm


def _clip_then_unscale(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return norm


def _clip_divided_twice(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    for parameter in model.parameters():
        parameter.grad /= scaler.get_scale()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


def _clip_bare_step(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    scaler.update()
    return norm


def _clip_without_update(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    return norm


def _clip_norm_of_scaled(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


def _clip_norm_after(loss, model, optimizer, scaler, max_norm):
    clipped_step(loss, model, optimizer, scaler, max_norm)
    return torch.cat([p.grad.flatten() for p in model.parameters()]).norm()


# accumulate --------------------------------------------------------------------------------------


def accumulate(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


@_on_one_thread
def _check_accumulate(answer: Callable[..., Any], judge: Judge) -> None:
    twins = {
        "piles-up": _accumulate_without_zero,
        "sum-of-means": _accumulate_undivided,
        "by-batches": _accumulate_by_batches,
        "last-only": _accumulate_zero_inside,
    }
    for dtype, sizes, overflow in (
        (torch.bfloat16, (4, 4, 4), False),
        (torch.float16, (6, 1, 3), False),
        (torch.float16, (4, 2, 3), True),  # one micro-batch overflows: no step for any of them
        (torch.float16, (5,), False),
    ):
        batches = _batches(sizes, seed=sum(sizes))
        if overflow:
            batches[1] = (batches[1][0] * 1e6, batches[1][1])
        run, right, *others = (
            _Run(use_scaler=dtype is torch.float16, interval=2) for _ in range(2 + len(twins))
        )
        for _ in range(2):
            with _watched(run):
                answer(run.model, batches, run.loss_fn, run.optimizer, run.scaler, dtype)
            for other, twin in zip((right, *others), (accumulate, *twins.values()), strict=True):
                twin(other.model, batches, other.loss_fn, other.optimizer, other.scaler, dtype)
            _judge_precision(run, dtype, judge)
            _judge_order(run, sizes, judge)
            if overflow and "made step" in run.log:
                judge.no("overflow-kept", seen="a step", expected="a step that is left out")
            _judge_scaler(run, judge)
            _judge_result(run, right, judge, dict(zip(twins, others, strict=True)))


def _judge_order(run: _Run, sizes: Sequence[int], judge: Judge) -> None:
    if max(run.sizes) > max(sizes):
        judge.no(
            "large-batch",
            seen=f"a batch of {max(run.sizes)} went through the model",
            expected=f"at most {max(sizes)} at a time",
        )
    steps = run.log.count("step") + run.log.count("bare step")
    if steps != 1:
        judge.no("steps", seen=f"{steps} steps", expected="one step")
    if run.log.count("update") > 1:
        judge.no("updates", seen=f"{run.log.count('update')} updates", expected="one update")
    passes = [what for what in run.log if what in ("forward", "backward")]
    missing = passes.count("backward") < passes.count("forward")
    if missing or ("forward", "forward") in pairwise(passes):
        last_forward = len(passes) - 1 - passes[::-1].index("forward")
        judge.no(
            "left-out" if missing and "backward" in passes[:last_forward] else "one-backward",
            seen=", ".join(passes),
            expected="a backward pass after each forward pass",
        )


def _accumulate_without_zero(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def _accumulate_undivided(model, batches, loss_fn, optimizer, scaler, dtype):
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def _accumulate_by_batches(model, batches, loss_fn, optimizer, scaler, dtype):
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) / len(batches)
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def _accumulate_zero_inside(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        optimizer.zero_grad()
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def _accumulate_step_each(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def _accumulate_update_each(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        scaler.scale(loss).backward()
        scaler.update()
    scaler.step(optimizer)


def _accumulate_joined(model, batches, loss_fn, optimizer, scaler, dtype):
    x, y = (torch.cat(part) for part in zip(*batches, strict=True))
    amp_step(model, x, y, loss_fn, optimizer, scaler, dtype)


def _accumulate_one_backward(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    total = 0
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            total = total + loss_fn(model(x), y) * len(y) / count
    scaler.scale(total).backward()
    scaler.step(optimizer)
    scaler.update()


def _accumulate_backward_inside(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
            scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def _accumulate_mended(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        scaler.scale(loss).backward()
        for parameter in model.parameters():
            parameter.grad.nan_to_num_(0.0)
    scaler.step(optimizer)
    scaler.update()


def _accumulate_finite(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        if loss.isfinite():
            scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


# follow_scale ------------------------------------------------------------------------------------


def follow_scale(overflows, init_scale, growth_interval):
    scale, good, scales = init_scale, 0, []
    for overflow in overflows:
        good = 0 if overflow else good + 1
        if overflow:
            scale = scale / 2
        elif good == growth_interval:
            scale, good = scale * 2, 0
        scales.append(scale)
    return scales


def _check_follow_scale(answer: Callable[..., Any], judge: Judge) -> None:
    twins = {
        "not-reset": _scale_not_reset,
        "by-number": _scale_by_number,
        "grows-on": _scale_grows_on,
        "before-the-step": _scale_before,
        "one-late": _scale_one_late,
        "back-to-start": _scale_back_to_start,
        "floor": _scale_with_floor,
    }
    for pattern, init_scale, interval in (
        (".....", 8.0, 2),
        ("x.xx", 1024.0, 3),
        ("..x..x...", 64.0, 3),
        (".........", 16.0, 3),
        (".x....x..x.....", 65536.0, 2),
        ("..x.", 4.0, 1),
        ("xxx", 2.0, 1),
        ("", 2.0, 1),
    ):
        overflows = [sign == "x" for sign in pattern]
        expected = follow_scale(overflows, init_scale, interval)
        got = judge.is_a(answer(overflows, init_scale, interval), list, "a list of numbers")
        numbers = [judge.number(value) for value in got]
        if numbers == expected:
            continue
        like = [name for name, f in twins.items() if numbers == f(overflows, init_scale, interval)]
        if len(numbers) != len(expected):
            like = ["one-per-step"]
        judge.no(
            like[0] if like else "wrong-scales",
            seen=f"{numbers} for overflows={overflows}, init_scale={init_scale:g}, "
            f"growth_interval={interval}",
            expected=expected,
        )


def _scale_not_reset(overflows, init_scale, growth_interval):
    scale, good, scales = init_scale, 0, []
    for overflow in overflows:
        if overflow:
            scale = scale / 2
        else:
            good += 1
            if good == growth_interval:
                scale, good = scale * 2, 0
        scales.append(scale)
    return scales


def _scale_by_number(overflows, init_scale, growth_interval):
    scale, scales = init_scale, []
    for number, overflow in enumerate(overflows, 1):
        if overflow:
            scale = scale / 2
        elif number % growth_interval == 0:
            scale = scale * 2
        scales.append(scale)
    return scales


def _scale_grows_on(overflows, init_scale, growth_interval):
    scale, good, scales = init_scale, 0, []
    for overflow in overflows:
        good = 0 if overflow else good + 1
        if overflow:
            scale = scale / 2
        elif good >= growth_interval:
            scale = scale * 2
        scales.append(scale)
    return scales


def _scale_before(overflows, init_scale, growth_interval):
    scales = follow_scale(overflows, init_scale, growth_interval)
    return [init_scale, *scales][: len(scales)]


def _scale_one_late(overflows, init_scale, growth_interval):
    return follow_scale(overflows, init_scale, growth_interval + 1)


def _scale_back_to_start(overflows, init_scale, growth_interval):
    scale, good, scales = init_scale, 0, []
    for overflow in overflows:
        good = 0 if overflow else good + 1
        if overflow:
            scale = init_scale
        elif good == growth_interval:
            scale, good = scale * 2, 0
        scales.append(scale)
    return scales


def _scale_with_floor(overflows, init_scale, growth_interval):
    scale, good, scales = init_scale, 0, []
    for overflow in overflows:
        good = 0 if overflow else good + 1
        if overflow:
            scale = max(scale / 2, 1.0)
        elif good == growth_interval:
            scale, good = scale * 2, 0
        scales.append(scale)
    return scales


# checkpoint --------------------------------------------------------------------------------------


def checkpoint(model, optimizer, scaler):
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
    }


def _train(run: _Run, batches: Batches, overflow: int | None = None) -> list[float]:
    """Train on batches, of which one may overflow; return the scale after each."""
    scales = []
    for number, (x, y) in enumerate(batches):
        loss = run.loss_fn(run.model(x), y) * (math.inf if number == overflow else 1.0)
        run.optimizer.zero_grad()
        run.scaler.scale(loss).backward()
        run.scaler.step(run.optimizer)
        run.scaler.update()
        scales.append(run.scaler.get_scale())
    return scales


@_on_one_thread
def _check_checkpoint(answer: Callable[..., Any], judge: Judge) -> None:
    keys = {"model", "optimizer", "scaler"}
    for use_scaler, before in ((True, 4), (False, 2)):
        batches = _batches((4,) * 9)
        run = _Run(use_scaler=use_scaler, between=lambda: nn.BatchNorm1d(8))
        _train(run, batches[:before], overflow=1 if use_scaler else None)
        state = judge.is_a(
            answer(run.model, run.optimizer, run.scaler), dict, "a dict with the keys of the task"
        )
        if "scaler" not in state:
            judge.no("no-scaler", seen=f"the keys {', '.join(map(str, state))}", expected="scaler")
        if set(state) != keys:
            judge.no("other-keys", seen=", ".join(map(str, state)), expected=", ".join(keys))
        _judge_parts(state, run, judge)
        try:
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
        except (pickle.UnpicklingError, AttributeError, TypeError, RuntimeError) as error:
            judge.no("not-plain", seen=str(error).splitlines()[0], expected="plain state")
        _judge_restart(run, state, batches[before:], use_scaler, judge)


def _judge_parts(state: dict[str, Any], run: _Run, judge: Judge) -> None:
    """Refuse parts that are not what their ``state_dict`` gives."""
    for key in ("model", "optimizer", "scaler"):
        part, whole = state[key], getattr(run, key).state_dict()
        if isinstance(part, (nn.Module, torch.optim.Optimizer, torch.amp.GradScaler)):
            judge.no("not-plain", seen=f"the whole {key}", expected="its state")
        if key == "scaler" and part is None:
            judge.no("none-for-disabled", seen=part, expected=whole)
        if key == "scaler" and part != whole:
            judge.no("scale-only", seen=part, expected=whole)
        if not isinstance(part, dict) or part.keys() != whole.keys():
            judge.no(key, seen=part, expected=f"the {key}'s state_dict()")
    weights = [value for value in state["model"].values() if value.is_floating_point()]
    if {value.dtype for value in weights} != {torch.float32}:
        judge.no("half", seen="weights in 16 bits", expected="float32")


def _judge_restart(
    run: _Run, state: dict[str, Any], batches: Batches, use_scaler: bool, judge: Judge
) -> None:
    """Refuse a state from which another run does not go on as this one does."""
    resumed = _Run(use_scaler=use_scaler, scale=2.0, between=lambda: nn.BatchNorm1d(8))
    with torch.no_grad():
        for parameter in resumed.model.parameters():
            parameter.zero_()
    resumed.model.load_state_dict(state["model"])
    resumed.optimizer.load_state_dict(state["optimizer"])
    resumed.scaler.load_state_dict(state["scaler"])
    expected, found = _train(run, batches), _train(resumed, batches)
    if found != expected:
        judge.no("scale-only", seen=f"the scales {found}", expected=f"{expected}")
    if run.apart(resumed) > 1e-6:
        judge.no("weights", seen="other weights after some steps", expected="the same")


def _checkpoint_without_scaler(model, optimizer, scaler):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def _checkpoint_scale_only(model, optimizer, scaler):
    return {**checkpoint(model, optimizer, scaler), "scaler": scaler.get_scale()}


def _checkpoint_none(model, optimizer, scaler):
    state = checkpoint(model, optimizer, scaler)
    return {**state, "scaler": state["scaler"] or None}


def _checkpoint_whole_scaler(model, optimizer, scaler):
    return {**checkpoint(model, optimizer, scaler), "scaler": scaler}


def _checkpoint_of_parameters(model, optimizer, scaler):
    return {**checkpoint(model, optimizer, scaler), "model": dict(model.named_parameters())}


def _checkpoint_half(model, optimizer, scaler):
    halves = {name: value.half() for name, value in model.state_dict().items()}
    return {**checkpoint(model, optimizer, scaler), "model": halves}


def _checkpoint_without_optimizer(model, optimizer, scaler):
    return {**checkpoint(model, optimizer, scaler), "optimizer": {}}


# logits_loss -------------------------------------------------------------------------------------


def logits_loss(logits, targets):
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)


class _Banned(TorchFunctionMode):
    """Note whether the loss that CUDA refuses under autocast is called under autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.called = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Note the call, then make it."""
        if getattr(func, "__name__", "") == "binary_cross_entropy":
            self.called |= torch.is_autocast_enabled("cpu")
        return func(*args, **(kwargs or {}))


def _exact(logits: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean binary cross entropy by its formula, in float64."""
    z, t = logits.detach().double(), targets.double()
    return float((z.clamp(min=0) - z * t + torch.log1p(torch.exp(-z.abs()))).mean())


@contextmanager
def _made_from_tensors() -> Iterator[list[str]]:
    """Note where a loss is made with the values it is to be called with, and make it without them."""
    made: list[str] = []
    original = nn.BCEWithLogitsLoss.__init__

    def note(self: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1 and isinstance(args[1], torch.Tensor):
            made.append("nn.BCEWithLogitsLoss(logits, targets)")
            args = ()
        original(self, *args, **kwargs)

    with mock.patch.object(nn.BCEWithLogitsLoss, "__init__", note):
        yield made


def _check_logits_loss(answer: Callable[..., Any], judge: Judge) -> None:
    mild = torch.tensor([0.5, -1.25, 2.0, 0.75]), torch.tensor([1.0, 0.0, 0.25, 1.0])
    table = torch.tensor([[3.0, -2.0], [0.5, 8.0], [-6.0, 1.0]]), torch.eye(3)[:, :2]
    large = torch.tensor([200.0, -200.0, 200.0, -30.0]), torch.tensor([0.0, 1.0, 1.0, 1.0])
    for (logits, targets), dtype in (
        (mild, torch.float16),
        (mild, None),
        (table, None),
        (large, None),
        (large, torch.float16),
        (large, torch.bfloat16),
    ):
        logits = logits.to(dtype or torch.float32).requires_grad_()
        with (
            torch.autocast("cpu", dtype=dtype or torch.float16, enabled=dtype is not None),
            _Banned() as banned,
            _made_from_tensors() as made,
        ):
            got = answer(logits, targets)
        if made:
            judge.no("made-not-called", seen=made[0], expected="a loss, made and then called")
        got = judge.is_a(got, torch.Tensor, "a tensor")
        if banned.called:
            judge.no("refused", seen="binary_cross_entropy under autocast", expected="not that one")
        expected = _exact(logits, targets)
        if got.numel() != 1:
            judge.no("not-one", seen=f"{got.numel()} numbers", expected="their mean")
        rel = 1e-5 if dtype is None else 2e-2
        if not math.isclose(got.item(), expected, rel_tol=rel):
            extreme = logits.abs().max() > 100
            diagnosis = "wrong-formula"
            if extreme:
                diagnosis = "saturates" if math.isfinite(got.item()) else "overflows"
            elif math.isclose(got.item(), expected * logits.numel(), rel_tol=rel):
                diagnosis = "sum"
            elif math.isclose(got.item(), _exact(logits.sigmoid(), targets), rel_tol=rel):
                diagnosis = "sigmoid-twice"
            elif got.dtype != torch.float32 and math.isclose(got.item(), expected, rel_tol=2e-2):
                diagnosis = "rounded"
            judge.no(
                diagnosis,
                seen=f"{got.item():g} for the logits {_listed(logits)}, targets {_listed(targets)}",
                expected=f"{expected:g}",
            )
        if not got.requires_grad:
            judge.no("no-graph", seen=got, expected="a loss that can be differentiated")
        gradient = torch.autograd.grad(got, logits)[0].float()
        right = (logits.detach().float().sigmoid() - targets) / logits.numel()
        if not torch.allclose(gradient, right, atol=2e-3):
            judge.no(
                "gradient",
                seen=f"the gradient {_listed(gradient)} for the logits {_listed(logits)}",
                expected=_listed(right),
            )


def _bce_of_sigmoid(logits, targets):
    return F.binary_cross_entropy(torch.sigmoid(logits), targets)


def _bce_clamped(logits, targets):
    p = torch.sigmoid(logits.float()).clamp(1e-7, 1 - 1e-7)
    return -(targets * p.log() + (1 - targets) * (1 - p).log()).mean()


def _bce_by_hand(logits, targets):
    return (torch.log(1 + torch.exp(logits.float())) - logits * targets).mean()


def _bce_sigmoid_twice(logits, targets):
    return F.binary_cross_entropy_with_logits(torch.sigmoid(logits), targets)


def _bce_in_half(logits, targets):
    return F.binary_cross_entropy_with_logits(logits.half(), targets.half())


def _bce_hard_targets(logits, targets):
    return F.binary_cross_entropy_with_logits(logits, (targets > 0.5).float())


def _bce_made_only(logits, targets):
    return torch.nn.BCEWithLogitsLoss(logits, targets)


def _bce_sum(logits, targets):
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum")


_REFUSED = {
    "own-scaler": "That is not the scaler you were given: a new one knows nothing of the steps before.",
    "reads-scale": "The loss was multiplied by hand. `get_scale()` waits for the device, and the scaler does not "
    "know that the loss is scaled: `scaler.scale` does both without waiting.",
    "zeroed-late": "The gradients were set to zero between the backward pass and the step: nothing was left for it.",
    "scale-off": "The weights are right, the scale is not. The scaler must see every step, one that overflows too.",
    "refused-by-scaler": "The scaler was called in an order that it refuses: scale, backward, step, update. "
    "Where gradients are set to zero after the backward pass, it finds none to look at.",
}


EXERCISES = (
    Exercise(
        id="04.logits_loss",
        title="A loss that survives autocast",
        level=2,
        minutes=6,
        task="""
Write `logits_loss(logits, targets)`: the mean binary cross entropy of a model that ends in a linear layer,
without a sigmoid. Targets go from 0 to 1. It must be allowed under CUDA's autocast, and equal to the
formula for logits of ±200 too, where the sigmoid is 0 or 1 in every format of this lesson.
""",
        hints=(
            "Autocast refuses `nn.BCELoss` because a probability in 16 bits cannot be close to 1. What if the "
            "sigmoid and the logarithm are never apart?",
            "PyTorch has a loss for this. Its name says what it takes: `..._with_logits`.",
        ),
        reference=logits_loss,
        check_answer=_check_logits_loss,
        why="Taken together, the logarithm and the exponential of the sigmoid cancel, so nothing is "
        "rounded to 0 or 1 on the way. That is better in float32 too: confident mistakes keep "
        "their gradient.",
        diagnoses={
            "refused": "`binary_cross_entropy` (the function behind `nn.BCELoss`) was called under autocast. "
            "CUDA refuses it there with an error, though a CPU does not.",
            "saturates": "For large logits the loss stops growing: the sigmoid is exactly 0 or 1 there, and a clamp "
            "or a limited logarithm only hides it. Such examples get no gradient, however wrong they are.",
            "overflows": "For large logits the loss is not finite: an exponential overflowed, or a "
            "logarithm met 0.",
            "sigmoid-twice": "The sigmoid came in twice. A loss that takes logits has its own.",
            "rounded": "The value was rounded to 16 bits, though autocast is off. Leave the dtypes to autocast.",
            "wrong-formula": "For ordinary logits, or targets between 0 and 1, the value is another.",
            "made-not-called": "`nn.BCEWithLogitsLoss` is a class. Make the loss first, then call it with logits "
            "and targets.",
            "sum": "That is the sum over all entries; the task asks for the mean.",
            "not-one": "The losses of all entries came back; the task asks for their mean.",
            "no-graph": "The loss has no graph, so no gradient can come from it.",
            "gradient": "The value is right, but its gradient is not: some step on the way cuts it off.",
        },
        wrong={
            "refused": _bce_of_sigmoid,
            "saturates": _bce_clamped,
            "overflows": _bce_by_hand,
            "sigmoid-twice": _bce_sigmoid_twice,
            "rounded": _bce_in_half,
            "wrong-formula": _bce_hard_targets,
            "made-not-called": _bce_made_only,
            "sum": _bce_sum,
        },
    ),
    Exercise(
        id="04.lost",
        title="What a format throws away",
        level=1,
        minutes=6,
        task="""
Write `lost(gradients, dtype)`: of the entries of the tensor `gradients` that are not zero, which share is
zero after a conversion to `dtype`? Return a number from 0 to 1; where no entry is nonzero, nothing is
lost: 0. A value that is only rounded, or becomes infinite, is not lost.
""",
        hints=(
            "Do not calculate limits: convert, and look at what became zero.",
            "`gradients[gradients != 0]` holds the entries that can be lost. How many of them are `== 0` "
            "after `.to(dtype)`?",
            "Divide by the number of entries that can be lost; `max(..., 1)` keeps you from dividing by 0.",
        ),
        reference=lost,
        check_answer=_check_lost,
        why="Often this understates what float16 costs a deep network: in a backward pass in 16 bits factors "
        "are lost on the way too. No error or warning says so.",
        diagnoses={
            "all-entries": "The share is one of the entries that were not zero: a gradient that is "
            "zero already has nothing to lose.",
            "zero-before": "Entries that were zero before were counted as lost.",
            "subnormals": "`torch.finfo(dtype).tiny` is the smallest number with all its bits. Below it come "
            "smaller ones with fewer bits, the subnormals: they are coarse, but they are not zero.",
            "threshold": "Half of the smallest number and what lies below becomes zero; what lies above "
            "is rounded up. Let the conversion itself decide.",
            "rounded": "A value that changes is rounded, not lost. Count those that become zero.",
            "dtype-ignored": "The answer is that for float16, whatever format is asked for.",
            "per-cent": "That is in per cent. The task asks for a number from 0 to 1.",
            "nothing-to-lose": "Where no entry is nonzero you divided 0 by 0. Nothing is lost there.",
        },
        wrong={
            "all-entries": _lost_of_all,
            "zero-before": _lost_zeros,
            "subnormals": _lost_below_tiny,
            "threshold": _lost_below_smallest,
            "rounded": _lost_changed,
            "dtype-ignored": _lost_in_half,
            "per-cent": _lost_per_cent,
            "nothing-to-lose": _lost_without_care,
        },
    ),
    Exercise(
        id="04.amp_step",
        title="One mixed-precision step, on any device",
        level=2,
        minutes=10,
        task="""
Write `amp_step(model, x, y, loss_fn, optimizer, scaler, dtype)`: one training step in mixed precision
with `dtype` (float16 or bfloat16), on whatever device `x` is. `scaler` is a `GradScaler`; it is disabled
where none is needed, and the same lines must serve. Return the loss, unscaled, without its graph, and
without waiting for it. Gradients of an earlier step may still be there.
""",
        hints=(
            "What runs under autocast? The forward pass and the loss, no more. Which device? `x` knows.",
            "A scaler takes part three times: it scales the loss, it makes the optimiser step, and it "
            "updates itself.",
            "`scaler.scale(loss).backward()`, `scaler.step(optimizer)`, `scaler.update()`; old gradients "
            "go first. `loss.detach()` comes back.",
        ),
        reference=amp_step,
        check_answer=_check_amp_step,
        why="No `if` is needed for the device, and none for the format: a disabled scaler passes "
        "everything through. The weights stay in float32; autocast makes 16-bit copies where they help.",
        diagnoses={
            "half-model": "The weights themselves are now in 16 bits: small updates vanish when they are added. "
            "With autocast the model stays in float32.",
            "named-device": "Autocast was asked for one device by name, and the data is on another: there it "
            "does nothing at all. Ask the data where it is.",
            "no-autocast": "The layers did not compute in the dtype that was asked for.",
            "loss-outside": "The loss was computed after autocast had ended, in the 16-bit dtype of the "
            "outputs. Under autocast it is computed in float32.",
            "backward-inside": "`backward()` ran under autocast. It uses the dtypes of the forward pass by "
            "itself; PyTorch advises against autocast around it.",
            "step-bypassed": "`optimizer.step()` used gradients that are still scaled, and it steps even when "
            "they overflowed. The scaler has its own way to make the step.",
            "not-scaled": "The loss was not scaled before the backward pass, but its gradients were "
            "unscaled for the step.",
            "no-update": "The scaler was never told that the step is over: its scale can neither fall nor grow.",
            "piles-up": "The gradient of the step before is still in this one: it must go before `backward()`.",
            "weights": "The weights are not those of a right step.",
            **_REFUSED,
            "waits": "Reading a tensor (`.item()`, `float()`, `if`), moving it to the CPU, `get_scale()` and "
            "`synchronize()` wait for the device. Return the loss as it is, a tensor where it was made.",
            "keeps-graph": "The loss still holds its graph. Whoever collects losses in a list keeps every "
            "activation of every step.",
            "scaled-loss": "That is not the loss: it looks multiplied by the scale. Keep the loss itself.",
        },
        wrong={
            "half-model": _amp_half_model,
            "named-device": _amp_for_cuda,
            "loss-outside": _amp_loss_outside,
            "backward-inside": _amp_backward_inside,
            "step-bypassed": _amp_bare_step,
            "not-scaled": _amp_without_scaler,
            "own-scaler": _amp_own_scaler,
            "reads-scale": _amp_scales_by_hand,
            "zeroed-late": _amp_zeroes_late,
            "scale-off": _amp_leaves_out,
            "no-update": _amp_without_update,
            "piles-up": _amp_without_zero,
            "waits": _amp_item,
            "keeps-graph": _amp_keeps_graph,
            "scaled-loss": _amp_scaled_loss,
        },
    ),
    Exercise(
        id="04.follow_scale",
        title="Be the scaler",
        level=2,
        minutes=8,
        task="""
Write `follow_scale(overflows, init_scale, growth_interval)`: the list of a scaler's scales, one after
each step. `overflows` says for each step whether its gradients overflowed. After an overflow the scale is
halved; after `growth_interval` good steps **in a row** it is doubled, and the count starts again.
""",
        hints=(
            "Two things are remembered from step to step: the scale, and the number of good steps in a row.",
            "Both events, an overflow and a doubling, set the count to 0.",
        ),
        reference=follow_scale,
        check_answer=_check_follow_scale,
        why="A scaler comes down fast, one halving a step, and climbs slowly: by default it waits for 2000 good "
        "steps before each doubling. A scale that only falls is a sign of values that are not finite at any scale.",
        diagnoses={
            "not-reset": "An overflow must set the count of good steps back to 0: they have to be in a row.",
            "by-number": "The scale grew at every multiple of the interval. Count good steps in a row, not "
            "steps.",
            "grows-on": "After a doubling the count starts again. Here the scale went on doubling with each step.",
            "before-the-step": "These are the scales that the steps were made with. The list is to "
            "hold the scale after each step.",
            "one-late": "The doubling comes with the last of `growth_interval` good steps, not one "
            "step later.",
            "back-to-start": "An overflow halves the present scale. It does not bring back the first one.",
            "floor": "A scale has no lower limit: below 1 it is halved too.",
            "one-per-step": "There must be one scale for each step.",
            "wrong-scales": "The scales are others.",
        },
        wrong={
            "not-reset": _scale_not_reset,
            "by-number": _scale_by_number,
            "grows-on": _scale_grows_on,
            "before-the-step": _scale_before,
            "one-late": _scale_one_late,
            "back-to-start": _scale_back_to_start,
            "floor": _scale_with_floor,
        },
    ),
    Exercise(
        id="04.clipped_step",
        title="Clip the true gradient",
        level=2,
        minutes=8,
        task="""
Write `clipped_step(loss, model, optimizer, scaler, max_norm)`: from a loss that is not scaled yet, make
the backward pass and one optimiser step with the gradients clipped to the norm `max_norm`. Return the norm
of the true gradients, before clipping. Where gradients overflow, the step must be left out as ever.
Gradients of an earlier step may still be there.
""",
        hints=(
            "After the backward pass the gradients are the true ones times the scale. What does a limit of 1 "
            "mean to them?",
            "`scaler.unscale_(optimizer)` divides the gradients by the scale, in place and once. "
            "`scaler.step` then knows that it is done.",
            "Zero, scale and backward, unscale, `torch.nn.utils.clip_grad_norm_` (it returns the norm it "
            "found), step, update.",
        ),
        reference=clipped_step,
        check_answer=_check_clipped_step,
        why="Clipped while they are scaled, nearly all gradients are above the limit and come out tens of "
        "thousands of times too small. The loss goes down slowly and nothing looks broken.",
        diagnoses={
            "clips-scaled": "The gradients were clipped while they were still multiplied by the scale.",
            "unscale-late": "The gradients were unscaled only after the clipping: the limit was held "
            "against scaled ones.",
            "never-clips": "A large gradient made the step in its full length.",
            "divided-twice": "The gradients were divided twice: `scaler.step` does not know that it is done. Use "
            "`scaler.unscale_`.",
            "step-bypassed": "`optimizer.step()` also steps when the gradients overflowed. Leave the step "
            "to the scaler.",
            "not-scaled": "The backward pass went without the scale, and then the gradients were unscaled.",
            "no-update": "The scaler was never told that the step is over: its scale can neither fall nor grow.",
            "piles-up": "The gradient of the step before is still in this one: it must go before `backward()`.",
            "weights": "The weights are not those of a right step.",
            **_REFUSED,
            "scaled-norm": "That is the norm of the scaled gradients. With each change of the scale it "
            "would jump.",
            "norm-after": "That is the norm after clipping: it can never be above the limit, so it tells "
            "nothing.",
            "wrong-norm": "That is not the norm of all gradients together.",
        },
        wrong={
            "clips-scaled": _clip_scaled,
            "unscale-late": _clip_then_unscale,
            "never-clips": _never_clip,
            "divided-twice": _clip_divided_twice,
            "step-bypassed": _clip_bare_step,
            "no-update": _clip_without_update,
            "piles-up": _clip_without_zero,
            "scaled-norm": _clip_norm_of_scaled,
            "norm-after": _clip_norm_after,
        },
    ),
    Exercise(
        id="04.accumulate",
        title="Accumulation under a scaler",
        level=3,
        minutes=12,
        task="""
Accumulation adds up gradients that must all have the same scale. So unscaling, clipping, `step` and
`update` come once, after the last micro-batch (one of the small pieces of a large batch, as in lesson 03).
Write `accumulate(model, batches, loss_fn, optimizer, scaler, dtype)`: **one** mixed-precision optimiser
step for a list of `(x, y)` micro-batches of unequal size, the same as for the one large batch they make.
`loss_fn` returns the mean over a micro-batch. Only one micro-batch's graph may exist at a time. If one of
them overflows, none counts. Gradients of an earlier step may still be there.
""",
        hints=(
            "Lesson 03's rule holds: a mean over everything weights each micro-batch by its size.",
            "All gradients that are added up must have the same scale. So when may the scale change?",
            "Zero once. For each: forward under autocast, the loss times `len(y)` over the count of all, "
            "scaled backward. Then one `scaler.step` and one `scaler.update`.",
        ),
        reference=accumulate,
        check_answer=_check_accumulate,
        why="The scale belongs to a step, not to a batch. `update()` alone between two micro-batches is refused "
        "with an error. After a `step` or `unscale_` it is accepted, and can change the scale under the sum.",
        diagnoses={
            "by-batches": "Each micro-batch got the same weight, though they are not of one size.",
            "sum-of-means": "The means of the micro-batches were added up: the step is as many times too "
            "large as there are micro-batches.",
            "last-only": "The gradients were set to zero between two micro-batches: only the last one counted.",
            "steps": "There must be one optimiser step for the whole list.",
            "updates": "The scaler was updated more than once for one step. Its scale must stay the same while "
            "gradients add up.",
            "large-batch": "The large batch itself went through the model. It is the one that does not fit.",
            "left-out": "One micro-batch was left out of the sum. Run backward for it too; the scaler then skips "
            "the whole step.",
            "one-backward": "Several forward passes came before a backward pass: until then all their graphs "
            "are in memory, which is what accumulation is to avoid.",
            "overflow-kept": "One micro-batch overflowed, and the optimiser stepped all the same. Leave `inf` and "
            "`nan` in the gradients: by them the scaler sees that it has to skip.",
            "half-model": "The weights themselves are now in 16 bits. With autocast the model stays in float32.",
            "named-device": "Autocast was asked for one device by name, and the data is on another: there it "
            "does nothing at all. Ask the data where it is.",
            "no-autocast": "The layers did not compute in the dtype that was asked for.",
            "loss-outside": "The loss was computed after autocast had ended, in 16 bits.",
            "backward-inside": "`backward()` ran under autocast. Only the forward pass and the loss belong "
            "there.",
            "step-bypassed": "`optimizer.step()` used gradients that are still scaled. Leave the step to the "
            "scaler.",
            "not-scaled": "The losses were not scaled before the backward pass.",
            "no-update": "The scaler was never told that the step is over.",
            "piles-up": "The gradient of the step before is still in this one: it must go before `backward()`.",
            "weights": "The weights are not those of a step on the large batch.",
            **_REFUSED,
        },
        wrong={
            "by-batches": _accumulate_by_batches,
            "sum-of-means": _accumulate_undivided,
            "last-only": _accumulate_zero_inside,
            "steps": _accumulate_step_each,
            "updates": _accumulate_update_each,
            "large-batch": _accumulate_joined,
            "one-backward": _accumulate_one_backward,
            "left-out": _accumulate_finite,
            "overflow-kept": _accumulate_mended,
            "backward-inside": _accumulate_backward_inside,
            "piles-up": _accumulate_without_zero,
        },
    ),
    Exercise(
        id="04.checkpoint",
        title="The scaler has a memory too",
        level=1,
        minutes=5,
        task="""
Write `checkpoint(model, optimizer, scaler)`: a dict with the keys `"model"`, `"optimizer"` and
`"scaler"` from which training goes on as if nothing had happened: the same weights and the same scales,
step by step. It must load with `weights_only=True`, and serve where the scaler is disabled too.
""",
        hints=(
            "Besides its scale, what does a scaler need to remember to know when to double it?",
            "Model, optimiser and scaler have a method of the same name that returns their state.",
        ),
        reference=checkpoint,
        check_answer=_check_checkpoint,
        why="A new scaler starts at 65536 and has to come down again, with a skipped step for every halving. "
        "Where the old scale had grown, small gradients get lost until the new one has grown too.",
        diagnoses={
            "no-scaler": "The scaler is missing: after a restart it begins at its first scale.",
            "scale-only": "The scale alone is not the scaler's state: the count of good steps since the last "
            "change is lost, and the next doubling comes late.",
            "none-for-disabled": "A disabled scaler has a `state_dict()` too: `{}`. It needs no case of its own.",
            "not-plain": "The checkpoint holds whole objects. Keep their state: tensors, numbers, strings, and "
            "containers of them.",
            "half": "The weights were saved in 16 bits. The float32 weights hold what many small updates "
            "added up to, and that is lost.",
            "optimizer": "The optimiser does not come back: its momentum starts from nothing.",
            "model": "The model does not come back whole. Besides parameters it has buffers, such as BatchNorm's "
            "running statistics.",
            "scaler": "The scaler does not come back.",
            "weights": "After the restart, training takes another way.",
            "other-keys": "Use just the keys the task names.",
        },
        wrong={
            "no-scaler": _checkpoint_without_scaler,
            "scale-only": _checkpoint_scale_only,
            "none-for-disabled": _checkpoint_none,
            "not-plain": _checkpoint_whole_scaler,
            "model": _checkpoint_of_parameters,
            "half": _checkpoint_half,
            "optimizer": _checkpoint_without_optimizer,
        },
    ),
    Exercise(
        id="04.choose_precision",
        title="A format for each machine",
        level=1,
        minutes=6,
        task="""
Write `choose_precision(can)`: the pair `(dtype, use_scaler)` for a device, where `can` is what
`abilities(device)` returns: look at `can.bf16` and `can.device.type`. With units for bfloat16: bfloat16.
An accelerator without them (any kind, not only CUDA): float16. A CPU without them gains nothing from
16 bits: float32. `use_scaler` is True exactly where the format's range needs it.
""",
        hints=(
            '`can.bf16` is True only where the hardware has units for it. `can.device.type` is `"cpu"` '
            "or the name of an accelerator.",
            "Which of the three formats has a smaller range than float32? Only that one needs a scaler.",
        ),
        reference=choose_precision,
        check_answer=_check_choose_precision,
        why="One choice at the top of a script, and the same training step runs on a T4, an A100, a Mac "
        "and a CPU. `torch.cuda.is_bf16_supported()` says yes on a T4 too, where bfloat16 is emulated and slow.",
        diagnoses={
            "asks-the-machine": "`torch.cuda.is_bf16_supported()` asks about the current CUDA device and "
            "counts emulation. The device in question is described by `can`.",
            "scaler-with-bf16": "bfloat16 has the exponent of float32: its gradients do not vanish, and a "
            "scaler has nothing to do.",
            "no-scaler": "float16 without a scaler: small gradients become zero and are gone.",
            "no-units": "This device has no units for bfloat16.",
            "bf16-missed": "This device has units for bfloat16. Ask what it can do, not what it is called: a "
            'capability is no text to compare either, because as texts "10.0" comes before "8.0".',
            "cpu-float16": "A CPU has no float16 units that help here: this device is better off in float32. "
            "(If you did ask for a CPU: `can.device` is no text, and is never equal to one. Its type is.)",
            "device-as-text": "This card computes in float16. `can.device` is no text, and is never equal to one: "
            "its type is.",
            "accelerator-left-out": "This is an accelerator too, if not a CUDA one: it can compute in float16.",
            "not-a-pair": "The answer must be a pair of a `torch.dtype` and a `bool`.",
            "wrong-choice": "That is not the pair the task asks for here.",
        },
        wrong={
            "asks-the-machine": _choose_by_library,
            "scaler-with-bf16": _choose_scaler_always,
            "no-scaler": _choose_scaler_never,
            "no-units": _choose_bf16_everywhere,
            "bf16-missed": _choose_by_capability,
            "accelerator-left-out": _choose_for_cuda,
            "cpu-float16": _choose_float16,
            "device-as-text": _choose_by_text,
        },
    ),
)
