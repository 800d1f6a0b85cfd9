"""Programs that say ``"cuda"`` run on the simulated device: ``simgpu.enable("T4", named="cuda")``.

A function mode sees each call of PyTorch. It translates names on the way in (``"cuda:1"`` becomes ``sim:1``)
and, where a program asks a tensor where it is, on the way out. Error messages are translated likewise.
What isn't a call of PyTorch's operators, such as ``torch.cuda``, is patched through `patches`, and `disable`
reverts all of it.

Modes belong to a thread, so each thread that starts gets the mode. Below it, in `tensor.dispatch`, it is off.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .machine import MACHINE
from .messages import _
from .patches import Patches

_PLAIN = torch._C.DisableTorchFunction
_tensor_device = Tensor.device.__get__
_patches = Patches()
_modes: list[Names] = []  # the mode of the thread that enabled the names
_compiled: list[bool] = []  # not empty if `torch.compile` was called

_SIM: dict[int | None, torch.device] = {}
_CUDA = [torch.device("cuda", index) for index in range(64)]


def _sim(index: int | None) -> torch.device:
    """Return the device ``sim:1`` for 1, and ``sim`` for None."""
    if index not in _SIM:
        with _PLAIN():
            _SIM[index] = torch.device("sim" if index is None else f"sim:{index}")
    return _SIM[index]


def inward(device: Any) -> Any:
    """Return ``sim:1`` for a device or text that names ``cuda:1``, and anything else unchanged.

    Without an index it is the current device.
    """
    if isinstance(device, str):
        if device != "cuda" and not device.startswith("cuda:"):
            return device
        device = torch._C._nn._parse_to(device)[0]
    if not isinstance(device, torch.device) or device.type != "cuda":
        return device
    return _sim(MACHINE.current if device.index is None else device.index)


def outward(device: Any) -> Any:
    """Return ``cuda:1`` for the device ``sim:1``, and anything else unchanged."""
    if isinstance(device, torch.device) and device.type == "sim":
        return torch.device("cuda") if device.index is None else _CUDA[device.index]
    return device


# --- Error messages


def renamed(message: str) -> str:
    """Return an error message of the simulated device in CUDA's words."""
    message = re.sub(r"\bsim(?= (?:out of memory|error|device))", "CUDA", message)
    message = message.replace("wrapper_SIM_", "wrapper_CUDA_")
    return re.sub(r"\bsim\b", "cuda", message)


def rename_error(error: BaseException) -> None:
    """Change the text of an exception to CUDA's words."""
    error.args = tuple(renamed(x) if isinstance(x, str) else x for x in error.args)


def renaming(function: Any) -> Any:
    """Return a function whose exceptions have CUDA's words."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            rename_error(error)
            raise

    return call


# --- The mode


class Names(TorchFunctionMode):
    """The function mode that translates names; one per thread."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        handler = _HANDLERS.get(func)
        if handler is not None:
            return handler(self, func, args, kwargs or {})
        for value in args:  # a loop, because this runs for every call
            if value.__class__ in _NAMING:
                args = tuple(map(inward, args))
                break
        try:
            if kwargs is None:
                return func(*args)
            for key, value in kwargs.items():
                if value.__class__ in _NAMING:
                    kwargs = {**kwargs, key: inward(value)}
            return func(*args, **kwargs)
        except Exception as error:
            rename_error(error)
            raise


_NAMING = frozenset((str, torch.device))


def _device(mode: Names, func: Any, args: Any, kwargs: Any) -> torch.device:
    """Return where a tensor is, by CUDA's name."""
    return outward(_tensor_device(*args))


