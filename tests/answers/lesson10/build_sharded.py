"""Known answers to 10.build_sharded."""

_META = 'with torch.device("meta"):\n    net = make_net()'
_BLOCKS = "for block in net.blocks:\n    fully_shard(block)"
_ROOM = "net.to_empty(device=device)"
_RESET = (
    "for layer in net.modules():\n"
    '    if hasattr(layer, "reset_parameters"):\n'
    "        layer.reset_parameters()"
)


WRONG = {
    "whole-first": (
        {_META: "net = make_net().to(device)"},
        {_META: f"{_META}\n{_ROOM}", _ROOM: ""},
    ),
    "no-root": {"fully_shard(net)": ""},
    "rest-in-pieces": {
        "fully_shard(net)": "fully_shard(net.first)\nfully_shard(net.last)\nfully_shard(net)"
    },
    "named-device": {"to_empty(device=device)": 'to_empty(device="cpu")'},
    "unsharded": {_BLOCKS: "", "fully_shard(net)": ""},
    "one-group": (
        {_BLOCKS: ""},
        {_BLOCKS: "fully_shard(net.blocks)"},
        {_BLOCKS: "fully_shard(net)", "fully_shard(net)": _BLOCKS},
    ),
    "small-groups": {"fully_shard(block)": "for layer in block:\n    fully_shard(layer)"},
    "still-meta": {_ROOM: ""},
    "overwritten": (
        {"return net": f"{_ROOM}\nreturn net"},
        {"return net": "for b in net.buffers():\n    b.zero_()\nreturn net"},
    ),
    "not-initialised": (
        {_RESET: ""},
        {_RESET: "for p in net.parameters():\n    torch.nn.init.constant_(p, 0.5)"},
    ),
}
RIGHT = {
    "by apply": {
        "in net.blocks": "in reversed(net.blocks)",
        _ROOM: f"net = {_ROOM}",
        _RESET: "net.apply(lambda m: m.reset_parameters() if hasattr(m, 'reset_parameters') else None)",
    }
}
