"""``torch.distributed`` by name: ``"nccl"`` becomes gloo on the payloads; collectives take modelled time.

Each rank is a process with its own virtual clock. The clocks of ranks are not compared, so waiting for a
slower rank takes no modelled time.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from .cluster.collectives import collective_seconds
from .patches import Patches
from .tensor import SPECIAL, SimTensor

_KINDS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "gather",
    "alltoall_": "all_gather",
    "alltoall_base_": "all_gather",
    "send": "send_recv",
    "recv_": "send_recv",
    "recv_any_source_": "send_recv",
    "barrier": "barrier",
}
"""The operators of ``torch.distributed``, with the kind of collective that `collective_seconds` knows."""


def patch(patches: Patches) -> None:
    """Patch ``torch.distributed`` if this PyTorch has it."""
    if not torch.distributed.is_available():
        return
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    for name, kind in _KINDS.items():
        packet = getattr(torch.ops.c10d, name, None)
        if packet is not None:
            SPECIAL[packet.default] = functools.partial(_collective, kind)
    asked: list[str] = []
    begin, new_group, get_backend, barrier = (
        c10d.init_process_group,
        c10d.new_group,
        c10d.get_backend,
        c10d.barrier,
    )

    @functools.wraps(begin)
    def begin_by_name(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        asked[:] = ["nccl" if backend is None or "nccl" in str(backend) else str(backend)]
        kwargs.pop("device_id", None)
        kwargs.pop("pg_options", None)
        begin("gloo", *args, **kwargs)

    @functools.wraps(new_group)
    def new_gloo_group(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pg_options", None)
        kwargs.pop("device_id", None)
        if kwargs.get("backend") is not None:
            kwargs["backend"] = "gloo"
        return new_group(*args, **kwargs)

    @functools.wraps(get_backend)
    def named_backend(group: Any = None) -> str:
        return asked[0] if asked and get_backend(group) == "gloo" else get_backend(group)

    @functools.wraps(barrier)
    def gloo_barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return barrier(*([] if group is None else [group]), async_op=async_op)

    reduce = c10d.all_reduce

    @functools.wraps(reduce)
    def all_reduce(
        tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
    ) -> Any:
        if op != dist.ReduceOp.AVG or async_op:
            return reduce(tensor, op, group, async_op)
        reduce(tensor, dist.ReduceOp.SUM, group)  # gloo has no average
        tensor.div_(dist.get_world_size(group))
        return None

    for name, replacement in {
        "all_reduce": all_reduce,
        "init_process_group": begin_by_name,
        "new_group": new_gloo_group,
        "get_backend": named_backend,
        "barrier": gloo_barrier,
        "is_nccl_available": lambda: True,
    }.items():
        for owner in (dist, c10d):
            patches.set(owner, name, replacement)


def _collective(kind: str, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a collective on the payloads by gloo, and charge its modelled time to the device."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, SimTensor)]
    plain, plain_kwargs = tree_map_only(SimTensor, lambda x: x._payload, (args, kwargs))
    result = op(*plain, **plain_kwargs)
    if tensors:
        device = tensors[0]._memory.device
        nbytes = sum(tensor.nbytes for tensor in tensors)
        if kind == "all_gather":  # the inputs and the outputs
            nbytes = nbytes * _ranks(args) // (_ranks(args) + 1)
        device.clock.launch(
            kind, collective_seconds(kind, nbytes, _ranks(args), device.profile), device.stream
        )
    ours = {id(tensor._payload): tensor for tensor in tensors}
    return tree_map_only(torch.Tensor, lambda x: ours.get(id(x), x), result)


def _ranks(args: tuple[Any, ...]) -> int:
    """Return the number of ranks of the group among an operator's arguments."""
    unbox = getattr(torch.distributed.ProcessGroup, "unbox", None)
    for x in args:
        if unbox is not None and isinstance(x, torch.ScriptObject) and "ProcessGroup" in str(x._type()):
            return unbox(x).size()
    return torch.distributed.get_world_size()
