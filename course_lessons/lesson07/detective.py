"""Runs the six loops with a planted fault on a simulated device of their own, and shows what they did.

That is so whatever device the notebook uses. `run` returns what a loop gave, how long it took (modelled),
and what it asked of the device when; `present` shows it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import simgpu
from course_language import _
from course_lessons.lesson07.loops import CASES, CHOICES, FAULTS, Case  # noqa: F401  (used by the lesson)
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
    """Totals when the optimizer had made a step: host time, waits (copies to the device left out), spans."""

    host: float
    waits: int
    spans: int


@dataclass
class Run:
    """What a loop did. Times, counters and steps are the simulated device's; on a CPU there are none."""

    result: Any = None  # what it returned
    moved: list[Tensor] = field(default_factory=list)  # how much each weight changed
    optimizer_steps: int = 0
    dtypes: set[torch.dtype] = field(default_factory=set)  # of the weights at these steps and at the end
    devices: set[str] = field(default_factory=set)  # types of the weights' devices at these steps
    calls: int = 0  # of the model
    changed: bool = False  # whether the tensors it was given changed; looked at where there are values
    seconds: float = 0.0  # until the device was done
    counters: Counters = field(default_factory=Counters)
    timeline: Timeline = field(default_factory=Timeline)
    steps: list[Step] = field(default_factory=list)
    facts: profiling.Facts | None = None  # what tells its regime, where it was asked for

    @property
    def step_spans(self) -> list[Sequence[Span]]:
        """What was asked of the device in each step, up to the optimizer's step."""
        ends = [step.spans for step in self.steps]
        parts = zip([0, *ends], ends, strict=False)
        return [self.timeline.spans[begin:end] for begin, end in parts]

    @property
    def step_bytes(self) -> list[float]:
        """How many bytes the kernels of each step read and write."""
        return [sum(s.bytes for s in spans if s.kind == "kernel") for spans in self.step_spans]

    @property
    def rest_seconds(self) -> float:
        """For how long the device computes what was asked of it after the last step."""
        return computing_seconds(self.timeline.spans[self.steps[-1].spans if self.steps else 0 :])

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
            ends = [s.end for s in self.timeline.spans[: step.spans] if s.kind == "kernel"]
            end = max(ends, default=start)
            phases.append(Span("phases", _("step {number}").format(number=number), start, end, "phase"))
            start = end
        return Trace(spans + phases, "modelled")

    def until(self, steps: int | None) -> Timeline:
        """Return the timeline of the first steps, or of all."""
        if steps is None or len(self.steps) < steps:
            return self.timeline
        return Timeline(self.timeline.spans[: self.steps[steps - 1].spans])


def computing_seconds(spans: Sequence[Span]) -> float:
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
    case, done = CASES[letter], Run()
    no_data = case.no_data and not values
    with (
        memory.temporary_device("15 GB", case.profile) as device,
        full_float32(),
        memory.NoData() if no_data else nullcontext(),
    ):
        arguments = case.prepare(device, no_data)
        given = _copies(arguments) if values else []
        clock, counted = simgpu.clock(device), profiling.Counted(device)
        optimizer = _optimizer(arguments)
        optimizer.register_step_post_hook(lambda *_: done.steps.append(_totals(done, clock)))
        with _recording(done, arguments):
            torch.sim.synchronize(device)
            start = clock.host
            with (
                simgpu.count() as done.counters,
                simgpu.timeline() as done.timeline,
                counted if facts else nullcontext(),
            ):
                done.result = (loop or case.loop)(*arguments)
            torch.sim.synchronize(device)
            done.seconds = clock.host - start
        if facts:
            trace = Trace(done.timeline.spans, "modelled")
            done.facts = profiling.facts_of(trace, len(done.steps) or 1, counted)
        done.changed = values and not same(given, _copies(arguments))
    return done


def run_on_cpu(letter: str, loop: Callable[..., Any] | None = None) -> Run:
    """Run a loop on the CPU, at its small size: what can be judged without the simulated device."""
    case, done = CASES[letter], Run()
    with full_float32():
        arguments = case.prepare(torch.device("cpu"), False)
        with _recording(done, arguments):
            done.result = (loop or case.loop)(*arguments)
    return done


