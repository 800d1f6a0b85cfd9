"""The advisor: what a recorded program loses, where, its fix, and what the fix would save.

A saving is modelled by playing the steady steps again with the change. Where the model can't say, nothing is
found, or the finding has no seconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from .cost import Work
from .host import costs
from .messages import N_, _
from .tape import Change, Event, Line

LESSONS = {
    "copies": ("02", N_("Moving tensors and models"), "02_moving_data.ipynb"),
    "loop": ("03", N_("The training loop"), "03_training_loop.ipynb"),
    "precision": ("05", N_("Mixed precision"), "05_mixed_precision.ipynb"),
    "memory": ("07", N_("Memory"), "07_memory.ipynb"),
    "speed": ("08", N_("Profiling and speed"), "08_profiling_and_speed.ipynb"),
}
"""By topic: the number, title and notebook of the course's lesson."""


@dataclass(frozen=True)
class Finding:
    """One thing that a program loses.

    Attributes
    ----------
    file, line
        Where the program would be changed; None and 0 if that is not known.
    kind
        What it is, such as ``"wait"``; the README lists them.
    seconds
        Modelled seconds a step that it takes; None if the model has no figure for it.
    saves
        Modelled seconds a step that the fix saves; None likewise.
    sure
        ``"counted"``, ``"modelled"``, ``"measured here"`` (on this machine's CPU) or ``"at most"``.
    text, fix
        What it is and what to do, as sentences.
    topic
        The key of a lesson in `LESSONS`.
    """

    file: str | None
    line: int
    kind: str
    seconds: float | None
    saves: float | None
    sure: str
    text: str
    fix: str
    topic: str

    @property
    def where(self) -> Line | None:
        """The line of the program; None if it is not known."""
        return Line(self.file, self.line) if self.file else None


SURE = (N_("counted"), N_("modelled"), N_("measured here"), N_("at most"))


def findings(report: Any) -> list[Finding]:
    """Return what is found in a recorded program, what saves most first."""
    found: list[Finding] = []
    if report.steady and not report.has_first_step_only:
        for look in _LOOKS:
            found += look(report)
    found += [*_empty_cache(report), *_graphs_kept(report), *_forward_without_backward(report)]
    found += [*_each_step(report), *_gradients_added(report), *_graphs_retained(report)]
    return sorted(found, key=lambda f: -(f.saves or 0.0))


def _finding(line: Line | None, *rest: Any) -> Finding:
    """Return a finding at a line."""
    return Finding(line.file if line else None, line.number if line else 0, *rest)


def _saving(report: Any, change: Change, events: Iterable[Event]) -> float:
    """Return the modelled seconds a step that a change of some events of the steady steps saves."""
    chosen = set(map(id, events))
    return report.modelled - report.model(lambda event: change(event) if id(event) in chosen else event)


def _seconds(report: Any, events: Iterable[Event]) -> float:
    """Return the seconds a step that events of the steady steps take, and that the host waits for them."""
    return sum(event.seconds + event.waited for event in events) / len(report.steady)


def _by_line(report: Any, wanted: Callable[[Event], bool]) -> Iterator[tuple[Line, list[Event]]]:
    """Yield the lines with events of a sort in nine of ten steady steps, and their events."""
    groups: dict[Line, list[Event]] = defaultdict(list)
    steps: Counter[Line] = Counter()
    for events in report.steady:
        lines = set()
        for event in events:
            if event.line is not None and wanted(event):
                groups[event.line].append(event)
                lines.add(event.line)
        steps.update(lines)
    for line, events in groups.items():
        if steps[line] >= 0.9 * len(report.steady):
            yield line, events


def _is_wait(event: Event) -> bool:
    """Return whether the host waits for the device in an event that the program could do without."""
    if event.phase != "forward":
        return False
    if event.inner and not event.inner.endswith(("_tensor.py", "_tensor_str.py")):
        return False  # in PyTorch's own code, such as a GradScaler's: it has its reasons
    return event.kind == "synchronize" or (
        event.kind == "copy" and event.direction == "d2h" and (event.blocking or not event.pinned)
    )


