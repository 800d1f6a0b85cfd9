"""What a row measured, in terms that the simulated device can run or cost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import torch


class Calls(NamedTuple):
    """One call of an operator, by a name and sizes of ``operators.CALLS``.

    ``looped`` says that it was called again and again, so that a launch hides behind the kernel before it.
    """

    name: str
    sizes: tuple[int, ...]
    dtype: str
    tf32: bool = False
    looped: bool = False


class Copy(NamedTuple):
    """A copy: ``direction`` as the clock names it, ``bytes``, and whether the host's side is pinned."""

    direction: str
    bytes: int
    pinned: bool = True


class Collective(NamedTuple):
    """``name`` (``all_reduce``, ``send_recv``, ...) of ``bytes`` a rank among ``ranks`` of one machine."""

    name: str
    bytes: int
    ranks: int


class Step(NamedTuple):
    """One step of a network: of inference or of training.

    Attributes
    ----------
    network, batch, size
        A key of ``networks.NETWORKS``; how many samples; pixels a side, or tokens.
    precision
        ``"fp32"``, ``"tf32"``; ``"amp"`` and ``"amp_bf16"`` for autocast; ``"fp16"`` and ``"bf16"`` for
        weights of that dtype. With ``"fp32"`` convolutions may use TF32 and products may not, as in
        PyTorch; with ``"strict"`` neither may.
    mode
        ``"infer"``, or how it is trained: a key of ``stepping.OPTIMIZERS``, or ``"backward"``.
    channels_last, scaled, traced
        Whether images have their channels innermost, the loss is scaled, TorchScript runs it without Python.
    clear
        When the last step's gradients are dropped: ``"before"`` the forward pass, ``"between"`` it and the
        backward pass, or ``"never"``.
    loss
        ``"likely"``, the cross entropy of the scores, or ``"sum"``, their sum.
    kept
        Whether one pass's scores are held until the next are there, as ``out = model(x)`` does in a loop.
    options
        What else its maker in ``networks`` takes: names and values.
    """

    network: str
    batch: int
    size: int
    precision: str
    mode: str = "infer"
    channels_last: bool = False
    scaled: bool = False
    clear: str = "before"
    loss: str = "likely"
    kept: bool = False
    traced: bool = False
    options: tuple[tuple[str, object], ...] = ()


class Reading(NamedTuple):
    """A row, understood.

    Attributes
    ----------
    kind, workload
        Of work, such as ``"product"`` or ``"network: training"``, and what to model.
    host
        Whether the host's work on the call is in what was measured: one eager call on an idle device.
    amount
        See `table.measured`.
    meter
        Of memory, which peak was measured: ``"bytes"``, allocated, or ``"reserved"``.
    """

    kind: str
    workload: Calls | Copy | Collective | Step
    host: bool = False
    amount: float = 1.0
    meter: str = "bytes"


@contextlib.contextmanager
def tf32_allowed(matmul: bool, conv: bool) -> Iterator[None]:
    """Allow TF32 in products and in convolutions, or forbid it, and put the settings back."""
    new = hasattr(torch.backends.cudnn, "conv")  # the settings that newer releases keep
    name, values = ("fp32_precision", ("ieee", "tf32")) if new else ("allow_tf32", (False, True))
    modules = torch.backends.cuda.matmul, torch.backends.cudnn.conv if new else torch.backends.cudnn
    before = [getattr(module, name) for module in modules]
    for module, allowed in zip(modules, (matmul, conv), strict=True):
        setattr(module, name, values[allowed])
    try:
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            setattr(module, name, value)
