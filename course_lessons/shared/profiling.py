"""What a training loop waits for, in eight figures."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import simgpu
from course_language import _
from course_utils.devices import abilities
from course_utils.number_format import seconds
from course_utils.show import table
from course_utils.timing import measure
from simgpu import cost, latency
from simgpu.nodata import NoData

from .precision import full_float32
from .traces import Trace, trace


@dataclass(frozen=True)
class Facts:
    """What was measured of a piece of work, such as a training step.

    Attributes
    ----------
    seconds
        How long one call takes.
    busy
        The share of that time in which the device computes.
    loading
        The share in which the host loads data, or carries it across.
    waiting
        The share in which the host waits for the device.
    flop_share, byte_share
        While the device computes: its FLOP/s and its bytes/s, as a share of the most that it reaches; nan
        where they were not counted.
    kernels
        How many kernels one call runs.
    kernel_seconds
        How long a kernel takes, on average.
    """

    seconds: float
    busy: float
    loading: float
    waiting: float
    flop_share: float
    byte_share: float
    kernels: float
    kernel_seconds: float

    def __str__(self) -> str:
        rows = [
            (_("one call"), seconds(self.seconds)),
            (_("device computes"), _("{busy:.0%} of the time").format(busy=self.busy)),
            (_("host loads data"), _("{loading:.0%} of the time").format(loading=self.loading)),
            (
                _("host waits for the device"),
                _("{waiting:.0%} of the time").format(waiting=self.waiting),
            ),
            (_("FLOP/s while it computes"), _of_the_most(self.flop_share)),
            (_("bytes/s while it computes"), _of_the_most(self.byte_share)),
            (_("kernels in a call"), f"{self.kernels:,.0f}"),
            (_("a kernel, on average"), seconds(self.kernel_seconds)),
        ]
        return table((_("fact"), _("value")), rows)[0]


def _of_the_most(share: float) -> str:
    return _("not counted") if math.isnan(share) else _("{share:.0%} of the most").format(share=share)


class Counted(TorchDispatchMode):
    """Within it, the FLOPs and the bytes of every operation are added up.

    Bytes are counted as if every operation read its inputs from memory and wrote its result there.

    Parameters
    ----------
    device
        What runs elsewhere is left out.

    Attributes
    ----------
    flops
        By the unit that computes them: ``"fp32"``, ``"tf32"``, ``"fp16"``, ``"bf16"``, ``"fp64"``.
    bytes
        Read and written.
    """

    def __init__(self, device: torch.device | str) -> None:
        super().__init__()
        self.device = torch.device(device)
        self._tf32 = abilities(self.device).tf32
        self.flops: dict[str, float] = defaultdict(float)
        self.bytes = 0.0

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = op(*args, **kwargs)
        first = next((x for x in (*args, out) if isinstance(x, torch.Tensor)), None)
        if first is not None and first.device.type == self.device.type:
            done = cost.work(op, args, kwargs, out)
            plain = done.unit == "tf32" and not self._tf32  # allowed, but it has no such units
            self.flops["fp32" if plain else done.unit] += done.flops
            self.bytes += done.bytes
        return out

    def seconds(self) -> tuple[float, float]:
        """Return how long the FLOPs and the bytes would take at the best rates of the device."""
        rates = ((unit, flops) for unit, flops in self.flops.items() if flops)
        compute = sum(flops / best_flops(self.device, unit) for unit, flops in rates)
        return compute, self.bytes / best_bytes(self.device)


def facts(
    work: Callable[[], object], device: torch.device | str, calls: int = 1, values: bool = True
) -> Facts:
    """Run a piece of work and return what tells its regime.

    Parameters
    ----------
    work
        A function without arguments, such as one training step. It is called a few times more than ``calls``.
    device
        The device it works on. On the simulated one the figures are modelled.
    calls
        Over how many calls to average.
    values
        Whether the simulated device computes values; see `traces.trace`.

    Notes
    -----
    Away from the simulated device ``torch.profiler`` looks on and slows the host down, so the device
    seems a little less busy than it is. A CPU is host and device at once: what it computes is ``busy``.
    """
    device = torch.device(device)
    seen = trace(work, device, calls, values)
    with nullcontext() if values or device.type != "sim" else NoData(), Counted(device) as counted:
        work()
    return facts_of(seen, calls, counted, calls_counted=1)


def facts_of(
    seen: Trace, calls: int, counted: Counted | None = None, calls_counted: int | None = None
) -> Facts:
    """Return the facts of a trace.

    Parameters
    ----------
    seen
        The trace.
    calls
        How many calls it holds.
    counted
        What was counted of the same work, on the same device. By default nothing: then the shares of FLOP/s
        and bytes/s are nan, and the trace is taken for one of a device with a host.
    calls_counted
        Over how many calls; by default over those of the trace.

    Raises
    ------
    ValueError
        Where the trace was to show a device and has no event of one: what the device did is then unknown.
    """
    on_cpu = counted is not None and counted.device.type == "cpu"
    if not on_cpu and not seen.has_device:
        raise ValueError(_("This trace has no device events. Was CUPTI missing?"))
    kind = "operation" if on_cpu else "kernel"
    kernels = [s for s in seen.spans if s.kind == kind and (s.lane == "host") is on_cpu]
    busy = seen.share(kind, on_cpu)
    computing = busy * seen.seconds * (calls_counted or calls) / calls
    compute, move = counted.seconds() if counted else (math.nan, math.nan)
    return Facts(
        seconds=seen.seconds / calls,
        busy=busy,
        loading=seen.share("work", True) + seen.share("copy", True),
        waiting=seen.share("wait", True),
        flop_share=compute / computing if computing else 0.0,
        byte_share=move / computing if computing else 0.0,
        kernels=len(kernels) / calls,
        kernel_seconds=sum(s.seconds for s in kernels) / len(kernels) if kernels else 0.0,
    )


_ON_CARDS: Mapping[str, Callable[[], bool]] = {
    "CUDA graphs": lambda: hasattr(torch.cuda, "make_graphed_callables"),
    "cuDNN": lambda: torch.backends.cudnn.is_available(),
}


def lacks(device: torch.device | str, tool: str) -> str:
    """Return in one sentence that a device lacks a tool which only some have, or nothing where it is there.

    Parameters
    ----------
    device
        The device.
    tool
        ``"CUDA graphs"`` or ``"cuDNN"``.
    """
    device = torch.device(device)
    if device.type == "cuda" and _ON_CARDS[tool]():
        return ""
    return _("{device} has no {tool}: what others published stands below.").format(device=device, tool=tool)


_DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
}


SIZES = (1024, 2048, 4096)
"""Of the square matrices whose products are tried on a card."""


def best_flops(device: torch.device, unit: str = "fp32") -> float:
    """Return the most FLOP/s of matrix products: modelled on ``sim``, else measured once.

    A CPU is measured once for each number of threads. The largest need not be the fastest: a card at its
    power limit slows down, and a short product is over before.
    """
    if device.type != "sim":
        return _flops(device, unit, _threads(device))
    profile = simgpu.profile(device)
    works = (_product(n, unit) for n in SIZES)
    return max(profile.rates[unit], *(w.flops / latency.seconds(w, profile) for w in works))


def _product(n: int, unit: str) -> cost.Work:
    nbytes = 3 * n * n * _DTYPES[unit].itemsize
    return cost.Work(2.0 * n**3, nbytes, unit, "product", (cost.Gemm(1, n, n, n),))


def best_bytes(device: torch.device) -> float:
    """Return the bytes/s that a large copy reads and writes: modelled on ``sim``, else measured once."""
    if device.type == "sim":
        return simgpu.profile(device).memory_rate
    return _bytes(device, _threads(device))


def _threads(device: torch.device) -> int:
    """Return how many threads compute, where that decides the rate."""
    return torch.get_num_threads() if device.type == "cpu" else 0


@functools.cache
def _flops(device: torch.device, unit: str, threads: int) -> float:
    with full_float32():
        if unit == "tf32":
            torch.set_float32_matmul_precision("high")
        return max(_reached(n, device, unit) for n in ((512,) if device.type == "cpu" else SIZES))


def _reached(n: int, device: torch.device, unit: str) -> float:
    a = torch.randn(n, n).to(device, _DTYPES[unit])
    return 2 * n**3 / measure(lambda: a @ a, device=device, min_seconds=0.05).median


@functools.cache
def _bytes(device: torch.device, threads: int) -> float:
    a = torch.zeros(2**22 if device.type == "cpu" else 2**26).to(device)
    b = torch.empty_like(a)
    return 2 * a.nbytes / measure(lambda: b.copy_(a), device=device, min_seconds=0.05).median
