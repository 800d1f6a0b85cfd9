"""Exercises of lesson 03, the training loop."""

from __future__ import annotations

import copy
import io
import os
import pickle
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .. import simgpu
from .core import Exercise, Judge, same

Batches = list[tuple[torch.Tensor, torch.Tensor]]


# What several checks use -------------------------------------------------------------------------


def _model(*, norm: bool = True, dropout: float = 0.0) -> nn.Sequential:
    """A small classifier with fixed weights: 6 features, 3 classes."""
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def _batches(sizes: Sequence[int], seed: int = 1) -> Batches:
    """Batches of the given sizes; the labels are random, so no batch is like another."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(n, 6, generator=generator),
            torch.randint(0, 3, (n,), generator=generator),
        )
        for n in sizes
    ]


def _sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _apart(a: nn.Module, b: nn.Module) -> float:
    """The largest difference between the weights of two models."""
    return float((_weights(a) - _weights(b)).abs().max())


def _alike(a: nn.Module, b: nn.Module) -> bool:
    return _apart(a, b) < 1e-5


def _differ(model: nn.Module, right: nn.Module) -> str:
    return f"weights that are off by up to {_apart(model, right):.2g}"


class _Reads(TorchFunctionMode):
    """Count how often a value is read out of a tensor: on a GPU each read waits for the device."""

    names = frozenset(
        {"item", "tolist", "numpy", "cpu", "__float__", "__int__", "__bool__", "__index__"}
        | {"__array__", "__format__", "__repr__", "__contains__"}
    )
    makers = frozenset({"tensor", "as_tensor", "asarray", "new_tensor"})

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Count the call where it reads, then make it."""
        name = getattr(func, "__name__", "")
        self.count += name in self.names
        if name in self.makers:  # makes numbers of the tensors in a list, one after the other
            self.count += sum(map(_tensors_inside, [*args, *(kwargs or {}).values()]))
        return func(*args, **(kwargs or {}))


def _tensors_inside(value: object) -> int:
    """How many tensors lie in lists and tuples, nested ones too; a tensor itself holds none."""
    if not isinstance(value, (list, tuple)):
        return 0
    return sum(isinstance(item, torch.Tensor) or _tensors_inside(item) for item in value)


@contextmanager
def _reads(device: torch.device) -> Iterator[Callable[[], int]]:
    """Count reads: on the simulated device by what waits or is copied, on the CPU by the calls."""
    if device.type == "cpu":
        with _Reads() as reads:
            yield lambda: reads.count
    else:
        with simgpu.count() as asked:
            yield lambda: max(asked.synchronizations, asked.copies_to_host)


# train_epoch -------------------------------------------------------------------------------------


def train_epoch(model, batches, optimizer):
    model.train()
    total = seen = 0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
        seen += len(y)
    return total / seen


def _check_train_epoch(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes in ((4, 4, 3), (5, 2)):
        batches = _batches(sizes)
        model, right, piled = (_model().eval() for _ in range(3))
        expected = train_epoch(right, batches, _sgd(right))
        _pile_up(piled, batches)
        order, modes, optimizer = [], [], _sgd(model)
        model.register_forward_pre_hook(lambda m, _, seen=modes: seen.append(m.training))
        model[0].weight.register_hook(lambda _, seen=order: seen.append("backward"))
        optimizer.register_step_pre_hook(lambda *_, seen=order: seen.append("step"))
        got = answer(model, batches, optimizer)
        if not order or order.count("step") != len(batches):
            judge.no(
                "steps",
                seen=f"{order.count('step')} steps over {len(batches)} batches",
                expected=f"{len(batches)} steps",
            )
        if order[0] == "step":
            judge.no("step-first", seen="step() before the first backward()", expected="after it")
        if not all(modes):
            judge.no("not-train-mode", seen="a forward pass in eval mode", expected="train mode")
        if _alike(model, _model()):
            judge.no("nothing-learned", seen="the weights never moved", expected="new weights")
        if _alike(model, piled):
            judge.no("piles-up", seen=_differ(model, right), expected="each batch's own gradient")
        if not _alike(model, right):
            judge.no("weights", seen=_differ(model, right), expected="the weights of a right loop")
        number = judge.is_a(got, float, "a Python float")
        judge.close(number, expected, "ragged-mean", rel=1e-4)


def _pile_up(model: nn.Module, batches: Batches) -> None:
    """Train as the loop without zero_grad does."""
    model.train()
    optimizer = _sgd(model)
    for x, y in batches:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def _epoch_without_zero(model, batches, optimizer):
    model.train()
    total = 0.0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


def _epoch_step_first(model, batches, optimizer):
    model.train()
    total = 0.0
    for x, y in batches:
        optimizer.step()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        total += loss.item() * len(y)
    return total / sum(len(y) for _, y in batches)


def _epoch_zero_before_step(model, batches, optimizer):
    model.train()
    total = 0.0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        total += loss.item() * len(y)
    return total / sum(len(y) for _, y in batches)


def _epoch_mean_of_means(model, batches, optimizer):
    model.train()
    total = 0.0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


def _epoch_gives_tensor(model, batches, optimizer):
    return torch.tensor(train_epoch(model, batches, optimizer))


def _epoch_in_given_mode(model, batches, optimizer):
    total = seen = 0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
        seen += len(y)
    return total / seen


# mean_loss ---------------------------------------------------------------------------------------


def mean_loss(model, batches):
    was_training = model.training
    model.eval()
    total = count = 0
    with torch.inference_mode():
        for x, y in batches:
            total += F.cross_entropy(model(x), y, reduction="sum")
            count += len(y)
    model.train(was_training)
    return total.item() / count


def _check_mean_loss(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes, training in (((6, 6, 2), True), ((3, 5), False)):
        batches = _batches(sizes, seed=len(sizes))
        model = _model(dropout=0.5).train(training)
        before = copy.deepcopy(model.state_dict())
        modes, graphs = [], []
        model.register_forward_pre_hook(lambda m, _, seen=modes: seen.append(m.training))
        model.register_forward_hook(lambda m, i, out, seen=graphs: seen.append(out.requires_grad))
        got = answer(model, batches)
        if any(modes):
            judge.no("train-mode", seen="forward passes in train mode", expected="eval mode")
        if any(graphs):
            judge.no("builds-graph", seen="outputs that require a gradient", expected="no graph")
        if model.training != training:
            words = {True: "train mode", False: "eval mode"}
            judge.no("mode-left", seen=words[model.training], expected=words[training])
        if any(not torch.equal(before[key], value) for key, value in model.state_dict().items()):
            judge.no("model-changed", seen="other weights or statistics", expected="the same model")
        if not torch.is_grad_enabled():
            judge.no("gradients-off", seen="gradients switched off", expected="on, as before")
        if not all(p.requires_grad for p in model.parameters()):
            judge.no("gradients-off", seen="requires_grad = False", expected="True, as before")
        number = judge.is_a(got, float, "a Python float")
        x, y = (torch.cat(part) for part in zip(*batches, strict=True))
        with torch.no_grad():
            expected = F.cross_entropy(copy.deepcopy(model).eval()(x), y).item()
        judge.close(number, expected, "ragged-mean", rel=1e-4)


def _loss_in_train_mode(model, batches):
    with torch.inference_mode():
        total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in batches)
    return total.item() / sum(len(y) for _, y in batches)


def _loss_with_graph(model, batches):
    was_training = model.training
    model.eval()
    total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in batches)
    model.train(was_training)
    return total.item() / sum(len(y) for _, y in batches)


