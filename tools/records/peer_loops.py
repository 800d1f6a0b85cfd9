"""Times training loops of other packages against a plain PyTorch loop, and prints a table.

``python -m tools.records.peer_loops [cpu|cuda]`` times the loops of the packages that are installed, each as
its own documentation begins. All train the same small MLP from the same weights with batches of 64 from a
``DataLoader``, AdamW and a one-cycle schedule; the first 20 steps are not counted.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import tempfile
from collections.abc import Callable
from statistics import quantiles
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from course_utils.devices import synchronize
from course_utils.timing import take_turns

WARM_UP, STEPS, BATCH, RATE, ROUNDS = 20, 600, 64, 5e-3, 5


class Job:
    """A loop's model, one epoch of batches, optimiser and schedule; it calls `tick` after each step."""

    def __init__(self, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn((WARM_UP + STEPS) * BATCH, 20, generator=generator)
        self.batches = DataLoader(
            TensorDataset(x, (x.sum(1) > 0).long()),
            batch_size=BATCH,
            shuffle=True,
            pin_memory=device.type in ("cuda", "xpu"),
            generator=generator,
        )
        torch.manual_seed(0)
        layers = [nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2)]
        self.device, self.model = device, nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, RATE, total_steps=WARM_UP + STEPS)
        self.steps = 0
        self.clock: list[float] = []

    def tick(self, *_: Any, **__: Any) -> None:
        """Count a step; read the clock after the warm-up and the last step; arguments are ignored."""
        self.steps += 1
        if self.steps in (WARM_UP, WARM_UP + STEPS):
            synchronize(self.device)
            self.clock.append(perf_counter())

    def train_step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Run forward and backward pass, optimiser and schedule on a batch; return the loss."""
        x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss


def barest(job: Job) -> None:
    """Train with a plain PyTorch loop."""
    for x, y in job.batches:
        job.train_step(x, y)
        job.tick()


def tutorial(job: Job) -> None:
    """Train as most tutorials do, with ``loss.item()`` at each step."""
    running_loss = 0.0
    for x, y in job.batches:
        running_loss += job.train_step(x, y).item()
        job.tick()


def lightning(job: Job) -> None:
    """Train with Lightning's Trainer."""
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = job.model

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return F.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            schedule = {"scheduler": job.schedule, "interval": "step"}
            return {"optimizer": job.optimizer, "lr_scheduler": schedule}

        def on_train_batch_end(self, *_: Any) -> None:
            job.tick()

    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(max_epochs=1, accelerator=job.device.type, devices=1, default_root_dir=folder)
        trainer.fit(Module(), job.batches)


def accelerate(job: Job) -> None:
    """Train with Hugging Face's Accelerate: the plain loop with wrapped objects."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=job.device.type == "cpu")
    model, optimizer, batches, schedule = accelerator.prepare(
        job.model, job.optimizer, job.batches, job.schedule
    )
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        job.tick()


def ignite(job: Job) -> None:
    """Train with Ignite's Engine."""
    from ignite.engine import Engine, Events

    trainer = Engine(lambda _, batch: job.train_step(*batch).detach())
    trainer.add_event_handler(Events.ITERATION_COMPLETED, job.tick)
    trainer.run(job.batches, max_epochs=1)


LOOPS = {"tutorial": tutorial, "Lightning": lightning, "Accelerate": accelerate, "Ignite": ignite}


def seconds(loop: Callable[[Job], None], device: torch.device) -> float:
    """Train once; return the seconds of the steps after the warm-up. The package's output is suppressed."""
    job = Job(device)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        loop(job)
    return job.clock[1] - job.clock[0]


def main(name: str = "cpu") -> None:
    """Time each loop alternately with the plain one, and print the speed-up; ``name`` is the device."""
    device = torch.device(name)
    logging.disable(logging.CRITICAL)
    for title, loop in LOOPS.items():
        try:
            seconds(loop, device)
        except ImportError as error:
            print(f"{title:12} left out: {error}")
            continue
        times = take_turns(
            lambda: seconds(barest, device), lambda loop=loop: seconds(loop, device), range(ROUNDS)
        )
        ratios = [a / b for a, b in zip(*times, strict=True)]
        low, median, high = quantiles(ratios, method="inclusive")
        print(f"{title:12} {median:.2f}× the barest loop ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main(*sys.argv[1:2])
