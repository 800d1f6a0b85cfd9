"""Runs the six loops with a planted fault on a temporary simulated device, and shows what they did.

The notebook's device does not matter. `run` returns a loop's result, its modelled time, and what it requested
of the device; `present` displays it.
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
from course_lessons.lesson08.loops import CASES, CHOICES, FAULTS, Case  # noqa: F401  (used by the lesson)
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
    """Totals at the end of a step: host seconds, waits (except for copies to the device), spans."""

    host: float
    waits: int
    spans: int


@dataclass
class Run:
    """What a loop did. Times, counters and steps are the simulated device's; on a CPU they are empty."""

    result: Any = None  # the loop's return value
    moved: list[Tensor] = field(default_factory=list)  # the change of each parameter
    optimizer_steps: int = 0
    dtypes: set[torch.dtype] = field(default_factory=set)  # of the weights at these steps and at the end
    devices: set[str] = field(default_factory=set)  # types of the weights' devices at these steps
    calls: int = 0  # of the model
    changed: bool = False  # whether it modified its input tensors; only checked if they have values
    seconds: float = 0.0  # modelled time until the device was done
    counters: Counters = field(default_factory=Counters)
    timeline: Timeline = field(default_factory=Timeline)
    steps: list[Step] = field(default_factory=list)
    facts: profiling.Facts | None = None  # None if not requested

    @property
    def step_spans(self) -> list[Sequence[Span]]:
        """The device's spans of each step, up to and including the optimizer's."""
        ends = [step.spans for step in self.steps]
        parts = zip([0, *ends], ends, strict=False)
        return [self.timeline.spans[begin:end] for begin, end in parts]

    @property
    def step_bytes(self) -> list[float]:
        """The bytes that the kernels of each step read and write."""
        return [sum(s.bytes for s in spans if s.kind == "kernel") for spans in self.step_spans]

    @property
    def rest_seconds(self) -> float:
        """The seconds of kernels launched after the last step."""
        return computing_seconds(self.timeline.spans[self.steps[-1].spans if self.steps else 0 :])

    @property
    def trace(self) -> Trace:
        """The trace, with the steps as phases; copies to the host too short to be visible are left out."""
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
        """Return the timeline of the first ``steps`` steps; of all if None, or if there are fewer."""
        if steps is None or len(self.steps) < steps:
            return self.timeline
        return Timeline(self.timeline.spans[: self.steps[steps - 1].spans])


def computing_seconds(spans: Sequence[Span]) -> float:
    """Return the total seconds of kernels."""
    return sum(span.seconds for span in spans if span.kind == "kernel")


@worker.run_in_worker
def run(
    letter: str, loop: Callable[..., Any] | None = None, *, values: bool = False, facts: bool = True
) -> Run:
    """Run a loop on a temporary simulated device, and return what it did.

    Parameters
    ----------
    letter
        The case: ``"a"`` to ``"f"``.
    loop
        The loop to run; by default the faulty one.
    values
        Whether to run at a small size and compute values, if the case is normally run without. Without
        values, its result and weights are meaningless.
    facts
        Whether to compute the run's `profiling.Facts`.

    Raises
    ------
    RuntimeError
        If this PyTorch does not support the simulated device.
    """
    case, done = CASES[letter], Run()
    no_data = case.no_data and not values
    with (
        memory.temporary_device("15 GB", case.profile) as device,
        full_float32(),
        memory.NoData() if no_data else nullcontext(),
    ):
        arguments = case.prepare(device, no_data)
        given = _cpu_copies(arguments) if values else []
        clock, counted = simgpu.clock(device), profiling.Counted(device)
        optimizer = _optimizer(arguments)
        optimizer.register_step_post_hook(lambda *_: done.steps.append(_step_totals(done, clock)))
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
        done.changed = values and not same(given, _cpu_copies(arguments))
    return done


def run_on_cpu(letter: str, loop: Callable[..., Any] | None = None) -> Run:
    """Run a loop on the CPU at its small size; used if there is no simulated device, and for results."""
    case, done = CASES[letter], Run()
    with full_float32():
        arguments = case.prepare(torch.device("cpu"), False)
        with _recording(done, arguments):
            done.result = (loop or case.loop)(*arguments)
    return done


