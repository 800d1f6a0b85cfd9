"""LSTM, GRU and simple RNN over a whole sequence, as cuDNN computes them: one operator forward, one backward.

The values are the CPU's, of PyTorch's own operator on the payloads (16 bits are computed in float32 and
rounded). Time and memory are a model, and nothing in it was fitted to a measured RNN:

- Each layer and direction takes one matrix product for the inputs of all steps. Then each step takes one
  product with the recurrent weights and one elementwise kernel, one step after another. A backward pass takes
  the same steps, and products for the gradients of the inputs and of both weights.
- Layers and directions follow each other. cuDNN overlaps some of them, and keeps weights in a processor's
  registers where they fit, so real cards may well be faster.
- The host pays for one library call. It counts as one launch, though cuDNN itself launches several kernels.
- Training keeps a *reserve*: for each step and layer the gates, the cell and the output. cuDNN's own size is
  not published.

As on CUDA, a backward pass needs training mode, and there is no second derivative.
``torch.backends.cudnn.flags(enabled=False)`` composes the network of single operators instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import latency
from .cost import UNITS, Work, conv_tf32
from .machine import MACHINE, Device, Memory
from .products import Gemm
from .tensor import SPECIAL, SimTensor, decompose, device_rng, nbytes, wrap

aten = torch.ops.aten

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_KEPT = {"lstm": 6, "gru": 5, "rnn_tanh": 2, "rnn_relu": 2}
"""Numbers of the hidden size that the reserve holds for each step: gates, cell or candidate, and output."""

_LOW = (torch.float16, torch.bfloat16)


class _Call(NamedTuple):
    """One call of a recurrent operator: its tensors are apart, so that autograd sees them."""

    op: Any
    kind: str  # a key of `_GATES`
    states: int  # the number of initial states: 2 for an LSTM, else 1
    batch_sizes: Tensor | None  # of a packed sequence
    rest: tuple[Any, ...]  # has_biases, num_layers, dropout, train, bidirectional, batch_first

    def run(self, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        """Return the operator's result on CPU tensors."""
        x, *more = tensors
        states, weights = more[: self.states], more[self.states :]
        packed = () if self.batch_sizes is None else (self.batch_sizes,)
        return self.op(x, *packed, states if self.kind == "lstm" else states[0], weights, *self.rest)

    @property
    def train(self) -> bool:
        """Whether the network is in training mode."""
        return self.rest[3]

    @property
    def is_random(self) -> bool:
        """Whether it drops values between layers."""
        return self.train and self.rest[2] > 0 and self.rest[1] > 1

    def steps(self, x: Tensor) -> tuple[int, int]:
        """Return the number of steps, and the rows of all steps together."""
        if self.batch_sizes is not None:
            return len(self.batch_sizes), x.shape[0]
        batch_first = self.rest[5]
        return x.shape[1 if batch_first else 0], x.shape[0] * x.shape[1]


def register(library: Any) -> list[Callable[..., Any]]:
    """Register the kernels for the simulated device, and return them; ``library`` is that of aten."""
    kernels = []
    for kind in _GATES:
        for overload in ("input", "data"):
            op = getattr(getattr(aten, kind), overload)
            kernel = _kernel(op, kind, overload == "data")
            kernels.append(kernel)
            library.impl(op, kernel, "AutogradPrivateUse1")
            SPECIAL[op] = lambda op, args, kwargs, call=kernel: call(*args, **kwargs)
    return kernels


def _kernel(op: Any, kind: str, packed: bool) -> Callable[..., Any]:
    """Return the kernel of a recurrent operator."""

    def kernel(x: Tensor, *args: Any) -> tuple[Tensor, ...]:
        batch_sizes, *others = args if packed else (None, *args)
        hx, weights, *rest = others
        states = list(hx) if kind == "lstm" else [hx]
        tensors = [x, *states, *weights]
        if not _is_cudnns(tensors, len(states)):
            return decompose(op, (x, *args), {})
        call = _Call(op, kind, len(states), batch_sizes, tuple(rest))
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return _Sequence.apply(call, *tensors)
        return _forward(call, tensors, [t._payload.detach() for t in tensors])[0]

    return kernel


