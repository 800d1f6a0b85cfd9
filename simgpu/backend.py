"""Register the simulated device with PyTorch, and patch what PyTorch lacks for a Python device.

`register` runs once in a process, when a program first asks for the device. Before that nothing in
PyTorch is changed. The patches change nothing for other devices.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.jit._builtins import _register_builtin
from torch.nn.parameter import (
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
    UninitializedTensorMixin,
    is_lazy,
)
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_leaves

from . import (
    autocast,
    backward_errors,
    data_parallel,
    generator,
    kernels,
    recurrent,
    serialize,
    storage,
    typed,
)
from .machine import MACHINE
from .messages import N_, _
from .module import Event, SimModule, Stream
from .tensor import SimTensor, dispatch, is_pinned, mark_pinned

_failures: list[str] = []
_disabled_for: list[str] = []  # real devices that this process trains on
_libraries: list[Any] = []  # kept: a garbage-collected Library unregisters its kernels


def unavailable_reason() -> str | None:
    """Return why this process cannot have the simulated device, as one sentence, or None if it can."""
    if _failures:
        return _failures[0]
    if real := _accelerator_in_use():
        return _("This process uses {real}. {one_kind}").format(real=real, one_kind=_(ONE_KIND))
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "sim"):
        return _(
            "This process already has a device {name!r} in the one place PyTorch keeps for others."
        ).format(name=name)
    return None


ONE_KIND = N_("PyTorch trains on one kind of accelerator in a process, so the simulated GPU stays out of it.")
"""See https://github.com/pytorch/pytorch/issues/161129: backward on the other kind fails an assertion."""


def _accelerator_in_use() -> str | None:
    """Return the real accelerator that keeps the simulated device out of this process, or None."""
    used = [*_disabled_for, *(k for k in ("cuda", "xpu") if getattr(torch, k).is_initialized())]
    return used[0] if used and not _libraries else None


def is_disabled() -> bool:
    """Return whether a real accelerator in use keeps the simulated device out of this process."""
    return _accelerator_in_use() is not None


def disable_for(device: torch.device | str) -> str | None:
    """Record that this process trains on the real ``device``; see `simgpu.disable_for`.

    Return an error message if the simulated device is registered already, else None.
    """
    kind = torch.device(device).type
    _disabled_for.clear()
    if kind in ("cpu", "meta", "sim"):
        return None
    if _libraries:
        return backward_errors.TOO_LATE.format(kind)
    _disabled_for.append(str(device))
    return None


def register() -> None:
    """Register the device ``sim`` with PyTorch; do nothing if it is registered.

    Raises
    ------
    RuntimeError
        If this release of PyTorch needs another way to register. Later, `unavailable_reason` returns why.
    """
    if _libraries:
        return
    try:
        _register()
    except (ImportError, AttributeError, TypeError, RuntimeError) as error:
        _failures.append(
            _(
                "PyTorch {version} takes a device from Python in another way than this course "
                "knows ({error}); the course goes on without the simulated one."
            ).format(version=torch.__version__, error=error)
        )
        raise RuntimeError(_failures[0]) from error


def _register() -> None:
    """Register the device, its kernels and fallbacks, and apply all patches to PyTorch."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(
        "sim", backend_module=SimModule("torch.sim"), device_guard=backward_errors.Guard()
    )
    backward_errors.patch_engine()
    fallback = torch.library.Library("_", "IMPL")
    layouts = (
        "",
        "Sparse",
        "SparseCsr",
        "NestedTensor",
    )  # the last three for factories called in C++
    for layout in layouts:
        fallback.fallback(_dispatch_boxed, f"{layout}PrivateUse1")
    library = torch.library.Library("aten", "IMPL")
    _libraries.extend([fallback, library])
    functions = [dispatch, _dispatch_boxed, SimTensor.__torch_dispatch__.__func__]
    functions += kernels.register(library) + recurrent.register(library)
    functions += autocast.register(library, fallback)
    _skip_in_dynamo(functions)
    _bypass_inductor()
    _patch_pinned_memory(library)
    _patch_parameters()
    _patch_accelerator()
    _patch_streams()
    _patch_optimizers()
    generator.register()
    storage.register()
    typed.register()
    data_parallel.register()
    torch.serialization.register_package(5, serialize.tag, serialize.restore)
    _patch_clear_autocast_cache()
    _patch_exchange()
    _trace_as_tensors()


def _patch_exchange() -> None:
    """Let ``torch.from_dlpack`` return a device tensor as it is; refuse a capsule of its memory."""
    take, give = torch.from_dlpack, torch.utils.dlpack.to_dlpack

    @functools.wraps(take)
    def from_dlpack(ext_tensor: Any, **options: Any) -> Tensor:
        if isinstance(ext_tensor, SimTensor) and options.get("device") in (None, ext_tensor.device):
            return ext_tensor.detach()
        return take(ext_tensor, **options)

    def to_dlpack(tensor: Tensor) -> Any:
        return tensor.__dlpack__() if isinstance(tensor, SimTensor) else give(tensor)

    torch.from_dlpack = torch.utils.dlpack.from_dlpack = from_dlpack
    torch.utils.dlpack.to_dlpack = torch.to_dlpack = to_dlpack


def _trace_as_tensors() -> None:
    """Let ``make_fx`` record operators on the device's tensors, not those on their payloads.

    Otherwise ``torch.func.linearize`` takes what it should differentiate for a constant.
    """
    from torch.fx.experimental import proxy_tensor

    proxy_tensor.HANDLED_TYPES = (*proxy_tensor.HANDLED_TYPES, SimTensor)


def _dispatch_boxed(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Call `tensor.dispatch` with the arguments of a boxed fallback kernel."""
    with torch._C.DisableTorchFunction():
        return dispatch(op, args, kwargs)


