"""The loops written by hand: the barest one, lesson 03's, the capstone's and the usual tutorial's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from course_utils import plots
from course_utils.devices import abilities
from course_utils.tqdm_bar import bar

from .comparison import Ticker, setting

BATCH, PEAK_RATE, SEED = 64, 5e-3, 0
WARM_UP = 20


@dataclass(frozen=True)
class Task:
    """A network, and data for it.

    Attributes
    ----------
    network
        Makes the network.
    data
        Makes so many samples: inputs and int64 labels, on the CPU.
    prepare
        Makes of a batch, on the device, what the network takes.
    steps
        How many steps make a turn.
    """

    network: Callable[[], nn.Module]
    data: Callable[[int], tuple[Tensor, Tensor]]
    prepare: Callable[[Tensor], Tensor]
    steps: int


def seed_mlp() -> nn.Module:
    """Return the seed's network of three linear layers, with a logit for each class in place of its Sigmoid."""
    return nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2)
    )


def tutorial_cnn() -> nn.Module:
    """Return the network of PyTorch's CIFAR-10 tutorial: two convolutions, three linear layers."""
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def seed_rows(rows: int) -> tuple[Tensor, Tensor]:
    """Return the seed's 10,000 rows of 20 features, over and over."""
    x = torch.randn(10_000, 20, generator=torch.Generator().manual_seed(SEED))
    x = x.repeat(math.ceil(rows / len(x)), 1)[:rows]
    return x, (x.sum(1) > 0).long()


def images(count: int, pixels: int = 32) -> tuple[Tensor, Tensor]:
    """Return synthetic images (n, 3, p, p) uint8 and labels 0 to 9."""
    g = torch.Generator().manual_seed(SEED)
    x = torch.randint(256, (count, 3, pixels, pixels), dtype=torch.uint8, generator=g)
    return x, torch.randint(10, (count,), generator=g)


def as_they_are(x: Tensor) -> Tensor:
    """Return a batch unchanged."""
    return x


def normalised(x: Tensor) -> Tensor:
    """Return bytes as floats around zero."""
    return (x.float() / 255 - 0.5) / 0.5


TASKS: Mapping[str, Task] = {
    "mlp": Task(seed_mlp, seed_rows, as_they_are, steps=600),
    "cnn": Task(tutorial_cnn, images, normalised, steps=120),
}


class OnDevice:
    """Batches of data that is on the device, taken as lesson 03 takes them: in a new order each pass."""

    def __init__(self, x: Tensor, y: Tensor, batch: int) -> None:
        self.x, self.y, self.batch = x, y, batch

    def __len__(self) -> int:
        return math.ceil(len(self.x) / self.batch)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        # What a package draws before its first step must not change the order.
        torch.manual_seed(SEED)
        for take in torch.randperm(len(self.x), device=self.x.device).split(self.batch):
            yield self.x[take], self.y[take]


class Job:
    """What every loop is given: the same network, data, optimiser and schedule.

    Parameters
    ----------
    task
        One of `TASKS`, by its name.
    data
        ``"loader"``: batches come from a ``DataLoader`` over tensors in the host's memory.
        ``"device"``: they are taken from tensors on the device.
    device
        Where to train.

    Attributes
    ----------
    x, y
        The data, on the device.
    batches
        One pass over it.
    tick
        To be called after each step.
    """

    def __init__(self, task: str, data: str, device: torch.device) -> None:
        kind = TASKS[task]
        steps = max(5, round(kind.steps * setting().scale))
        self.task, self.device, self.batch, self.prepare = task, device, BATCH, kind.prepare
        self.steps = WARM_UP + steps
        self.counted = steps * BATCH
        self.tick = Ticker(device, WARM_UP, steps)
        x, y = kind.data(self.steps * BATCH)
        self.x, self.y = x.to(device), y.to(device)
        self.batches: Iterable[Any] = (
            OnDevice(self.x, self.y, BATCH)
            if data == "device"
            else DataLoader(
                TensorDataset(x, y),
                batch_size=BATCH,
                shuffle=True,
                pin_memory=device.type in ("cuda", "xpu"),
                generator=torch.Generator().manual_seed(SEED),
            )
        )
        torch.manual_seed(SEED)
        self.model = kind.network().to(device)

    def optimizer(self, fused: bool | None = None) -> torch.optim.Optimizer:
        """Return AdamW, with PyTorch's own choice of its form unless ``fused``."""
        return torch.optim.AdamW(self.model.parameters(), lr=PEAK_RATE, fused=fused)

    def schedule(self, optimizer: torch.optim.Optimizer) -> Any:
        """Return the one-cycle schedule, which takes a step after each of the optimiser's."""
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=self.steps)