_SHAPED = ("nonzero", "masked_select", "unique", "_unique2", "unique_dim", "index", "bincount")


def _waits(report: Any) -> Iterator[Finding]:
    """Find lines of a training that wait for the device at each step."""
    if not report.training:
        return  # an inference has to bring its results

    def without(event: Event) -> Event | None:
        return None if event.kind == "synchronize" else replace(event, blocking=False, pinned=True)

    shaped = {e.line for e in report.steady_events if e.kind == "kernel" and e.name in _SHAPED}
    for line, events in _by_line(report, _is_wait):
        count = len(events) / len(report.steady)
        waited = sum(e.waited for e in events) / len(report.steady)
        saves = max(0.0, _saving(report, without, events))
        if line in shaped:
            what = _("The shape of a result depends on values, so the CPU waits for them.")
            fix = _("Keep the shape fixed, for example with torch.where instead of a mask.")
            kind = "wait"
        elif events[0].kind == "synchronize":
            what = _("At each step the CPU waits until the GPU has done everything.")
            fix = _("Synchronize only around what you time.")
            kind = "synchronize"
        else:
            most = max(e.bytes for e in events)
            what = (
                _("At each step the CPU waits for a value from the GPU.")
                if count < 1.5
                else _("At each step the CPU waits for {count:.3g} values from the GPU.").format(count=count)
            )
            fix = _("Keep the value on the GPU with detach(), and read it every hundred steps.")
            kind = "wait" if most <= 64 else "copy to host"
        yield _finding(line, kind, waited, saves, "modelled", what, fix, "loop")


def _loading(report: Any) -> Iterator[Finding]:
    """Find a DataLoader that takes longer than the step, in the process that trains."""
    loader, seconds = report.recorder.loader, report.loading_seconds
    # Twice: this CPU is not the target's, and it has the simulation to run beside.
    if loader is None or loader[1] or seconds <= max(2 * report.step_seconds, 5e-3):
        return
    text = _("Loading a batch took longer on this machine's CPU than a modelled step takes.")
    fix = _("Let workers load data while the GPU computes (num_workers=4), or prepare the data once.")
    # Four workers load in a quarter of the time, and what the step takes of that is hidden.
    saves = seconds - max(0.0, seconds / 4 - report.step_seconds)
    yield _finding(loader[0], "loader", seconds, saves, "measured here", text, fix, "speed")


def _firsts(report: Any, events: Iterable[Event]) -> set[int]:
    """Return the ids of the first of these events in each steady step."""
    chosen = set(map(id, events))
    return {next((id(e) for e in step if id(e) in chosen), 0) for step in report.steady}


_SMALL = 2**16
"""Bytes: a copy to the device that is smaller takes the host longer than the bus."""


