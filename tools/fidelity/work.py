"""Types that describe what a row measured, for the simulated device to model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import torch


class Calls(NamedTuple):
    """A call of an operator: a name in ``operators.CALLS`` and its sizes.

    ``looped`` means that calls were issued one after the other, so that launches overlap with kernels.
    """

    name: str
    sizes: tuple[int, ...]
    dtype: str
    tf32: bool = False
    looped: bool = False


class Copy(NamedTuple):
    """A copy between host and device: ``direction`` is "h2d" or "d2h", ``pinned`` is of the host's memory."""

    direction: str
    bytes: int
    pinned: bool = True


class Collective(NamedTuple):
    """A collective (``all_reduce``, ``send_recv``, …) of ``bytes`` per rank on ``ranks`` of one machine."""

    name: str
    bytes: int
    ranks: int


class Step(NamedTuple):
    """One step of inference or training of a network.

    Attributes
    ----------
    network, batch, size
        A key of ``networks.NETWORKS``; the number of samples; pixels per side, or tokens.
    precision
        ``"fp32"``, ``"tf32"``; ``"amp"`` and ``"amp_bf16"`` for autocast; ``"fp16"`` and ``"bf16"`` for
        weights of that dtype. With ``"fp32"`` convolutions may use TF32 and products may not, as in
        PyTorch; with ``"strict"`` neither may.
    mode
        ``"infer"``, or a key of ``stepping.OPTIMIZERS``, or ``"backward"`` for no optimiser.
    channels_last, scaled, traced
        Whether images are in channels_last, a GradScaler is used, and TorchScript runs it without Python.
    clear
        When gradients are cleared: ``"before"`` the forward pass, ``"between"`` it and the backward pass,
        or ``"never"``.
    loss
        ``"likely"`` for cross entropy, or ``"sum"`` for the sum of the scores.
    kept
        Whether the scores are held until the next pass has its own, as by ``out = model(x)`` in a loop.
    options
        Further keyword arguments for the network, as pairs of name and value.
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
    """What a row measured, as the model needs it.

    Attributes
    ----------
    kind, workload
        The kind of work, such as ``"product"`` or ``"network: training"``, and what to model.
    host
        Whether the time includes the host's work: one eager call on an idle device.
    amount
        See `table.measured`.
    meter
        For memory, which peak was measured: ``"bytes"`` allocated, or ``"reserved"``.
    """

    kind: str
    workload: Calls | Copy | Collective | Step
    host: bool = False
    amount: float = 1.0
    meter: str = "bytes"


@contextlib.contextmanager
def tf32_allowed(matmul: bool, conv: bool) -> Iterator[None]:
    """Within the context, allow or forbid TF32 in matrix products and convolutions; restore the settings.

    They are the process's: ``fp32_precision`` where PyTorch has it for convolutions, else ``allow_tf32``.
    """
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