def _loss_mean_of_means(model, batches):
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        total = sum(F.cross_entropy(model(x), y) for x, y in batches)
    model.train(was_training)
    return total.item() / len(batches)


def _loss_freezes(model, batches):
    model.requires_grad_(False)
    return mean_loss(model, batches)


def _loss_leaves_eval(model, batches):
    model.eval()
    with torch.inference_mode():
        total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in batches)
    return total.item() / sum(len(y) for _, y in batches)


# step_losses -------------------------------------------------------------------------------------


def step_losses(model, batches, optimizer):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _check_step_losses(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes in ((4,) * 9, (5, 3, 2, 2)):
        batches = _batches(sizes)
        model, right = _model(), _model()
        expected = step_losses(right, batches, _sgd(right))
        got = answer(model, batches, _sgd(model))
        judge.is_a(got, list, "a list of Python floats")
        if not all(isinstance(value, float) for value in got):
            judge.no("not-floats", seen=got, expected="Python floats")
        if len(got) != len(batches):
            judge.no("one-per-step", seen=f"{len(got)} numbers", expected=f"{len(batches)} numbers")
        if not _alike(model, right):
            judge.no(
                "weights", seen=_differ(model, right), expected="one right step for each batch"
            )
        for value, wanted in zip(got, expected, strict=True):
            judge.close(value, wanted, "wrong-loss", rel=1e-4)
    device = torch.device("cpu") if simgpu.problem() else simgpu.first()
    batches = [(x.to(device), y.to(device)) for x, y in _batches((4, 4, 4, 4))]
    model, in_training = _model().to(device), [0]
    optimizer = _sgd(model)
    with _reads(device) as reads:
        optimizer.register_step_post_hook(lambda *_: in_training.append(reads()))
        answer(model, batches, optimizer)
        count = reads()
    if count > 2:
        judge.no(
            "reads-each-step" if in_training[-1] else "reads-at-the-end",
            seen=f"{count} reads for {len(batches)} batches",
            expected="one read (two at most), however many batches there are",
        )


def _losses_by_item(model, batches, optimizer):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _losses_by_tensor(model, batches, optimizer):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.tensor(losses).tolist()


def _losses_as_tensors(model, batches, optimizer):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def _losses_without_training(model, batches, optimizer):
    with torch.inference_mode():
        return torch.stack([F.cross_entropy(model(x), y) for x, y in batches]).tolist()


# train_accumulated -------------------------------------------------------------------------------


def train_accumulated(model, batches, optimizer, k):
    for first in range(0, len(batches), k):
        group = batches[first : first + k]
        count = sum(len(y) for _, y in group)
        optimizer.zero_grad()
        for x, y in group:
            loss = F.cross_entropy(model(x), y, reduction="sum") / count
            loss.backward()
        optimizer.step()


def _check_train_accumulated(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes, k in (((4, 4, 4, 4), 2), ((4, 4, 4, 1, 3), 2), ((3, 2), 1), ((5, 2), 3)):
        batches = _batches(sizes)
        model, right = _model(norm=False), _model(norm=False)
        large = [
            tuple(torch.cat(part) for part in zip(*batches[i : i + k], strict=True))
            for i in range(0, len(batches), k)
        ]
        train_accumulated(right, large, _sgd(right), 1)
        steps, optimizer = [], _sgd(model)
        optimizer.register_step_pre_hook(lambda *_, seen=steps: seen.append(1))
        forwards: list[int] = []
        model.register_forward_pre_hook(lambda _, args, seen=forwards: seen.append(len(args[0])))
        graphs = _Graphs(model)
        answer(model, batches, optimizer, k)
        if forwards and max(forwards) > max(sizes):
            judge.no(
                "large-batch",
                seen=f"a batch of {max(forwards)} went through the model",
                expected=f"at most {max(sizes)} at a time",
            )
        if graphs.most > 1:
            judge.no("all-graphs", seen=f"{graphs.most} graphs at once", expected="one at a time")
        if len(steps) != len(large):
            tail = len(steps) == len(batches) // k
            judge.no(
                "tail-dropped" if tail else "steps",
                seen=f"{len(steps)} steps for {len(batches)} batches and k = {k}",
                expected=f"{len(large)} steps",
            )
        if not _alike(model, right):
            judge.no(
                "piles-up" if len(set(sizes)) == 1 else "not-by-count",
                seen=f"{_differ(model, right)}, for batches of {', '.join(map(str, sizes))}",
                expected=f"the weights after steps on batches of "
                f"{', '.join(str(len(y)) for _, y in large)}",
            )


class _Graphs:
    """The most forward passes with a graph that a model made before a backward pass."""

    def __init__(self, model: nn.Sequential) -> None:
        self.now = self.most = 0
        model.register_forward_hook(self._forward)
        model[0].weight.register_hook(self._backward)

    def _forward(self, _: nn.Module, __: object, out: torch.Tensor) -> None:
        self.now += out.requires_grad
        self.most = max(self.most, self.now)

    def _backward(self, _: torch.Tensor) -> None:
        self.now = 0


def _accumulate_by_k(model, batches, optimizer, k):
    for i, (x, y) in enumerate(batches):
        (F.cross_entropy(model(x), y) / k).backward()
        if (i + 1) % k == 0 or i + 1 == len(batches):
            optimizer.step()
            optimizer.zero_grad()


def _accumulate_joined(model, batches, optimizer, k):
    for i in range(0, len(batches), k):
        x, y = (torch.cat(part) for part in zip(*batches[i : i + k], strict=True))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def _accumulate_in_one_graph(model, batches, optimizer, k):
    for first in range(0, len(batches), k):
        group = batches[first : first + k]
        count = sum(len(y) for _, y in group)
        optimizer.zero_grad()
        total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in group)
        (total / count).backward()
        optimizer.step()


def _accumulate_without_tail(model, batches, optimizer, k):
    for i, (x, y) in enumerate(batches):
        (F.cross_entropy(model(x), y) / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def _accumulate_without_zero(model, batches, optimizer, k):
    for first in range(0, len(batches), k):
        group = batches[first : first + k]
        count = sum(len(y) for _, y in group)
        for x, y in group:
            (F.cross_entropy(model(x), y, reduction="sum") / count).backward()
        optimizer.step()


def _step_each_batch(model, batches, optimizer, k):
    for x, y in batches:
        optimizer.zero_grad()
        (F.cross_entropy(model(x), y) / k).backward()
        optimizer.step()


# index_batches -----------------------------------------------------------------------------------


def index_batches(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator)
    return list(order.split(size))[start:]


def _check_index_batches(answer: Callable[..., Any], judge: Judge) -> None:
    n, size = 23, 5
    torch.manual_seed(12)
    random.seed(12)
    with judge.own_generator():
        got = answer(n, size, 7, 0, 0)
    first = _index_lists(got, judge)
    flat = [i for batch in first for i in batch]
    if sorted(flat) != list(range(n)):
        judge.no(
            "not-each-once", seen=f"{len(set(flat))} of {n} indices", expected="each index once"
        )
    if [len(batch) for batch in first] != [5, 5, 5, 5, 3]:
        judge.no("sizes", seen=[len(batch) for batch in first], expected=[5, 5, 5, 5, 3])
    if flat == sorted(flat):
        judge.no("not-shuffled", seen=first, expected="a random order")
    if _index_lists(answer(n, size, 7, 0, 0), judge) != first:
        judge.no("not-repeatable", seen="another order at the second call", expected=first)
    if _index_lists(answer(n, size, 7, 1, 0), judge) == first:
        judge.no(
            "same-each-epoch", seen="epochs 0 and 1 in the same order", expected="another order"
        )
    for start in (1, 3, 5):
        rest = _index_lists(answer(n, size, 7, 0, start), judge)
        if rest != first[start:]:
            judge.no("not-the-rest", seen=f"start = {start}: {rest}", expected=first[start:])
    for one, other in (((7, 0), (3, 4)), ((5, 3), (6, 2))):  # the same sum
        wanted, got = (_index_lists(answer(n, size, *pair, 2), judge) for pair in (one, other))
        if got != wanted:
            judge.no(
                "other-seed",
                seen="seed {}, epoch {}: another order than seed {}, epoch {}".format(*other, *one),
                expected="the same order, because seed + epoch is the same",
            )


def _index_lists(got: object, judge: Judge) -> list[list[int]]:
    judge.is_a(got, (list, tuple), "a list of index tensors")
    for batch in got:
        if not isinstance(batch, torch.Tensor) or batch.dtype != torch.int64 or batch.ndim != 1:
            judge.no("not-index-tensors", seen=batch, expected="1-D int64 tensors")
    return [batch.tolist() for batch in got]


def _batches_global_seed(n, size, seed, epoch, start):
    torch.manual_seed(seed + epoch)
    return list(torch.randperm(n).split(size))[start:]


def _batches_same_each_epoch(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randperm(n, generator=generator).split(size))[start:]


def _batches_other_seed(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    return list(torch.randperm(n, generator=generator).split(size))[start:]


def _batches_start_in_samples(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed + epoch)
    return list(torch.randperm(n, generator=generator)[start:].split(size))


def _batches_skip_before_shuffle(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed + epoch)
    rest = torch.randperm(n - start * size if start else n, generator=generator)
    return list((rest + (n - len(rest))).split(size))


def _batches_drop_last(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator)
    return list(order[: n // size * size].split(size))[start:]


# full_state --------------------------------------------------------------------------------------


def full_state(model, optimizer, scheduler):
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "torch_rng": torch.get_rng_state(),
        "python_rng": random.getstate(),
    }


_KEYS = ("model", "optimizer", "scheduler", "torch_rng", "python_rng")


class _Run:
    """A run whose every step depends on the model, the optimiser, the scheduler and two generators."""

    def __init__(self, seed: int) -> None:
        self.model = _model(dropout=0.4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2, gamma=0.5)
        torch.manual_seed(seed)
        random.seed(seed)

    def go(self, steps: int) -> None:
        batches = _batches((5, 4, 6, 5, 7))
        for _ in range(steps):
            x, y = random.choice(batches)
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
            self.scheduler.step()

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["torch_rng"])
        random.setstate(state["python_rng"])

    def everything(self) -> torch.Tensor:
        return torch.cat([value.flatten().double() for value in self.model.state_dict().values()])


def _check_full_state(answer: Callable[..., Any], judge: Judge) -> None:
    run = _Run(seed=3)
    run.go(5)
    complete = _through_file(full_state(run.model, run.optimizer, run.scheduler))
    got = answer(run.model, run.optimizer, run.scheduler)
    _judge_untouched(run, complete, judge)
    judge.is_a(got, dict, "a dict")
    if extra := sorted(set(map(str, got)) - set(_KEYS)):
        judge.no("other-keys", seen=f"keys {', '.join(extra)}", expected=f"keys {', '.join(_KEYS)}")
    try:
        got = _through_file(got)
    except (pickle.PicklingError, pickle.UnpicklingError, RuntimeError, AttributeError):
        judge.no(
            "not-plain",
            seen="torch.load(..., weights_only=True) refuses what was saved",
            expected="tensors, numbers, strings, and lists, tuples and dicts of them",
        )
    run.go(6)
    for key in _KEYS:
        if key not in got:
            found = "no such key"
        else:
            found = _resumed({**complete, key: got[key]}, run.everything())
        if found:
            judge.no(
                key,
                seen=f'"{key}": {found}',
                expected="after the restart, the weights of the uninterrupted run, bit for bit",
            )


def _judge_untouched(run: _Run, before: dict[str, Any], judge: Judge) -> None:
    """Refuse an answer that changed the run whose state it was to read."""
    after = _through_file(full_state(run.model, run.optimizer, run.scheduler))
    for key, name in (("torch_rng", "torch's generator"), ("python_rng", "Python's generator")):
        if not same(before[key], after[key]):
            judge.no("moved-generator", seen=f"{name} stands elsewhere", expected="where it stood")
    if not run.model.training:
        judge.no("changed-input", seen="the model in eval mode", expected="still in train mode")
    for key in ("model", "optimizer", "scheduler"):
        if not same(before[key], after[key]):
            judge.no("changed-input", seen=f"the {key} in another state", expected="as it was")


def _resumed(state: dict[str, Any], expected: torch.Tensor) -> str:
    """Say how a run that restarts from a state differs from the uninterrupted one; "" if not."""
    again = _Run(seed=99)
    try:
        again.restore(copy.deepcopy(state))
    except (RuntimeError, TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        return f"it cannot be loaded ({type(error).__name__})"
    again.go(6)
    apart = float((again.everything() - expected).abs().max())
    return f"the resumed run is off by up to {apart:.2g}" if apart else ""


def _through_file(state: object) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _state_without(*left_out: str) -> Callable[..., Any]:
    def full_state(model, optimizer, scheduler):
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "torch_rng": torch.get_rng_state(),
            "python_rng": random.getstate(),
        }
        return {key: value for key, value in state.items() if key not in left_out}

    return full_state


def _state_of_parameters(model, optimizer, scheduler):
    state = full_state(model, optimizer, scheduler)
    return {**state, "model": dict(model.named_parameters())}


def _state_of_objects(model, optimizer, scheduler):
    return {
        **full_state(model, optimizer, scheduler),
        "model": model,
    }


def _state_after_seeding(model, optimizer, scheduler):
    torch.manual_seed(0)
    random.seed(0)
    return full_state(model, optimizer, scheduler)


def _state_with_seed(model, optimizer, scheduler):
    return {**full_state(model, optimizer, scheduler), "torch_rng": torch.initial_seed()}


# save_atomic -------------------------------------------------------------------------------------


def save_atomic(state, path):
    new = path.with_name(path.name + ".new")
    with open(new, "wb") as file:
        torch.save(state, file)
        os.fsync(file.fileno())
    os.replace(new, path)


class _Crash(Exception):
    """The power cut that the check simulates."""


class _Bomb:
    """Something whose saving fails half way."""

    def __reduce__(self) -> Any:
        raise _Crash("simulated: the process was killed while it wrote the checkpoint")


class _Watch:
    """What happened on the disk while an answer ran, and where to crash.

    Attributes
    ----------
    renames
        For each rename, the file that moved, and what the checkpoint held just before.
    synced
        What each file in the folder held at each fsync before the first rename.
    """

    def __init__(self, path: Path, crash: bool = False) -> None:
        self.path, self.crash = path, crash
        self.renames: list[tuple[Path, object]] = []
        self.synced: list[dict[str, object]] = []
        self._fsync, self._replace = os.fsync, os.replace

    def fsync(self, file: int) -> None:
        self._fsync(file)
        if not self.renames:
            self.synced.append({p.name: _value_in(p) for p in self.path.parent.iterdir()})

    def replace(self, source: Any, target: Any, **_: Any) -> None:
        self.renames.append((Path(source).resolve(), _value_in(self.path)))
        if self.crash:
            raise _Crash("simulated: the process was killed before the rename")
        self._replace(source, target)

    @contextmanager
    def watching(self) -> Iterator[_Watch]:
        with (
            mock.patch("os.fsync", self.fsync),
            mock.patch("os.replace", self.replace),
            mock.patch("os.rename", self.replace),
            mock.patch("pathlib.Path.replace", lambda a, b: self.replace(a, b)),
            mock.patch("pathlib.Path.rename", lambda a, b: self.replace(a, b)),
        ):
            yield self


def _value_in(path: Path) -> object:
    """The number in a saved state, or None where the file is missing or cannot be read."""
    try:
        return torch.load(path, weights_only=True)["value"]
    except (OSError, RuntimeError, EOFError, KeyError, TypeError, pickle.UnpicklingError):
        return None


def _saved(value: int) -> dict[str, Any]:
    return {"value": value, "weights": torch.arange(100.0)}


def _check_save_atomic(answer: Callable[..., Any], judge: Judge) -> None:
    raw = answer.__wrapped__  # a simulated crash is not an error of the learner's code
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "last.pt"
        answer(_saved(1), path)
        _expect_value(judge, path, 1, "after the first save")

        with _Watch(path).watching() as watch:
            answer(_saved(2), path)
        _expect_value(judge, path, 2, "after the second save")
        _judge_disk(watch, path, judge)

        _crashing(raw, {**_saved(3), "bomb": _Bomb()}, path)
        if _value_in(path) != 2:
            judge.no(
                "overwrites",
                seen="killed while writing: the checkpoint from before is gone",
                expected="the checkpoint from before, whole",
            )
        with _Watch(path, crash=True).watching():
            _crashing(raw, _saved(4), path)
        if _value_in(path) != 2:
            judge.no(
                "gap",
                seen="killed just before the rename: no checkpoint is left",
                expected="the checkpoint from before, whole",
            )
        answer(_saved(5), path)
        _expect_value(judge, path, 5, "at the next save after a crash")
        if left := sorted(p.name for p in path.parent.iterdir() if p != path):
            judge.no("leftovers", seen=f"files left: {', '.join(left)}", expected="only last.pt")


def _judge_disk(watch: _Watch, path: Path, judge: Judge) -> None:
    """Judge the second save by its renames and by what stood in the folder at each fsync."""
    if not watch.renames:
        judge.no("overwrites", seen="last.pt itself was written to", expected="a second file first")
    for source, held in watch.renames:
        if source == path:
            judge.no("gap", seen="last.pt was moved away", expected="last.pt, until it is replaced")
        if held is None:
            judge.no(
                "gap", seen="last.pt was gone before the rename", expected="last.pt, until then"
            )
        if held != 1:
            judge.no("overwrites", seen="last.pt was changed first", expected="a second file first")
        if source.parent != path.parent:
            judge.no("other-folder", seen="no second file beside last.pt", expected="one beside it")
    if not watch.synced:
        judge.no("no-fsync", seen="no os.fsync before the rename", expected="os.fsync")
    if not any(2 in there.values() for there in watch.synced):
        judge.no(
            "not-flushed",
            seen="at os.fsync the new file was not complete",
            expected="a file that loads",
        )


def _expect_value(judge: Judge, path: Path, value: int, when: str) -> None:
    got = _value_in(path)
    if got != value:
        found = "a file that does not load" if path.exists() else "no file"
        seen = found if got is None else f"the state of save {got}"
        judge.no("not-saved", seen=f"{when}: {seen}", expected=f"the state of save {value}")


def _crashing(raw: Callable[..., Any], state: object, path: Path) -> None:
    try:
        raw(state, path)
    except Exception:  # noqa: BLE001  (whatever the simulated crash turns into, the disk is judged)
        return


def _save_in_place(state, path):
    torch.save(state, path)


def _save_without_fsync(state, path):
    new = path.with_name(path.name + ".new")
    torch.save(state, new)
    os.replace(new, path)


def _save_without_flush(state, path):
    memory = io.BytesIO()
    torch.save(state, memory)
    new = path.with_name(path.name + ".new")
    with open(new, "wb") as file:
        file.write(memory.getvalue())
        os.fsync(file.fileno())
    os.replace(new, path)


def _save_elsewhere(state, path):
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / path.name
        with open(new, "wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        os.replace(new, path)


def _save_remove_first(state, path):
    new = path.with_name(path.name + ".new")
    with open(new, "wb") as file:
        torch.save(state, file)
        os.fsync(file.fileno())
    path.unlink(missing_ok=True)
    os.rename(new, path)


def _save_under_new_names(state, path):
    handle, name = tempfile.mkstemp(dir=path.parent)
    with open(handle, "wb") as file:
        torch.save(state, file)
        os.fsync(file.fileno())
    os.replace(name, path)


EXERCISES = (
    Exercise(
        id="03.train_epoch",
        title="Three faults in one loop",
        level=1,
        minutes=8,
        task="""
The loop below runs without an error and has three faults. Mend them. Your `train_epoch` trains the
model for one pass over `batches`, a list of `(x, y)`, with cross-entropy, and returns the mean loss
of one digit over the pass, as a Python float. The last batch is smaller than the others.
""",
        hints=(
            "Read the five lines aloud in the order of the section above. Which is missing, and which "
            "two have changed places?",
            "The loss that `cross_entropy` returns is the mean of a batch. A batch of 3 must not count "
            "as much as a batch of 64.",
            "In the loop: `loss`, then `optimizer.zero_grad()`, `loss.backward()`, `optimizer.step()`. "
            "Add `loss.item() * len(y)`, and divide by the number of digits seen.",
        ),
        reference=train_epoch,
        check_answer=_check_train_epoch,
        why="None of the three raises an error: the loss still falls, only to a worse place, and the "
        "number you print is not the number you think. That is why loops are checked by what they do.",
        diagnoses={
            "piles-up": "The gradients of earlier batches are still in the sum when a step is taken: "
            "`backward()` adds to `.grad`, it does not replace it.",
            "step-first": "The optimiser steps before the first gradient exists, so every step uses "
            "the gradient of the batch before, or none.",
            "ragged-mean": "The mean over batches is not the mean over digits when the last batch is "
            "smaller: weight each batch's loss by its number of digits.",
            "not-train-mode": "The model was handed over in eval mode, and the loop left it there. A "
            "training loop asks for the mode it needs.",
            "nothing-learned": "The gradients are thrown away between `backward()` and `step()`, so "
            "the optimiser has nothing to apply.",
            "steps": "There must be one optimiser step for each batch.",
            "weights": "The weights after the pass are not those of a right loop.",
        },
        wrong={
            "piles-up": _epoch_without_zero,
            "step-first": _epoch_step_first,
            "nothing-learned": _epoch_zero_before_step,
            "ragged-mean": _epoch_mean_of_means,
            "not-train-mode": _epoch_in_given_mode,
            "wrong-type": _epoch_gives_tensor,
        },
    ),
    Exercise(
        id="03.mean_loss",
        title="An evaluation that leaves no trace",
        level=2,
        minutes=8,
        task="""
Write `mean_loss(model, batches)`: the mean cross-entropy of one digit over a list of `(x, y)` batches
of unequal size, as a Python float. It evaluates in eval mode, builds no graph, and leaves the model in
the mode it found it in: train **or** eval.
""",
        hints=(
            "`model.training` is True or False, and `model.train(mode)` takes either.",
            '`F.cross_entropy(..., reduction="sum")` adds the losses of a batch; divide once, at the '
            "end, by the number of digits.",
            "Remember `model.training`; `model.eval()`; loop inside `with torch.inference_mode():`; "
            "then `model.train(remembered)`.",
        ),
        reference=mean_loss,
        check_answer=_check_mean_loss,
        why="A function that measures must not change what it measures. This one can be called in the "
        "middle of a training loop, or by someone who never trains.",
        diagnoses={
            "train-mode": "The model ran in train mode: dropout threw values away, and BatchNorm "
            "learned from the evaluation data.",
            "builds-graph": "The outputs carry a graph, so autograd kept every activation for a "
            "backward pass that never comes.",
            "mode-left": "The model came back in another mode than it went in. Whoever called you "
            "goes on in the wrong mode, and no error says so.",
            "ragged-mean": "The mean over batches is not the mean over digits when batches differ in "
            "size.",
            "model-changed": "The model's weights or its BatchNorm statistics changed.",
            "gradients-off": "Gradients stay off after the evaluation, so the next `backward()` fails. "
            "A `with` block switches them off and on again.",
        },
        wrong={
            "train-mode": _loss_in_train_mode,
            "builds-graph": _loss_with_graph,
            "ragged-mean": _loss_mean_of_means,
            "mode-left": _loss_leaves_eval,
            "gradients-off": _loss_freezes,
        },
    ),
    Exercise(
        id="03.step_losses",
        title="A loss curve for one read",
        level=2,
        minutes=8,
        task="""
Write `step_losses(model, batches, optimizer)`: one right training step for each `(x, y)` in `batches`,
and back comes the list of the losses, one Python float a step. The model comes in train mode. Read
from the device once at the end, not once a step: the check counts.
""",
        hints=(
            "`.item()`, `float(...)`, `print(loss)` and `if loss > 3:` all read, and on a GPU all wait. "
            "What can you keep in a list without reading it?",
            "Keep `loss.detach()`: it stays on the device, without its graph.",
            "`torch.stack(losses)` makes one tensor of many; its `.tolist()` is one read.",
        ),
        reference=step_losses,
        check_answer=_check_step_losses,
        why="On an accelerator this loop never waits before its end: Python can send the next step "
        "while the device is still at work. The same trick serves for accuracy, gradient norms, and everything else you plot.",
        diagnoses={
            "reads-each-step": "The training reads a value from the device again and again. On an "
            "accelerator each read stops the queue; so does a copy into a tensor on the CPU.",
            "reads-at-the-end": "No step was held up, but at the end the losses are read one by one, each "
            "with a copy of its own. `torch.tensor` on a list of tensors does that too: it reads every "
            "element. First join them on the device.",
            "not-floats": "The list holds something else than Python floats.",
            "one-per-step": "There must be one loss for each batch.",
            "weights": "The model was not trained by one right step for each batch.",
            "wrong-loss": "The numbers are not the losses of the steps, each taken before its update.",
        },
        wrong={
            "reads-each-step": _losses_by_item,
            "reads-at-the-end": _losses_by_tensor,
            "not-floats": _losses_as_tensors,
            "weights": _losses_without_training,
        },
        may_change=True,  # else the checker's own comparison of the batches would count as reads
    ),
    Exercise(
        id="03.train_accumulated",
        title="Accumulation with a ragged end",
        level=3,
        minutes=12,
        task="""
Write `train_accumulated(model, batches, optimizer, k)`: every `k` batches of the list make **one**
optimiser step, and each step must use the gradient of the mean loss over all their digits, as if they
had come as one large batch, with one batch's graph in memory at a time. The last batch can be smaller,
and the last group can have fewer than `k` batches. It still gets its step. The model comes in train mode.
""",
        hints=(
            "Walk over the list in groups: `batches[first : first + k]`. The last group is shorter all "
            "by itself.",
            "A group's number of digits is known before its first forward pass. Divide by it, not by k.",
            'For each group: `zero_grad()`; for each batch `cross_entropy(..., reduction="sum") / '
            "count` and `backward()`; then `step()`.",
        ),
        reference=train_accumulated,
        check_answer=_check_train_accumulated,
        why="Many loops divide by k and drop the tail. Nothing fails then, but the small last batch "
        "counts too much, and the last digits of each epoch are never learned from.",
        diagnoses={
            "not-by-count": "The digits of the small batches got another weight than those of the "
            "large ones, or a short group was divided by the wrong number.",
            "large-batch": "The large batch itself went through the model. It is the one that does not "
            "fit: one batch and one graph at a time.",
            "all-graphs": "The graphs of several batches were alive at once, and all their activations "
            "with them: as much memory as the large batch takes.",
            "tail-dropped": "The batches after the last full group never got a step.",
            "piles-up": "The gradient of one group is still there in the next, or it is not the mean "
            "over the group.",
            "steps": "The number of optimiser steps is not the number of groups.",
        },
        wrong={
            "not-by-count": _accumulate_by_k,
            "tail-dropped": _accumulate_without_tail,
            "large-batch": _accumulate_joined,
            "all-graphs": _accumulate_in_one_graph,
            "piles-up": _accumulate_without_zero,
            "steps": _step_each_batch,
        },
    ),
    Exercise(
        id="03.index_batches",
        title="A shuffle you can enter in the middle",
        level=2,
        minutes=10,
        task="""
Write `index_batches(n, size, seed, epoch, start)`: the batches of one epoch as a list of index tensors,
from batch number `start` on. All `n` indices come in an order that is random, different in each epoch
and the same at each call; the last batch may be smaller. Use a generator of its own, seeded with
`seed + epoch`: the global generators must not notice.
""",
        hints=(
            "`torch.Generator().manual_seed(number)` is a generator of your own; "
            "`torch.randperm(n, generator=...)` draws from it.",
            "Shuffle all n first, cut into batches, and only then leave out the first `start` batches.",
            "`order.split(size)` gives the batches, with the ragged one at the end; `[start:]` the rest.",
        ),
        reference=index_batches,
        check_answer=_check_index_batches,
        why="Now three numbers (seed, epoch, start) say exactly where a run is in its data. A checkpoint "
        "can keep them in place of the whole order.",
        diagnoses={
            "global-generator": "The function drew from a generator that other code uses, or seeded it: "
            "then dropout and everything else that is random changes too.",
            "same-each-epoch": "Every epoch has the same order: the seed does not depend on the epoch.",
            "not-the-rest": "From `start` on, the batches are not those of the whole epoch: `start` "
            "counts batches, and they are left out after the shuffle.",
            "not-each-once": "Some index is missing or comes twice: each epoch sees every digit once.",
            "sizes": "The batches have other sizes than asked for.",
            "not-shuffled": "The indices come in their natural order.",
            "not-repeatable": "Two calls with the same arguments gave two orders.",
            "not-index-tensors": "Each batch must be a 1-D tensor of indices.",
            "other-seed": "The order is random, but the generator is not seeded with `seed + epoch`.",
        },
        wrong={
            "global-generator": _batches_global_seed,
            "same-each-epoch": _batches_same_each_epoch,
            "not-the-rest": _batches_start_in_samples,
            "not-each-once": _batches_drop_last,
            "other-seed": _batches_other_seed,
        },
    ),
    Exercise(
        id="03.full_state",
        title="What a run remembers",
        level=2,
        minutes=8,
        task="""
Write `full_state(model, optimizer, scheduler)`: a dict with the keys `"model"`, `"optimizer"`,
`"scheduler"`, `"torch_rng"` and `"python_rng"` from which a run with BatchNorm, dropout, momentum, a
learning-rate schedule and Python's `random` goes on as if it had never stopped. The check saves it, loads
it with `weights_only=True`, trains on, and compares weights bit for bit.
""",
        hints=(
            "Three of the five have a method of the same name that returns their state.",
            "`torch.get_rng_state()` and `random.getstate()` return the state of the two generators.",
            "`.state_dict()` for the first three. A model's state_dict holds its buffers too, such as "
            "BatchNorm's running mean.",
        ),
        reference=full_state,
        check_answer=_check_full_state,
        why="Without the optimiser's state the run forgets its momentum; without the scheduler's the "
        "learning rate goes its own way; without the generators it sees other batches. Each time the "
        "loss curve only shows a small bump, if anything.",
        diagnoses={
            "model": "The model does not come back whole. Are its buffers there, such as BatchNorm's "
            "running mean and variance?",
            "optimizer": "The optimiser does not come back: its momentum starts from nothing.",
            "scheduler": "The schedule does not come back: the learning rate is another one.",
            "torch_rng": "Dropout draws other numbers after the restart: torch's generator is not "
            "restored. A seed is not a state.",
            "python_rng": "Python's `random` draws other numbers after the restart.",
            "moved-generator": "Your function seeded a generator, or drew from it. To save is to read: a "
            "seed starts a new sequence, and the run that goes on now draws other numbers than it would "
            "have drawn.",
            "not-plain": "The state holds whole objects. A checkpoint is made of state: tensors, "
            "numbers, strings, and containers of them.",
            "other-keys": "Use just the keys the task names.",
        },
        wrong={
            "optimizer": _state_without("optimizer"),
            "scheduler": _state_without("scheduler"),
            "torch_rng": _state_with_seed,
            "python_rng": _state_without("python_rng"),
            "model": _state_of_parameters,
            "moved-generator": _state_after_seeding,
            "not-plain": _state_of_objects,
        },
    ),
    Exercise(
        id="03.save_atomic",
        title="A save that cannot half happen",
        level=3,
        minutes=12,
        task="""
Write `save_atomic(state, path)`: save with `torch.save` so that at every moment, killed or not, `path`
(a `pathlib.Path`) holds the whole old state or the whole new one: here there is no `previous.pt`. After a
crash the next save must work, and after a success no other file may stay in the folder. The check kills
your code in the middle of writing and just before the rename.
""",
        hints=(
            "Write somewhere else first. `os.replace(a, b)` then puts a in the place of b in one move, "
            "but only within one disk: so where must the new file be?",
            "What you wrote may still wait in the system's memory: `os.fsync(file.fileno())` waits until "
            "it is on the disk.",
            '`new = path.with_name(path.name + ".new")`; open it with `"wb"`; `torch.save`, then fsync; '
            "after the `with` block, `os.replace(new, path)`.",
        ),
        reference=save_atomic,
        check_answer=_check_save_atomic,
        why="Cloud sessions end without asking, often in the middle of the longest operation, and that "
        "is the save. Half a checkpoint in the place of a whole one is worse than none.",
        diagnoses={
            "overwrites": "The only good checkpoint is opened for writing, and so emptied, before the "
            "new one is complete.",
            "gap": "For a moment there is no checkpoint at all: the old one is gone and the new one is "
            "not in place yet. `os.replace` needs no room made first.",
            "no-fsync": "The new file may still be in the system's memory when it gets the good name: "
            "after a power cut the name can stand for an empty file.",
            "not-flushed": "`os.fsync` writes what the system has, and part of the file is still in "
            "Python's own buffer. `torch.save` to an open file empties it; after `file.write` you need "
            "`file.flush()`.",
            "other-folder": "The new file is written in another folder. That can be another disk, and "
            "between disks a rename becomes a slow copy, or fails.",
            "not-saved": "The file does not hold the state that was handed over.",
            "leftovers": "A file is left beside the checkpoint, of this save or of a killed one. A fixed "
            "name is written over by the next save.",
        },
        wrong={
            "overwrites": _save_in_place,
            "no-fsync": _save_without_fsync,
            "not-flushed": _save_without_flush,
            "other-folder": _save_elsewhere,
            "gap": _save_remove_first,
            "leftovers": _save_under_new_names,
        },
    ),
)
