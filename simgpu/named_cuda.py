"""``torch.cuda`` answers for the simulated device, while `named` is enabled.

What ``torch.sim`` has is taken from there. What neither has, such as CUDA graphs, says so in a sentence.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch import Tensor

from . import serialize
from .machine import MACHINE
from .module import Event, Stream
from .named import arguments_inward, legacy_dtype, outward, renaming, visible_devices
from .patches import Patches

_REFUSED = (
    "torch.cuda.{} needs CUDA itself, which the simulated GPU does not have: it runs operators of PyTorch, "
    "not CUDA graphs, memory pools or code compiled for a GPU."
)
_LAZY_INIT = (
    "This asks the CUDA driver itself. The simulated GPU runs operators of PyTorch; extensions in C++, CUDA "
    "or Triton, and CUDA graphs, need a real GPU."
)
_KEPT = {  # of torch.cuda: they are Python alone, and right as they are
    *("OutOfMemoryError", "amp", "nccl", "memory", "random", "streams", "sparse", "nvtx", "profiler"),
    *("AcceleratorError", "is_tf32_supported", "CudaError", "check_error", "get_gencode_flags"),
    *("DeferredCudaCallError", "classproperty", "cudaStatus", "tunable", "default_generators"),
    *("Event", "Stream"),
}
_TENSORS = "Float Double Half BFloat16 Byte Char Short Int Long Bool"


def patch(patches: Patches) -> None:
    """Patch ``torch.cuda`` and what belongs to it."""
    cuda, sim = torch.cuda, torch.sim
    answers = {name: getattr(sim, name) for name in dir(type(sim)) if not name.startswith("__")}
    answers |= _answers() | {
        f"{kind}Tensor": _legacy_type(f"torch.cuda.{kind}Tensor") for kind in _TENSORS.split()
    }
    for name in ("Event", "Stream", "OutOfMemoryError", "memory", "nvtx", "_initialized"):
        answers.pop(name, None)
    for name, answer in answers.items():
        patches.set(cuda, name, renaming(answer) if isinstance(answer, types.MethodType) else answer)
    patches.set(cuda, "Event", Event)
    patches.set(cuda, "Stream", Stream)
    patches.set(cuda, "_initialized", True)
    patches.set(cuda, "_lazy_init", _refuse_driver)
    for name in cuda.__all__:
        given = getattr(cuda, name, None)
        is_answered = name in answers or name in _KEPT or name.endswith(("Tensor", "Storage"))
        if not is_answered and isinstance(given, (type, types.FunctionType)):
            patches.set(cuda, name, _refusal(name))
    for module in (cuda.memory, cuda.random, cuda.streams):
        for name in vars(module).keys() & vars(cuda).keys():
            if name in answers or name in ("Event", "Stream"):
                patches.set(module, name, getattr(cuda, name))
    for name in ("_record_memory_history", "_snapshot", "_dump_snapshot"):
        patches.set(cuda.memory, name, getattr(sim.memory, name))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        patches.set(cuda.nvtx, name, lambda *args, **kwargs: 0)
    for name in ("start", "stop", "init"):
        if hasattr(cuda.profiler, name):
            patches.set(cuda.profiler, name, lambda *args, **kwargs: None)
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    _patch_streams(patches)
    _restore_by_name()


def _answers() -> dict[str, Any]:
    """Return what ``torch.cuda`` has and ``torch.sim`` lacks, by name."""
    return {
        "is_available": lambda: visible_devices() > 0,
        "device_count": visible_devices,
        "_lazy_call": lambda callable, **kwargs: callable(),
        "current_blas_handle": lambda: 0,
        "cudart": _cudart,
        "device": _device_context,
        "device_of": _device_of,
        "get_allocator_backend": lambda: "native",
        "_sleep": _sleep,
    }


class _device_context:
    """Context manager in which a device is the current one, as ``torch.cuda.device``."""

    def __init__(self, device: Any) -> None:
        self.idx = device if device is None or isinstance(device, int) else MACHINE.device(device).index

    def __enter__(self) -> None:
        self.prev_idx = MACHINE.current
        if self.idx is not None and self.idx >= 0:
            renaming(torch.sim.set_device)(self.idx)

    def __exit__(self, *_: object) -> None:
        MACHINE.current = self.prev_idx


def _device_of(obj: Any) -> _device_context:
    """Return a context manager in which a tensor's device is the current one; the CPU changes nothing."""
    return _device_context(obj.get_device() if obj.is_cuda else None)


def _cudart() -> Any:
    """Return a stand-in for CUDA's runtime: starting and stopping a profiler does nothing."""
    done = types.SimpleNamespace(success=0)
    return types.SimpleNamespace(
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
        cudaMemGetInfo=lambda device=None: torch.sim.mem_get_info(device),
        cudaDeviceSynchronize=lambda: torch.sim.synchronize(),
        cudaError=done,
    )


def _sleep(cycles: int) -> None:
    """Keep the current stream busy for a number of cycles at the card's clock."""
    device = MACHINE.device()
    device.clock.launch("sleep", cycles / device.profile.clock, device.stream)


def _refuse_driver() -> None:
    """Raise the RuntimeError of what reaches for the CUDA driver."""
    raise RuntimeError(_LAZY_INIT)


def _refusal(name: str) -> Any:
    """Return a class, to be called or entered, that raises a RuntimeError with the reason."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError(_REFUSED.format(name))

    given = getattr(torch.cuda, name)
    if isinstance(given, type):
        return type(name, (), {"__init__": refuse, "__doc__": given.__doc__})
    return functools.wraps(given)(refuse)


class _LegacyType(type):
    """The metaclass of ``torch.cuda.FloatTensor`` and its like: a call makes a tensor on the device."""

    cuda_name: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        plain = getattr(torch, cls.cuda_name.rpartition(".")[2])
        return plain(*args, **kwargs).to("cuda")

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor) and x.is_cuda and x.dtype is cls.dtype


def _legacy_type(name: str) -> type:
    """Return the type of a name such as ``torch.cuda.FloatTensor``."""
    fields = {"cuda_name": name, "dtype": legacy_dtype(name), "is_cuda": True, "__module__": "torch.cuda"}
    return _LegacyType(name.rpartition(".")[2], (), fields)


def _patch_streams(patches: Patches) -> None:
    """Let streams say where they are by CUDA's name."""

    def keep(self: Any, device: torch.device) -> None:
        vars(self)["device"] = device  # what it says when the names are off

    where = property(lambda self: outward(self._device.torch_device), keep, doc="The device.")
    patches.set(Stream, "device", where)
    patches.set(Stream, "cuda_stream", property(lambda self: self.stream_id, doc="The stream's number."))
    patches.set(Stream, "__repr__", _stream_repr)
    dispatching = type(torch.Stream)
    patches.set(dispatching, "__call__", arguments_inward(dispatching.__call__))


def _stream_repr(stream: Any) -> str:
    """Return the text of a stream, as CUDA's."""
    return f"<torch.cuda.Stream device={stream.device} cuda_stream={hex(stream.stream_id)}>"


_registered: list[bool] = []


def _restore_by_name() -> None:
    """Let ``torch.load`` restore what was saved on, or is mapped to, ``cuda`` on the simulated device."""

    def restore(storage: Any, location: str) -> Any:
        from . import named

        if not named.enabled() or not str(location).startswith("cuda"):
            return None
        return renaming(serialize.restore)(storage, "sim" + str(location)[4:])

    if not _registered:
        torch.serialization.register_package(4, lambda storage: None, restore)
        _registered.append(True)
