"""Known answers to 07.regime that its check's twins are not."""

from __future__ import annotations

from course_lessons.lesson07.regime import regime
from course_utils.exercises.edited import edited


def _regime_by_table(facts):
    if facts.busy < 0.75:
        host = {"loader": facts.loading, "synchronisation": facts.waiting}
        name = max(host, key=host.get)
        return name if host[name] >= 0.2 else "launch"
    return "memory" if facts.byte_share > facts.flop_share else "compute"


WRONG = {
    "larger-share": (
        edited(regime, {"facts.flop_share >= facts.byte_share": "facts.byte_share <= 0.5"}),
        edited(regime, {"facts.flop_share >= facts.byte_share": "facts.flop_share >= 0.4"}),
    ),
    "host-side": edited(
        regime, {"if max(": 'if facts.loading >= 0.2:\n    return "loader"\nif max('}
    ),
    "other-name": lambda facts: "gpu",
}
RIGHT = {"by a table": _regime_by_table}
