"""A script that fails for just the model it is for."""

import torch
from torch import nn

from course_language import _
from course_utils.exercises import Exercise


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


class _Layer(nn.Module):
    """A layer with a weight and a buffer; if created with numbers, it says so in ``whole_layer_notes``."""

    def __init__(self, rows, whole_layer_notes):
        super().__init__()
        self.rows, self.ready = rows, False
        self.weight = nn.Parameter(torch.empty(rows, 3))
        self.register_buffer("scale", torch.empty(3))
        if not self.weight.is_meta:
            whole_layer_notes.append(_("when it was made"))

    def reset_parameters(self):
        """Set weight and buffer to known values; ``ready`` tells whether that was done off meta."""
        self.ready = not self.weight.is_meta
        self.weight.data.fill_(0.5)
        self.scale.fill_(2.0)


class _Net(nn.Module):
    """A network of so many blocks of two layers, between a first and a last layer."""

    def __init__(self, blocks, whole_layer_notes):
        super().__init__()
        self.first = _Layer(8, whole_layer_notes)
        pairs = [(_Layer(12, whole_layer_notes), _Layer(8, whole_layer_notes)) for _ in range(blocks)]
        self.blocks = nn.ModuleList(nn.Sequential(*pair) for pair in pairs)
        self.last = _Layer(4, whole_layer_notes)


def _layers_of(module):
    """Return the instances of ``_Layer`` in a module."""
    return [part for part in module.modules() if isinstance(part, _Layer)]


def _check_answer(answer, judge):
    for blocks, device in ((2, "cpu"), (3, "cpu"), (2, "meta")):  # meta stands for another device
        _check_net(answer, judge, blocks, device)


def _check_net(answer, judge, blocks, device):
    """Check one call: whether whole layers had numbers, which groups were sharded, the initial values."""
    whole_layer_notes, groups, called = [], [], set()

    def fully_shard(module, **__):
        """Stands for PyTorch's on rank 0 of four: cuts the layers that are not cut yet."""
        if module in called:  # as PyTorch's does
            raise AssertionError(_("fully_shard has already been applied to this module"))
        called.add(module)
        group = [layer for layer in _layers_of(module) if len(layer.weight) == layer.rows]
        for layer in group:
            if not layer.weight.is_meta:
                whole_layer_notes.append(_("before it was sharded"))
            layer.weight = nn.Parameter(layer.weight.detach()[: layer.rows // 4].clone())
        if group:
            groups.append(group)
        return module

    net = answer(lambda: _Net(blocks, whole_layer_notes), fully_shard, torch.device(device))
    layers = _layers_of(judge.is_a(net, _Net, _("the network")))
    if device == "meta":  # stands for a device that is not the host
        if any(not layer.weight.is_meta for layer in layers):
            judge.no(seen=_("tensors on the host"), expected=_("all on `device`"))
        return
    if whole_layer_notes:
        seen = _("numbers in whole layers {first_whole}").format(first_whole=whole_layer_notes[0])
        judge.no("whole-first", seen=seen, expected=_("only shards"))
    parts = [*map(_layers_of, net.blocks), [net.first, net.last]]
    part_of = {layer: number for number, part in enumerate(parts) for layer in part}
    mixed = any(len({part_of[layer] for layer in group}) > 1 for group in groups)
    diagnosis = "one-group" if mixed else "wrong-value"
    if part_of.keys() - {layer for group in groups for layer in group} == {*parts[-1]}:
        diagnosis = "no-root"
    names = {module: name for name, module in net.named_modules()}
    seen, expected = (sorted([names[layer] for layer in group] for group in each) for each in (groups, parts))
    judge.expect("groups", seen, expected, diagnosis)
    meta = [names[e] for e in layers if e.weight.is_meta or e.scale.is_meta]
    judge.expect(_("layers on meta"), meta, [], "still-meta")
    empty = [names[e] for e in layers if not e.ready]
    judge.expect(_("layers whose reset_parameters() did not run"), empty, [], "not-initialised")
    other = [names[e] for e in layers if (e.weight != 0.5).any() or (e.scale != 2.0).any()]
    judge.expect(_("layers with other numbers than reset_parameters() sets"), other, [])


EXERCISE = Exercise(
    id="11.build_sharded",
    title="Fix the script that needs the whole model",
    level=2,
    minutes=10,
    task="""
The code in the cell needs the whole model on every rank. Fix it. `build_sharded(make_net, fully_shard,
device)` returns the network that `make_net()` makes. No rank may ever hold more of a parameter's numbers
than its own shard, on the device or on the host. The network has blocks, `net.blocks`, and layers outside
them. With `fully_shard(module)`, which stands for PyTorch's, make each block a group, and what is left one
more group. At the end all is on `device`, and each layer's `reset_parameters()` has set its parameters and
its buffers.
""",
    hints=(
        "At which moment does the whole model hold numbers for the first time? Is it at `make_net()`, or at "
        "`.to(device)`? PyTorch has a device on which tensors have shapes and nothing else.",
        "Make the network on `meta`, because shapes are enough to shard it. `fully_shard(module)` takes all "
        "the layers inside that no earlier call has taken. Then `net.to_empty(device=device)` makes room for "
        "the shards. What stands in that room? Go through `net.modules()`. Some parts have no parameters.",
        "Here's a small network that comes from `meta` to the CPU, without any sharding.\n"
        """
```python
with torch.device("meta"):
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
net.to_empty(device="cpu")
net[0].reset_parameters()  # before this, they are whatever was in memory
print([hasattr(part, "reset_parameters") for part in net])  # [True, False]
```""",
    ),
    reference=build_sharded,
    check_answer=_check_answer,
    may_change=True,
    limit=30.0,  # to_empty imports much of PyTorch the first time
    why="Shapes are enough to decide which rank holds what. The numbers come once each rank has only its "
    "own part, either from `reset_parameters` or from a checkpoint.",
    diagnoses={
        "whole-first": "There was a moment when whole layers held numbers, and so on every rank. Make the "
        "network on `meta`, shard it, and only then make room.",
        "no-root": "The layers outside the blocks were not sharded. After the blocks, shard the net itself.",
        "one-group": "One call took the layers of several groups. The network's own call takes all that no "
        "call before it took, so it comes last; and each block has its own.",
        "still-meta": "Something is still on meta: shapes without numbers.",
        "not-initialised": "`to_empty` writes nothing. After it, run every layer's own `reset_parameters()`.",
    },
)
