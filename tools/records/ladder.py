"""The capstone's ladder: optimisations of a slow training script, each timed against the slow script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

from course_utils.devices import abilities, synchronize
from course_utils.timing import take_turns

from .experiments import Unsuitable
from .networks import float32_precision, need_accelerator, resnet50

MARGIN = 4

Turn = Callable[[], float]
"""A function that trains for a while and returns the seconds per sample."""


def images(count: int, pixels: int = 32) -> tuple[Tensor, Tensor]:
    """Return synthetic images, (count, 3, pixels, pixels) uint8, and labels 0 to 9, with a fixed seed."""
    g = torch.Generator().manual_seed(0)
    x = torch.randint(256, (count, 3, pixels, pixels), dtype=torch.uint8, generator=g)
    return x, torch.randint(10, (count,), generator=g)


def normalised(x: Tensor) -> Tensor:
    """Return uint8 images as floats in [-1, 1]."""
    return (x.float() / 255 - 0.5) / 0.5


def tutorial_cnn() -> nn.Module:
    """Return the network of PyTorch's CIFAR-10 tutorial: two convolutions, three linear layers."""
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


@dataclass(frozen=True)
class Network:
    """A network, its synthetic images, and the batch sizes of its ladder.

    There are ``count`` images, a multiple of each batch size. They are normalised, and if ``shifted`` also
    moved by up to four pixels each way and flipped. ``small`` is the batch size of the slow script, ``large``
    the large one on a CPU, ``larger`` that on an accelerator. ``accelerator`` says why it needs one, "" if it
    does not.
    """

    make: Callable[[], nn.Module]
    pixels: int
    count: int
    shifted: bool
    small: int
    large: int
    larger: int
    accelerator: str = ""


def airbench_net() -> nn.Module:
    """Return a network of the shape of airbench94's: 0.71 GFLOP an image to train."""

    def block(inp: int, out: int) -> list[nn.Module]:
        """Return the layers of a block."""
        return [
            *(nn.Conv2d(inp, out, 3, padding=1, bias=False), nn.MaxPool2d(2)),
            *(nn.BatchNorm2d(out), nn.GELU()),
            *(nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.GELU()),
        ]

    return nn.Sequential(
        *(nn.Conv2d(3, 24, 2), nn.GELU(), *block(24, 64), *block(64, 256), *block(256, 256)),
        *(nn.MaxPool2d(3), nn.Flatten(), nn.Linear(256, 10, bias=False)),
    )


NETWORKS: Mapping[str, Network] = {
    "tutorial": Network(tutorial_cnn, 32, 8192, False, small=4, large=512, larger=4096),
    "airbench": Network(airbench_net, 32, 8192, True, small=64, large=256, larger=2048),
    "resnet50": Network(
        resnet50,
        224,
        512,
        False,
        small=64,
        large=64,
        larger=256,
        accelerator="a step of ResNet-50 takes many seconds on a CPU",
    ),
}


@dataclass(frozen=True)
class LoopOptions:
    """Options of a training loop; the defaults are those of the slow script.

    ``ask`` calls ``.item()`` on each loss; ``half`` is autocast; ``compiled`` is torch.compile's mode, or "".
    """

    large_batch: bool = False
    on_device: bool = False
    ask: bool = True
    fused: bool = False
    channels_last: bool = False
    tf32: bool = False
    half: bool = False
    compiled: str = ""


RUNGS: Mapping[str, Mapping[str, bool | str]] = {
    "none": {},
    "data on the device": {"on_device": True},
    "no .item()": {"ask": False},
    "fused optimiser": {"fused": True},
    "large batch": {"large_batch": True},
    "channels_last": {"channels_last": True},
    "TF32": {"tf32": True},
    "16 bits": {"half": True},
    "compiled": {"compiled": "default"},
    "CUDA graphs": {"compiled": "reduce-overhead"},
}
"""The rungs, in order, and the `LoopOptions` that each changes; ``"none"`` changes nothing."""


def lacks(device: torch.device, rung: str) -> str:
    """Return why a device does not support a rung; "" if it does."""
    can = abilities(device)
    if rung == "TF32" and not can.tf32:
        return "it has no TF32 units"
    if rung == "16 bits" and not can.bf16 and device.type != "cuda":
        return "it has no units for 16 bits"
    if rung == "compiled" and device.type == "cpu":
        return "the ladder compiles on accelerators only"
    if rung == "CUDA graphs" and device.type != "cuda":
        return "it has no CUDA graphs"
    return ""


def options_up_to(device: torch.device, rung: str) -> LoopOptions:
    """Return the loop's options with every rung up to ``rung`` applied, except unsupported ones.

    What a device supports is said by `lacks`.

    Raises
    ------
    Unsuitable
        If the device does not support ``rung`` itself.
    """
    if why := lacks(device, rung):
        raise Unsuitable(why)
    options = LoopOptions()
    for name, change in RUNGS.items():
        if not lacks(device, name):
            options = replace(options, **change)
        if name == rung:
            break
    return options


class Samples(Dataset):
    """Images that are transformed one by one when indexed, as in tutorials; ``shifted`` as in `Network`."""

    def __init__(self, x: Tensor, y: Tensor, shifted: bool) -> None:
        self.x, self.y, self.shifted = x, y, shifted

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = normalised(self.x[index])
        if self.shifted:
            side = x.shape[-1]
            top, left = torch.randint(2 * MARGIN + 1, (2,)).tolist()
            x = F.pad(x, [MARGIN] * 4)[:, top : top + side, left : left + side]
            if torch.rand(()) < 0.5:
                x = x.flip(-1)
        return x, self.y[index]


