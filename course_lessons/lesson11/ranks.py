"""What the scripts of lesson 11 share: joining and leaving the process group, printing, timing."""

from __future__ import annotations

import gc
import json
import os
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional as F

from course_language import _, ngettext

from .net import digits
from .sent import Sent


def start(seconds: float = 60) -> torch.device:
    """Initialise the process group; return this rank's device: a GPU of its own if there are enough, or the
    CPU.

    The environment variable ``DEVICE`` overrides the type. With GPUs, gloo is added as a backend for CPU
    tensors: saving in the background needs it. ``seconds`` is the timeout of collectives.
    """
    for known in ("TypedStorage is deprecated", "DTensor random operators"):
        warnings.filterwarnings("ignore", message=known)
    local, here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    enough = torch.cuda.device_count() >= here
    kind = os.environ.get("DEVICE") or ("cuda" if enough else "cpu")
    on_cpu = kind == "cpu"
    device = torch.device(kind) if on_cpu else torch.device(kind, local)
    if not on_cpu:
        torch.accelerator.set_device_index(local)
    own = dist.get_default_backend_for_device(device)
    dist.init_process_group(
        own if on_cpu else f"cpu:gloo,{_(kind)}:{own}",
        timeout=timedelta(seconds=seconds),
        device_id=None if on_cpu else device,
    )
    return device


def stop() -> None:
    """Wait for all ranks, then destroy the process group."""
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


def say(text: str) -> None:
    """Print a text from rank 0 only."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def seed(device: torch.device) -> None:
    """Seed the random number generator so that the ranks' shards differ.

    On GPUs ``DTensor`` generates each shard as a part of the whole, from the same seed on all ranks. On a CPU
    each rank generates its own: the same seed would give the same rows on all ranks.
    """
    torch.manual_seed(dist.get_rank() if device.type == "cpu" else 0)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a ``DTensor``; other tensors unchanged."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def held(net: nn.Module) -> int:
    """Return the bytes of a network's parameters on this rank."""
    return sum(local(p).nbytes for p in net.parameters() if not p.is_meta)


def show(net: nn.Module) -> None:
    """Print from rank 0 its part of each parameter, and their bytes in all."""
    for name, p in net.named_parameters():
        cut = ", ".join(str(getattr(place, "dim", _("none"))) for place in p.placements)
        say(
            _("{name:20} {shape!s:12} here {local_shape!s:12} cut along {cut}").format(
                name=name, shape=tuple(p.shape), local_shape=tuple(local(p).shape), cut=cut
            )
        )
    say(_("holds {held} B of parameters").format(held=held(net)))


def table(name: str, sent: Sent, net: nn.Module) -> None:
    """Print from rank 0 a row about a step: collectives, gradients kept, bytes carried per parameter."""
    count = sum(p.numel() for p in net.parameters())
    kept = sum(local(g).nbytes for g in _gradients(net))
    both = [f"{sent.calls[kind]} {_(kind)}" for kind in ("all_gather", "reduce_scatter")]
    total = sum(sent.bytes.values()) / count
    kept_now = _("gradients kept: {kept:.2f} MB").format(kept=kept / 1e6)
    say(
        _("{name:26}| {collectives} | {kept_now} | a parameter: {total:.4g} B").format(
            name=name, collectives=", ".join(both), kept_now=kept_now, total=total
        )
    )


def _gradients(net: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the gradients, including those that FSDP keeps unsharded until it reduces them."""
    for module in net.modules():
        if isinstance(module, FSDPModule):
            for p in module._get_fsdp_state()._fsdp_param_group.fsdp_params:
                whole = getattr(p, "_unsharded_param", None)
                places = p.unsharded_accumulated_grad, getattr(whole, "grad", None)
                yield next((g for g in places if g is not None), p.sharded_param.grad)


def norms(step: int, norm: torch.Tensor, net: nn.Module) -> None:
    """Print, in step 0, the gradients' total norm, and that of this rank's shards before clipping."""
    if step == 0:
        whole = norm.full_tensor().item()
        own = torch.stack([local(p.grad).square().sum() for p in net.parameters()]).sum().sqrt()
        own = own.item() * max(1.0, whole)
        kind = type(norm).__name__
        print(
            _("norm {whole:.4f}, a {kind}; of my shards alone {own:.4f}").format(
                whole=whole, kind=_(kind), own=own
            ),
            flush=True,
        )


@torch.no_grad()
def accuracy(net: nn.Module, device: torch.device) -> None:
    """Print from rank 0 the accuracy on the test digits; all ranks must call it."""
    x, y = digits(device, new=True)
    right = (net(x).argmax(1) == y).float().mean().item()
    count = dist.get_world_size()
    say(
        ngettext(
            "{count} rank: {right:.2%} of the new digits read",
            "{count} ranks: {right:.2%} of the new digits read",
            count,
        ).format(count=count, right=right)
    )


def ddp_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor
) -> Callable[[Callable[[], Any]], None]:
    """Return a training step on random labels.

    It takes a function that returns the context manager for the backward pass, such as ``model.no_sync``.
    """
    y = torch.randint(10, (len(x),), device=x.device)

    def step(context: Callable[[], Any]) -> None:
        """Train for a step."""
        with context():
            F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def seconds_of(
    work: Callable[[], None],
    device: torch.device,
    times: int = 9,
    meet: Callable[[], Any] = dist.barrier,
) -> float:
    """Return the median seconds of several calls, without the first two; call ``meet()`` before each.

    By default that is a barrier, so all ranks must call it.
    """
    durations = []
    for _ in range(times):
        meet()
        start = perf_counter()
        work()
        if device.type != "cpu":
            torch.accelerator.synchronize()
        durations.append(perf_counter() - start)
    return statistics.median(durations[2:])


def seconds_alone(work: Callable[[], None], device: torch.device) -> float:
    """Return the median seconds of a call on rank 0 while the others wait; on those return 0."""
    median = seconds_of(work, device, meet=lambda: None) if dist.get_rank() == 0 else 0.0
    dist.barrier()
    return median


def keep(found: Mapping[int, Sequence[float]], file: str) -> None:
    """Write results to a JSON file, from rank 0."""
    if dist.get_rank() == 0:
        Path(file).write_text(json.dumps(found), encoding="utf-8")


@contextmanager
def alone() -> Iterator[DeviceMesh]:
    """Create a process group of one rank in this process for the block; yield its mesh, a CPU's."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        gc.collect()
        dist.destroy_process_group()
