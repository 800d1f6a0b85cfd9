"""The tensor subclass of simulated devices, and the dispatch of operations on it.

A `SimTensor` tells PyTorch that it is on ``sim:0`` and carries an ordinary CPU tensor, its payload.
PyTorch passes every operation on it to `dispatch` (through ``__torch_dispatch__``, below autograd), which

1. checks that all tensors are on one device, else raises CUDA's error;
2. runs the operation on the payloads, so that results equal the CPU's;
3. allocates device memory for new results;
4. charges the modelled time to the device's clock;
5. wraps the results.

`backend` registers the device with PyTorch; this module registers nothing.
"""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

from . import cost, generator, latency, refusals, serialize, storage
from .host import Costs, is_library, takes_lists
from .machine import CPU, MACHINE, Device, Memory, SynchronizationError
from .mismatch import CONVOLUTIONS, check_indices, mismatch

aten = torch.ops.aten
_KEY = torch._C.DispatchKey
_is_alias_of = torch._C._is_alias_of
_storage_nbytes = torch._C.StorageBase.nbytes


class SimTensor(Tensor):
    """A tensor on a simulated device; its values are in a CPU tensor, the payload."""

    _payload: Tensor  # the CPU tensor that holds the values
    _memory: Memory  # the device memory of its storage, shared by all views
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Pass an operator to `dispatch`; its exceptions are raised without the inner stack frames.

        A jagged nested tensor, which holds tensors of this class, handles its operators itself.
        """
        if len(types) > 1 and any(kind.__name__ == "NestedTensor" for kind in types):
            return NotImplemented
        try:
            with torch._C.DisableTorchFunction():  # a backward pass calls this with modes on, see `named`
                return dispatch(op, args, kwargs or {})
        except Exception as error:
            # The frames below would keep the tensors alive as long as the error is kept; on CUDA there are
            # no such frames.
            args = kwargs = error.__context__ = error.__traceback__ = None
            raise error

    @property
    def is_nested(self) -> bool:
        """Whether it is a nested tensor; its shape is then that with padding."""
        return self._payload.is_nested

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        """Return the text that a CUDA tensor would have, with the simulated device's name."""
        from torch._tensor_str import PRINT_OPTS, _add_suffixes, _tensor_str

        with torch.no_grad():
            host = Tensor.cpu(Tensor.detach(self))
        if host.layout is not torch.strided or host.is_nested:
            body = repr(host).removeprefix("tensor(").removesuffix(")")
            return f"tensor({body}, device='{self.device}')"
        suffixes = [f"device='{self.device}'"]
        if not host.numel() and host.dim() != 1:
            suffixes.append(f"size={tuple(host.shape)}")
        usual = (torch.get_default_dtype(), torch.int64, torch.bool)
        if host.dtype not in usual or (not host.numel() and host.dtype is not usual[0]):
            suffixes.append(f"dtype={host.dtype}")
        if self.grad_fn is not None:
            suffixes.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
        elif self.requires_grad:
            suffixes.append("requires_grad=True")
        body = _tensor_str(host, indent=7) if host.numel() else "[]"
        text = _add_suffixes("tensor(" + body, suffixes, 7, False) if PRINT_OPTS else body
        is_parameter = isinstance(self, torch.nn.Parameter)
        return f"Parameter containing:\n{text}" if is_parameter else text

    def __format__(self, spec: str) -> str:
        """Format the number in a 0-dim tensor; others only without a format spec."""
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def numpy(self, *, force: bool = False) -> Any:
        """Raise TypeError, as CUDA tensors do; with ``force=True`` copy to the host and return the array."""
        if force:
            return self.detach().cpu().numpy(force=True)
        if self.requires_grad:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
            )
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Raise TypeError, as CUDA tensors do."""
        return self.numpy()

    def __dlpack__(self, **_: Any) -> NoReturn:
        """Raise BufferError: no other library knows this device's memory. ``torch.from_dlpack`` does."""
        raise BufferError(
            f"A tensor on {self.device} has no device memory that another library could read. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def record_stream(self, stream: Any) -> None:
        """Do nothing: the memory of a simulated tensor is never reused too early."""

    def backward(self, gradient: Tensor | None = None, *args: Any, **kwargs: Any) -> None:
        """Compute gradients, as ``Tensor.backward``; ``gradient`` must be on this device."""
        if gradient is not None and gradient.device != self.device and gradient.dim():
            raise RuntimeError(
                f"invalid gradient at index 0 - expected device {self.device} but got {gradient.device}"
            )
        super().backward(gradient, *args, **kwargs)

    def tolist(self) -> Any:
        """Return the values as Python numbers; copies to the host, which synchronizes."""
        return self.detach().cpu().tolist()

    def data_ptr(self) -> int:
        """Return the address of the payload in host memory."""
        return self._payload.data_ptr()

    def untyped_storage(self) -> Any:
        """Return the payload's storage, with the device memory attached."""
        return storage.device_storage(self._payload, self._memory)

    def type(self, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return the type's name, such as ``'torch.sim.FloatTensor'``, or with ``dtype`` convert."""
        if dtype is not None:
            return super().type(dtype, *args, **kwargs)
        return self._payload.type().replace("torch.", "torch.sim.", 1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a copy in new device memory; tensors that share memory still share it."""
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment."
            )
        memory = self._memory
        payload = _copy_payload(self._payload, memo)  # tensors that share memory still do
        if id(memory) not in memo:
            memo[id(memory)] = Memory(memory.device, memory.nbytes)
            memory.device.clock.copy("d2d", memory.nbytes, stream=memory.device.stream)
        result = wrap(payload, memo[id(memory)]).requires_grad_(self.requires_grad)
        memo[id(self)] = result
        result.__dict__.update(copy.deepcopy(_attributes(self), memo))
        if isinstance(self, torch.nn.Parameter):
            result._is_param = True
        if self.grad is not None:
            result.grad = copy.deepcopy(self.grad, memo)
        return result

    def __copy__(self) -> SimTensor:
        """Return a tensor with the same payload and device memory."""
        result = wrap(self._payload, self._memory).requires_grad_(self.requires_grad)
        result.__dict__.update(_attributes(self))
        if isinstance(self, torch.nn.Parameter):
            result._is_param = True
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return the parts for pickle; see `serialize.reduce`."""
        return serialize.reduce(self, self._payload)


def _copy_payload(payload: Tensor, memo: dict[int, Any]) -> Tensor:
    """Return a deep copy of a payload; its storage, which reports the device, is copied as one of the CPU."""
    if payload.layout is not torch.strided or payload.is_meta or payload.is_nested:
        return copy.deepcopy(payload, memo)
    source = payload.untyped_storage()
    key = ("payload", source._cdata)
    if key not in memo:
        memo[key] = torch.UntypedStorage(_storage_nbytes(source))
        memo[key].copy_(source)
    place = (payload.storage_offset(), payload.shape, payload.stride())
    result = torch.empty(0, dtype=payload.dtype, device=CPU).set_(memo[key], *place)
    for is_lazy, mark in ((payload.is_conj(), torch._C._set_conj), (payload.is_neg(), torch._C._set_neg)):
        if is_lazy:
            mark(result, True)
    return result


def _attributes(tensor: SimTensor) -> dict[str, Any]:
    """Return the attributes that the program has set on a tensor."""
    internal = ("_payload", "_memory", "_is_param")
    return {name: value for name, value in tensor.__dict__.items() if name not in internal}


def wrap(payload: Tensor, memory: Memory) -> SimTensor:
    """Return a SimTensor whose payload is a CPU tensor; nothing is copied, allocated or charged.

    As a side effect, autograd's multithreading is disabled.

    Parameters
    ----------
    payload
        The CPU tensor that holds the values; the result has its dtype, shape and strides.
    memory
        The block of device memory behind it, which gives the device; a view passes its base's.
    """
    if torch._C._is_multithreading_enabled():
        # PyTorch creates one autograd thread for a Python device: sim:1 would have none. Without threads
        # backward runs in the calling thread, in the same order.
        torch._C._set_multithreading_enabled(False)
    dtype, device = payload.dtype, memory.device.torch_device
    if payload.is_nested:
        shape = _padded_shape(payload)
        tensor = Tensor._make_wrapper_subclass(SimTensor, shape, dtype=dtype, device=device)
    elif payload.layout is not torch.strided:
        layout = {"layout": payload.layout, "dispatch_layout": True}
        tensor = Tensor._make_wrapper_subclass(SimTensor, payload.shape, dtype=dtype, device=device, **layout)
    else:
        tensor = Tensor._make_wrapper_subclass(
            SimTensor,
            payload.shape,
            strides=payload.stride(),
            storage_offset=payload.storage_offset(),
            dtype=dtype,
            device=device,
        )
        if payload.is_conj():
            torch._C._set_conj(tensor, True)
        if payload.is_neg():
            torch._C._set_neg(tensor, True)
    tensor._payload = payload
    tensor._memory = memory
    return tensor


def _padded_shape(nested: Tensor) -> list[int]:
    """Return the shape that a nested tensor would have with padding."""
    sizes = nested._nested_tensor_size()
    return [len(sizes), *sizes.amax(0).tolist()]


def nbytes(payload: Tensor) -> int:
    """Return the bytes of a CPU tensor's storage, the whole one also for a view.

    Raises
    ------
    NotImplementedError
        If the tensor is neither dense nor sparse COO.
    """
    if payload.layout is torch.strided:
        return _storage_nbytes(payload.untyped_storage())
    _check_supported(payload)
    return payload._indices().nbytes + payload._values().nbytes


def _check_supported(tensor: Tensor) -> None:
    """Raise NotImplementedError for a tensor that is neither strided nor sparse COO."""
    kind = str(tensor.layout)
    if tensor.is_nested:
        kind = "nested ones (only nn.TransformerEncoder makes those, for itself)"
    elif tensor.is_quantized:
        kind = "quantised ones"
    elif tensor.is_mkldnn:
        kind = "those of oneDNN"
    elif tensor.layout in (torch.strided, torch.sparse_coo):
        return
    raise NotImplementedError(f"The simulated device has strided and sparse COO tensors, not {kind}.")


# --- The properties of an operator, cached


class _OpInfo(NamedTuple):
    """The properties of an operator that its dispatch needs."""

    name: str
    random: bool  # draws random numbers
    synchronizes: bool  # the host needs the values to go on
    resizes: bool  # may change a tensor's sizes in place
    in_place: bool  # writes its first tensor
    outs: tuple[str, ...]  # the names of its ``out=``
    indexes: bool  # takes indices, which may be on the host
    host_args: tuple[int, ...]  # the positions of arguments that may be CPU tensors
    composite: bool  # CompositeImplicitAutograd; it is dispatched here in inference mode only
    library: bool  # has the host overhead of a library call; see `host`
    foreach: bool  # applies to each tensor of a list
    like: bool  # creates a tensor like its first argument, by default on the same device
    refusable: bool  # CUDA may refuse what the CPU accepts; see `refusals`


_INDEXES = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}
_HOST_ARGS = {  # the last four, of compiled optimizers, take a tensor of scalars
    aten._pack_padded_sequence: (1,),
    aten._foreach_addcdiv: (3,),
    aten._foreach_addcdiv_: (3,),
    aten._foreach_addcmul: (3,),
    aten._foreach_addcmul_: (3,),
}
_op_info: dict[Any, _OpInfo] = {}


def _info_of(op: Any) -> _OpInfo:
    """Return the properties of an operator, cached."""
    info = _op_info.get(op)
    if info is None:
        tags, packet = op.tags, op.overloadpacket
        arguments = op._schema.arguments
        outs = tuple(a.name for a in arguments if a.is_out)
        name = op._schema.name.removeprefix("aten::")
        info = _op_info[op] = _OpInfo(
            name=name,
            random=torch.Tag.nondeterministic_seeded in tags,
            synchronizes=packet not in _INDEXES  # of those only a mask lets the host wait
            and (torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags),
            resizes=torch.Tag.inplace_view in tags or packet is aten.resize_ or bool(outs),
            in_place=bool(arguments and arguments[0].is_write and not outs),
            outs=outs,
            indexes=packet in _INDEXES,
            host_args=_HOST_ARGS.get(packet, ()),
            composite=is_composite(op),
            library=is_library(name),
            foreach=takes_lists(name),
            like=name.startswith("new_") or name.endswith("_like"),
            refusable=refusals.may_refuse(op),
        )
    return info


def is_composite(op: Any) -> bool:
    """Return whether an operator is CompositeImplicitAutograd on every device.

    False for operators with a kernel on the CPU and CUDA that are decomposed on other devices.
    """
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(op.name(), "CompositeImplicitAutograd") and not has(op.name(), "CPU")


def decompose(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator by its CompositeImplicitAutograd decomposition, and return the result."""
    return op._op_dk(_KEY.CompositeImplicitAutograd, *args, **kwargs)


# --- Executing an operation


def dispatch(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Execute an ATen operator on simulated devices: by its handler in `SPECIAL`, if any, else by `compute`.

    Called by ``SimTensor.__torch_dispatch__`` and by the backend's kernels. Returns what the operator
    returns, with `SimTensor` for tensors on a device; values are computed on the CPU.

    Parameters
    ----------
    op
        The ``OpOverload``, such as ``torch.ops.aten.mm.default``.
    args, kwargs
        Its arguments, with `SimTensor` for tensors on a device.

    Raises
    ------
    RuntimeError
        If tensors are on different devices.
    torch.OutOfMemoryError
        If the device has no room for the result.
    """
    handler = SPECIAL.get(op)
    if handler is not None:
        return handler(op, args, kwargs)
    return compute(op, args, kwargs)


def _unwrap(x: Any, tensors: list[SimTensor], host_tensors: list[Tensor]) -> Any:
    """Return an argument with payloads in place of SimTensors, and the CPU in place of a device.

    Its SimTensors are appended to ``tensors``, its CPU tensors, except 0-dim ones, to ``host_tensors``.
    """
    kind = x.__class__
    if kind is SimTensor:
        tensors.append(x)
        return x._payload
    if kind is list or kind is tuple:
        if x and (isinstance(x[0], (Tensor, list)) or x[0] is None or isinstance(x[-1], Tensor)):
            return [_unwrap(item, tensors, host_tensors) for item in x]
        return x
    if kind is torch.device:
        return CPU
    if isinstance(x, Tensor):
        if isinstance(x, SimTensor):  # a subclass of it
            tensors.append(x)
            return x._payload
        if x.device.type == "sim":
            _check_supported(x)
            raise NotImplementedError("The simulated device has no values of this tensor of C++'s.")
        if x.dim():
            host_tensors.append(x)
    return x


def compute(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Execute an operator that needs no handler of `SPECIAL`, or for such a handler; see `dispatch`.

    Check devices, compute on the payloads, wrap the results in new device memory, and charge the time.
    """
    info = _info_of(op)
    if info.composite:
        return decompose(op, args, kwargs)
    tensors: list[SimTensor] = []
    host_tensors: list[Tensor] = []

    plain = [_unwrap(x, tensors, host_tensors) for x in args]
    plain_kwargs = {key: _unwrap(x, tensors, host_tensors) for key, x in kwargs.items()}
    if tensors:
        device = tensors[0]._memory.device
        if MACHINE.forked:
            MACHINE.device(device.index)
        if info.indexes:
            check_indices(args)
        elif len(host_tensors) > sum(_is_host_tensor(args[i]) for i in info.host_args if i < len(args)):
            mismatch(op, args, kwargs)
        for other in tensors:
            if other._memory.device is not device:
                mismatch(op, args, kwargs)
        if info.in_place:
            if _is_host_tensor(args[0]):
                mismatch(op, args, kwargs)
        elif info.outs and any(_is_host_tensor(kwargs[name]) for name in info.outs):
            mismatch(op, args, kwargs)
        elif info.like and (target_device := kwargs.get("device")) is not None:
            if target_device.type != "sim":
                return op(*plain, **{**plain_kwargs, "device": target_device})
            device = MACHINE.device(target_device)
        if info.refusable:
            refusals.refuse(op, info.name, args, kwargs)
    else:
        device = MACHINE.device(kwargs.get("device"))
        if kwargs.get("pin_memory"):
            raise RuntimeError("Only dense CPU tensors can be pinned")

    try:
        if info.random and not _has_generator(kwargs, args, device):
            with device_rng(device):
                out = op(*plain, **plain_kwargs)
        elif _may_be_lazy(tensors):
            with _conjugate_aware():
                out = op(*plain, **plain_kwargs)
        elif op in _MATRIX:
            out = _accumulate_in_float32(op, plain, plain_kwargs)
        else:
            out = op(*plain, **plain_kwargs)
    except RuntimeError as error:
        if op.overloadpacket in CONVOLUTIONS and args[0].dtype is not args[1].dtype:
            mismatch(op, args, kwargs)
        text = str(error)
        if "expected m1 and m2" in text:  # CUDA's message has other names
            raise RuntimeError(text.replace("m1 and m2", "mat1 and mat2")) from None
        _raise_if_full(error, device)
        out = NotImplemented
        if any(words in text for words in _REFUSED_16_BITS):
            with device_rng(device) if info.random else _nothing:
                out = refusals.run_wider(op, plain, plain_kwargs)
        if out is NotImplemented:
            if isinstance(error, NotImplementedError):
                raise NotImplementedError(refusals.in_cudas_words(text)) from None
            raise

    result = _wrap_all(out, tensors, device, info)
    try:
        _charge(op, info, device, args, plain, plain_kwargs, out, tensors, host_tensors, result)
    except SynchronizationError:
        raise
    except Exception:  # noqa: BLE001  (an error of the accounting must not fail the operation)
        MACHINE.count_unmodelled()
    return result


_REFUSED_16_BITS = ("not implemented for '", "Unsupported dtype", "FFT doesn't support tensors")

# The CPU's own 16-bit kernels of these are slow, some by a factor of ten, or round more than CUDA's.
_MATRIX = {
    aten.grid_sampler_2d.default,
    aten.grid_sampler_2d_backward.default,
    aten.grid_sampler_3d.default,
    aten.grid_sampler_3d_backward.default,
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten.mv.default,
    aten.addmv.default,
    aten.convolution.default,
    aten.convolution_backward.default,
}


def _accumulate_in_float32(op: Any, plain: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a matrix operation on 16-bit payloads as tensor cores do: accumulate in float32, round once.

    A result beyond the largest float16 is rounded to infinity. Other dtypes are computed as usual.
    """
    dtypes = {x.dtype for x in plain if isinstance(x, Tensor)}
    low = dtypes.pop()
    if dtypes or low not in (torch.float16, torch.bfloat16):
        return op(*plain, **kwargs)
    out = op(*(x.float() if isinstance(x, Tensor) else x for x in plain), **kwargs)
    if isinstance(out, Tensor):
        return out.to(low)
    return tuple(x if x is None else x.to(low) for x in out)


def _raise_if_full(error: RuntimeError, device: Device) -> None:
    """Raise the device's OutOfMemoryError if the device lacks room for a result, too.

    Called when the CPU kernel failed; ``error`` is a host out-of-memory error, or another, which is ignored.
    """
    match = re.search(r"you tried to allocate (\d+) bytes", str(error))
    if match:
        device.allocator.free(device.allocator.allocate(int(match[1])))


def _wrap_all(out: Any, tensors: list[SimTensor], device: Device, info: _OpInfo) -> Any:
    """Return an operator's result as SimTensors, lists and tuples item by item.

    In-place results are the input SimTensor itself, views share its memory, others get new device memory.
    """
    if isinstance(out, Tensor):
        if out.is_nested and info.name not in _NESTED_OPS:
            _check_supported(out)
        for tensor in tensors:
            if tensor._payload is out:
                if info.resizes:
                    _sync_metadata(tensor)
                return tensor
        if out.layout is torch.strided:
            for tensor in tensors:
                if tensor._payload.layout is torch.strided and _is_alias_of(out, tensor._payload):
                    if torch.is_inference_mode_enabled() and not tensor.is_inference():
                        with torch.inference_mode(False):  # a view of a normal tensor is one too
                            return wrap(out, tensor._memory)
                    return wrap(out, tensor._memory)
        return wrap(out, Memory(device, nbytes(out)))
    if isinstance(out, (list, tuple)):
        return type(out)(_wrap_all(item, tensors, device, info) for item in out)
    return out


# In evaluation nn.TransformerEncoder removes the padding: its layers get a nested tensor.
_NESTED_OPS = ("_nested_tensor_from_mask", "_transformer_encoder_layer_fwd", "to_padded_tensor")


def _padded_meta(x: Any) -> Any:
    """Return a meta tensor with the padded shape of a nested tensor; anything else as it is."""
    if isinstance(x, Tensor) and x.is_nested:
        return torch.empty(_padded_shape(x), dtype=x.dtype, device="meta")
    return x


def _sync_metadata(tensor: SimTensor) -> None:
    """Give a tensor the sizes, strides and offset of its payload, and more device memory if that needs it.

    After an operation that may resize in place (``resize_``, ``set_``, ``out=``, views in place). Memory
    never shrinks; a payload that is not strided changes nothing.
    """
    payload = tensor._payload
    if payload.layout is not torch.strided:
        return
    size = nbytes(payload)
    if size > tensor._memory.nbytes:
        tensor._memory.resize(size)
    shape, stride, offset = payload.shape, payload.stride(), payload.storage_offset()
    if (tensor.shape, tensor.stride(), tensor.storage_offset()) == (shape, stride, offset):
        return
    fresh = wrap(payload, tensor._memory)
    with no_dispatch():
        aten.set_.source_Storage_storage_offset._op_dk(
            _KEY.Meta, tensor, Tensor.untyped_storage(fresh), offset, shape, stride
        )


def _charge(
    op: Any,
    info: _OpInfo,
    device: Device,
    args: tuple[Any, ...],
    plain: list[Any],
    kwargs: dict[str, Any],
    out: Any,
    tensors: list[SimTensor],
    host_tensors: list[Tensor],
    result: Any,
) -> None:
    """Charge an operation to the device's clock and the counters."""
    if info.name in _NESTED_OPS:
        plain, out = [_padded_meta(x) for x in plain], _padded_meta(out)
    if any(tensor._payload.layout is not torch.strided for tensor in tensors):
        work = cost.Work(0, 0, "fp32")
    else:
        work = cost.work(op, tuple(plain), kwargs, out)
    if info.indexes and host_tensors:
        MACHINE.copy(device, "h2d", sum(map(_index_bytes, host_tensors)))
    if work.guessed:
        MACHINE.count_unmodelled()
    seconds = latency.seconds(work, device.profile)
    clock = device.clock
    dispatch_seconds = _dispatch_seconds(clock.costs, info, bool(seconds), tensors)
    if not seconds:
        clock.advance_host(dispatch_seconds)
    else:
        reads: list[int] = []
        writes: list[int] = []
        if clock.has_multiple_streams:
            reads = [id(tensor._memory) for tensor in tensors]
            outputs = result if isinstance(result, (list, tuple)) else [result]
            writes = [id(t._memory) for t in outputs if isinstance(t, SimTensor)]
        span = clock.launch(
            info.name, seconds, device.stream, reads, writes, work.bytes, work.flops, dispatch_seconds, work
        )
        for counters in MACHINE.counting:
            counters.launches += 1
            counters.races += span.race
        if MACHINE.arrivals:
            MACHINE.run_arrivals()
    if info.synchronizes or (info.indexes and _waits_for_mask(args, plain)):
        MACHINE.copy(device, "d2h", 8)


def _dispatch_seconds(costs: Costs, info: _OpInfo, kernel: bool, tensors: list[SimTensor]) -> float:
    """Return the host overhead of an operator in seconds, beside the launch.

    ``kernel`` says whether it launches one.
    """
    if not kernel:
        if info.name == "detach":  # by autograd when it saves tensors: on CUDA no operator
            return 0.0
        seconds = costs.view
    else:
        seconds = costs.library if info.library else costs.dispatch
        if info.foreach:
            seconds += costs.per_tensor * len(tensors)
    if torch.is_grad_enabled():
        for tensor in tensors:  # a loop, because this runs for every operation
            if tensor.requires_grad:
                return seconds + costs.record
    return seconds


def _index_bytes(index: Tensor) -> int:
    """Return the bytes copied for an index tensor on the host; a mask is copied as the indices it selects."""
    if index.dtype in _MASKS:
        return 8 * index.dim() * int(index.count_nonzero())
    return 8 * index.numel()


_MASKS = (torch.bool, torch.uint8)


def _waits_for_mask(args: Sequence[Any], plain: Sequence[Any]) -> bool:
    """Return whether the host must wait to learn how many elements a mask on the device selects.

    Not if one value is written to all of them, as in ``x[mask] = 0``.
    """
    if len(plain) > 2 and plain[2].dim() == 0:
        return False
    return any(isinstance(i, SimTensor) and i.dtype in _MASKS for i in args[1])


def _is_host_tensor(x: Any) -> bool:
    """Return whether a value is a tensor that is not on a simulated device."""
    return isinstance(x, Tensor) and not isinstance(x, SimTensor)


# --- Copies between host and device, and between devices


def _copy_(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Handle ``aten.copy_``: copies on a device, between devices, to and from the host; return the target."""
    target, source, *rest = args
    if not isinstance(source, Tensor):
        exact = {float: torch.float64, complex: torch.complex128}.get(type(source))
        source = torch.tensor(source, dtype=exact, device="cpu")
    non_blocking = bool(rest[0]) if rest else bool(kwargs.get("non_blocking", False))
    to_sim, from_sim = isinstance(target, SimTensor), isinstance(source, SimTensor)
    if to_sim and from_sim and target._memory.device is source._memory.device:
        return compute(op, args, kwargs)
    device = MACHINE.device((target if to_sim else source)._memory.device.index)
    if to_sim and from_sim:
        target._payload.copy_(source._payload)
        _charge_peer_copy(source, device, target._memory)
    elif to_sim:
        if non_blocking and source.dtype is not target.dtype and source.layout is torch.strided:
            sent = torch.empty_like(source, device=target.device)  # as on CUDA: converted there
            return compute(op, (target, sent.copy_(source, True)), {})
        target._payload.copy_(source)
        is_unconverted = source.dtype is target.dtype and source.is_contiguous()
        MACHINE.copy(
            device,
            "h2d",
            # Other dtypes and layouts are made on the host first, in memory that is not pinned.
            source.numel() * target.element_size()
            if source.layout is torch.strided
            else _copied_bytes(source),
            pinned=is_unconverted and is_pinned(source),
            non_blocking=non_blocking,
            writes=(target._memory,),
            dispatch=device.clock.costs.dispatch,
        )
    else:
        _copy_to_host(target, source, non_blocking)
    return target


def _foreach_copy_(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Handle ``aten._foreach_copy_``: lists on several devices are copied tensor by tensor, as on CUDA."""
    targets, sources, *rest = args
    if len({x.device for x in (*targets, *sources)}) == 1:
        return compute(op, args, kwargs)
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source, *rest, **kwargs)
    return None


def _copy_to_host(target: Tensor, source: SimTensor, non_blocking: bool) -> None:
    """Copy a SimTensor into a CPU tensor in place, and charge the device-to-host copy.

    With ``non_blocking`` and a pinned target the host does not wait: the target keeps its old values until
    the virtual clock reaches the copy's end, then gets those that ``source`` had at the call. Otherwise the
    host waits for the copy.
    """
    source_device = source._memory.device
    pinned = is_pinned(target)
    # The dtype is converted on the device if non_blocking, else on the host.
    sent = target if non_blocking else source._payload
    end = MACHINE.copy(
        source_device,
        "d2h",
        _copied_bytes(sent),
        pinned=pinned,
        non_blocking=non_blocking,
        reads=(source._memory,),
        dispatch=source_device.clock.costs.dispatch,
    )
    if end > MACHINE.host.now:
        value = source._payload.clone()
        has_no_data = value.is_meta  # within NoData, so zeros arrive
        MACHINE.arrivals.append((end, target.zero_ if has_no_data else lambda: target.copy_(value)))
    else:
        target.copy_(source._payload)


def _to_copy(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Handle ``aten._to_copy``, that is ``Tensor.to`` with a copy; return the copy.

    With ``non_blocking`` to the CPU it is pinned, and has zeros until the copy ends.
    """
    source, to = args[0], kwargs.get("device")
    if not isinstance(source, SimTensor):  # straight from the host: as the CPU's own kernel does it
        _check_supported(source)
        memory_format = kwargs.get("memory_format") or torch.preserve_format
        result = torch.empty_like(
            source,
            dtype=kwargs.get("dtype") or source.dtype,
            device=to,
            memory_format=memory_format,
        )
        return result.copy_(source, kwargs.get("non_blocking", False))
    source_device = source._memory.device
    if to is None or (to.type == "sim" and to.index in (None, source_device.index)):
        return compute(op, args, kwargs)
    with _conjugate_aware() if _may_be_lazy([source]) else _nothing:
        out = op(source._payload, **{**kwargs, "device": CPU})
    if to.type == "sim":
        result = wrap(out, Memory(MACHINE.device(to), nbytes(out)))
        _charge_peer_copy(source, result._memory.device, result._memory)
        return result
    if to.type != "cpu":
        return out.to(to)
    MACHINE.device(source_device.index)
    non_blocking = bool(kwargs.get("non_blocking", False))
    if non_blocking:  # as on CUDA: it lands in pinned memory, which holds whatever was there before
        out = mark_pinned(torch.zeros_like(out))
    _copy_to_host(out, source, non_blocking)
    return out


def _charge_peer_copy(source: SimTensor, device: Device, memory: Memory) -> None:
    """Charge a copy of ``source`` to ``memory`` on another device.

    It waits for the current streams of both devices, and both wait for it; the host does not wait.
    """
    source_device = source._memory.device
    device.clock.wait(device.stream, source_device.clock.record(source_device.stream))
    MACHINE.copy(
        device,
        "p2p",
        _copied_bytes(source._payload),
        non_blocking=True,
        writes=(memory,),
        dispatch=device.clock.costs.dispatch,
    )
    source_device.clock.wait(source_device.stream, device.clock.record(device.stream))


def _item(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Handle ``Tensor.item()``: return the value; charge a copy to the host, which synchronizes."""
    tensor = args[0]
    device = MACHINE.device(tensor._memory.device.index)
    with _conjugate_aware() if _may_be_lazy([tensor]) else _nothing:
        value = op(tensor._payload)
    MACHINE.copy(device, "d2h", tensor._payload.element_size(), reads=(tensor._memory,))
    return value


def _set_(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Handle ``Tensor.set_``: make a tensor use another's storage and its device memory."""
    tensor, *rest = args
    source = rest[0] if rest else tensor
    on_device = [isinstance(x, SimTensor) or hasattr(x, "_sim_memory") for x in (tensor, source)]
    if not all(on_device) or source.device != tensor.device:
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "{tensor.device}" to a storage on different '
            f'device "{source.device}".  This is no longer allowed; the devices must match.'
        )
    if rest and isinstance(rest[0], SimTensor):
        tensor._memory = rest[0]._memory
        rest[0] = rest[0]._payload
    elif rest and isinstance(rest[0], torch.UntypedStorage):
        memory = getattr(rest[0], "_sim_memory", None)
        if memory is None:
            memory = rest[0]._sim_memory = Memory(tensor._memory.device, rest[0].nbytes())
        tensor._memory = memory
    op(tensor._payload, *rest, **kwargs)
    _sync_metadata(tensor)
    return tensor


def _copied_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    if tensor.layout is not torch.strided:
        return nbytes(tensor)
    return tensor.numel() * tensor.element_size()


def is_pinned(tensor: Tensor) -> bool:
    """Return whether a CPU tensor is marked as pinned."""
    if tensor.layout is not torch.strided:
        return False
    return getattr(tensor.untyped_storage(), "_sim_pinned", False)


def mark_pinned(tensor: Tensor) -> Tensor:
    """Mark a CPU tensor's storage as pinned, and return the tensor; its views are pinned too."""
    tensor.untyped_storage()._sim_pinned = True
    return tensor


def _pack_padded(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Handle ``pack_padded_sequence``, whose lengths must be on the CPU; batch sizes are returned there."""
    lengths = args[1]
    if isinstance(lengths, SimTensor):
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D "
            f"{lengths.device} {lengths.type().split('.')[-1].removesuffix('Tensor')} tensor"
        )
    data, sizes = compute(op, args, kwargs)
    return data, sizes._payload


def _zeros(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Handle ``aten._efficientzerotensor``: return ordinary zeros, because a ZeroTensor has no memory."""
    return compute(aten.zeros.default, args, kwargs)


def _refuse_pin(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    """Raise the RuntimeError of pinning a device tensor."""
    raise RuntimeError(f"cannot pin '{args[0].type()}' only dense CPU tensors can be pinned")


SPECIAL: dict[Any, Callable[..., Any]] = {
    aten.copy_.default: _copy_,
    aten._foreach_copy_.default: _foreach_copy_,
    aten._to_copy.default: _to_copy,
    aten._local_scalar_dense.default: _item,
    aten.set_.source_Storage_storage_offset: _set_,
    aten.set_.source_Storage: _set_,
    aten.set_.source_Tensor: _set_,
    aten._pack_padded_sequence.default: _pack_padded,
    aten._pin_memory.default: _refuse_pin,
    aten._efficientzerotensor.default: _zeros,
    aten.is_pinned.default: lambda op, args, kwargs: False,
    torch.ops.prim.layout.default: lambda op, args, kwargs: args[0]._payload.layout,
}


# --- Random numbers, complex conjugates


_nothing = contextlib.nullcontext()


@contextlib.contextmanager
def device_rng(device: Device) -> Any:
    """Context manager: run CPU kernels with the state of a device's random generator, and update it."""
    host = torch.default_generator
    saved = host.get_state()
    host.set_state(device.rng)
    try:
        yield
    finally:
        device.rng = host.get_state()
        host.set_state(saved)


def _has_generator(kwargs: dict[str, Any], args: tuple[Any, ...], device: Device) -> bool:
    """Return whether a generator is passed; raise if it belongs to another device."""
    for value in (kwargs.get("generator"), *args):
        if isinstance(value, torch.Generator):
            generator.check(value, device)
            return True
    return False


def _may_be_lazy(tensors: list[SimTensor]) -> bool:
    """Return whether any tensor's payload may be lazily conjugated or negated."""
    for tensor in tensors:  # a loop, because this runs for every operation
        payload = tensor._payload
        if payload.is_complex() or payload.is_neg():
            return True
    return False


def _conjugate_aware() -> Any:
    """Return a guard within which CPU kernels resolve lazy conjugation and negation.

    Their dispatch keys are excluded below autograd.
    """
    exclude = torch._C._dispatch_tls_local_exclude_set()
    for key in (_KEY.Conjugate, _KEY.Negative, _KEY.ZeroTensor):
        exclude = exclude.remove(key)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), exclude)
