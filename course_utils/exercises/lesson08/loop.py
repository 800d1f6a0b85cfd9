"""Lesson 08, part B: the training loop (lesson 03)."""

from __future__ import annotations

import copy
import io
import itertools
import math
import pickle
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import memory, simgpu
from ...simgpu.counters import Counters
from ..core import Exercise, Judge
from .common import other_device, unguarded

# optimizer_steps ---------------------------------------------------------------------------------


def optimizer_steps(samples, batch_size, accumulate, epochs, drop_last=False):
    batches = samples // batch_size if drop_last else math.ceil(samples / batch_size)
    return epochs * math.ceil(batches / accumulate)


def _batches_of(samples: int, size: int, drop_last: bool) -> int:
    return samples // size if drop_last else math.ceil(samples / size)


_STEP_TWINS: dict[str, Callable[[int, int, int, int, bool], float]] = {
    "counts-batches": lambda n, b, k, e, drop: e * _batches_of(n, b, drop),
    "drops-tail": lambda n, b, k, e, drop: e * math.ceil((n // b) / k),
    "drops-large": lambda n, b, k, e, drop: (
        e * (n // (b * k)) if drop else e * math.ceil(n / (b * k))
    ),
    "drops-group": lambda n, b, k, e, drop: e * (_batches_of(n, b, drop) // k),
    "floors-all": lambda n, b, k, e, drop: e * (n // (b * k)),
    "over-epochs": lambda n, b, k, e, drop: math.ceil(e * _batches_of(n, b, drop) / k),
    "keeps-tail": lambda n, b, k, e, drop: e * math.ceil(math.ceil(n / b) / k),
    "one-too-many": lambda n, b, k, e, drop: e * math.ceil((n // b + (not drop)) / k),
    "one-epoch": lambda n, b, k, e, drop: math.ceil(_batches_of(n, b, drop) / k),
    "fraction": lambda n, b, k, e, drop: e * n / (b * k),
}


def _check_optimizer_steps(answer: Callable[..., Any], judge: Judge) -> None:
    for case in (
        (8000, 100, 4, 3, False),
        (8000, 128, 4, 2, False),
        (1000, 100, 4, 5, False),
        (130, 32, 2, 3, False),
        (130, 32, 2, 3, True),
        (190, 32, 3, 4, True),
        (60, 64, 1, 2, False),
        (60, 64, 1, 2, True),
        (10, 10, 8, 7, False),
    ):
        got = judge.number(answer(*case) if case[-1] else answer(*case[:-1]))
        right = optimizer_steps(*case)
        if got == right:
            continue
        like = [name for name, twin in _STEP_TWINS.items() if twin(*case) == got]
        n, b, k, e, drop = case
        judge.no(
            like[0] if like else "wrong-value",
            seen=f"{got:g} for {n} samples, batches of {b}, accumulate {k}, {e} epochs, drop_last={drop}",
            expected=right,
        )


def _steps_with(twin: str) -> Callable[..., Any]:
    def optimizer_steps(samples, batch_size, accumulate, epochs, drop_last=False):
        return _STEP_TWINS[twin](samples, batch_size, accumulate, epochs, drop_last)

    return optimizer_steps


# waits -------------------------------------------------------------------------------------------


def waits():
    copies = 4 * 2
    decisions = 4
    printed = 2
    at_the_end = 1
    return copies + decisions + printed + at_the_end


def four_steps(model, loader, optimizer, device):
    total = torch.zeros((), device=device)
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        outputs = model(x)
        loss = F.cross_entropy(outputs, y)
        if loss > 100:
            break
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += (outputs.argmax(1) == y).sum()
        if step % 2 == 0:
            print(f"loss {loss:.3f}")
    return total.item()


WAITS = 15
"""What ``four_steps`` counts on the simulated device; for a PyTorch that cannot have it."""


def count_waits() -> int:
    """Run ``four_steps`` on a simulated device of its own; return how often the host waited."""
    if simgpu.problem():
        return WAITS
    with memory.spare_device("1 GB") as device:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(4)]
        with simgpu.count() as counted, redirect_stdout(io.StringIO()):
            four_steps(model, loader, optimizer, device)
    return counted.synchronizations


def _check_waits(answer: Any, judge: Judge) -> None:
    got, right = judge.number(answer), count_waits()
    diagnosis = {
        right - 8: "no-copies",
        right - 4: "no-decisions",
        right - 2: "no-printing",
        right - 1: "no-end",
        right + 2: "all-prints",
        right + 4: "too-many",
        1: "end-only",
    }.get(int(got), "wrong-count")
    if got != right:
        judge.no(diagnosis, seen=f"{got:g}")


# keep_best ---------------------------------------------------------------------------------------


def keep_best(model, train_epoch, score, epochs):
    best = -math.inf
    for _ in range(epochs):
        train_epoch(model)
        found = score(model)
        if found > best:
            best, kept = found, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return best


class _Season:
    """A training whose score goes up and down. Each epoch changes weights and running statistics."""

    def __init__(self, scores: Sequence[float]) -> None:
        torch.manual_seed(0)
        self.scores = scores
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.states: list[dict[str, Tensor]] = []
        self.asked: list[int] = []

    def train_epoch(self, model: nn.Module) -> None:
        """Train: the weights change in place, as an optimiser changes them."""
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1.0)
        model.train()
        model(torch.randn(8, 3))
        self.states.append(copy.deepcopy(model.state_dict()))

    def score(self, model: nn.Module) -> float:
        """Return the score of the epoch that was trained last."""
        self.asked.append(len(self.states))
        return self.scores[len(self.states) - 1]


def _check_keep_best(answer: Callable[..., Any], judge: Judge) -> None:
    for scores in (
        [0.2, 0.9, 0.7, 0.8],
        [-3.0, -1.0, -2.0],
        [0.5, 0.8, 0.8, 0.1],
        [0.1, 0.2, 0.6],
        [0.4],
        [0.9, math.nan, 0.3],
    ):
        season = _Season(scores)
        got = judge.number(answer(season.model, season.train_epoch, season.score, len(scores)))
        case = f"scores {scores}"
        if len(season.states) != len(scores):
            judge.no("other-epochs", seen=f"{len(season.states)} epochs", expected=len(scores))
        if season.asked != list(range(1, len(scores) + 1)):
            judge.no("other-scoring", seen=f"scored after epochs {season.asked}")
        best = max(s for s in scores if not math.isnan(s))
        right = season.states[scores.index(best)]
        _judge_kept(season.model.state_dict(), right, season, case, judge)
        if got != best:
            kind = "last-score" if got == scores[-1] else "wrong-score"
            judge.no(kind, seen=f"{got} for {case}", expected=best)


def _judge_kept(
    state: dict[str, Tensor], right: dict[str, Tensor], season: _Season, case: str, judge: Judge
) -> None:
    if _same_state(state, right):
        return
    epoch = next(i for i, s in enumerate(season.states, 1) if s is right)
    like = [i for i, s in enumerate(season.states, 1) if _same_state(state, s)]
    expected = f"the weights of epoch {epoch}"
    if like and season.scores[like[-1] - 1] == season.scores[epoch - 1]:
        judge.no("later-tie", seen=f"epoch {like[-1]}, {case}", expected=expected)
    if like == [len(season.states)]:
        judge.no("last-weights", seen=f"the weights of the last epoch, {case}", expected=expected)
    if all(torch.equal(state[n], right[n]) for n in ("0.weight", "0.bias", "1.weight", "1.bias")):
        judge.no("no-buffers", seen="the weights of one epoch, the running statistics of another")
    judge.no("other-weights", seen=f"other weights, {case}", expected=expected)


def _same_state(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in b)


def _keep_with(
    take: Callable[[nn.Module], Any] = lambda model: copy.deepcopy(model.state_dict()),
    give: Callable[[nn.Module, Any], Any] = lambda model, kept: model.load_state_dict(kept),
    better: Callable[[float, float], bool] = lambda found, best: found > best,
    first: float = -math.inf,
    result: Callable[[float, float], float] = lambda best, last: best,
) -> Callable[..., Any]:
    def keep_best(model, train_epoch, score, epochs):
        best, kept = first, take(model)
        for _ in range(epochs):
            train_epoch(model)
            found = score(model)
            if better(found, best):
                best, kept = found, take(model)
        give(model, kept)
        return result(best, found)

    return keep_best


def _copied_parameters(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def _give_parameters(model: nn.Module, kept: list[Tensor]) -> None:
    with torch.no_grad():
        for p, old in zip(model.parameters(), kept, strict=True):
            p.copy_(old)


# newest ------------------------------------------------------------------------------------------


def newest(folder, load):
    files = folder.glob("step_*.pt")
    for file in sorted(files, key=lambda f: int(f.stem[5:]), reverse=True):
        try:
            return load(file)
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            pass


def _damaged(kind: str) -> bytes:
    return {"empty": b"", "cut": b"PK\x03\x04 half of a checkpoint", "noise": b"<html>"}[kind]


class _Folder:
    """A folder of checkpoints, some of them damaged, and the loader that reads them."""

    def __init__(self, path: Path, files: dict[str, Any]) -> None:
        self.path = path
        self.loaded: list[str] = []
        for name, content in files.items():
            file = path / name
            if isinstance(content, str):
                file.write_bytes(_damaged(content))
            elif isinstance(content, int):
                torch.save({"step": content, "weight": torch.full((3,), float(content))}, file)

    def load(self, file: Any) -> Any:
        """Load a checkpoint as a training script does."""
        self.loaded.append(Path(file).name)
        return torch.load(file, map_location="cpu", weights_only=True)


def _check_newest(answer: Callable[..., Any], judge: Judge) -> None:
    answer = unguarded(answer)
    for files, right in (
        ({"step_900.pt": 900, "step_1000.pt": 1000, "step_50.pt": 50}, 1000),
        ({"step_100.pt": 100, "step_200.pt": 200, "step_300.pt": "cut"}, 200),
        ({"step_7.pt": "noise", "step_5.pt": 5, "step_6.pt": "empty"}, 5),
        ({"step_10.pt": 10, "best.pt": 99, "step_20.pt.new": 20, "notes.txt": "empty"}, 10),
        ({"step_1.pt": "empty", "step_2.pt": "cut"}, None),
        ({}, None),
    ):
        with tempfile.TemporaryDirectory() as name:
            folder = _Folder(Path(name), files)
            case = ", ".join(
                f"{n} ({'damaged' if isinstance(c, str) else 'good'})" for n, c in files.items()
            )
            try:
                got = answer(folder.path, folder.load)
            except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
                seen = f"{type(error).__name__} from {folder.loaded[-1:] or 'nowhere'}; the folder: {case}"
                judge.no("gives-up", seen=seen, expected=f"step {right}" if right else "None")
            except (ValueError, IndexError) as error:
                kind = "no-file" if not files else "other-files"
                judge.no(kind, seen=f"{type(error).__name__}: {error}", expected=str(right))
            _judge_newest(got, right, folder, case, judge)
    _judge_own_bug(answer, judge)


def _judge_newest(got: Any, right: int | None, folder: _Folder, case: str, judge: Judge) -> None:
    shown = {"seen": f"{got}; the folder: {case}", "expected": f"step {right}" if right else "None"}
    if got is None or right is None:
        if got is not right:
            judge.no("gives-none" if got is None else "wrong-file", **shown)
        return
    judge.is_a(got, dict, "what load() returned")
    step = got.get("step")
    if step == 900 and right == 1000:
        judge.no("as-text", **shown)
    if step in (99, 20) and right == 10:
        judge.no("other-files", **shown)
    if step != right:
        judge.no("wrong-file", **shown)
    if len(folder.loaded) > 1 + sum(int(n[5:-3]) > right for n in set(folder.loaded) - {"best.pt"}):
        judge.no("loads-all", seen=f"loaded {folder.loaded}", expected="stop at the first good one")


def _judge_own_bug(answer: Callable[..., Any], judge: Judge) -> None:
    """A typing error in the loader is no damaged file."""

    def load(file: Any) -> Any:
        raise NameError("name 'tortch' is not defined")

    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "step_1.pt").write_bytes(b"")
        try:
            got = answer(Path(name), load)
        except NameError:
            return
        judge.no(
            "hides-bugs", seen=f"{got}, after load raised a NameError", expected="the NameError"
        )


def _newest_with(
    key: Callable[[Path], Any] = lambda f: int(f.stem[5:]),
    pattern: str = "step_*.pt",
    kinds: tuple[type[BaseException], ...] = (
        RuntimeError,
        EOFError,
        OSError,
        pickle.UnpicklingError,
    ),
    reverse: bool = True,
) -> Callable[..., Any]:
    def newest(folder, load):
        for file in sorted(folder.glob(pattern), key=key, reverse=reverse):
            try:
                return load(file)
            except kinds:
                continue
        return None

    return newest


def _newest_trusting(folder, load):
    return load(max(folder.glob("step_*.pt"), key=lambda f: int(f.stem[5:])))


def _newest_loads_all(folder, load):
    good = []
    for file in folder.glob("step_*.pt"):
        try:
            good.append((int(file.stem[5:]), load(file)))
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            continue
    return max(good, key=lambda pair: pair[0])[1] if good else None


def _any_number(file: Path) -> int:
    digits = "".join(itertools.takewhile(str.isdigit, file.name.partition("_")[2]))
    return int(digits or 1000)


# train_watched -----------------------------------------------------------------------------------


def train_watched(model, batches, optimizer, every):
    losses = []
    for step, (x, y) in enumerate(batches, start=1):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step % every == 0 or step == len(batches):
            good = torch.stack(losses).isfinite().tolist()
            if False in good:
                return good.index(False)


class _Shifted(nn.Module):
    """A classifier; the last input is added to the first logit, so it can make a loss infinite."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits = self.net(x[:, :6])
        return torch.cat([logits[:, :1] + x[:, 6:], logits[:, 1:]], dim=1)


class _Track:
    """A model and its batches on a device; the batch at ``broken`` gives a loss of that value."""

    def __init__(self, device: torch.device, n: int, broken: int | None, value: float) -> None:
        self.model = _Shifted().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.steps = 0
        self.optimizer.register_step_post_hook(self._step)
        for p in self.model.parameters():  # left over from an earlier step
            p.grad = torch.ones_like(p)
        self.batches = []
        for i in range(n):
            x = torch.randn(4, 7)
            if i == broken:
                x[2, 6] = value
            self.batches.append((x.to(device), torch.tensor([1, 2, 0, 0]).to(device)))

    def _step(self, *_: Any) -> None:
        self.steps += 1

    def weights(self) -> Tensor:
        """All weights, on the host."""
        return torch.cat([p.detach().cpu().flatten() for p in self.model.parameters()])


def _check_train_watched(answer: Callable[..., Any], judge: Judge) -> None:
    if simgpu.problem():
        print("Judged without the simulated device: the result, not the reads.")
    with other_device() as other:
        device = torch.device("cpu") if other.type == "meta" else other
        for n, every, broken, value in (
            (5, 2, None, 0.0),
            (9, 4, 1, math.nan),
            (3, 3, 0, -math.inf),
            (5, 2, 4, -math.inf),
            (3, 10, 2, math.nan),
            (3, 1, 1, math.nan),
        ):
            track = _Track(device, n, broken, value)
            with simgpu.count() as counted:
                got = answer(track.model, track.batches, track.optimizer, every)
            _judge_watch(got, track, n, every, broken, counted, judge)
            if broken is None:
                right = _Track(device, n, broken, value)
                train_watched(right.model, right.batches, right.optimizer, every)
                if not torch.allclose(track.weights(), right.weights(), atol=1e-5):
                    judge.no("not-trained", seen="other weights than after a plain training")


def _judge_watch(
    got: Any,
    track: _Track,
    n: int,
    every: int,
    broken: int | None,
    counted: Counters,
    judge: Judge,
) -> None:
    case = f"{n} steps, every={every}, " + (
        f"step {broken} broken" if broken is not None else "all good"
    )
    last = n if broken is None else min(n, every * (broken // every + 1))
    if track.steps > last:
        kind = "never-stops" if track.steps == n else "stops-late"
        judge.no(kind, seen=f"{track.steps} steps; {case}", expected=f"at most {last}")
    if track.steps < last:
        judge.no("stops-early", seen=f"{track.steps} steps; {case}", expected=f"{last}")
    reads = math.ceil(last / every)
    if counted.copies_to_host > reads:
        judge.no(
            "reads-often",
            seen=f"{counted.copies_to_host} reads from the device; {case}",
            expected=f"at most {reads}",
        )
    if broken is None:
        if got is not None:
            judge.no("false-alarm", seen=f"{got}; {case}", expected="None")
        return
    if got is None:
        kind = "no-last-look" if broken >= n - n % every else "misses"
        judge.no(kind, seen=f"None; {case}", expected=str(broken))
    number = judge.number(got)
    if number == broken + 1:
        judge.no("counts-from-one", seen=f"{got}; {case}", expected=str(broken))
    if number in (last, last - 1) and number != broken:
        judge.no("block-only", seen=f"{got}; {case}", expected=str(broken))
    if number != broken:
        judge.no("wrong-step", seen=f"{got}; {case}", expected=str(broken))


def _watch_with(
    bad: Callable[[Tensor], Tensor] = lambda losses: losses.isfinite().logical_not(),
    each: bool = False,
    at_end: bool = True,
    first: bool = True,
    offset: int = 0,
    stop: bool = True,
) -> Callable[..., Any]:
    def train_watched(model, batches, optimizer, every):
        recent, found = [], None
        for step, (x, y) in enumerate(batches, start=1):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recent.append(loss.detach())
            if each:
                loss.item()
            if step % every == 0 or (at_end and step == len(batches)):
                flags = bad(torch.stack(recent)).tolist()
                if True in flags and found is None:
                    found = step - 1
                    if first:
                        found = step - len(flags) + flags.index(True) + offset
                    if stop:
                        return found
                recent = []
        return found

    return train_watched


def _watch_rarely(model, batches, optimizer, every):
    return _watch_with()(model, batches, optimizer, 2 * every)


EXERCISES = (
    Exercise(
        id="08.optimizer_steps",
        title="How many steps has the schedule?",
        level=1,
        minutes=5,
        task="""
A learning-rate schedule such as `OneCycleLR` or cosine wants to know the number of **optimiser steps** beforehand. Write
`optimizer_steps(samples, batch_size, accumulate, epochs, drop_last=False)`. The loader's last batch may be smaller; with
`drop_last=True` it is left out. Every `accumulate` batches make one step, and at the end of each epoch the batches that are
left over make one, too.
""",
        hints=(
            "Count in this order: batches in an epoch, steps in an epoch, steps in all.",
            "`math.ceil` for what is smaller and still counts, `//` for what is left out.",
        ),
        reference=optimizer_steps,
        check_answer=_check_optimizer_steps,
        why="Told the number of batches in place of steps, a cosine schedule with four-fold accumulation ends at a quarter of its way: "
        "the learning rate never comes down. Nothing fails; the result is only worse.",
        diagnoses={
            "counts-batches": "Those are batches. With accumulation several of them make one step.",
            "drops-tail": "The last, smaller batch is left out only with `drop_last=True`.",
            "drops-group": "The batches left over at the end of an epoch make a step, too.",
            "floors-all": "What does not fill a whole step was left out.",
            "over-epochs": "The groups begin anew with each epoch: they do not reach across its end.",
            "keeps-tail": "With `drop_last=True` the last, smaller batch is left out.",
            "drops-large": "`drop_last` leaves out a smaller batch. Whole batches at the end of an epoch still "
            "make a step.",
            "one-too-many": "Where the samples come out even, no smaller batch is left over. Round up; do not add one.",
            "one-epoch": "Those are the steps of one epoch.",
            "fraction": "A part of a batch is a batch, or is left out: count whole ones.",
            "wrong-value": "The number of steps is another.",
        },
        wrong={
            "counts-batches": _steps_with("counts-batches"),
            "drops-tail": _steps_with("drops-tail"),
            "drops-group": _steps_with("drops-group"),
            "over-epochs": _steps_with("over-epochs"),
            "keeps-tail": _steps_with("keeps-tail"),
            "drops-large": _steps_with("drops-large"),
            "one-too-many": _steps_with("one-too-many"),
        },
    ),
    Exercise(
        id="08.waits",
        title="Count the waits",
        level=2,
        minutes=6,
        task="""
How often does the host wait for the device in this loop? The loader gives **four** batches, pairs of tensors in
ordinary (pageable) memory, and no loss is above 100. Answer with a number. The check runs the loop on the simulated device and
counts.

```python
def four_steps(model, loader, optimizer, device):
    total = torch.zeros((), device=device)
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        outputs = model(x)
        loss = F.cross_entropy(outputs, y)
        if loss > 100:
            break
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += (outputs.argmax(1) == y).sum()
        if step % 2 == 0:
            print(f"loss {loss:.3f}")
    return total.item()
```
""",
        hints=(
            "The host waits where Python needs a value: to decide, to print, to return a number. And for a copy "
            "out of memory that is not pinned.",
            "`total +=`, `argmax`, `==` and the clipping leave their results on the device. Go through the "
            "lines that are left, and count how often each one runs.",
        ),
        reference=waits,
        check_answer=_check_waits,
        why="None of these lines is called `synchronize`. Copies from ordinary memory, an `if` on a tensor and a print are the waits that "
        "profiles find, and the first of them goes away with pinned memory and `non_blocking=True`.",
        diagnoses={
            "no-copies": "A copy from pageable memory makes the host wait until the data have left. There are two "
            "in each step.",
            "no-decisions": "`if loss > 100` needs a Python truth value, so the host waits for the loss.",
            "no-printing": "To print a loss the host must have it. How many of the four steps print?",
            "no-end": "The result at the end is read as well.",
            "end-only": "`.item()` is not the only line that waits. What does an `if` need, or a copy from "
            "ordinary memory?",
            "all-prints": "Not every step prints.",
            "too-many": "Something was counted in each step that stays on the device. Which of the lines needs no value in "
            "Python?",
            "wrong-count": "The host waits another number of times.",
        },
        wrong={
            "no-copies": 7,
            "no-decisions": 11,
            "no-printing": 13,
            "end-only": 1,
            "too-many": 19,
        },
    ),
    Exercise(
        id="08.keep_best",
        title="The best weights, not the last",
        level=2,
        minutes=8,
        task="""
This loop is to leave `model` with the weights of its best epoch. It leaves it with those of the last one, always. Mend
`keep_best(model, train_epoch, score, epochs)`: `train_epoch(model)` trains in place, and `score(model)`, called once
after each epoch, returns a number; more is better. Afterwards the model is, weights and running statistics, as it
was after the best epoch (the first of them, if several are equally good). Return its score.
""",
        hints=(
            "What does `model.state_dict()` give you: the numbers, or the tensors that the optimiser goes on changing?",
            "`copy.deepcopy` of the state. And which number can a score never be below?",
        ),
        reference=keep_best,
        check_answer=_check_keep_best,
        why="`state_dict()` copies nothing: each entry is the live parameter itself. The copy stays on the device and takes as much "
        "memory as the weights. (`.cpu()` on each entry moves it off a GPU; on a CPU that is no copy either.)",
        diagnoses={
            "last-weights": "The model has the weights of its last epoch. What was kept changed along with it: it was no copy. "
            "(Or it was never loaded.)",
            "no-buffers": "The weights came back, and the running statistics of BatchNorm did not. A state has buffers, too.",
            "later-tie": "Two epochs are equally good. Keep the first of them.",
            "last-score": "The score is that of the last epoch.",
            "wrong-score": "That is not the best score.",
            "other-weights": "The model has the weights of no epoch, or of another one. Can a score be negative?",
            "other-epochs": "Train for just `epochs` epochs.",
            "other-scoring": "Score the model once after each epoch.",
        },
        wrong={
            "last-weights": _keep_with(take=lambda model: model.state_dict()),
            "no-buffers": _keep_with(take=_copied_parameters, give=_give_parameters),
            "later-tie": _keep_with(better=lambda found, best: found >= best),
            "last-score": _keep_with(result=lambda best, last: last),
            "other-weights": _keep_with(first=0.0),
        },
    ),
    Exercise(
        id="08.newest",
        title="The newest whole checkpoint",
        level=2,
        minutes=10,
        task="""
A machine went down while it saved. `folder` (a `pathlib.Path`) has checkpoints named `step_900.pt`, `step_1000.pt`, …,
and perhaps other files. Write `newest(folder, load)`: what `load(file)` returns for the one with the highest step that
loads. `load` is `torch.load` with its arguments filled in. For a damaged file it raises a `RuntimeError`, an `EOFError`,
an `OSError` or a `pickle.UnpicklingError`. Load no more files than needed, and return `None` where no file is whole.
Any other error is a bug and must come out.
""",
        hints=(
            "As texts, `step_900` comes after `step_1000`. As what should they be sorted?",
            '`folder.glob("step_*.pt")`, sorted by `int(file.stem[5:])`, the highest first.',
            "Inside the loop: try to return what `load` gives, and go on to the next file at those four errors.",
        ),
        reference=newest,
        check_answer=_check_newest,
        why="A restart that takes the newest file on trust fails at just the moment it was written for. And one that catches "
        "everything starts from nothing, quietly, because of a typing error.",
        diagnoses={
            "as-text": "The names were compared as texts: there, 900 comes after 1000.",
            "gives-up": "A damaged file ended the search, though an older one may be whole.",
            "other-files": "Only files named `step_….pt` count.",
            "gives-none": "There is a whole checkpoint in the folder.",
            "no-file": "An empty folder is no error: return None.",
            "wrong-file": "That is not the newest whole checkpoint.",
            "loads-all": "More files were loaded than needed. Begin with the newest, and stop at the first that loads.",
            "hides-bugs": "An error in the program itself was taken for a damaged file.",
        },
        wrong={
            "as-text": _newest_with(key=lambda f: f.name),
            "gives-up": _newest_trusting,
            "other-files": _newest_with(key=_any_number, pattern="*.*"),
            "wrong-file": _newest_with(reverse=False),
            "loads-all": _newest_loads_all,
            "hides-bugs": _newest_with(kinds=(Exception,)),
        },
    ),
    Exercise(
        id="08.train_watched",
        title="A watchman who does not stop the traffic",
        level=3,
        minutes=15,
        task="""
A loss that is `nan` or infinite must stop the training, and `if loss.isnan()` in each step makes the host wait in each step.
Write `train_watched(model, batches, optimizer, every)`: train with cross-entropy, one step for each `(x, y)` of the
list, and look at the losses after each `every` steps and after the last. A look is **one** read from the device. If a loss
was not finite, stop there, and return the number of the first such step, counted from 0. Otherwise return `None`
at the end.
""",
        hints=(
            "Between two looks, the losses can wait on the device, without their graphs.",
            "`torch.stack(losses).isfinite().tolist()` is one read, for any number of losses.",
            "Append `loss.detach()` in each step. Look where `step % every == 0`, counted from 1, and after the last step; "
            "the place of the first `False` is the answer.",
        ),
        reference=train_watched,
        check_answer=_check_train_watched,
        may_change=True,
        why="The price is at most `every` wasted steps, and those would have been wasted on a dead model. The same "
        "pattern serves for logging and for early stopping: collect on the device, look rarely, read once.",
        diagnoses={
            "reads-often": "There were more reads from the device than looks. Leave the losses there until it is time.",
            "never-stops": "The training went on to the end, though a loss was not finite.",
            "stops-late": "The training went on after a look that should have stopped it.",
            "stops-early": "The training stopped before its end, or before its next look.",
            "no-last-look": "The last steps are fewer than `every`, and nobody looked at them.",
            "misses": "A loss that was not finite went unnoticed. Infinite is as bad as nan.",
            "false-alarm": "All losses were finite.",
            "counts-from-one": "Steps are counted from 0.",
            "block-only": "That is the step of the look, not the first one with a bad loss.",
            "wrong-step": "That is not the first step with a bad loss.",
            "not-trained": "The weights are not those of a plain training. Backward, step, and zero the gradients in between.",
        },
        wrong={
            "reads-often": _watch_with(each=True),
            "never-stops": _watch_with(stop=False),
            "stops-late": _watch_rarely,
            "no-last-look": _watch_with(at_end=False),
            "misses": _watch_with(bad=lambda losses: losses.isnan()),
            "counts-from-one": _watch_with(offset=1),
            "block-only": _watch_with(first=False),
        },
    ),
)