def _patch_clear_autocast_cache() -> None:
    """Patch ``torch.clear_autocast_cache`` so that it clears the simulated device's cache too."""
    original = torch.clear_autocast_cache

    @functools.wraps(original)
    def clear_autocast_cache() -> None:
        original()
        autocast.clear_cache()

    torch.clear_autocast_cache = clear_autocast_cache


def _skip_in_dynamo(functions: list[Any]) -> None:
    """Make Dynamo skip these functions: operations on the simulated device run eagerly."""
    from torch._C._dynamo import eval_frame

    if hasattr(eval_frame, "set_code_exec_strategy"):
        skip = eval_frame._FrameExecStrategy(*[eval_frame._FrameAction.SKIP] * 2)
        for function in functions:
            eval_frame.set_code_exec_strategy(function.__code__, skip)


def _bypass_inductor() -> None:
    """Patch ``torch.compile``'s Inductor to run a graph eagerly if it uses the simulated device."""
    call = torch._TorchCompileInductorWrapper.__call__

    @functools.wraps(call)
    def compile_or_not(self: Any, model_: Any, inputs_: Any, **more: Any) -> Any:
        default = torch.utils._device.CURRENT_DEVICE  # some releases leave it out of the graph
        if any(map(_node_uses_sim, model_.graph.nodes)) or getattr(default, "type", "") == "sim":
            return model_.forward
        return call(self, model_, inputs_, **more)

    torch._TorchCompileInductorWrapper.__call__ = compile_or_not


def _node_uses_sim(node: Any) -> bool:
    """Return whether a node of an FX graph has a value or an argument on, or naming, the simulated device."""

    def is_sim(x: Any) -> bool:
        device = x.device if isinstance(x, Tensor) else x
        return isinstance(device, torch.device) and device.type == "sim"

    return any(map(is_sim, tree_leaves((node.meta.get("example_value"), node.args, node.kwargs))))


# --- Parameters keep their identity when a module moves, as on CUDA


