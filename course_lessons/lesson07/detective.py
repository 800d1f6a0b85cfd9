"""Six training loops with one planted fault each, and the simulated device they run on.

A loop runs on a simulated device of its own, whatever device the notebook uses: `run` says what it
returned, how long it took (modelled), what it asked of the device and when. `present` shows it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import simgpu
from course_lessons.shared import memory, profiling
from course_lessons.shared.traces import Trace
from course_utils import plots
from course_utils.number_format import seconds
from course_utils.show import show_table
from course_utils.this_machine import in_notebook
from simgpu.clock import Span
from simgpu.counters import Counters
from simgpu.timeline import Timeline

Batches = Sequence[tuple[Tensor, ...]]


# The loops ---------------------------------------------------------------------------------------


def loop_a(model, batches, optimizer):
    """Train; return the norm of the whole gradient, for each step."""
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        total = 0.0
        for p in model.parameters():
            total += p.grad.norm().item() ** 2
        norms.append(total**0.5)
        optimizer.step()
    return norms


def loop_b(model, images, labels, order, optimizer, device):
    """Train on the rows that ``order`` names for each step; return the losses."""
    losses = []
    for rows in order:
        x = torch.stack([images[i].to(device) for i in rows])
        y = torch.stack([labels[i].to(device) for i in rows])
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def loop_c(model, make_loader, epochs, optimizer, device):
    """Train for some epochs on what a loader gives; return the losses."""
    losses = []
    loader = make_loader()
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses).tolist()


def loop_d(model, batches, optimizer):
    """Train on samples of unequal weight; return the losses."""
    losses = []
    for x, y, weights in batches:
        loss = 0.0
        for i in range(len(x)):
            loss += weights[i] * F.cross_entropy(model(x[i]), y[i])
        loss = loss / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def loop_e(model, batches, optimizer):
    """Train; return the losses."""
    losses = []
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def loop_f(model, batches, optimizer):
    """Train; return after each step the accuracy over all samples so far."""
    accuracies, outputs, labels = [], [], []
    for x, y in batches:
        output = model(x)
        loss = F.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outputs.append(output.detach())
        labels.append(y)
        hits = torch.cat(outputs).argmax(1) == torch.cat(labels)
        accuracies.append(hits.float().mean())
    return torch.stack(accuracies).tolist()


# What they train on ------------------------------------------------------------------------------


class Loader:
    """A ``DataLoader`` on the virtual clock: it gives the batches it was made of, and takes time.

    A batch keeps a core of the host busy for `LOAD` seconds, starting a worker takes the host `START`,
    and there are `CORES` cores. Worker processes load beside the training, each two batches ahead. All
    three figures are settings.

    Parameters
    ----------
    batches
        Tuples of CPU tensors.
    num_workers, pin_memory, persistent_workers
        As for ``torch.utils.data.DataLoader``.
    """

    LOAD, START, CORES, AHEAD = 5e-3, 10e-3, 4, 2

    def __init__(
        self,
        batches: Batches,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
    ) -> None:
        if persistent_workers and not num_workers:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self.batches, self.workers = list(batches), num_workers
        self.pin_memory, self.persistent = pin_memory, persistent_workers
        self._started = False

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return self._beside() if self.workers else self._in_line()

    def _in_line(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self.batches:
            simgpu.host_work(self.LOAD, "load a batch")
            pins = self.pin_memory and not simgpu.problem()
            yield tuple(t.pin_memory() for t in batch) if pins else batch

    def _beside(self) -> Iterator[tuple[Tensor, ...]]:
        from simgpu.machine import MACHINE

        if not (self.persistent and self._started):
            simgpu.host_work(self.START * self.workers, "start the workers")
            self._started = True
        each = self.LOAD * max(1.0, self.workers / self.CORES)
        ready: list[float] = []
        taken = [MACHINE.host.now] * (self.AHEAD * self.workers)  # when there was room for a batch
        for number, batch in enumerate(self.batches):
            # Batch by batch in turn: a worker begins when it is done with its last one and has room.
            before = ready[number - self.workers] if number >= self.workers else 0.0
            ready.append(max(before, taken[number]) + each)
            simgpu.host_work(max(0.0, ready[number] - MACHINE.host.now), "wait for the loader")
            taken.append(MACHINE.host.now)
            yield tuple(map(_pinned, batch)) if self.pin_memory else batch


def _pinned(tensor: Tensor) -> Tensor:
    """Return a pinned copy that took the host no time: in a ``DataLoader`` a thread of its own makes it."""
    if simgpu.problem():
        return tensor
    from simgpu.tensor import mark_pinned

    return mark_pinned(tensor.clone())


def _network(sizes: Sequence[int], device: torch.device, hollow: bool) -> nn.Sequential:
    torch.manual_seed(0)
    with torch.device("meta") if hollow else nullcontext():
        layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        model = nn.Sequential(*layers[:-1])
    return model.to_empty(device=device) if hollow else model.to(device)


def _sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def _rows(n: int, width: int, classes: int) -> tuple[Tensor, Tensor]:
    """Inputs and labels, on the host."""
    return torch.randn(n, width), torch.randint(classes, (n,))


def _batches(
    sizes: Sequence[int], width: int, classes: int, device: torch.device, hollow: bool
) -> list[tuple[Tensor, ...]]:
    """Batches on the device; hollow ones have no values."""
    if hollow:
        return [
            (
                torch.empty(n, width, device=device),
                torch.zeros(n, dtype=torch.int64, device=device),
            )
            for n in sizes
        ]
    return [tuple(t.to(device) for t in _rows(n, width, classes)) for n in sizes]


def _case_a(device: torch.device, hollow: bool) -> tuple[Any, ...]:
    rows, width = (1800, 512) if hollow else (24, 48)
    model = _network([width, width, width, width, 10], device, hollow)
    batches = _batches([rows, 3 * rows // 4, rows], width, 10, device, hollow)
    loud = [(60 * x, y) for x, y in batches]  # gradients' norms far above 10: clipping shows
    # Parameter by parameter: the host has as much to ask for after the wait as the device has to do.
    own = {"lr": 1e-3, "momentum": 0.9, "weight_decay": 1e-4, "foreach": False}
    return model, loud, torch.optim.SGD(model.parameters(), **own)


ROWS_B, WIDTH_B = 90, 3 * 112 * 112
"""The images of loop b: how many, and the numbers in each."""


def _case_b(device: torch.device, hollow: bool) -> tuple[Any, ...]:
    model = _network([WIDTH_B, 16, 10], device, hollow)
    images, labels = _rows(ROWS_B, WIDTH_B, 10)
    order = list(torch.randint(ROWS_B, (ROWS_B,)).split(16))  # a row can come twice
    return model, images, labels, order, _sgd(model, 0.005), device


def _case_c(device: torch.device, hollow: bool) -> tuple[Any, ...]:
    model = _network([64, 64, 10], device, hollow)
    batches = [_rows(32, 64, 10) for _ in range(8)]

    def make_loader(
        num_workers: int = 0, pin_memory: bool = False, persistent_workers: bool = False
    ) -> Loader:
        return Loader(batches, num_workers, pin_memory, persistent_workers)

    return model, make_loader, 3, _sgd(model), device


def _case_d(device: torch.device, hollow: bool) -> tuple[Any, ...]:
    model = _network([32, 32, 10], device, hollow)
    batches = [
        (*batch, torch.rand(len(batch[0])).to(device) + 0.5)
        for batch in _batches([12, 12, 9], 32, 10, device, hollow)
    ]
    return model, batches, _sgd(model)


def _case_e(device: torch.device, hollow: bool) -> tuple[Any, ...]:
    rows, width = (2048, 1024) if hollow else (24, 16)
    model = _network([width, width, width, width], device, hollow)
    if hollow:
        batches = [(torch.empty(rows, width, device=device),) * 2 for _ in range(2)]
    else:
        x = [torch.randn(rows, width).to(device) for _ in range(3)]
        batches = [(part, part.flip(1)) for part in x]
    return model, batches, _sgd(model)


ROWS_F = 2048
"""The rows of a batch of loop f, where its time is judged."""


def _case_f(device: torch.device, hollow: bool) -> tuple[Any, ...]:
    rows, classes = (ROWS_F, 1000) if hollow else (24, 4)
    model = _network([64, classes], device, hollow)
    sizes = [rows] * (8 if hollow else 5)
    sizes[2] = rows // 3
    return model, _batches(sizes, 64, classes, device, hollow), _sgd(model)


# The cases ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One loop, what it is given, and what is wrong with it.

    Attributes
    ----------
    loop
        The faulty loop.
    prepare
        Called with a device and whether to leave out all values; returns the loop's arguments.
    fault
        One of `CHOICES`.
    hollow
        Whether its time is judged at a size that is too large to compute here, without values.
    profile
        The GPU to simulate.
    drawn
        How many steps the picture shows; None for all.
    """

    loop: Callable[..., Any]
    prepare: Callable[[torch.device, bool], tuple[Any, ...]]
    fault: str
    hollow: bool = False
    profile: str = "T4"
    drawn: int | None = 2