def _copies(report: Any) -> Iterator[Finding]:
    """Find copies to the device that are repeated, many and small, or from memory that is not pinned."""
    steps = len(report.steady)

    def is_own(event: Event) -> bool:  # those in backward are PyTorch's, such as DDP's
        return event.kind == "copy" and event.direction == "h2d" and event.phase == "forward"

    for line, events in _by_line(report, is_own):
        spent = _seconds(report, events)
        again = [e for e in events if e.again]
        if len(again) >= 0.9 * steps:
            saves = _saving(report, lambda event: None, again)
            text = _("The same values are copied to the GPU at each step.")
            fix = _("Copy them once, before the loop.")
            yield _finding(line, "repeated copy", spent, saves, "modelled", text, fix, "copies")
            continue
        if all(e.inner.endswith("nn/modules/module.py") for e in events):
            saves = _saving(report, lambda event: None, events)
            text = _("The network's weights are copied to the GPU at each step.")
            fix = _("Move the network once, before the loop.")
            yield _finding(line, "moved network", spent, saves, "modelled", text, fix, "copies")
            continue
        count = len(events) / steps
        if count >= 8 and max(e.bytes for e in events) < _SMALL:
            first = _firsts(report, events)
            total = sum(e.bytes for e in events) // steps

            def joined(event: Event, first: set[int] = first, total: int = total) -> Event | None:
                return replace(event, bytes=total) if id(event) in first else None

            saves = _saving(report, joined, events)
            if saves > 0.03 * report.step_seconds:
                text = _("At each step {count:.3g} small copies go to the GPU.").format(count=count)
                fix = _("Join the parts on the CPU, and copy them at once.")
                yield _finding(line, "small copies", spent, saves, "modelled", text, fix, "copies")
            continue
        saves = _saving(report, lambda event: replace(event, pinned=True, blocking=False), events)
        if saves > 0.03 * report.step_seconds:
            unpinned = any(not e.pinned for e in events)
            text = (
                _("The copy comes from memory that isn't pinned, so the CPU is busy until it ends.")
                if unpinned
                else _("The copy comes from pinned memory, but it's blocking, so the CPU waits for it.")
            )
            fix = (
                _("Set pin_memory=True in the DataLoader, and non_blocking=True in the copy.")
                if report.recorder.loader
                else _(
                    "Take batches from a DataLoader with pin_memory=True, and copy with non_blocking=True."
                )
            )
            kind = "unpinned copy" if unpinned else "blocking copy"
            yield _finding(line, kind, spent, saves, "modelled", text, fix, "copies")


def _small_batch(report: Any) -> Iterator[Finding]:
    """Find a batch so small that the host's launches set the pace."""
    batch, recorder = report.recorder.batch, report.recorder
    if batch is None or batch > 8 or report.idle_share < 0.4:
        return

    def without_waits(event: Event) -> Event | None:
        return replace(event, blocking=False, pinned=True) if _is_wait(event) else event

    if report.model(without_waits) < 0.6 * report.step_seconds:
        return  # the waits are the matter

    def larger(event: Event) -> Event:
        is_sample = event.kind == "kernel" and event.phase != "optimizer"
        return replace(event, work=None, seconds=8 * event.seconds) if is_sample else event

    each, all_ = report.step_seconds / batch, report.model(larger) / (8 * batch)
    if each < 2 * all_:
        return
    text = _(
        "The batch of {batch} is so small that the GPU has work for {busy:.0%} of the time only."
    ).format(batch=batch, busy=1 - report.idle_share)
    fix = _(
        "Use a larger batch. With {larger} samples, each sample takes at most {share:.0%} of its time now."
    ).format(larger=8 * batch, share=all_ / each)
    line = recorder.loader[0] if recorder.loader and recorder.loader[2] == batch else recorder.root_line
    lost = report.step_seconds * report.idle_share
    yield _finding(line, "small batch", lost, batch * (each - all_), "at most", text, fix, "speed")


_STATES = {"Adam": 7, "AdamW": 7, "SGD": 3}
"""By optimizer with a fused form: how often a step reads or writes the weights' bytes, states included."""


def _optimizer(report: Any) -> Iterator[Finding]:
    """Find an optimizer whose many kernels take time that its fused form would not."""
    known = report.recorder.optimizer
    if known is None or known["fused"] or known["name"] not in _STATES:
        return
    events = [e for e in report.steady_events if e.phase == "optimizer"]
    count = sum(e.kind == "kernel" for e in events) / len(report.steady)
    looped = count > 4 * known["tensors"]
    if not count or known["tensors"] < (8 if looped else 60):
        return
    first, usual = _firsts(report, events), costs(report.profile.host)
    work = Work(known["bytes"] / 2, _STATES[known["name"]] * known["bytes"], "fp32")

    def fused(event: Event) -> Event | None:
        if id(event) not in first:
            return None
        host = usual.dispatch + usual.per_tensor * 4 * known["tensors"]
        return replace(
            event, kind="kernel", work=work, seconds=0.0, host=host, name="fused optimizer", stream=0
        )

    saves = _saving(report, fused, events)
    if saves < 0.1 * report.step_seconds:
        return
    text = _("The optimizer launches {count:.0f} kernels a step for {tensors} tensors.").format(
        count=count, tensors=known["tensors"]
    )
    spent = _saving(report, lambda event: None, events)
    fix = _("Set fused=True in the optimizer, or at least leave foreach=False out.")
    yield _finding(known["line"], "unfused optimizer", spent, saves, "modelled", text, fix, "speed")


