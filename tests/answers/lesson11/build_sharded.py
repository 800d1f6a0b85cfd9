"""Known answers to 11.build_sharded."""

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
    "one-group": ({_BLOCKS: ""}, {_BLOCKS: "fully_shard(net.blocks)"}),
    "still-meta": {_ROOM: ""},
    "not-initialised": {_RESET: ""},
    "wrong-value": (
        {"fully_shard(block)": "for layer in block:\n    fully_shard(layer)"},
        {"return net": f"{_ROOM}\nreturn net"},
    ),
}
RIGHT = {
    "by apply": {
        "in net.blocks": "in reversed(net.blocks)",
        _ROOM: f"net = {_ROOM}",
        _RESET: "net.apply(lambda m: m.reset_parameters() if hasattr(m, 'reset_parameters') else None)",
    }
}