CASES = {
    "a": Case(loop_a, _case_a, "waits for the device", hollow=True),
    "b": Case(loop_b, _case_b, "many small copies"),
    "c": Case(loop_c, _case_c, "waits for data", drawn=8),
    "d": Case(loop_d, _case_d, "many small kernels", drawn=1),
    "e": Case(loop_e, _case_e, "slow arithmetic", hollow=True, profile="A100"),
    "f": Case(loop_f, _case_f, "work that grows", hollow=True, drawn=None),
}

FAULTS = {letter: case.fault for letter, case in CASES.items()}
CHOICES = tuple(sorted(FAULTS.values()))
"""The faults, by name, in an order that gives nothing away."""


@dataclass
class Step:
    """Where things stood when the optimizer had made a step: host time, waits and spans so far.

    ``waits`` are those of the ``synchronizations`` that were no copy to the device.
    """

    host: float
    synchronizations: int
    waits: int
    spans: int


@dataclass
class Run:
    """What a loop did.

    Attributes
    ----------
    result
        What it returned.
    weights
        The model's weights afterwards, on the CPU.
    moved
        By how much they changed.
    seconds
        How long it took until the device was done, modelled; 0 without the simulated device.
    counters
        What it asked of the device.
    timeline
        What happened when.
    steps
        Where things stood after each step of the optimizer.
    made
        How many steps the optimizer made.
    dtypes, devices
        The dtypes that the weights had at those steps, and the types of their devices.
    calls
        How often the model was called; 0 without the simulated device.
    facts
        The figures that tell its regime, or None where they were not asked for.
    """

    result: Any = None
    weights: list[Tensor] = field(default_factory=list)
    moved: list[Tensor] = field(default_factory=list)
    seconds: float = 0.0
    counters: Counters = field(default_factory=Counters)
    timeline: Timeline = field(default_factory=Timeline)
    steps: list[Step] = field(default_factory=list)
    made: int = 0
    dtypes: set[torch.dtype] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    calls: int = 0
    facts: profiling.Facts | None = None

    @property
    def step_seconds(self) -> list[float]:
        """For how long the device computes what each step asked of it, up to the optimizer's step."""
        ends = [step.spans for step in self.steps]
        parts = zip([0, *ends], ends, strict=False)
        return [_computing(self.timeline.spans[begin:end]) for begin, end in parts]

    @property
    def step_bytes(self) -> list[float]:
        """How many bytes the kernels of each step read and write, up to the optimizer's step."""
        ends = [step.spans for step in self.steps]
        parts = zip([0, *ends], ends, strict=False)
        return [
            sum(span.bytes for span in self.timeline.spans[begin:end] if span.kind == "kernel")
            for begin, end in parts
        ]

    @property
    def rest_seconds(self) -> float:
        """For how long the device computes what was asked of it after the last step."""
        return _computing(self.timeline.spans[self.steps[-1].spans if self.steps else 0 :])

    @property
    def trace(self) -> Trace:
        """What happened, with the steps as phases; copies that no picture would show are left out."""
        spans = list(self.timeline.spans)
        back = [span for span in spans if "device to host" in span.lane]
        if sum(span.seconds for span in back) < self.seconds / 200:
            spans = [span for span in spans if span not in back]
        start = min((span.start for span in spans), default=0.0)
        phases = []
        for number, step in enumerate(self.steps, 1):
            done = [s.end for s in self.timeline.spans[: step.spans] if s.kind == "kernel"]
            phases.append(
                Span("phases", f"step {number}", start, max(done, default=start), "phase")
            )
            start = phases[-1].end
        return Trace(spans + phases, "modelled")

    def keep(self, model: nn.Module, before: list[Tensor]) -> None:
        """Note the weights, and how far they are from those before."""
        self.weights = _weights(model)
        self.moved = [new - old for new, old in zip(self.weights, before, strict=True)]

    def until(self, steps: int | None) -> Timeline:
        """Return the timeline of the first steps, or of all."""
        if steps is None or len(self.steps) < steps:
            return self.timeline
        return Timeline(self.timeline.spans[: self.steps[steps - 1].spans])


