"""Known answers to 10.build_sharded."""

import torch

_META = 'with torch.device("meta"):\n    net = make_net()'
_BLOCKS = "for block in net.blocks:\n    fully_shard(block)"
_RESET = (
    "for layer in net.modules():\n"
    '    if hasattr(layer, "reset_parameters"):\n'
    "        layer.reset_parameters()"
)


def _room_first(make_net, fully_shard, device):
    with torch.device("meta"):
        net = make_net()
    net.to_empty(device=device)
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    for layer in net.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    return net


def _root_first(make_net, fully_shard, device):
    with torch.device("meta"):
        net = make_net()
    fully_shard(net)
    for block in net.blocks:
        fully_shard(block)
    net.to_empty(device=device)
    net.apply(lambda m: m.reset_parameters() if hasattr(m, "reset_parameters") else None)
    return net


def _every_layer(make_net, fully_shard, device):
    with torch.device("meta"):
        net = make_net()
    for block in net.blocks:
        for layer in block:
            fully_shard(layer)
    fully_shard(net)
    net.to_empty(device=device)
    net.apply(lambda m: m.reset_parameters() if hasattr(m, "reset_parameters") else None)
    return net


def _parameters_only(make_net, fully_shard, device):
    with torch.device("meta"):
        net = make_net()
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    net.to_empty(device=device)
    for parameter in net.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    return net


def _by_apply(make_net, fully_shard, device):
    with torch.device("meta"):
        net = make_net()
    for block in reversed(net.blocks):
        fully_shard(block)
    fully_shard(net)
    net = net.to_empty(device=device)
    net.apply(lambda m: m.reset_parameters() if hasattr(m, "reset_parameters") else None)
    return net


WRONG = {
    "whole-first": ({_META: "net = make_net().to(device)"}, _room_first),
    "no-root": {"fully_shard(net)": ""},
    "rest-in-pieces": {
        "fully_shard(net)": "fully_shard(net.first)\nfully_shard(net.last)\nfully_shard(net)"
    },
    "named-device": {"to_empty(device=device)": 'to_empty(device="cpu")'},
    "unsharded": {_BLOCKS: "", "fully_shard(net)": ""},
    "one-group": ({_BLOCKS: ""}, {_BLOCKS: "fully_shard(net.blocks)"}, _root_first),
    "small-groups": _every_layer,
    "still-meta": {"net.to_empty(device=device)": ""},
    "overwritten": (
        {"return net": "net.to_empty(device=device)\nreturn net"},
        {"return net": "for b in net.buffers():\n    b.zero_()\nreturn net"},
    ),
    "not-initialised": ({_RESET: ""}, _parameters_only),
}
RIGHT = {"by apply": _by_apply}
