"""The profiles of the GPUs that can be simulated: their figures, each with its source.

``profiles.json`` holds the figures and their sources; this module only reads it. All
figures are in SI units: bytes, seconds, floating-point operations a second, hertz, watts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_FILE = Path(__file__).with_name("profiles.json")
_SPREAD = Path(__file__).with_name("spread.json")


@dataclass(frozen=True)
class Shared:
    """The figures of the model of `latency` that all cards share, each with its source."""

    tile_half_tensor: float  # as `Profile.tile_half`, of tensor cores
    # Steps of depth (k) that the prologue and epilogue of a tile, or of a Winograd block, cost.
    prologue_epilogue_k_simt: float
    prologue_epilogue_k_tensor: float
    prologue_epilogue_k_winograd: float
    resident: float  # elements of the result that a processor must compute at a time to be fully used
    # Seconds that reducing the parts of a split depth (split-k) costs beside their bytes.
    split_k_simt: float
    split_k_tensor: float
    cache_gain: float  # by how much faster a tensor is read that is small compared with the cache
    # Shares of the bandwidth that elementwise operations reach: softmax; sums, norms and lookups;
    # convolutions of single channels; products; the transforms of Winograd's kernels.
    softmax_share: float
    reduce_share: float
    depthwise_share: float
    product_share_simt: float
    product_share_tensor: float
    winograd_transform: float
    # The most elements a clock of a processor; `strided`: elementwise, of tensors with unlike strides.
    softmax_pace: float
    reduce_pace: float
    gather_pace: float
    strided_pace: float
    unaligned_pace: float  # FLOP a clock of a processor's tensor cores where rows begin between loads
    # Layout conversions (NCHW to NHWC and back): elements a clock of a processor at most, in whole tiles
    # of 32 channels x 32 pixels, and the share of the bandwidth.
    layout_pace: float
    layout_share: float
    row_floor: float  # additional fixed seconds of kernels that work by rows
    attention_share: float  # of the rate of large products: what fused attention reaches
    sources: dict[str, str] = field(repr=False, compare=False)


@cache
def shared() -> Shared:
    """Return the figures that all cards share; cached."""
    figures = _read("shared")
    values = {key: figure["value"] for key, figure in figures.items()}
    return Shared(sources={key: f["source"] for key, f in figures.items()}, **values)


@dataclass(frozen=True)
class Profile:
    """The figures of one GPU for the cost model and the clock.

    Peak rates are the manufacturer's; ``*_efficiency`` is the share of them that large work reaches.
    """

    key: str  # the name for `load`: "T4"
    name: str  # the full name
    capability: tuple[int, int]  # the CUDA compute capability that `get_device_capability` reports
    total_memory: int  # bytes that a program sees
    processors: int  # streaming multiprocessors
    clock: float  # boost clock of the processors as the card is sold, hertz
    l2: int  # bytes of the cache between the processors and the memory
    shared_memory: int  # bytes of a processor for the threads of a block
    power: float  # the board's power limit, watts
    # FLOP/s of a float32 and a float64 matrix product without TF32.
    fp32_flops: float
    fp64_flops: float
    # FLOP/s of the tensor cores, dense, accumulated in float32; None where they lack the format.
    tf32_flops: float | None
    fp16_flops: float
    bf16_flops: float | None
    bf16_emulated_flops: float | None  # what a bfloat16 product reaches where tensor cores lack the format
    # Bytes/s: of the device's memory; from pinned and from pageable host memory, and back; of making a
    # pinned copy (`tensor.pin_memory()`); to another device of the same machine.
    bandwidth: float
    bus_pinned: float
    bus_pageable: float
    pinning: float
    peer: float
    launch: float  # host time of the call that launches a kernel, seconds; see `host` for the rest
    host: float  # host overhead of its usual host in units of the reference host; see `host`
    collective: float  # bytes/s over each card's link in large collectives: NCCL's "bus bandwidth"
    collective_latency: float  # seconds
    kernel_floor: float  # seconds that every kernel takes before its size matters
    copy_latency: float  # the same of a copy across the bus
    sync_cost: float  # host time of a synchronization with nothing left to wait for, seconds
    # Share of the peak that large work reaches: ordinary cores in tiles of 128 x 128, tensor cores in
    # tiles of 256 x 128, memory in elementwise operations.
    vector_efficiency: float
    tensor_efficiency: float
    memory_efficiency: float
    # Half the harmonic mean of a tile's columns and rows at which a processor reaches half of what it
    # reaches in an infinite tile, on ordinary cores (see `latency`).
    tile_half: float
    # Of the rate of a float32 product: what an implicit-GEMM convolution reaches, and Winograd's products.
    convolution_share: float
    winograd_share: float
    # A kernel that computes for longer than the first (seconds) runs into the card's power limit: it
    # takes longer by its time over that one to the power of the second, at most by the third.
    throttle_after: float
    throttle_rise: float
    throttle_most: float
    sources: dict[str, str] = field(repr=False, compare=False)  # where each figure is published, or assumed
    shared: Shared = field(repr=False)
    # FLOP/s that large work reaches, by unit (see `cost.Work`), under the power limit where there is one.
    rates: dict[str, float] = field(init=False, repr=False, compare=False)
    memory_rate: float = field(init=False, repr=False, compare=False)  # bytes/s that large work reaches
    latency_cache: dict[Any, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fp32 = self.fp32_flops * self.vector_efficiency / self.throttle_most
        tensor = self.tensor_efficiency
        rates = {
            "fp32": fp32,
            "tf32": self.tf32_flops * tensor if self.tf32_flops else fp32,
            "fp16": self.fp16_flops * tensor,
            "bf16": self.bf16_flops * tensor if self.bf16_flops else self.bf16_emulated_flops,
            "fp64": self.fp64_flops * self.vector_efficiency / self.throttle_most,
        }
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "memory_rate", self.bandwidth * self.memory_efficiency)
        object.__setattr__(self, "latency_cache", {})

    def emulates(self, unit: str) -> bool:
        """Return whether the tensor cores lack a unit's format, so that ordinary cores compute.

        ``unit`` is a key of `rates`; only ``"bf16"`` and ``"tf32"`` can be lacking.
        """
        lacks = {"bf16": self.bf16_flops, "tf32": self.tf32_flops}
        return lacks.get(unit, True) is None

    def throttled(self, seconds: float) -> float:
        """Return a kernel's seconds under the card's power limit, from its seconds without the limit."""
        if seconds <= self.throttle_after:
            return seconds
        return seconds * min((seconds / self.throttle_after) ** self.throttle_rise, self.throttle_most)


def names() -> tuple[str, ...]:
    """Return the names of the profiles that `load` accepts."""
    return tuple(_read("profiles"))


def load(name: str) -> Profile:
    """Return the profile with a name; case and spaces are ignored (``"rtx4090"``). It is cached.

    Raises
    ------
    ValueError
        If there is no such profile.
    """
    key = next((known for known in names() if _normalized(known) == _normalized(name)), None)
    if key is None:
        raise ValueError(f"There is no profile {name!r}. Choose one of {', '.join(names())}.")
    return _load(key)


class Spread(NamedTuple):
    """The range of measured over modelled time: 8 in 10 measurements are between ``low`` and ``high``.

    From ``n`` measurements of ``work`` (``"operator"`` or ``"network"``) on ``card`` (or ``"all"``).
    """

    low: float
    high: float
    n: int
    card: str
    work: str


def spread(machine: str, single: bool = False) -> Spread:
    """Return the range of measured over modelled times, for a card by its key or its (simulated) name.

    It always includes 1.

    Parameters
    ----------
    machine
        The card; an unknown one, or one with too few measurements, gets the range of all cards.
    single
        Whether a single kernel or copy was timed, instead of a step of a network or the like.
    """
    work = "operator" if single else "network"
    known = _ranges()
    matches = [key for key in names() if machine == key or load(key).name in machine]
    card = next((key for key in matches if work in known.get(key, ())), "all")
    measured = known[card][work]
    return Spread(min(measured["low"], 1.0), max(measured["high"], 1.0), measured["n"], card, work)


@cache
def _ranges() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the measured ranges of ``spread.json``, by card and then by work."""
    return json.loads(_SPREAD.read_text(encoding="utf-8"))["cards"]


def _normalized(name: object) -> str:
    """Return a name in lower case without spaces."""
    return "".join(str(name).split()).casefold()


@cache
def _load(key: str) -> Profile:
    """Return the profile with a key of ``profiles.json``, spelled exactly as there (``"A100-40GB"``)."""
    entry = _read("profiles")[key]
    figures = entry["figures"]
    return Profile(
        key=key,
        name=entry["name"],
        capability=tuple(entry["capability"]),
        sources={name: figure["source"] for name, figure in figures.items()},
        shared=shared(),
        **{name: figure["value"] for name, figure in figures.items()},
    )


@cache
def _read(part: str) -> dict[str, Any]:
    """Return a section of ``profiles.json``: "shared" or "profiles"."""
    return json.loads(_FILE.read_text(encoding="utf-8"))[part]