def _precision(report: Any) -> Iterator[Finding]:
    """Find products in float32 while tensor cores stand idle."""
    profile = report.profile
    unit = "tf32" if profile.tf32_flops else "fp16"

    # A convolution asks for TF32, and has float32 where the card lacks it.
    units = ("fp32",) if profile.tf32_flops else ("fp32", "tf32")
    kernels = [e for e in report.steady_events if e.kind == "kernel" and e.work is not None]
    plain = [e for e in kernels if e.work.matrix and e.work.products and e.work.unit in units]

    def on_tensor_cores(event: Event) -> Event:
        # In 16 bits the inputs are converted first: read in 32, written in 16.
        nbytes = event.work.bytes * (1.0 if unit == "tf32" else 0.5 + 1.5)
        return replace(event, work=event.work._replace(unit=unit, bytes=nbytes), seconds=0.0)

    saves = _saving(report, on_tensor_cores, plain)
    if saves < 0.3 * report.step_seconds:  # autocast's conversions launch kernels, too
        return
    spent = sum(e.seconds for e in plain) / len(report.steady)
    text = _("Matrix products run in float32 on ordinary cores, so the tensor cores stand idle.")
    fix = (
        _('Call torch.set_float32_matmul_precision("high"), or use autocast with bfloat16.')
        if unit == "tf32"
        else _("Use autocast with float16, and a GradScaler.")
    )
    line = report.recorder.root_line
    yield _finding(line, "float32 products", spent, saves, "modelled", text, fix, "precision")


def _attention(report: Any) -> Iterator[Finding]:
    """Find attention written as two products and a softmax between them."""
    events = report.steady[-1]
    forward = [e for e in events if e.kind == "kernel" and e.phase == "forward" and e.work is not None]
    lines: dict[Line, tuple[Event, Event, list[Event]]] = {}
    for i, first in enumerate(forward):
        scores = _batched(first)
        if scores is None or first.inner or min(scores.rows, scores.columns) < 64:
            continue
        between: list[Event] = []
        for event in forward[i + 1 : i + 9]:
            last = _batched(event)
            if last is not None and (last.batch, last.rows, last.depth) == scores[:3]:
                if any(e.name == "_softmax" for e in between) and first.line is not None:
                    lines.setdefault(first.line, (first, event, between))
                break
            between.append(event)
    for line, (first, second, between) in lines.items():
        scores = _batched(first)
        size = scores.batch * scores.rows * scores.columns
        own = {line, second.line, *(e.line for e in between if e.work.flops >= size)}
        moved = (first.work.bytes + second.work.bytes) - 2 * size * 4

        def fused(event: Event, own: Any = own, size: int = size, moved: float = moved) -> Event | None:
            where = event.line if event.phase == "forward" else event.forward
            if event.kind != "kernel" or where not in own or event.work is None:
                return event
            gemm = _batched(event)
            if gemm is None:
                return None if event.work.flops >= size else event
            # The two products of forward, and the four of backward: each becomes its share of one kernel.
            share = event.work.flops * (1.0 if event.phase == "forward" else 1.25)
            work = Work(share, max(moved, 0) / 2, event.work.unit, "attention")
            return replace(event, work=work, seconds=0.0)

        saves = _saving(report, fused, report.steady_events)
        if saves < 0.05 * report.step_seconds:
            continue
        text = _("Attention writes its {rows} x {columns} scores to memory, and reads them again.").format(
            rows=scores.rows, columns=scores.columns
        )
        fix = _("Use torch.nn.functional.scaled_dot_product_attention, which keeps no scores.")
        spent = sum(e.seconds for e in events if (e.line if e.phase == "forward" else e.forward) in own)
        yield _finding(line, "attention", spent, saves, "modelled", text, fix, "memory")


