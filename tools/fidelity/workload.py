"""What a row measured, in terms that the simulated device can run or cost."""

from __future__ import annotations

from typing import NamedTuple


class Uninterpretable(Exception):
    """A row that cannot be modelled; its text ends the sentence "not modelled, because …"."""


class Calls(NamedTuple):
    """One call of an operator on a tensor, or of the few that PyTorch makes of it.

    Attributes
    ----------
    name
        A key of ``calls.CALLS``.
    sizes
        What that function takes.
    dtype
        ``"float32"``, ``"float16"``, ...
    tf32
        Whether float32 products may run on tensor cores.
    launched_in_a_row
        Whether the same small kernel was launched again and again, so that a launch hides behind the
        kernel before it, or the kernel behind the launch.
    """

    name: str
    sizes: tuple[int, ...]
    dtype: str
    tf32: bool = False
    launched_in_a_row: bool = False


class Copy(NamedTuple):
    """A copy: ``direction`` as the clock names it, ``bytes``, and whether the host's side is pinned."""

    direction: str
    bytes: int
    pinned: bool = True


class Collective(NamedTuple):
    """``name`` (``all_reduce`` or ``send_recv``) of ``bytes`` a rank among ``ranks`` of one machine."""

    name: str
    bytes: int
    ranks: int


class Step(NamedTuple):
    """One step of a network: of inference or of training.

    Attributes
    ----------
    network
        A key of ``networks.NETWORKS``.
    batch, size
        How many samples, and how large one is: pixels a side, or tokens.
    precision
        ``"fp32"``, ``"tf32"``; ``"amp"`` and ``"amp_bf16"`` for autocast; ``"fp16"`` and ``"bf16"`` for
        weights of that dtype. With ``"fp32"`` convolutions may use TF32 and products may not, as in
        PyTorch; with ``"strict"`` neither may.
    mode
        ``"infer"``, or how it is trained: a key of ``stepping.OPTIMIZERS``, or ``"backward"``.
    channels_last
        Whether images and weights have their channels innermost.
    scaled
        Whether the loss is scaled, as with autocast to float16.
    clear
        When the gradients of the last step are dropped: ``"before"`` the forward pass, ``"between"`` it
        and the backward pass, or ``"never"``, where they add up.
    loss
        What is trained on: ``"likely"``, the cross entropy of the scores, or ``"sum"``, their sum.
    kept
        Whether the scores of one pass are held until those of the next are there, as ``out = model(x)``
        does in a loop.
    traced
        Whether TorchScript runs it, so that the host runs no Python.
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


Workload = Calls | Copy | Collective | Step


class Interpretation(NamedTuple):
    """A row, understood.

    Attributes
    ----------
    kind
        Of work: ``"product"``, ``"elementwise"``, ``"network"``, ...
    workload
        What to model.
    host
        Whether the host's work on the call is in what was measured: one eager call on an idle device,
        rather than the kernel alone.
    amount
        See `units.measured`.
    meter
        Of memory, which peak was measured: ``"bytes"``, allocated, or ``"reserved"``.
    """

    kind: str
    workload: Workload
    host: bool = False
    amount: float = 1.0
    meter: str = "bytes"