def _is_cudnns(tensors: list[Tensor], states: int) -> bool:
    """Return whether cuDNN takes these tensors: one device, one floating-point dtype, cuDNN enabled.

    A projection (an LSTM's ``proj_size``), tensors of functorch and tensors without rows go the ordinary way,
    and so do wrong sizes, for its errors.
    """
    x = tensors[0]
    if not torch.backends.cudnn.enabled or not all(isinstance(t, SimTensor) for t in tensors):
        return False
    device = x._memory.device
    same = all(t._memory.device is device and t.dtype is x.dtype for t in tensors)
    projects = states == 2 and tensors[1].shape[-1] != tensors[2].shape[-1]
    return same and x.is_floating_point() and x.numel() > 0 and not projects


class _Sequence(torch.autograd.Function):
    """The autograd node of a whole sequence."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: SimTensor) -> tuple[Tensor, ...]:
        """Compute the sequence; see `_forward`."""
        plain = [
            t._payload.detach().requires_grad_(needed)
            for t, needed in zip(tensors, ctx.needs_input_grad[1:], strict=True)
        ]
        results, ctx.outs = _forward(call, list(tensors), plain)
        device = tensors[0]._memory.device
        size = _reserve_bytes(call, tensors[0], tensors[1])
        reserve = wrap(torch.empty(0, dtype=torch.uint8), Memory(device, size))
        ctx.call, ctx.plain = call, plain
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, results[0], reserve)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: SimTensor | None) -> tuple[Any, ...]:
        """Return the gradients of the tensors."""
        tensors = ctx.saved_tensors[: len(ctx.plain)]  # raises if the graph has been freed
        if not ctx.call.train:
            raise RuntimeError("cudnn RNN backward can only be called in training mode")
        device = tensors[0]._memory.device
        plain, wanted = ctx.plain, [p for p in ctx.plain if p.requires_grad]
        pairs = [(out, g) for out, g in zip(ctx.outs, grads, strict=True) if g is not None]
        if not pairs:
            return (None,) * (len(plain) + 1)
        if wanted[0].is_meta:
            found = [torch.empty_like(p) for p in wanted]
        else:
            with torch.enable_grad():
                found = torch.autograd.grad(
                    [out for out, _ in pairs],
                    wanted,
                    [g._payload.to(out.dtype) for out, g in pairs],
                    retain_graph=True,  # this graph lives as long as its node
                    allow_unused=True,
                )
        got = iter(found)
        result: list[Any] = [next(got) if p.requires_grad else None for p in plain]
        result = [g if g is None else wrap(g.detach(), Memory(device, nbytes(g))) for g in result]
        _charge(ctx.call, device, [*tensors, *[g for _, g in pairs]], result, backward=True)
        if torch.is_grad_enabled():
            numbers = [i for i, g in enumerate(result) if g is not None]
            once = torch._C._functions.DelayedError(_ONCE, len(numbers))
            marked = once(*[result[i].requires_grad_() for i in numbers])
            for i, g in zip(numbers, marked if isinstance(marked, tuple) else (marked,), strict=True):
                result[i] = g
        return (None, *result)


_ONCE = (
    "the derivative for '_cudnn_rnn_backward' is not implemented. Double backwards is not supported for "
    "CuDNN RNNs due to limitations in the CuDNN API. To run double backwards, please disable the CuDNN "
    "backend temporarily while running the forward pass of your RNN. For example: \n"
    "with torch.backends.cudnn.flags(enabled=False):\n    output = model(inputs)"
)


def _forward(
    call: _Call, tensors: list[SimTensor], plain: list[Tensor]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Compute a sequence on CPU tensors, charge it, and return SimTensors and the graph's CPU tensors."""
    device = MACHINE.device(tensors[0]._memory.device.index)
    dtype = tensors[0].dtype
    if any(p.is_meta for p in plain):
        outs = _shapes(call, plain)
    else:
        rng = device_rng(device) if call.is_random else contextlib.nullcontext()
        with torch.set_grad_enabled(any(p.requires_grad for p in plain)), rng:
            outs = call.run([p.float() if dtype in _LOW else p for p in plain])
    lower = [out.detach().to(dtype) for out in outs]
    results = tuple(wrap(out, Memory(device, nbytes(out))) for out in lower)
    _charge(call, device, tensors, results)
    return results, outs