@contextmanager
def _recording(done: Run, arguments: Sequence[Any]) -> Iterator[None]:
    """Record model calls, optimizer steps, and the weights' dtypes, devices and change in the block."""
    model, optimizer = arguments[0], _optimizer(arguments)

    def called(*_: Any) -> None:
        """Count a call of the model."""
        done.calls += 1

    def stepped(*_: Any) -> None:
        """Count a step, and record the weights' dtypes and devices."""
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


def _cpu_copies(arguments: Sequence[Any]) -> list[Tensor]:
    """Return copies on the CPU of the tensors in the arguments."""
    return [t.detach().cpu().clone() for t in tensors_in(arguments)]


def _weights(model: nn.Module) -> list[Tensor]:
    """Return copies on the CPU of a model's parameters."""
    return [p.detach().cpu().clone() for p in model.parameters()]


def _optimizer(arguments: Sequence[Any]) -> torch.optim.Optimizer:
    """Return the optimizer among a loop's arguments."""
    return next(a for a in arguments if isinstance(a, torch.optim.Optimizer))


def _step_totals(done: Run, clock: Any) -> Step:
    """Return the totals so far; blocking copies to the device are not counted as waits."""
    sent = (copy for copy in done.counters.copies if copy.code == "h2d")
    blocking = sum(not (copy.pinned and copy.non_blocking) for copy in sent)
    return Step(clock.host, done.counters.synchronizations - blocking, len(done.timeline.spans))


# Showing -----------------------------------------------------------------------------------------


def present(letter: str, loop: Callable[..., Any] | None = None) -> None:
    """Display a loop: its source, the work it requested of the simulated device, and the timeline.

    Parameters
    ----------
    letter
        The case: ``"a"`` to ``"f"``.
    loop
        The learner's loop: if the check accepts it, its figures are displayed beside the faulty loop's, on
        the same time axis. By default the faulty loop is displayed alone.
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
        _draw_timeline(_("Loop {letter}").format(letter=letter), before, case)
        return
    from course_utils.exercises import lesson  # they import this module

    outcome = getattr(lesson("08"), f"mend_{letter}").result(loop).outcome
    if outcome != "right":
        print(_("Once the check says Right, your loop and the old one stand here side by side."))
        return
    before, after = run(letter), run(letter, loop)
    print(
        _("Modelled: {seconds} before, {after_seconds} after.").format(
            seconds=seconds(before.seconds), after_seconds=seconds(after.seconds)
        )
    )
    names = _("before"), _("fixed")
    _show_figures(dict(zip(names, (before, after), strict=True)), case)
    _draw_timeline(
        _("Your loop {letter}").format(letter=letter), after, case, before.until(case.drawn).seconds
    )


def _show_code(code: str) -> None:
    """Display Python code, highlighted in a notebook."""
    if in_notebook():
        from IPython.display import Markdown, display

        display(Markdown(f"```python\n{code}```"))
    else:
        print(code)


def _show_figures(runs: Mapping[str, Run], case: Case) -> None:
    """Show a table of runs: busy share, launches, waits, copies."""
    rows = [
        (
            _("the device computes"),
            *(_("{busy:.0%} of the time").format(busy=r.facts.busy) for r in runs.values()),
        ),
        (_("kernels launched"), *(f"{r.counters.launches:,}" for r in runs.values())),
        (_("the host waited"), *(_count_text(r.counters.synchronizations) for r in runs.values())),
        (_("copies to the device"), *(f"{r.counters.copies_to_device:,}" for r in runs.values())),
    ]
    show_table(
        (_("simulated {profile}").format(profile=case.profile), *runs),
        rows,
        ["modelled"] * len(rows),
    )


def _count_text(number: int) -> str:
    """Return a count as text."""
    return _("once") if number == 1 else _("{number:,} times").format(number=number)


def _draw_timeline(name: str, done: Run, case: Case, until: float | None = None) -> None:
    """Draw the timeline of the steps that the case shows."""
    drawn = done.until(case.drawn)
    shown = _("all steps") if case.drawn is None else _("the first {drawn} steps").format(drawn=case.drawn)
    if case.drawn == 1:
        shown = _("the first step")
    plots.present(drawn.plot(f"{name}, {shown}", until), drawn.alt())
