"""Known answers to 01.pick_device: wrong ones by the diagnosis that each must get, and right ones."""

from course_lessons.lesson01.pick_device import PICK_TWINS, pick_device

_BOTH = "kind in available and works(kind)"
WRONG = {
    **PICK_TWINS,
    "only-cuda": {
        f"if {_BOTH}:\n    return kind": f"if {_BOTH}:\n    return kind\nelse:\n    return 'cpu'"
    },
    "no-fallback": {'return "cpu"': "return None"},
    "not-there": lambda available, works: "cuda",
    "passed-over": lambda available, works: (
        pick_device(available, works) if len(available) < 3 else "cpu"
    ),
    "other-name": {"return kind": "return kind + ':0'"},
    "tried-an-absent-device": (
        {_BOTH: "works(kind) and kind in available"},
        {'return "cpu"': 'return "cpu" if works("cpu") else None'},
    ),
    "other-order": {
        "for kind": "best = 'cpu'\nfor kind",
        "return kind": "best = kind",
        'return "cpu"': "return best",
    },
    "wrong-type": lambda available, works: [kind for kind in available if works(kind)],
}
RIGHT = {
    "the next": lambda available, works: next(
        (k for k in ("cuda", "xpu", "mps") if k in available and works(k)), "cpu"
    ),
    "the least": lambda available, works: min(
        [kind for kind in available if works(kind)], key=["cuda", "xpu", "mps"].index, default="cpu"
    ),
}
