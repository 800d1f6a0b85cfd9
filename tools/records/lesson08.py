"""Experiments of lesson 08: switches that are said to make training faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.lesson08.mlp import Mlp
from course_lessons.shared import traces
from course_utils.devices import abilities, synchronize

from .experiments import Samples, Unsuitable, Work, experiment, grid

REPEATS = 20


def _first_and_later(work: Work, device: torch.device) -> Mapping[str, Samples]:
    """Return the seconds of the first call, and of the calls after the second."""

    def call() -> float:
        """Return the seconds of one call."""
        synchronize(device)
        start = perf_counter()
        work()
        synchronize(device)
        return perf_counter() - start

    first = call()
    call()
    return {"first call": Samples([first]), "time": Samples([call() for _ in range(REPEATS)])}


@experiment(
    sweep=grid(batch=(8, 64), benchmark=(False, True)),
    seconds=5,
    modelled=False,
)
def cudnn_benchmark(device: torch.device, batch: int, benchmark: bool) -> Mapping[str, Samples]:
    """Train eight convolutions of 64 to 256 channels on 56 × 56 synthetic images: first and later steps.

    Claimed: ``cudnn.benchmark = True`` is a trick for performance
    (seed "PyTorch GPU加速训练核心技术指南", part 3); by how much is not said.
    Refuted by: later steps that take as long as without it. The first step shows what the search costs.
    """
    if device.type != "cuda" or not torch.backends.cudnn.is_available():
        raise Unsuitable("cuDNN is for NVIDIA's GPUs, MIOpen for AMD's")
    widths = (64, 64, 64, 128, 128, 128, 256, 256, 256)
    layers = [
        layer
        for before, after in pairwise(widths)
        for layer in (nn.Conv2d(before, after, 3, padding=1), nn.ReLU())
    ]
    model = nn.Sequential(*layers).to(device)
    images = torch.randn(batch, 64, 56, 56).to(device)
    torch.backends.cudnn.benchmark = False
    model(images[:, :, :40, :40]).mean().backward()  # another shape: loads the library, nothing else
    torch.backends.cudnn.benchmark = benchmark

    def step() -> None:
        model.zero_grad()
        model(images).mean().backward()

    return _first_and_later(step, device)


def gelu_by_hand(x: Tensor) -> Tensor:
    """Return GELU's tanh approximation in nine operations, each of which reads and writes everything."""
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


USUAL: Mapping[str, Any] = {
    "load": 1e-4,
    "ask": False,
    "by_hand": False,
    "update": {},
    "half": False,
    "pieces": 1,
    "times": 1,
}

LOOPS: Mapping[str, Mapping[str, Any]] = {
    "launch": {**USUAL, "sizes": (*[64] * 9, 10), "batch": 32, "by_hand": True},
    "compute": {**USUAL, "sizes": (*[1024] * 3, 10), "batch": 1024},
    "loader": {**USUAL, "sizes": (256, 512, 512, 10), "batch": 128, "load": 2e-3},
    "memory": {**USUAL, "sizes": (32, 2048, 10), "batch": 2048, "by_hand": True},
    "synchronisation": {**USUAL, "sizes": (512, 512), "batch": 2048, "ask": True},
}
"""The lesson's five loops, in its order, for a simulated T4; `sizes.fitted` enlarges them for others."""

CHANGES: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "no loading": {"load": 0.0},
    "no questions": {"ask": False},
    "4 times the batch": {"times": 4},
    "built-in GELU": {"by_hand": False},
    "fused AdamW": {"update": {"fused": True}},
    "16 bits": {"half": True},
    "4 pieces": {"pieces": 4},
}
"""The changes of a loop that the lesson tries, one at a time."""


