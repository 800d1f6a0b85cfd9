"""Known answers to 01.pick_device: wrong ones by the diagnosis that each must get, and a right one."""

from __future__ import annotations

from course_lessons.lesson01.pick_device import pick_device
from course_utils.exercises.edited import edited

WRONG = {
    "available-is-not-works": edited(pick_device, {" and works(kind)": ""}),
    "gave-up": edited(
        pick_device,
        {
            "if kind in available and works(kind):\n    return kind": "if kind in available:\n"
            "    return kind if works(kind) else 'cpu'"
        },
    ),
    "no-fallback": edited(pick_device, {'return "cpu"': "return None"}),
    "forgot-a-kind": (
        edited(pick_device, {', "xpu", "mps"': ","}),
        lambda available, works: "cpu",
    ),
    "not-there": lambda available, works: "cuda",
    "order": edited(pick_device, {'("cuda", "xpu", "mps")': "available"}),
    "tried-an-absent-device": edited(
        pick_device, {"kind in available and works(kind)": "works(kind) and kind in available"}
    ),
}
RIGHT = {
    "the next": lambda available, works: next(
        (k for k in ("cuda", "xpu", "mps") if k in available and works(k)), "cpu"
    )
}
