"""Known answers to 08.regime."""


def _regime_by_table(facts):
    if facts.busy < 0.75:
        host = {"loader": facts.loading, "synchronisation": facts.waiting}
        name = max(host, key=host.get)
        return name if host[name] >= 0.2 else "launch"
    device = {"compute": facts.flop_share, "memory": facts.byte_share}
    name = max(device, key=device.get)
    return name if device[name] >= 0.3 else "small kernels"


_BUSY, _IDLE = "facts.busy >= 0.75", "max(facts.loading, facts.waiting) < 0.2"
_LOW = "max(facts.flop_share, facts.byte_share) < 0.3"


WRONG = {
    "busy-first": ({_BUSY: f"{_BUSY} and {_IDLE}"}, {_BUSY: "facts.busy > 0.75"}),
    "low-shares": ({_LOW: "False"}, {_LOW: _LOW.replace("max", "facts.loading < 0.2 and max")}),
    "larger-share": {"facts.flop_share >=": "facts.flop_share <"},
    "idle-device": {_BUSY: f"{_BUSY} or max(facts.flop_share, facts.byte_share) >= 0.3"},
    "no-launch": ({_IDLE: "False"}, {_IDLE: "facts.loading + facts.waiting < 0.2"}),
    "wrong-value": (
        {_LOW: _LOW.replace("<", "<=")},
        {"facts.loading >= facts": "facts.loading > facts"},
    ),
}
RIGHT = {"by a table": _regime_by_table}