def make_step(
    device: torch.device,
    sizes: Sequence[int],
    batch: int,
    *,
    load: float,
    ask: bool,
    by_hand: bool,
    update: Mapping[str, bool],
    half: bool,
    pieces: int,
    times: int,
) -> Work:
    """Return a function that does one training step of an MLP on random data.

    ``sizes`` are inputs, hidden layers and classes. The host is busy for ``load`` seconds before each step,
    in place of loading, and with ``ask`` reads the norm of each gradient. GELU is nine small operations with
    ``by_hand``, else PyTorch's own; ``update`` are options of AdamW; ``half`` is autocast to bfloat16 if
    supported, else float16. Gradients are accumulated over ``pieces`` of the batch; ``times`` multiplies the
    batch and the load.
    """
    net = Mlp(sizes, gelu_by_hand if by_hand else nn.GELU(approximate="tanh")).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), **update)
    dtype = torch.bfloat16 if abilities(device).bf16 or device.type == "cpu" else torch.float16
    scaler = torch.amp.GradScaler(device.type, enabled=half and dtype == torch.float16)
    x = torch.rand(times * batch, sizes[0]).to(device)
    y = torch.randint(sizes[-1], (times * batch,)).to(device)

    def step() -> None:
        traces.host_busy(times * load, device)
        optimizer.zero_grad()
        for some_x, some_y in zip(x.chunk(pieces), y.chunk(pieces), strict=True):
            with torch.autocast(device.type, dtype, enabled=half):
                loss = F.cross_entropy(net(some_x), some_y) / pieces
            scaler.scale(loss).backward()
        for p in net.parameters() if ask else ():
            p.grad.norm().item()
        scaler.step(optimizer)
        scaler.update()

    return step


_FUSED: Mapping[str, Any] = {**USUAL, "update": {"fused": True}}
_ONE_BY_ONE: Mapping[str, Any] = {**USUAL, "by_hand": True, "update": {"foreach": False}}

STEPS: Mapping[str, Mapping[str, Any]] = {
    "loader": {**_FUSED, "sizes": (256, 512, 512, 10), "batch": 128, "load": 2e-3},
    "synchronisation": {**_FUSED, "sizes": (512, 512, 10), "batch": 3072, "ask": True},
    "launch": {**_ONE_BY_ONE, "sizes": (*[64] * 9, 10), "batch": 32},
    "memory": {**_ONE_BY_ONE, "sizes": (32, 2048, 10), "batch": 2048},
    "compute": {**_FUSED, "sizes": (*[768] * 3, 10), "batch": 1536},
}
"""The five recorded loops, of the same size on every device; on a simulated T4 each is in its regime."""

STEP_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "no loading": {"load": 0.0},
    "no questions": {"ask": False},
    "4 times the batch": {"times": 4},
    "fewer kernels": {"by_hand": False, "update": {"fused": True}},
    "16 bits": {"half": True},
    "4 pieces": {"pieces": 4},
}


@experiment(
    sweep=[
        {"loop": loop, "change": change}
        for loop, how in STEPS.items()
        for change, new in STEP_CHANGES.items()
        if change == "none" or not new.items() <= how.items()
    ],
    quick=grid(loop=STEPS, change=("none",)),
    seconds=2,
)
def loop_step(device: torch.device, loop: str, change: str) -> Work:
    """Train one of five small loops for a step, with one thing changed.

    The loops ``launch`` and ``memory``, which *fewer kernels* changes, have AdamW with ``foreach=False``.

    Claimed: mixed precision makes training 30 to 50 % faster, loading 20 to 40 % (seed "PyTorch
    GPU加速训练核心技术指南", part 8).
    Refuted by: a change that helps each of the five loops by as much.
    """
    return make_step(device, **{**STEPS[loop], **STEP_CHANGES[change]})


@experiment(sweep=grid(how=("by hand", "compiled", "built in")), seconds=15, modelled=False)
def gelu(device: torch.device, how: str) -> Mapping[str, Samples]:
    """Compute GELU of 4 million float32 numbers: nine operations, the same compiled, or PyTorch's own.

    Claimed: nothing; the lesson quotes it for what torch.compile costs and gains.
    Refuted by: a compiled function that is no faster than the nine operations.
    """
    x = torch.randn(2**22).to(device)
    work = {
        "by hand": gelu_by_hand,
        "compiled": torch.compile(gelu_by_hand),
        "built in": lambda x: F.gelu(x, approximate="tanh"),
    }[how]

    try:
        return _first_and_later(lambda: work(x), device)
    except (RuntimeError, ImportError, OSError) as error:
        raise Unsuitable(f"torch.compile cannot work here ({type(error).__name__})") from error
