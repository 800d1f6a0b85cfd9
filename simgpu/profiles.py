"""What the simulated device pretends to be: a GPU's figures, each with its source.

``profiles.json`` holds the figures and says where each comes from; this file only reads it. All
figures are in SI units: bytes, seconds, floating-point operations a second.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("profiles.json")


@dataclass(frozen=True)
class Profile:
    """One GPU as the cost model and the clock see it.

    Peak rates are the maker's; ``*_efficiency`` says which share of them large work reaches.

    Attributes
    ----------
    key, name
        The name to ask for (``"T4"``) and the full name.
    capability
        The CUDA compute capability that ``get_device_capability`` reports.
    total_memory
        Bytes a program sees.
    processors
        Streaming multiprocessors.
    fp32_flops, fp64_flops
        FLOP/s of a float32 and of a float64 matrix product without TF32.
    tf32_flops, fp16_flops, bf16_flops
        FLOP/s of the tensor cores; None where they lack the format.
    bf16_emulated_flops
        FLOP/s that a bfloat16 matrix product reaches where the tensor cores lack the format, or None.
    bandwidth
        Of the device's memory, bytes/s.
    bus_pinned, bus_pageable
        Between the host and the device, bytes/s, from pinned and from ordinary host memory.
    pinning
        How fast ``tensor.pin_memory()`` makes a pinned copy, bytes/s.
    peer
        To another device of the same machine, bytes/s.
    launch
        Host time of the call that launches a kernel, in seconds; see `host` for the rest.
    kernel_floor
        Time every kernel takes on the device before its size matters, in seconds.
    ramp
        The seconds of a matrix product's work that run at half the rate, before all of the device
        is busy.
    copy_latency
        The same as ``kernel_floor`` for a copy across the bus, in seconds.
    sync_cost
        Host time that waiting for the device costs when nothing is left to wait for, in seconds.
    vector_efficiency, tensor_efficiency, memory_efficiency
        Share of the peak that large work reaches: ordinary cores, tensor cores, memory.
    sources
        For each figure, where it is published, or the assumption it rests on.
    host
        How many times as long as the reference host its usual host takes; see `host`.
    collective
        Bytes/s that large collectives move over each card's link, the "bus bandwidth" of NCCL's
        tests; None for ``peer``.
    collective_latency
        Of a collective, in seconds; where it isn't given, 30 µs, as among H200s.
    rates
        FLOP/s that large work reaches, by unit (see `cost.Work`); worked out from the figures above.
    memory_rate
        Bytes/s that large work reaches.
    """

    key: str
    name: str
    capability: tuple[int, int]
    total_memory: int
    processors: int
    fp32_flops: float
    tf32_flops: float | None
    fp16_flops: float
    bf16_flops: float | None
    bf16_emulated_flops: float | None
    fp64_flops: float
    bandwidth: float
    bus_pinned: float
    bus_pageable: float
    pinning: float
    peer: float
    launch: float
    kernel_floor: float
    ramp: float
    copy_latency: float
    sync_cost: float
    vector_efficiency: float
    tensor_efficiency: float
    memory_efficiency: float
    sources: dict[str, str] = field(repr=False, compare=False)
    host: float = 1.0
    collective: float | None = None
    collective_latency: float = 3e-5
    rates: dict[str, float] = field(init=False, repr=False, compare=False)
    memory_rate: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fp32 = self.fp32_flops * self.vector_efficiency
        tensor = self.tensor_efficiency
        rates = {
            "fp32": fp32,
            "tf32": self.tf32_flops * tensor if self.tf32_flops else fp32,
            "fp16": self.fp16_flops * tensor,
            "bf16": self.bf16_flops * tensor if self.bf16_flops else self.bf16_emulated_flops,
            "fp64": self.fp64_flops * self.vector_efficiency,
        }
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "memory_rate", self.bandwidth * self.memory_efficiency)


def names() -> tuple[str, ...]:
    """Return the names that ``load`` knows."""
    return tuple(_read())


@cache
def load(name: str) -> Profile:
    """Return a profile by its name.

    Raises
    ------
    ValueError
        Where there is none of that name.
    """
    try:
        entry = _read()[name]
    except KeyError:
        raise ValueError(
            f"There is no profile {name!r}. Choose one of {', '.join(names())}."
        ) from None
    figures = entry["figures"]
    return Profile(
        key=name,
        name=entry["name"],
        capability=tuple(entry["capability"]),
        sources={key: figure["source"] for key, figure in figures.items()},
        **{key: figure["value"] for key, figure in figures.items()},
    )


@cache
def _read() -> dict[str, Any]:
    return json.loads(_FILE.read_text(encoding="utf-8"))["profiles"]