def _computing(spans: Sequence[Span]) -> float:
    return sum(span.seconds for span in spans if span.kind == "kernel")


def run(
    letter: str, loop: Callable[..., Any] | None = None, *, values: bool = False, facts: bool = True
) -> Run:
    """Run a loop on a simulated device of its own, and return what it did.

    Parameters
    ----------
    letter
        The case: ``"a"`` to ``"f"``.
    loop
        What to run in the faulty loop's place; by default the faulty loop.
    values
        Run a case that is too large to compute at a small size, with values. Otherwise its result and its
        weights mean nothing.
    facts
        Whether to work out the run's `profiling.Facts`.

    Raises
    ------
    RuntimeError
        Where this PyTorch cannot have the simulated device.
    """
    case = CASES[letter]
    hollow = case.hollow and not values
    done = Run()
    with (
        memory.spare_device("15 GB", case.profile) as device,
        _settings(),
        memory.Hollow() if hollow else nullcontext(),
    ):
        arguments = case.prepare(device, hollow)
        model, optimizer = arguments[0], _optimizer(arguments)
        before = _weights(model)
        clock = simgpu.clock(device)
        torch.sim.synchronize(device)
        start = clock.host
        counted = profiling.Counted(device)
        with simgpu.count() as done.counters, simgpu.timeline() as done.timeline:
            optimizer.register_step_post_hook(lambda *_: done.steps.append(_stand(done, clock)))
            _watch(optimizer, done)
            model.register_forward_pre_hook(lambda *_: _count_call(done))
            with counted if facts else nullcontext():
                done.result = (loop or case.loop)(*arguments)
            steps = len(done.steps) or 1
        torch.sim.synchronize(device)
        done.seconds = clock.host - start
        if facts:
            trace = Trace(done.timeline.spans, "modelled")
            done.facts = profiling.facts_of(trace, steps, counted)
        done.keep(model, before)
    return done


