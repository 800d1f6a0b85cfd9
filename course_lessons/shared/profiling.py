"""What limits a training loop: eight figures computed from a trace."""

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
    """Figures measured, or modelled, of repeated calls of a function, such as a training step.

    Attributes
    ----------
    seconds
        Duration of one call.
    busy
        Share of that time (0 to 1) in which the device computes.
    loading
        Share in which the host loads data, or copies it to or from the device.
    waiting
        Share in which the host waits for the device.
    flop_share, byte_share
        FLOP/s and bytes/s while the device computes, as a share of its best rates; nan if not
        counted.
    kernels
        Number of kernels per call.
    kernel_seconds
        Mean duration of a kernel.
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
            (_("FLOP/s while it computes"), _share_text(self.flop_share)),
            (_("bytes/s while it computes"), _share_text(self.byte_share)),
            (_("kernels in a call"), f"{self.kernels:,.0f}"),
            (_("a kernel, on average"), seconds(self.kernel_seconds)),
        ]
        return table((_("fact"), _("value")), rows)[0]


def _share_text(share: float) -> str:
    """Return a share as text, "not counted" for nan."""
    return _("not counted") if math.isnan(share) else _("{share:.0%} of the most").format(share=share)


class Counted(TorchDispatchMode):
    """A context manager that sums up the FLOPs and bytes of the operations on a device.

    Bytes are counted as if every operation read its inputs from memory and wrote its result there.

    Parameters
    ----------
    device
        Operations on other types of device are ignored.

    Attributes
    ----------
    flops
        FLOPs by arithmetic: ``"fp32"``, ``"tf32"``, ``"fp16"``, ``"bf16"``, ``"fp64"``.
    bytes
        Bytes read and written.
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
            work = cost.work(op, args, kwargs, out)
            without_tf32 = work.unit == "tf32" and not self._tf32  # allowed, but it has no such units
            self.flops["fp32" if without_tf32 else work.unit] += work.flops
            self.bytes += work.bytes
        return out

    def seconds(self) -> tuple[float, float]:
        """Return the seconds that the FLOPs, and that the bytes, would take at the device's best rates."""
        rates = ((unit, flops) for unit, flops in self.flops.items() if flops)
        compute = sum(flops / best_flops(self.device, unit) for unit, flops in rates)
        return compute, self.bytes / best_bytes(self.device)


def facts(
    work: Callable[[], object], device: torch.device | str, calls: int = 1, values: bool = True
) -> Facts:
    """Profile a function, such as a training step, and return its `Facts`.

    Parameters
    ----------
    work
        A function without arguments. It is called a few times more than ``calls``: to warm up, and to count.
    device
        The device it uses. On the simulated one the figures are modelled.
    calls
        The number of calls to average over.
    values
        Whether the simulated device computes values; see `traces.trace`.

    Notes
    -----
    Except on the simulated device, ``torch.profiler`` slows the host down, so the device seems a little
    less busy than it is. A CPU is host and device at once: what it computes is ``busy``.
    """
    device = torch.device(device)
    recorded_trace = trace(work, device, calls, values)
    with nullcontext() if values or device.type != "sim" else NoData(), Counted(device) as counted:
        work()
    return facts_of(recorded_trace, calls, counted, calls_counted=1)


def facts_of(
    seen: Trace, calls: int, counted: Counted | None = None, calls_counted: int | None = None
) -> Facts:
    """Compute the `Facts` of a trace.

    Parameters
    ----------
    seen
        The trace.
    calls
        The number of calls in it.
    counted
        FLOPs and bytes of the same function on the same device. Without them ``flop_share`` and
        ``byte_share`` are nan, and the trace is assumed to be of an accelerator, not of a CPU.
    calls_counted
        The number of calls that ``counted`` saw; by default as many as the trace has.

    Raises
    ------
    ValueError
        If the trace is not of a CPU and has no device events.
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


_TOOLS_OF_CUDA: Mapping[str, Callable[[], bool]] = {
    "CUDA graphs": lambda: hasattr(torch.cuda, "make_graphed_callables"),
    "cuDNN": lambda: torch.backends.cudnn.is_available(),
}


def lacks(device: torch.device | str, tool: str) -> str:
    """Return a sentence that says that a device lacks a tool, or ``""`` if it has it.

    Parameters
    ----------
    device
        The device.
    tool
        ``"CUDA graphs"`` or ``"cuDNN"``.
    """
    device = torch.device(device)
    if device.type == "cuda" and _TOOLS_OF_CUDA[tool]():
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
    """Return the best FLOP/s of matrix products on a device: modelled for ``sim``, else measured and cached.

    A CPU is measured once for each number of threads. Several sizes are tried: the largest need not be the
    fastest, because a card at its power limit slows down.
    """
    if device.type != "sim":
        return _measured_best_flops(device, unit, _cpu_threads(device))
    profile = simgpu.profile(device)
    works = (_matmul_work(n, unit) for n in SIZES)
    return max(profile.rates[unit], *(w.flops / latency.seconds(w, profile) for w in works))


def _matmul_work(n: int, unit: str) -> cost.Work:
    """Return the cost-model work of an n × n matrix product."""
    nbytes = 3 * n * n * _DTYPES[unit].itemsize
    return cost.Work(2.0 * n**3, nbytes, unit, "product", (cost.Gemm(1, n, n, n),))


def best_bytes(device: torch.device) -> float:
    """Return the best bytes/s, read and written, of a copy: modelled for ``sim``, else measured and
    cached.
    """
    if device.type == "sim":
        return simgpu.profile(device).memory_rate
    return _measured_copy_rate(device, _cpu_threads(device))


def _cpu_threads(device: torch.device) -> int:
    """Return PyTorch's number of threads for a CPU, else 0: a part of the cache's key."""
    return torch.get_num_threads() if device.type == "cpu" else 0


@functools.cache
def _measured_best_flops(device: torch.device, unit: str, threads: int) -> float:
    """Measure the best FLOP/s of matrix products in ``unit``; ``threads`` is only part of the cache's key."""
    with full_float32():
        if unit == "tf32":
            torch.set_float32_matmul_precision("high")
        return max(
            _measured_matmul_flops(n, device, unit) for n in ((512,) if device.type == "cpu" else SIZES)
        )


def _measured_matmul_flops(n: int, device: torch.device, unit: str) -> float:
    """Measure the FLOP/s of an n × n matrix product."""
    a = torch.randn(n, n).to(device, _DTYPES[unit])
    return 2 * n**3 / measure(lambda: a @ a, device=device, min_seconds=0.05).median


@functools.cache
def _measured_copy_rate(device: torch.device, threads: int) -> float:
    """Measure a copy's bytes/s, read and written; ``threads`` is only part of the cache's key."""
    a = torch.zeros(2**22 if device.type == "cpu" else 2**26).to(device)
    b = torch.empty_like(a)
    return 2 * a.nbytes / measure(lambda: b.copy_(a), device=device, min_seconds=0.05).median
