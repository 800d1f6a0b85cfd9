"""Known answers to 07.regime."""

from course_lessons.lesson07.regime import regime


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
    "busy-first": (
        {_BUSY: f"{_BUSY} and {_IDLE}"},
        {_BUSY: "facts.busy >= 0.8"},
        {_BUSY: "facts.busy >= 75"},
    ),
    "at-least-busy": {_BUSY: "facts.busy > 0.75"},
    "low-shares": (
        {_LOW: "False"},
        {_LOW: _LOW.replace("max", "facts.loading < 0.2 and max")},
        {_LOW: _LOW.replace("0.3", "0.1")},
    ),
    "high-share": (
        {_LOW: _LOW.replace("max", "min")},
        {_LOW: _LOW.replace("0.3", "0.5")},
    ),
    "at-least-share": {_LOW: _LOW.replace("<", "<=")},
    "larger-share": (
        {"facts.flop_share >=": "facts.flop_share <"},
        {"facts.flop_share >= facts.byte_share": "facts.byte_share <= 0.5"},
        {"facts.flop_share >= facts.byte_share": "facts.flop_share >= 0.4"},
    ),
    "equal-device": {"facts.flop_share >=": "facts.flop_share >"},
    "idle-device": (
        {_BUSY: f"{_BUSY} or max(facts.flop_share, facts.byte_share) >= 0.3"},
        {_BUSY: "facts.busy >= 0.7"},
    ),
    "no-launch": ({_IDLE: "False"}, {_IDLE: "facts.loading + facts.waiting < 0.2"}),
    "long-enough": (
        {_IDLE: _IDLE.replace("max", "min")},
        {_IDLE: "facts.loading < 0.2"},
        {_IDLE: _IDLE.replace("0.2", "0.25")},
    ),
    "at-least-host": {_IDLE: _IDLE.replace("<", "<=")},
    "longer": (
        {f"if {_IDLE}": f'if facts.loading >= 0.2:\n    return "loader"\nif {_IDLE}'},
        {"facts.loading >= facts": "facts.loading < facts"},
    ),
    "equal-host": {"facts.loading >= facts": "facts.loading > facts"},
    "other-name": lambda facts: "gpu",
    "wrong-type": lambda facts: [regime(facts)],
}
RIGHT = {"by a table": _regime_by_table}