def _shapes(call: _Call, plain: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the results on ``meta``, without data."""
    x, *states = plain[: 1 + call.states]
    width = states[0].shape[-1] * (2 if call.rest[4] else 1)
    outs = [x, *states]
    shapes = [(*x.shape[:-1], width), *(s.shape for s in states)]
    return tuple(t.new_empty(shape, device="meta") for t, shape in zip(outs, shapes, strict=True))


def _reserve_bytes(call: _Call, x: Tensor, state: Tensor) -> int:
    """Return the bytes that training keeps beside the tensors, as modelled."""
    _, rows = call.steps(x)
    layers = call.rest[1] * (2 if call.rest[4] else 1)
    return rows * layers * _KEPT[call.kind] * state.shape[-1] * x.element_size()


def _charge(
    call: _Call, device: Device, tensors: list[SimTensor], results: Any, backward: bool = False
) -> None:
    """Charge a sequence to the device's clock and the counters; its errors do not stop the operation."""
    try:
        unit = UNITS.get(tensors[0].dtype, "fp32")
        unit = "tf32" if unit == "fp32" and conv_tf32() else unit
        parts = list(_parts(call, tensors, unit, backward))
        floor = device.profile.kernel_floor
        seconds = floor + sum(latency.seconds(part, device.profile) * count for part, count in parts)
        clock = device.clock
        reads = [id(t._memory) for t in tensors] if clock.has_multiple_streams else []
        writes = [id(t._memory) for t in results if t is not None] if clock.has_multiple_streams else []
        dispatch = clock.costs.library
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            dispatch += clock.costs.record
        moved = sum(part.bytes * count for part, count in parts)
        flops = sum(part.flops * count for part, count in parts)
        name = "_cudnn_rnn_backward" if backward else "_cudnn_rnn"
        span = clock.launch(name, seconds, device.stream, reads, writes, moved, flops, dispatch)
        for counters in MACHINE.counting:
            counters.launches += 1
            counters.races += span.race
        if MACHINE.arrivals:
            MACHINE.run_arrivals()
    except Exception:  # noqa: BLE001  (an error of the accounting must not fail the operation)
        MACHINE.count_unmodelled()


def _parts(call: _Call, tensors: list[SimTensor], unit: str, backward: bool) -> Iterator[tuple[Work, int]]:
    """Yield the kernels of a sequence, each with how often it runs."""
    x, state = tensors[0], tensors[1]
    steps, rows = call.steps(x)
    size, gates, hidden = x.element_size(), _GATES[call.kind], state.shape[-1]
    directions = 2 if call.rest[4] else 1
    width, batch = gates * hidden, -(-rows // steps)
    plain_unit = "fp64" if unit == "fp64" else "fp32"
    cell = Work(batch * width, size * batch * hidden * (2 * gates + 3), plain_unit)
    for layer in range(call.rest[1]):
        inputs = x.shape[-1] if layer == 0 else hidden * directions
        if backward:
            large = [(rows, inputs, width), (width, inputs, rows), (width, hidden, rows)]
            step = (batch, hidden, width)
        else:
            large, step = [(rows, width, inputs)], (batch, width, hidden)
        for sizes in large:
            yield _product(*sizes, size, unit), directions
        yield _product(*step, size, unit), directions * steps
        yield cell, directions * steps


def _product(rows: int, columns: int, depth: int, size: int, unit: str) -> Work:
    """Return the work of a matrix product whose elements have ``size`` bytes."""
    moved = size * (rows * depth + depth * columns + rows * columns)
    return Work(2 * rows * columns * depth, moved, unit, "product", (Gemm(1, rows, columns, depth),))
