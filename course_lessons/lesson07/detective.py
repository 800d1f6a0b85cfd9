"""What happens in the six loops with a planted fault, on a simulated device of their own.

That is so whatever device the notebook uses. `run` says what a loop returned, how long it took (modelled),
what it asked of the device and when. `present` shows it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import simgpu
from course_language import word
from course_lessons.lesson07.loops import CASES, CHOICES, FAULTS, Case  # noqa: F401  (the lesson says detective.CHOICES)
from course_lessons.shared import memory, profiling
from course_lessons.shared.checking import tensors_in
from course_lessons.shared.precision import full_float32
from course_lessons.shared.traces import Trace
from course_utils import plots
from course_utils.exercises.values import same
from course_utils.number_format import seconds
from course_utils.show import show_table
from course_utils.this_machine import in_notebook
from simgpu import worker
from simgpu.clock import Span
from simgpu.counters import Counters
from simgpu.timeline import Timeline


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
    changed
        Whether it changed the tensors that it was given; looked at where there are values.
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
    changed: bool = False

    @property
    def step_spans(self) -> list[Sequence[Span]]:
        """What was asked of the device in each step, up to the optimizer's step."""
        ends = [step.spans for step in self.steps]
        parts = zip([0, *ends], ends, strict=False)
        return [self.timeline.spans[begin:end] for begin, end in parts]

    @property
    def step_seconds(self) -> list[float]:
        """For how long the device computes what each step asked of it."""
        return [_computing(spans) for spans in self.step_spans]

    @property
    def step_bytes(self) -> list[float]:
        """How many bytes the kernels of each step read and write."""
        return [sum(s.bytes for s in spans if s.kind == "kernel") for spans in self.step_spans]

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


@worker.run_in_worker
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
        memory.temporary_device("15 GB", case.profile) as device,
        full_float32(),
        memory.NoData() if hollow else nullcontext(),
    ):
        arguments = case.prepare(device, hollow)
        model, optimizer = arguments[0], _optimizer(arguments)
        before = _weights(model)
        given = _copies(arguments) if values else []
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
        done.changed = values and not same(given, _copies(arguments))
        done.keep(model, before)
    return done


def run_on_cpu(letter: str, loop: Callable[..., Any] | None = None) -> Run:
    """Run a loop on the CPU, at its small size: what can be judged without the simulated device."""
    case, cpu = CASES[letter], torch.device("cpu")
    with full_float32():
        arguments = case.prepare(cpu, False)
        before, done = _weights(arguments[0]), Run()
        _watch(_optimizer(arguments), done)
        done.result = (loop or case.loop)(*arguments)
    done.keep(arguments[0], before)
    return done


def _copies(arguments: Sequence[Any]) -> list[Tensor]:
    return [t.detach().cpu().clone() for t in tensors_in(arguments)]


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
    if reason := worker.unavailable_reason():
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
    names = word("before"), word("mended")
    _show_figures(dict(zip(names, (before, after), strict=True)), case)
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