def random_shift(padded: Tensor, side: int) -> Tensor:
    """Return a random crop, (n, c, side, side), of each image, (n, c, h, w); about half are flipped."""
    n, c, high, wide = padded.shape
    device = padded.device
    top = torch.randint(high - side + 1, (n, 1), device=device)
    left = torch.randint(wide - side + 1, (n, 1), device=device)
    steps = torch.arange(side, device=device)
    flipped = torch.rand(n, 1, device=device) < 0.5
    rows, columns = top + steps, left + torch.where(flipped, side - 1 - steps, steps)
    image = torch.arange(n, device=device)[:, None, None, None]
    channel = torch.arange(c, device=device)[None, :, None, None]
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def loader_batches(
    network: Network, x: Tensor, y: Tensor, batch: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches endlessly from a DataLoader that transforms image by image."""
    loader = DataLoader(Samples(x, y, network.shifted), batch_size=batch, shuffle=True)
    while True:
        for some_x, some_y in loader:
            yield some_x.to(device), some_y.to(device)


def sliced_batches(
    network: Network,
    x: Tensor,
    y: Tensor,
    batch: int,
    device: torch.device,
    layout: torch.memory_format,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches endlessly as slices of data on the device, which are shuffled before each epoch.

    What is the same in every epoch is done once: images that are not shifted are normalised at the start.
    """
    x, y = x.to(device), y.to(device)
    x = F.pad(x, [MARGIN] * 4, value=128) if network.shifted else normalised(x)
    while True:
        order = torch.randperm(len(x), device=device)
        x, y = x[order].contiguous(memory_format=layout), y[order]
        for some_x, some_y in zip(x.split(batch), y.split(batch), strict=True):
            if network.shifted:
                some_x = normalised(random_shift(some_x, network.pixels)).contiguous(memory_format=layout)
            yield some_x, some_y


def training(network: Network, options: LoopOptions, device: torch.device) -> tuple[Callable[[], None], int]:
    """Return a function that does one training step, and its batch size.

    The optimiser is SGD with momentum. Autocast uses bfloat16 if the device supports it, else float16 with a
    gradient scaler.
    """
    large = network.large if device.type == "cpu" else network.larger
    batch = large if options.large_batch else network.small
    x, y = images(network.count, network.pixels)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format
    if options.on_device:
        batches = sliced_batches(network, x, y, batch, device, layout)
    else:
        batches = loader_batches(network, x, y, batch, device)
    model = network.make().to(device).to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=options.fused or None)
    dtype = torch.bfloat16 if abilities(device).bf16 else torch.float16
    scaler = torch.amp.GradScaler(device.type, enabled=options.half and dtype == torch.float16)
    torch.compiler.reset()  # earlier compilations count towards its limit
    forward = torch.compile(model, mode=options.compiled) if options.compiled else model
    running = 0.0

    def step() -> None:
        """Train on the next batch."""
        nonlocal running
        inputs, labels = next(batches)
        with torch.autocast(device.type, dtype, enabled=options.half):
            loss = F.cross_entropy(forward(inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if options.ask:
            running += loss.item()

    return step, batch


def make_turn(network: str, options: LoopOptions, device: torch.device) -> Turn:
    """Return a function that trains for about half a second and returns the seconds per image.

    Raises
    ------
    Unsuitable
        If the network needs an accelerator, or torch.compile fails.
    """
    kind = NETWORKS[network]
    if kind.accelerator:
        need_accelerator(device, kind.accelerator)
    step, batch = training(kind, options, device)
    with float32_precision(tf32=options.tf32):
        if options.compiled:
            try:
                step()
            except (RuntimeError, ImportError, OSError) as error:
                raise Unsuitable(f"it cannot compile ({type(error).__name__})") from error
        steps = calibrated(step, device)

    def timed_turn() -> float:
        """Train for the calibrated number of steps; return the seconds per image."""
        with float32_precision(tf32=options.tf32):
            return steps() / batch

    return timed_turn


def flops_an_image(network: str) -> float:
    """Return the FLOPs of matrix products and convolutions in training on one image."""
    kind = NETWORKS[network]
    model = kind.make()
    x, y = images(2, kind.pixels)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(model(normalised(x)), y).backward()
    return counter.get_total_flops() / 2


def unit(options: LoopOptions, device: torch.device) -> str:
    """Return the arithmetic of a loop's matrix products: ``"fp32"``, ``"tf32"``, ``"bf16"`` or ``"fp16"``."""
    if options.half:
        return "bf16" if abilities(device).bf16 else "fp16"
    return "tf32" if options.tf32 else "fp32"


def calibrated(step: Callable[[], object], device: torch.device, seconds: float = 0.5) -> Turn:
    """Return a function that runs as many steps as fill ``seconds``, and returns the seconds per step."""

    def time_steps(steps: int) -> float:
        """Return the seconds that this many steps take."""
        synchronize(device)
        begin = perf_counter()
        for _ in range(steps):
            step()
        synchronize(device)
        return perf_counter() - begin

    time_steps(3)
    steps, took = 1, time_steps(1)
    while took < seconds / 4:
        steps *= 2
        took = time_steps(steps)
    steps = max(1, round(steps * seconds / took))
    return lambda: time_steps(steps) / steps


def in_turns(reference: Turn, candidate: Turn, rounds: int = 5) -> tuple[list[float], list[float]]:
    """Return the seconds per sample of two loops that are timed alternately, one value per round.

    Each runs once before, untimed: the candidate first, so that it fails early.
    """
    for turn in (candidate, reference):  # a candidate that cannot run fails early
        turn()
    return take_turns(reference, candidate, range(rounds))
