"""A script that fails for just the model it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.exercises import Exercise, Judge


def build_sharded(make_net, fully_shard, device):
    with torch.device("meta"):
        net = make_net()
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    net.to_empty(device=device)
    for layer in net.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    return net


_RANKS = 4


class _Layer(nn.Module):
    """A weight and a buffer; notes where it was made, and when it was initialised."""

    def __init__(self, rows: int, log: list[str]) -> None:
        super().__init__()
        self.rows, self.log, self.ready = rows, log, False
        self.weight = nn.Parameter(torch.empty(rows, 3))
        self.register_buffer("scale", torch.empty(3))
        if not self.weight.is_meta:
            log.append("made")

    def reset_parameters(self) -> None:
        self.ready = not self.weight.is_meta
        with torch.no_grad():
            self.weight.fill_(0.5)
            self.scale.fill_(2.0)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T * self.scale.sum()


class _Net(nn.Module):
    """A layer, blocks of two layers, and a layer."""

    def __init__(self, blocks: int, log: list[str]) -> None:
        super().__init__()
        self.first = _Layer(8, log)
        self.blocks = nn.ModuleList(
            nn.Sequential(_Layer(12, log), _Layer(8, log)) for _ in range(blocks)
        )
        self.last = _Layer(4, log)


class _Shard:
    """Stands for ``fully_shard`` on rank 0 of four: cuts what is not cut yet, and notes it."""

    def __init__(self) -> None:
        self.cut: list[
            tuple[nn.Module, int, bool]
        ] = []  # module, layers cut here, whole with values

    def __call__(self, module: nn.Module, **_: Any) -> nn.Module:
        layers = [each for each in module.modules() if isinstance(each, _Layer)]
        whole = [each for each in layers if len(each.weight) == each.rows]
        filled = any(not each.weight.is_meta for each in whole)
        for layer in whole:
            layer.weight = nn.Parameter(layer.weight.detach()[: layer.rows // _RANKS].clone())
        self.cut.append((module, len(whole), filled))
        return module


def _check(answer: Callable[..., Any], judge: Judge) -> None:
    for blocks in (2, 3):
        log: list[str] = []
        shard = _Shard()

        def make_net(blocks: int = blocks, log: list[str] = log) -> _Net:
            return _Net(blocks, log)

        net = judge.is_a(answer(make_net, shard, torch.device("cpu")), _Net, "the network")
        layers = [each for each in net.modules() if isinstance(each, _Layer)]
        if log or any(filled for *_, filled in shard.cut):
            when = "when it was made" if log else "before it was sharded"
            judge.no("whole-first", seen=f"numbers in whole layers {when}", expected="only shards")
        whole = [each for each in layers if len(each.weight) == each.rows]
        groups = sum(count > 0 for _, count, _ in shard.cut)
        told = f"{groups} groups, {len(whole)} of {len(layers)} layers whole"
        wanted = f"{blocks + 1} groups, none whole"
        if whole:
            outside = all(each in (net.first, net.last) for each in whole)
            judge.no("no-root" if outside else "unsharded", seen=told, expected=wanted)
        if [(module, count) for module, count, _ in shard.cut if module is net] != [(net, 2)]:
            judge.no("one-group", seen=told, expected=wanted)
        if groups > blocks + 1:
            judge.no("small-groups", seen=told, expected=wanted)
        if any(each.weight.is_meta or each.scale.is_meta for each in layers):
            judge.no("still-meta", seen="tensors on meta", expected="numbers on the device")
        if not all(each.ready and _filled(each) for each in layers):
            judge.no(
                "not-initialised",
                seen="layers with whatever stood in memory",
                expected="layers after reset_parameters()",
            )


def _filled(layer: _Layer) -> bool:
    return bool((layer.weight == 0.5).all() and (layer.scale == 2.0).all())


EXERCISE = Exercise(
    id="10.build_sharded",
    title="Mend the script that needs the whole model",
    level=2,
    minutes=10,
    task="""
`build_sharded(make_net, fully_shard, device)` is to make a network of which no rank ever holds more than its shards, in numbers, on the device or on the
host. `make_net()` makes it; `net.blocks` are its blocks, and it has layers outside them; each layer has `reset_parameters()`, which sets its
parameters and its buffers. `fully_shard(module)` stands for PyTorch's. Each block is a group of its own, what is left is one
more, and at the end all is on `device`, initialised. The code in the cell runs out of memory for just the model that it is for. Mend it.
""",
    hints=(
        "Where is the whole model in numbers first: at `make_net()`, or at `.to(device)`? Which device has shapes only?",
        "`fully_shard` takes what no inner call has taken. Blocks first, then the network.",
        "After sharding, `net.to_empty(device=device)` makes room for the shards. What stands there then? Go through `net.modules()`.",
    ),
    reference=build_sharded,
    check_answer=_check,
    may_change=True,
    limit=30.0,  # to_empty imports much of PyTorch the first time
    why="Shapes are enough to decide who holds what. Numbers come when each rank has only its part: from `reset_parameters`, or from a "
    "checkpoint. `to_empty` empties buffers too, so what initialises the parameters must set them as well.",
    diagnoses={
        "whole-first": "There was a moment when whole layers held numbers: on each of eight ranks, eight whole models in the host's memory or on "
        "the GPUs. Make the network on `meta`, shard it, and only then make room.",
        "no-root": "The layers outside the blocks were not sharded. The network itself is to be sharded too, after its blocks.",
        "unsharded": "Some layers are whole on every rank.",
        "one-group": "The network's own call must come last and take only what the blocks left. Else it takes all: one group, that is "
        "gathered whole in each forward pass.",
        "small-groups": "There are more groups than blocks and the rest. Each group is a message of its own, and small ones cost their latency.",
        "still-meta": "Something is still on meta: shapes without numbers.",
        "not-initialised": "`to_empty` makes room and writes nothing. Every layer must be initialised after it, buffers included.",
    },
)