def _patch_parameters() -> None:
    """Patch ``Tensor.data`` and uninitialized parameters so that ``module.to("sim")`` keeps identity.

    As on CUDA, the module's Parameter objects stay the same; lazy ones move when they are materialized.
    """
    data = Tensor.data
    compatible = torch._has_compatible_shallow_copy_type
    materialize = UninitializedTensorMixin.materialize

    def get_data(self: Tensor) -> Tensor:
        return data.__get__(self)

    def set_data(self: Tensor, value: Tensor) -> None:
        if is_lazy(self) and isinstance(value, SimTensor):
            self._sim_pending_device = value.device  # uninitialized: moved when it is materialized
        elif isinstance(self, SimTensor) or isinstance(value, SimTensor):
            _swap_contents(self, value)
        else:
            data.__set__(self, value)

    def is_compatible(input: torch.Tensor, from_: torch.Tensor) -> bool:
        if isinstance(input, SimTensor) or isinstance(from_, SimTensor):
            return isinstance(input, Parameter)
        return compatible(input, from_)

    @functools.wraps(materialize)
    def materialize_on_device(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        pending = device or self.__dict__.pop("_sim_pending_device", None)
        if pending is None or torch.device(pending).type != "sim":
            materialize(self, shape, device, dtype)
            return
        materialize(self, shape, "cpu", dtype)
        self.data = self.data.to(pending)

    @functools.wraps(Tensor.to)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or device.type != "sim":
            return Tensor.to(self, *args, **kwargs)
        other = UninitializedBuffer(dtype=dtype)
        other._sim_pending_device = device
        return other

    def lazy_new(make: Any) -> Any:
        @functools.wraps(make)
        def new(
            cls: type,
            requires_grad: bool = False,
            device: Any = None,
            dtype: Any = None,
            **more: Any,
        ) -> Any:
            target = torch.get_default_device() if device is None else torch.device(device)
            if target.type != "sim":
                return make(cls, requires_grad, device, dtype, **more)
            tensor = make(cls, requires_grad, "cpu", dtype, **more)
            tensor._sim_pending_device = MACHINE.device(target).torch_device
            return tensor

        return new

    for kind, needs in ((UninitializedParameter, True), (UninitializedBuffer, False)):
        kind.__new__ = lazy_new(kind.__new__)
        kind.__new__.__defaults__ = (needs, None, None)
    Tensor.data = property(get_data, set_data, doc="The values, apart from autograd.")
    torch._has_compatible_shallow_copy_type = is_compatible
    UninitializedTensorMixin.materialize = materialize_on_device
    UninitializedBuffer.to = to
    UninitializedTensorMixin.sim = lambda self, device=None, **_: self.to(MACHINE.device(device).torch_device)


def _swap_contents(tensor: Tensor, value: Tensor) -> None:
    """Set ``tensor.data`` to ``value``, also across devices: identity, hooks and requires_grad stay.

    PyTorch's own setter cannot change to or from a Python device, so the two swap their ``TensorImpl``.
    """
    is_parameter = isinstance(tensor, Parameter)
    hooks = tensor._backward_hooks
    later_hooks = getattr(tensor, "_post_accumulate_grad_hooks", None)
    donor = value.detach().requires_grad_(tensor.requires_grad)
    if is_parameter and not isinstance(donor, SimTensor):
        donor = Parameter(donor, tensor.requires_grad)
    torch._C._swap_tensor_impl(tensor, donor)
    tensor.__class__, donor.__class__ = donor.__class__, tensor.__class__
    names = ("_payload", "_memory", "_is_param")
    attributes = [{n: t.__dict__.pop(n) for n in names if n in t.__dict__} for t in (tensor, donor)]
    tensor.__dict__.update(attributes[1])
    donor.__dict__.update(attributes[0])
    if is_parameter and isinstance(tensor, SimTensor):
        tensor._is_param = True
    if hooks is not None:
        tensor._backward_hooks = hooks
    if later_hooks is not None:
        tensor._post_accumulate_grad_hooks = later_hooks


# --- Pinned memory: ordinary memory with a flag, which decides how long copies take


def _patch_pinned_memory(library: Any) -> None:
    """Patch ``pin_memory``, ``is_pinned`` and the factories' ``pin_memory=True``."""
    if torch.cuda.is_available():
        _pin_for_cuda()
    else:
        library.impl("is_pinned", lambda tensor, device=None: is_pinned(tensor), "CPU")
        library.impl("_pin_memory", _pin, "CPU")
    constructors = _device_constructors()  # which `with torch.device(...)` gives a device
    for name in _PINNABLE.split():
        plain = getattr(torch, name)
        factory = _pinnable_factory(plain)
        _register_builtin(factory, f"aten::{name}")  # for TorchScript
        if plain in constructors:
            constructors.add(factory)  # Dynamo looks there for what is in `torch`
        setattr(torch, name, factory)
    for name in ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros"):
        setattr(Tensor, name, _pinnable_factory(getattr(Tensor, name)))


_PINNABLE = (
    "empty zeros ones full rand randn randint tensor as_tensor arange range linspace logspace eye randperm "
    "normal empty_strided empty_permuted empty_like zeros_like ones_like full_like rand_like randn_like "
    "randint_like "
    "scalar_tensor tril_indices triu_indices bartlett_window blackman_window hamming_window hann_window "
    "kaiser_window"
)
"""The functions of ``torch`` that take ``pin_memory``."""


def _pin(tensor: Tensor, device: Any = None) -> Tensor:
    """Return a copy of a CPU tensor that is marked as pinned, and charge the host for it."""
    _charge_pinning(tensor)
    return mark_pinned(tensor.clone())


def _charge_pinning(tensor: Tensor) -> None:
    """Advance the virtual clock by the time of ``tensor.pin_memory()``, if there is a simulated device."""
    if MACHINE.devices:
        MACHINE.device().clock.pin(tensor.numel() * tensor.element_size())


def _pin_for_cuda() -> None:
    """Patch ``pin_memory`` and ``is_pinned`` to use CUDA, where PyTorch would ask the simulated device.

    The memory is pinned for CUDA, and marked as pinned for the simulated device too.
    """
    pin, pinned = Tensor.pin_memory, Tensor.is_pinned

    @functools.wraps(pin)
    def pin_memory(self: Tensor, device: Any = None) -> Tensor:
        if isinstance(self, SimTensor):
            return pin(self)
        with warnings.catch_warnings():  # naming the device is deprecated, and here the only way
            warnings.simplefilter("ignore", DeprecationWarning)
            if pinned(self, "cuda"):
                return self
            _charge_pinning(self)
            return mark_pinned(pin(self, "cuda"))

    @functools.wraps(pinned)
    def is_pinned(self: Tensor, device: Any = None) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return False if isinstance(self, SimTensor) else pinned(self, "cuda")

    Tensor.pin_memory, Tensor.is_pinned = pin_memory, is_pinned


def _pinnable_factory(factory: Any) -> Any:
    """Return a factory function (``torch.empty`` ...) whose ``pin_memory=True`` works without CUDA."""
    takes_values = factory.__name__ in ("tensor", "as_tensor")

    @functools.wraps(factory)
    def make(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Tensor:
        target = kwargs.get("device")
        on_sim = target is not None and torch.device(target).type == "sim"
        if takes_values and on_sim and _is_fake():
            # The C++ factory would ignore the mode and return a real tensor.
            needs = kwargs.pop("requires_grad", False)
            tensor = factory(*args, **{**kwargs, "device": "cpu"}).to(target)
            tensor.constant = None  # no constant folding on this device
            return tensor.requires_grad_() if needs else tensor
        tensor = factory(*args, **kwargs)
        if not pin_memory:
            return tensor
        if tensor.device.type != "cpu":
            raise RuntimeError("Only dense CPU tensors can be pinned")
        return tensor.pin_memory() if torch.cuda.is_available() else mark_pinned(tensor)

    return make


def _is_fake() -> bool:
    """Return whether a FakeTensorMode is active, as during compilation: tensors then have no values."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


# --- torch.accelerator: its functions that are in C++


def _patch_accelerator() -> None:
    """Patch the functions of ``torch.accelerator`` that are implemented in C++."""
    sim = torch.sim
    shared_names = (
        "synchronize current_stream set_stream empty_cache empty_host_cache memory_allocated "
        "max_memory_allocated memory_reserved max_memory_reserved memory_stats "
        "reset_peak_memory_stats reset_accumulated_memory_stats"
    )
    names = {name: getattr(sim, name) for name in shared_names.split()} | {
        "current_device_index": sim.current_device,
        "current_device_idx": sim.current_device,
        "set_device_index": sim.set_device,
        "set_device_idx": sim.set_device,
        "device_index": sim.device,
        "get_device_capability": _capability,
        "get_memory_info": sim.mem_get_info,
    }
    for owner in (torch.accelerator, getattr(torch.accelerator, "memory", None)):
        for name, sim_function in names.items():
            if hasattr(owner, name):
                setattr(owner, name, _dispatch_by_device(sim_function, getattr(owner, name)))


def _capability(device: Any = None) -> dict[str, Any]:
    """Return the dict of ``torch.accelerator.get_device_capability``: the supported dtypes."""
    MACHINE.device(device)
    whole = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
    real = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    return {"supported_dtypes": {*whole, *real, torch.complex64, torch.complex128}}


def _dispatch_by_device(sim_function: Any, original: Any) -> Any:
    """Return a function that calls ``sim_function``, or PyTorch's for another device.

    Another device is one that an argument names, or is on.
    """

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            kind = getattr(value, "device", value)
            if isinstance(kind, (str, torch.device)) and torch.device(kind).type != "sim":
                if torch.device(kind).type == "cpu":
                    raise ValueError("cpu doesn't match the current accelerator sim.")
                module = torch.get_device_module(torch.device(kind))
                return getattr(module, sim_function.__name__, original)(*args, **kwargs)
        return sim_function(*args, **kwargs)

    return call


# --- torch.Stream and torch.Event: PyTorch's own have one stream for a Python device


class _DispatchingType(type):
    """The metaclass of a replaced class: a call returns ``sim_class`` or PyTorch's ``original`` by device."""

    sim_class: type
    original: type

    def __call__(cls, device: Any = None, **kwargs: Any) -> Any:
        if device is not None:
            kwargs["device"] = device
        named = "stream_id" in kwargs or (device is not None and torch.device(device).type != "sim")
        return cls.original(**kwargs) if named else cls.sim_class(**kwargs)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, (cls.sim_class, cls.original))

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, (cls.sim_class, cls.original))


def _patch_streams() -> None:
    """Replace ``torch.Stream`` and ``torch.Event`` by classes that dispatch by device."""
    for sim_class in (Stream, Event):
        name = sim_class.__name__
        original = getattr(torch, name)
        classes = {"sim_class": sim_class, "original": original}
        setattr(torch, name, _DispatchingType(name, (original,), classes))


# --- Optimizers: on CUDA, foreach is the default


def _patch_optimizers() -> None:
    """Let optimizers use their ``foreach`` implementation by default for simulated tensors."""
    from torch.optim import optimizer

    if SimTensor not in optimizer._foreach_supported_types:
        optimizer._foreach_supported_types.append(SimTensor)