def _batched(event: Event) -> Any:
    """Return the batched product that a kernel computes, or None."""
    products = event.work.products if event.work is not None else ()
    return products[0] if len(products) == 1 and products[0].batched else None


def _calls_each_step(report: Any, calls: list[tuple[int, Line | None]]) -> Iterator[Line]:
    """Yield the lines of calls that are made at most steps, from their steps and lines."""
    steps: dict[Line, set[int]] = defaultdict(set)
    for step, line in calls:
        if line is not None:
            steps[line].add(step)
    for line, seen in steps.items():
        if len(seen) >= 3 and len(seen) >= 0.6 * report.recorder.steps:
            yield line


def _empty_cache(report: Any) -> Iterator[Finding]:
    """Find ``empty_cache`` at each step."""
    for line in _calls_each_step(report, report.recorder.empties):
        text = _("At each step empty_cache() gives cached memory back, and PyTorch has to ask for it again.")
        fix = _("Leave empty_cache() out. The model doesn't know what it costs.")
        yield _finding(line, "empty_cache", None, None, "counted", text, fix, "memory")


def _each_step(report: Any) -> Iterator[Finding]:
    """Find what should be done seldom, and is done at each step: a checkpoint, a new optimizer."""
    for line in _calls_each_step(report, report.recorder.saves):
        text = _("The program saves a file at each step.")
        fix = _("Save every few hundred steps. The model doesn't know what it costs.")
        yield _finding(line, "saving", None, None, "counted", text, fix, "loop")
    for line in _calls_each_step(report, report.recorder.remade):
        text = _("A new optimizer is made at each step, and it starts without the state of the last one.")
        fix = _("Make the optimizer once, before the loop.")
        yield _finding(line, "new optimizer", None, None, "counted", text, fix, "loop")


def _gradients_added(report: Any) -> Iterator[Finding]:
    """Find a training that never sets its gradients to zero."""
    recorder = report.recorder
    if len(recorder.added) >= 3 and all(recorder.added):
        text = _("No step sets the gradients to zero, so each adds its own to those of all steps before.")
        fix = _("Call optimizer.zero_grad() before each backward().")
        yield _finding(recorder.step_line, "no zero_grad", None, None, "counted", text, fix, "loop")


def _graphs_retained(report: Any) -> Iterator[Finding]:
    """Find ``retain_graph`` where no other backward pass uses the graph."""
    lines = {retained.line for retained in report.recorder.retained}
    for line in lines - {retained.line for retained in report.recorder.retained if retained.used}:
        if sum(retained.line == line for retained in report.recorder.retained) >= 3:
            text = _("The graph is retained after backward(), and no other backward() uses it.")
            fix = _("Leave retain_graph=True out. The graph's memory is then freed at once.")
            yield _finding(line, "graph retained", None, None, "counted", text, fix, "memory")


def _double(report: Any) -> Iterator[Finding]:
    """Find products in float64."""

    def single(event: Event) -> Event:
        return replace(event, work=event.work._replace(unit="fp32", bytes=event.work.bytes / 2), seconds=0.0)

    kernels = [e for e in report.steady_events if e.kind == "kernel" and e.work is not None]
    doubles = [e for e in kernels if e.work.unit == "fp64"]
    saves = _saving(report, single, doubles)
    if saves < 0.2 * report.step_seconds or not any(e.work.products for e in doubles):
        return
    spent = sum(e.seconds for e in doubles) / len(report.steady)
    text = _("The network computes in float64, which takes the GPU longer than float32.")
    fix = _("Make data and network float32 with float(). NumPy's numbers are float64 by default.")
    line = report.recorder.root_line
    yield _finding(line, "float64", spent, saves, "modelled", text, fix, "precision")