def _is_cuda(mode: Names, func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a tensor is on a simulated device."""
    return _tensor_device(*args).type == "sim"


def _make_device(mode: Names, func: Any, args: Any, kwargs: Any) -> torch.device:
    """Return a ``torch.device``; an index alone means a simulated one."""
    return outward(func(*args, **kwargs))


def _to_cuda(mode: Names, func: Any, args: Any, kwargs: Any) -> Tensor:
    """Handle ``Tensor.cuda``."""
    tensor, *rest = args
    named = dict(zip(("device", "non_blocking"), rest, strict=False)) | kwargs
    device = named.pop("device", None)
    if device is None:
        device = "cuda"
    elif isinstance(device, int) and not isinstance(device, bool):
        device = _CUDA[device]
    elif torch.device(device).type != "cuda":
        raise ValueError(f"Invalid device, must be cuda device, got {torch.device(device).type}")
    with mode:
        return tensor.to(device, **named)


def _pin(mode: Names, func: Any, args: Any, kwargs: Any) -> Any:
    """Handle ``Tensor.pin_memory`` and ``is_pinned``: to name the device is deprecated, and needless."""
    return func(args[0])


def _type(mode: Names, func: Any, args: Any, kwargs: Any) -> Any:
    """Handle ``Tensor.type``; see `_typed`."""
    return _typed(mode, func, *args, **kwargs)


def _typed(mode: Names, func: Any, tensor: Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Return the name of a tensor's type, or convert it, also to ``torch.cuda.FloatTensor`` or its name."""
    wanted = dtype
    name = wanted if isinstance(wanted, str) else getattr(wanted, "cuda_name", "")
    if name.startswith("torch.cuda."):
        with mode:
            return tensor.to("cuda", legacy_dtype(name))
    result = func(tensor, dtype, *args, **kwargs)
    return renamed(result) if isinstance(result, str) else result


def legacy_dtype(name: str) -> torch.dtype:
    """Return the dtype of a tensor type's name, such as ``torch.cuda.FloatTensor``."""
    plain = getattr(torch, name.rpartition(".")[2])
    return plain.dtype


_HANDLERS = {
    Tensor.pin_memory: _pin,
    Tensor.is_pinned: _pin,
    Tensor.device.__get__: _device,
    Tensor.is_cuda.__get__: _is_cuda,
    Tensor.cuda: _to_cuda,
    Tensor.type: _type,
    torch.device: _make_device,
}


# --- On and off


def enabled() -> bool:
    """Return whether programs that say ``"cuda"`` run on the simulated device."""
    return bool(_modes)


def unavailable_reason() -> str | None:
    """Return why ``"cuda"`` cannot mean the simulated device in this process, as one sentence, or None."""
    if not _modes and torch.cuda.is_available():
        return _(
            "This machine has a GPU, and in this process 'cuda' means that one. "
            "`python -m simgpu run` runs a program on the simulated GPU beside it, in a process of its own."
        )
    return None


def enable(*patchers: Callable[[Patches], None]) -> None:
    """Let ``"cuda"`` mean the simulated device, in this thread and in those that start later.

    Does nothing if it does already. `MACHINE` must have devices.

    Parameters
    ----------
    *patchers
        The functions ``patch`` of the modules that patch more: ``torch.cuda`` and ``torch.distributed``.

    Raises
    ------
    RuntimeError
        If there is a real GPU; see `unavailable_reason`.
    """
    if _modes:
        return
    if reason := unavailable_reason():
        raise RuntimeError(reason)
    MACHINE.device_types = ("sim", "cuda")
    _patch_threads()
    _patch_backward()
    _patch_devices()
    for patch in patchers:
        patch(_patches)
    _modes.append(Names())
    _modes[0].__enter__()
    _set_stance("force_eager")


def disable() -> None:
    """Let ``"cuda"`` mean CUDA again; tensors stay on the simulated device."""
    while _modes:
        _modes.pop().__exit__(None, None, None)
        _patches.revert()
        _set_stance("default")
        MACHINE.device_types = ("sim",)


def visible_devices() -> int:
    """Return how many devices a program sees: those that ``CUDA_VISIBLE_DEVICES`` lists, or all of them."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(MACHINE.devices)
    if listed is None:
        return count
    seen: list[str] = []
    for text in listed.split(","):  # as CUDA reads it: up to the first that there is not
        text = text.strip()
        if not text.isdecimal() or int(text) >= count or text in seen:
            break
        seen.append(text)
    return len(seen)


def _patch_threads() -> None:
    """Give each thread that starts from now on the mode."""
    bootstrap = threading.Thread._bootstrap_inner

    @functools.wraps(bootstrap)
    def run(self: threading.Thread) -> None:
        with Names():
            bootstrap(self)

    _patches.set(threading.Thread, "_bootstrap_inner", run)


def _patch_backward() -> None:
    """Let hooks and ``torch.autograd.Function`` run with the mode on, which the calls of PyTorch have off."""
    _patches.set(
        torch.autograd, "_engine_run_backward", renaming(_with_names(torch.autograd._engine_run_backward))
    )
    hooks = torch.autograd.graph.saved_tensors_hooks
    start = hooks.__init__

    @functools.wraps(start)
    def start_hooks(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        start(self, _with_names(pack_hook), _with_names(unpack_hook))

    _patches.set(hooks, "__init__", start_hooks)


def _with_names(function: Any) -> Any:
    """Return a function that runs with the mode on, also where the caller has it off."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        stack = range(torch._C._len_torch_function_stack())
        if any(isinstance(torch._C._get_function_stack_at(i), Names) for i in stack):
            return function(*args, **kwargs)
        with Names():
            return function(*args, **kwargs)

    return call


def _patch_devices() -> None:
    """Patch what takes or gives a device without a call that the mode sees."""
    from torch.utils._device import DeviceContext

    from .generator import SimGenerator
    from .tensor import SimTensor

    type_ = SimTensor.type

    @functools.wraps(type_)
    def typed(self: Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        return _typed(Names(), type_, self, dtype, *args, **kwargs)

    _patches.set(SimTensor, "type", typed)

    start = DeviceContext.__init__

    def start_context(self: Any, device: Any) -> None:
        start(self, device)
        if self.device.type == "cuda":
            self.device = _sim(self.device.index)  # without an index it follows the current device

    _patches.set(DeviceContext, "__init__", start_context)
    for owner, name in (
        (torch, "get_default_device"),
        (torch.accelerator, "current_accelerator"),
    ):
        _patches.set(owner, name, _result_outward(getattr(owner, name)))
    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        _patches.set(torch, name, _by_type(getattr(torch, name)))
    _patches.set(torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype("cuda"))
    autocast = torch.amp.autocast
    begin = autocast.__init__

    @functools.wraps(begin)
    def begin_autocast(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, inward_type(device_type), *args, **kwargs)

    _patches.set(autocast, "__init__", begin_autocast)
    generator_type = type(torch.Generator)
    make = generator_type.__call__
    _patches.set(generator_type, "__call__", arguments_inward(make))
    _patches.set(SimGenerator, "device", property(lambda self: outward(self._device), doc="The device."))
    for kind in (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer):
        _patches.set(kind, "__new__", arguments_inward(kind.__new__))
        _patches.set(kind, "materialize", arguments_inward(kind.materialize))
    storage_new = torch.UntypedStorage.__new__
    _patches.set(torch.UntypedStorage, "__new__", arguments_inward(storage_new))
    _patches.set(torch, "set_default_tensor_type", _default_tensor_type(torch.set_default_tensor_type))
    _patches.set(torch, "compile", _compile(torch.compile))
    # It asks cuDNN, if PyTorch has it, to join the weights of an nn.LSTM: the model's are as they are.
    _patches.set(torch.nn.RNNBase, "flatten_parameters", lambda self: None)


def inward_type(kind: Any) -> Any:
    """Return ``"sim"`` for the type of device ``"cuda"``, and anything else unchanged."""
    return "sim" if kind == "cuda" else kind


def arguments_inward(function: Any) -> Any:
    """Return a function whose arguments are translated, and that runs with the mode off."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(inward, args))
        kwargs = {key: inward(x) for key, x in kwargs.items()}
        with _PLAIN():
            return function(*args, **kwargs)

    return call


def _by_type(function: Any) -> Any:
    """Return a function of autocast's state whose type of device is translated; the default is CUDA's."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "device_type" in kwargs:
            args, kwargs = (kwargs.pop("device_type"), *args), kwargs
        if not args or not isinstance(args[0], str):  # the old form
            args = ("sim", *args)
        return function(inward_type(args[0]), *args[1:], **kwargs)

    return call


def _result_outward(function: Any) -> Any:
    """Return a function whose result is translated."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return outward(function(*args, **kwargs))

    return call


def _default_tensor_type(set_default: Any) -> Any:
    """Return ``torch.set_default_tensor_type`` that also sets the default device of a CUDA type."""

    @functools.wraps(set_default)
    def set_both(kind: Any) -> None:
        name = kind if isinstance(kind, str) else getattr(kind, "cuda_name", f"torch.{kind.__name__}")
        set_default("torch." + name.rpartition(".")[2])
        torch.set_default_device("cuda" if name.startswith("torch.cuda.") else None)

    return set_both


def _compile(compile_: Any) -> Any:
    """Return ``torch.compile`` that gives the program as it stands: nothing is compiled."""

    @functools.wraps(compile_)
    def run_as_it_stands(*args: Any, **kwargs: Any) -> Any:
        _compiled.append(True)
        _set_stance("force_eager")
        kwargs["backend"] = "eager"
        return compile_(*args, **{k: v for k, v in kwargs.items() if k not in ("mode", "options")})

    return run_as_it_stands


def _set_stance(stance: str) -> None:
    """Say how compiled functions run, if there are any: to ask for it imports the compiler."""
    if _compiled:
        torch.compiler.set_stance(stance)