Loop = Callable[[Job], None]


def bare(job: Job) -> None:
    """Train with nothing but what training needs."""
    optimizer = job.optimizer()
    scheduler = job.schedule(optimizer)
    for x, y in job.batches:
        x, y = x.to(job.device, non_blocking=True), y.to(job.device, non_blocking=True)
        loss = F.cross_entropy(job.model(job.prepare(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        job.tick()


def lesson03(job: Job) -> None:
    """Train as lesson 03 does, with its bar, its loss curve and its data on the device."""
    model, device, prepare, batch = job.model, job.device, job.prepare, job.batch
    train_x, train_y = job.x, job.y
    optimizer = job.optimizer()
    scheduler = job.schedule(optimizer)
    plot = plots.LivePlot("step", "training loss, mean of 25 steps", alt="The loss falls.")
    progress = bar(total=job.steps, desc="training")
    running = torch.zeros((), device=device)
    torch.manual_seed(SEED)
    model.train()
    for take in torch.randperm(len(train_x), device=device).split(batch):
        loss = F.cross_entropy(model(prepare(train_x[take])), train_y[take])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        running += loss.detach()
        progress.update()
        if progress.n % 25 == 0:
            plot.add(progress.n, {"training loss": running.item() / 25})
            running.zero_()
        job.tick()
    progress.close()


def tutorial(job: Job) -> None:
    """Train as most tutorials do: ask for the loss at each step, and print its mean now and then."""
    optimizer = job.optimizer()
    scheduler = job.schedule(optimizer)
    running_loss = 0.0
    for i, data in enumerate(job.batches):
        inputs, labels = data[0].to(job.device), data[1].to(job.device)
        optimizer.zero_grad()
        outputs = job.model(job.prepare(inputs))
        loss = F.cross_entropy(outputs, labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        running_loss += loss.item()
        if i % 100 == 99:
            print(f"step {i + 1}: loss {running_loss / 100:.3f}")
            running_loss = 0.0
        job.tick()


def capstone(job: Job) -> None:
    """Train as the capstone ends: shuffle once a pass, take slices, update in one kernel, ask nothing.

    Images also use the faster memory layout, and bfloat16 where the device computes in it.
    """
    of_images = job.x.dim() == 4
    layout = torch.channels_last if of_images else torch.contiguous_format
    half = of_images and abilities(job.device).bf16
    model = job.model.to(memory_format=layout)
    optimizer = job.optimizer(fused=True)
    rates = one_cycle(job.steps, PEAK_RATE)
    first = WARM_UP * job.batch  # so that shuffling the rest is timed
    for part in (slice(first), slice(first, None)):
        x, y = job.x[part], job.y[part]
        order = torch.randperm(len(x), device=job.device)
        x, y = x[order], y[order]
        for some_x, some_y in zip(x.split(job.batch), y.split(job.batch), strict=True):
            optimizer.param_groups[0]["lr"] = next(rates)
            with torch.autocast(job.device.type, torch.bfloat16, enabled=half):
                some_x = job.prepare(some_x).contiguous(memory_format=layout)
                loss = F.cross_entropy(model(some_x), some_y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            job.tick()


def one_cycle(steps: int, peak: float, rise: float = 0.3) -> Iterator[float]:
    """Yield the learning rate of each step: up in a line over the share ``rise``, then down to zero."""
    top = max(1, round(rise * steps))
    for step in range(1, steps + 1):
        yield peak * min(step / top, (steps + 1 - step) / (steps + 1 - top))
