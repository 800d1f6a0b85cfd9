"""Known answers to 01.pick_device: wrong ones by their diagnosis, right ones by a name."""

WRONG = {
    "not-there": lambda available, works: "cuda",
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