def _joined(report: Any, parts: int) -> tuple[Change, list[Event]]:
    """Return the change that makes one kernel of as many equal ones, and the kernels that it is for.

    The one kernel computes as long as they do together.
    """
    firsts: set[int] = set()
    joined: list[Event] = []
    for events in report.steady:
        groups: dict[Any, list[Event]] = defaultdict(list)
        for event in events:
            if event.kind == "kernel" and (event.phase != "optimizer" or not event.inner):
                groups[event.phase, event.forward or event.line, event.name].append(event)
        for group in groups.values():
            if len(group) >= parts:
                joined += group
                firsts.update(id(event) for event in group[::parts])

    def join(event: Event) -> Event | None:
        is_first = id(event) in firsts
        return replace(event, work=None, seconds=parts * event.seconds) if is_first else None

    return join, joined


def _repeats(report: Any) -> Iterator[Finding]:
    """Find a network that a loop calls many times before one backward pass, while launches set the pace."""
    if report.idle_share < 0.4:
        return
    for line, counts in report.recorder.repeats.items():
        count = min(counts)
        if len(counts) < 0.9 * len(report.steady):
            continue
        saves = _saving(report, *_joined(report, count))
        if saves < 0.3 * report.step_seconds:
            continue
        text = _(
            "A loop calls the same network {count} times a step, and the launches take longer than the work."
        ).format(count=count)
        fix = _(
            "Make one call for all of them, if none needs the result of another. "
            "For a recurrent cell, use nn.LSTM or nn.GRU."
        )
        lost = report.step_seconds * report.idle_share
        yield _finding(line, "loop of calls", lost, saves, "at most", text, fix, "speed")


def _per_tensor(report: Any) -> Iterator[Finding]:
    """Find a loop that changes many tensors one by one, outside the network."""

    def changes(event: Event) -> bool:
        if event.kind != "kernel" or event.inner or not event.name.endswith("_"):
            return False
        # In the optimizer's phase it is an optimizer that the program has written.
        return event.phase == "optimizer" or (
            event.phase == "forward" and event.line in report.recorder.outside
        )

    for line, events in _by_line(report, changes):
        count = len(events) // len(report.steady)
        if count < 16:
            continue
        own = set(map(id, events))
        join, joined = _joined(report, count // len({e.name for e in events}))
        saves = _saving(report, join, [e for e in joined if id(e) in own])
        if saves < 0.05 * report.step_seconds:
            continue
        text = _("A loop changes tensors one by one, with {count} kernels a step.").format(count=count)
        fix = _("Make one call for all of them with torch._foreach_mul_ and the like, as the optimizers do.")
        spent = _saving(report, lambda event: None, events)
        yield _finding(line, "loop of tensors", spent, saves, "at most", text, fix, "speed")


def _graphs_kept(report: Any) -> Iterator[Finding]:
    """Find what holds the graphs of several steps."""
    for line, steps in report.recorder.holders.items():
        text = _("This line keeps the graphs of {steps} steps, and all the memory that they hold.").format(
            steps=steps
        )
        fix = _("Keep loss.detach() instead. The value stays on the GPU, and the graph is freed.")
        yield _finding(line, "graphs kept", None, None, "counted", text, fix, "memory")


def _forward_without_backward(report: Any) -> Iterator[Finding]:
    """Find networks that run with gradients which no backward pass uses."""
    groups: dict[Line, list[Any]] = defaultdict(list)
    for forward in report.recorder.forwards:
        if forward.line is not None and not forward.used:
            groups[forward.line].append(forward)
    used = {f.line for f in report.recorder.forwards if f.used}
    for line, forwards in groups.items():
        if line in used or (len(forwards) < 2 and forwards[0].training):
            continue
        kept = max(f.bytes for f in forwards)
        if kept <= 0 or (forwards[0].training and kept < 2**20):
            continue
        text = _("The network records its graph and keeps {size:.3g} MiB, and no backward uses it.").format(
            size=kept / 2**20
        )
        fix = _("Put it under with torch.no_grad(), or torch.inference_mode().")
        yield _finding(line, "no no_grad", None, None, "counted", text, fix, "loop")


_LOOKS = (
    _waits,
    _loading,
    _copies,
    _small_batch,
    _optimizer,
    _precision,
    _attention,
    _double,
    _repeats,
    _per_tensor,
)
"""What looks at the steady steps."""