def run_on_cpu(letter: str, loop: Callable[..., Any] | None = None) -> Run:
    """Run a loop on the CPU, at its small size: what can be judged without the simulated device."""
    case, cpu = CASES[letter], torch.device("cpu")
    with _settings():
        arguments = case.prepare(cpu, False)
        before, done = _weights(arguments[0]), Run()
        _watch(_optimizer(arguments), done)
        done.result = (loop or case.loop)(*arguments)
    done.keep(arguments[0], before)
    return done


def _weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().cpu().clone() for p in model.parameters()]


def _optimizer(arguments: tuple[Any, ...]) -> torch.optim.Optimizer:
    return next(a for a in arguments if isinstance(a, torch.optim.Optimizer))


def _watch(optimizer: torch.optim.Optimizer, done: Run) -> None:
    def note(*_: Any) -> None:
        done.made += 1
        weights = [p for group in optimizer.param_groups for p in group["params"]]
        done.dtypes.update(p.dtype for p in weights)
        done.devices.update(p.device.type for p in weights)

    optimizer.register_step_post_hook(note)


def _count_call(done: Run) -> None:
    done.calls += 1


def _stand(done: Run, clock: Any) -> Step:
    counted = done.counters
    sent = (copy for copy in counted.copies if copy.code == "h2d")
    blocking = sum(not (copy.pinned and copy.non_blocking) for copy in sent)
    waits = counted.synchronizations
    return Step(clock.host, waits, waits - blocking, len(done.timeline.spans))


