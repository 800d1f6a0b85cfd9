"""The same training by the loops of other packages, each used as its documentation begins."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..experiments import Unsuitable
from ..networks import optional
from .comparison import quiet
from .loops import Job, Loop, bare, capstone, lesson03, tutorial

PACKAGES: Mapping[str, str] = {
    "lightning": "lightning",
    "accelerate": "accelerate",
    "ignite": "pytorch-ignite",
    "fastai": "fastai",
    "transformers": "transformers",
}
"""The modules of other packages, and what ``pip install`` calls them."""


def need(module: str) -> Any:
    """Import a module of another package.

    Raises
    ------
    Unsuitable
        Where the package is not installed, or does not load.
    """
    package = module.split(".")[0]
    if importlib.util.find_spec(package) is None:
        raise Unsuitable(f"it needs {PACKAGES[package]}: pip install {PACKAGES[package]}")
    return optional(module)


def versions() -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    return {
        package: importlib.metadata.version(package)
        for module, package in PACKAGES.items()
        if importlib.util.find_spec(module)
    }


def lightning(job: Job, **options: Any) -> None:
    """Train with Lightning's Trainer, as it is by default."""
    L = need("lightning")

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = job.model

        def training_step(self, batch: Any, _index: int) -> torch.Tensor:
            x, y = batch
            return F.cross_entropy(self.model(job.prepare(x)), y)

        def configure_optimizers(self) -> Any:
            optimizer = job.optimizer()
            step = {"scheduler": job.schedule(optimizer), "interval": "step"}
            return {"optimizer": optimizer, "lr_scheduler": step}

    class Tick(L.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            job.tick()

    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator=job.device.type,
            devices=1,
            max_epochs=1,
            default_root_dir=folder,
            callbacks=[Tick()],
            **options,
        )
        trainer.fit(Module(), job.batches)


def lightning_barebones(job: Job) -> None:
    """Train with Lightning's Trainer, with everything off that can be: no bar, no log, no checkpoint."""
    lightning(job, barebones=True)


def accelerate(job: Job) -> None:
    """Train with Hugging Face's accelerate: the barest loop, its parts wrapped."""
    accelerator = need("accelerate").Accelerator(cpu=job.device.type == "cpu")
    optimizer = job.optimizer()
    model, optimizer, batches, scheduler = accelerator.prepare(
        job.model, optimizer, job.batches, job.schedule(optimizer)
    )
    for x, y in batches:
        loss = F.cross_entropy(model(job.prepare(x)), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        job.tick()


def ignite(job: Job) -> None:
    """Train with Ignite's Engine."""
    engine = need("ignite.engine")
    optimizer = job.optimizer()
    scheduler = job.schedule(optimizer)

    def step(_engine: Any, data: Any) -> torch.Tensor:
        x, y = (part.to(job.device, non_blocking=True) for part in data)
        loss = F.cross_entropy(job.model(job.prepare(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    trainer = engine.Engine(step)
    trainer.add_event_handler(engine.Events.ITERATION_COMPLETED, job.tick)
    trainer.run(job.batches, max_epochs=1)


def fastai(job: Job) -> None:
    """Train with fastai's Learner and PyTorch's AdamW."""
    learner_module, optimizers = need("fastai.learner"), need("fastai.optimizer")
    data = need("fastai.data.core")

    class Schedule(learner_module.Callback):
        def before_fit(self) -> None:
            self.schedule = job.schedule(self.learn.opt.opt)

        def after_step(self) -> None:
            self.schedule.step()

        def after_batch(self) -> None:
            job.tick()
            if job.tick.done == job.steps:
                raise learner_module.CancelFitException  # before it validates

    class Prepared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = job.model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(job.prepare(x))

    learner = learner_module.Learner(
        data.DataLoaders(job.batches, job.batches, device=job.device),
        Prepared(),
        loss_func=F.cross_entropy,
        opt_func=functools.partial(optimizers.OptimWrapper, opt=torch.optim.AdamW),
        cbs=[Schedule()],
    )
    learner.fit(1, wd=1e-2)


class _Named:
    """Batches as dictionaries, which is how Hugging Face's Trainer wants them."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for x, y in self.batches:
            yield {"x": x, "y": y}


def transformers(job: Job) -> None:
    """Train with Hugging Face's Trainer, as it is by default, without clipping."""
    need("accelerate")
    hf = need("transformers")

    class Tick(hf.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            job.tick()

    class Trainer(hf.Trainer):
        def get_train_dataloader(self) -> Any:
            return _Named(job.batches)

        def compute_loss(self, model: nn.Module, inputs: Any, **_: Any) -> torch.Tensor:
            return F.cross_entropy(model(job.prepare(inputs["x"])), inputs["y"])

    optimizer = job.optimizer()
    with tempfile.TemporaryDirectory() as folder:
        arguments = hf.TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=job.batch,
            use_cpu=job.device.type == "cpu",
            max_grad_norm=0.0,
            report_to=[],
            save_strategy="no",
        )
        Trainer(
            job.model,
            arguments,
            train_dataset=job.batches,
            optimizers=(optimizer, job.schedule(optimizer)),
            callbacks=[Tick()],
        ).train()


LOOPS: Mapping[str, Loop] = {
    "bare": bare,
    "lesson 03": lesson03,
    "capstone": capstone,
    "tutorial": tutorial,
    "Lightning": lightning,
    "Lightning barebones": lightning_barebones,
    "accelerate": accelerate,
    "Ignite": ignite,
    "fastai": fastai,
    "HF Trainer": transformers,
}
"""Every loop, by the name it has in the table."""


def trained(loop: str, task: str, data: str, device: torch.device) -> Job:
    """Train once with a loop, and return what it was given."""
    job = Job(task, data, device)
    with quiet():
        LOOPS[loop](job)
    return job


class Peer:
    """A loop's turn: a training from the beginning, of which the steady steps are timed.

    Attributes
    ----------
    weights
        What the latest turn ended with.
    """

    def __init__(self, loop: str, task: str, data: str, device: torch.device) -> None:
        self._what = loop, task, data, device
        self.weights = torch.empty(0)

    def __call__(self) -> float:
        """Train, and return the seconds of one sample."""
        job = trained(*self._what)
        self.weights = torch.cat([p.detach().flatten() for p in job.model.parameters()])
        return job.tick.seconds / job.counted