@contextmanager
def _recording(done: Run, arguments: Sequence[Any]) -> Iterator[None]:
    """Record calls of the model, steps of the optimizer, and the weights' dtypes, devices and change."""
    model, optimizer = arguments[0], _optimizer(arguments)

    def called(*_: Any) -> None:
        done.calls += 1

    def stepped(*_: Any) -> None:
        done.optimizer_steps += 1
        weights = [p for group in optimizer.param_groups for p in group["params"]]
        done.dtypes.update(p.dtype for p in weights)
        done.devices.update(p.device.type for p in weights)

    model.register_forward_pre_hook(called)
    optimizer.register_step_post_hook(stepped)
    before = _weights(model)
    yield
    after = _weights(model)
    done.dtypes.update(w.dtype for w in after)
    done.moved = [new - old for new, old in zip(after, before, strict=True)]


def _copies(arguments: Sequence[Any]) -> list[Tensor]:
    return [t.detach().cpu().clone() for t in tensors_in(arguments)]


def _weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().cpu().clone() for p in model.parameters()]


def _optimizer(arguments: Sequence[Any]) -> torch.optim.Optimizer:
    return next(a for a in arguments if isinstance(a, torch.optim.Optimizer))


def _totals(done: Run, clock: Any) -> Step:
    sent = (copy for copy in done.counters.copies if copy.code == "h2d")
    blocking = sum(not (copy.pinned and copy.non_blocking) for copy in sent)
    return Step(clock.host, done.counters.synchronizations - blocking, len(done.timeline.spans))


# Showing -----------------------------------------------------------------------------------------


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
    case = CASES[letter]
    if loop is None:
        _show_code(textwrap.dedent(inspect.getsource(case.loop)))
    if reason := worker.unavailable_reason():
        print(_("No times for this loop: they need the simulated device. {reason}").format(reason=reason))
        return
    if loop is None:
        before = run(letter)
        print(
            _("Loop {letter}: {n_steps} steps in {seconds} (modelled).").format(
                letter=letter, n_steps=len(before.steps), seconds=seconds(before.seconds)
            )
        )
        _show_figures({f"loop {letter}": before}, case)
        _draw(_("Loop {letter}").format(letter=letter), before, case)
        return
    from course_utils.exercises import lesson  # they import this module

    outcome = getattr(lesson("07"), f"mend_{letter}").result(loop).outcome
    if outcome != "right":
        print(_("Once the check says Right, your loop and the old one stand here side by side."))
        return
    before, after = run(letter), run(letter, loop)
    print(
        _("Modelled: {seconds} before, {after_seconds} after.").format(
            seconds=seconds(before.seconds), after_seconds=seconds(after.seconds)
        )
    )
    names = _("before"), _("mended")
    _show_figures(dict(zip(names, (before, after), strict=True)), case)
    _draw(_("Your loop {letter}").format(letter=letter), after, case, before.until(case.drawn).seconds)


def _show_code(code: str) -> None:
    if in_notebook():
        from IPython.display import Markdown, display

        display(Markdown(f"```python\n{code}```"))
    else:
        print(code)


def _show_figures(runs: Mapping[str, Run], case: Case) -> None:
    rows = [
        (
            _("the device computes"),
            *(_("{busy:.0%} of the time").format(busy=r.facts.busy) for r in runs.values()),
        ),
        (_("kernels launched"), *(f"{r.counters.launches:,}" for r in runs.values())),
        (_("the host waited"), *(_times(r.counters.synchronizations) for r in runs.values())),
        (_("copies to the device"), *(f"{r.counters.copies_to_device:,}" for r in runs.values())),
    ]
    show_table(
        (_("simulated {profile}").format(profile=case.profile), *runs),
        rows,
        ["modelled"] * len(rows),
    )


def _times(number: int) -> str:
    return _("once") if number == 1 else _("{number:,} times").format(number=number)


def _draw(name: str, done: Run, case: Case, until: float | None = None) -> None:
    drawn = done.until(case.drawn)
    shown = _("all steps") if case.drawn is None else _("the first {drawn} steps").format(drawn=case.drawn)
    if case.drawn == 1:
        shown = _("the first step")
    plots.present(drawn.plot(f"{name}, {shown}", until), drawn.alt())