_SWITCHES = ("", "cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn", "mkldnn", "mkldnn.matmul")
"""Where newer releases keep the precision of float32 products, the general before the particular."""


@contextmanager
def _settings() -> Iterator[None]:
    """Begin with products in full float32, and put back afterwards what a loop may have switched."""
    newer: dict[Any, str] = {}
    older: dict[Any, bool] = {}
    for name in _SWITCHES:
        place: Any = torch.backends
        for part in filter(None, name.split(".")):
            place = getattr(place, part, None)
        if hasattr(place, "fp32_precision"):
            newer[place] = place.fp32_precision
    cudnn = torch.backends.cudnn
    for place in (torch.backends.cuda.matmul, cudnn):
        with suppress(RuntimeError):  # cannot be read after a newer switch was turned
            older[place] = place.allow_tf32
    precision = "highest"
    with suppress(RuntimeError):
        precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    for place in newer:
        if place not in (getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None)):
            place.fp32_precision = "none"  # as PyTorch begins
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        for place, value in older.items():
            place.allow_tf32 = value
        for place, value in newer.items():
            place.fp32_precision = value


# Showing -----------------------------------------------------------------------------------------


def source(letter: str) -> str:
    """Return the source of a faulty loop."""
    return textwrap.dedent(inspect.getsource(CASES[letter].loop))


def present(letter: str, loop: Callable[..., Any] | None = None) -> None:
    """Show a loop: its source, what it asked of the simulated device, and what happened when.

    Parameters
    ----------
    letter
        The case: ``"a"`` to ``"f"``.
    loop
        The learner's loop: then its figures are set beside the faulty loop's, on the same time axis, once
        the check accepts it.
    """
    if loop is None:
        _show_code(source(letter))
    if reason := simgpu.problem():
        print(f"No times for this loop: they need the simulated device. {reason}")
        return
    case = CASES[letter]
    if loop is None:
        before = run(letter)
        print(f"Loop {letter}: {len(before.steps)} steps in {seconds(before.seconds)} (modelled).")
        _show_figures({f"loop {letter}": before}, case)
        _draw(f"Loop {letter}", before, case)
        return
    from course_utils.exercises import lesson  # they import this module

    outcome = getattr(lesson("07"), f"mend_{letter}").result(loop).outcome
    if outcome != "right":
        print("Once the check says Right, your loop and the old one stand here side by side.")
        return
    before, after = run(letter), run(letter, loop)
    print(f"Modelled: {seconds(before.seconds)} before, {seconds(after.seconds)} after.")
    _show_figures({"before": before, "after": after}, case)
    _draw(f"Your loop {letter}", after, case, before.until(case.drawn).seconds)


def _show_code(code: str) -> None:
    if in_notebook():
        from IPython.display import Markdown, display

        display(Markdown(f"```python\n{code}```"))
    else:
        print(code)


def _show_figures(runs: Mapping[str, Run], case: Case) -> None:
    rows = [
        ("the device computes", *(f"{r.facts.busy:.0%} of the time" for r in runs.values())),
        ("kernels launched", *(f"{r.counters.launches:,}" for r in runs.values())),
        ("the host waited", *(_times(r.counters.synchronizations) for r in runs.values())),
        ("copies to the device", *(f"{r.counters.copies_to_device:,}" for r in runs.values())),
    ]
    show_table((f"simulated {case.profile}", *runs), rows, ["modelled"] * len(rows))


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _draw(name: str, done: Run, case: Case, until: float | None = None) -> None:
    drawn = done.until(case.drawn)
    shown = "all steps" if case.drawn is None else f"the first {case.drawn} steps"
    if case.drawn == 1:
        shown = "the first step"
    plots.present(drawn.plot(f"{name}, {shown}", until), drawn.alt())
