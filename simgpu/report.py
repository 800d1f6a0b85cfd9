"""The report of a program on the simulated device: memory, a step's time, what it waits for, findings."""

from __future__ import annotations

import html
import itertools
import json
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from . import advice, profiles
from .machine import MACHINE, parse_memory
from .messages import N_, _
from .profiles import Profile
from .recorder import Recorder
from .tape import Change, Event, Line, replay
from .timeline import Table, Timeline, seconds

KINDS = (N_("weights"), N_("gradients"), N_("optimizer"), N_("activations"), N_("temporary"), N_("other"))
"""Whose bytes. Activations are all that is made outside backward and the optimizer, the batch too."""


_WAITS = ("copy", "synchronize", "wait")
"""The kinds of events in which the host can wait for the device."""


def size(nbytes: float) -> str:
    """Return a number of bytes in a suitable unit, with three digits: ``"1.21 GiB"``."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


class Report:
    """What `simgpu.report` has recorded; complete when its block has ended. Times are modelled, in seconds.

    A step ends with the optimizer's; without an optimizer it begins with a call of the network.
    """

    def __init__(self, recorder: Recorder, dry: bool = False) -> None:
        self.recorder = recorder
        self.dry = dry
        self.profile: Profile = MACHINE.devices[0].profile
        self.capacity = MACHINE.devices[0].allocator.capacity

    # --- Steps

    @property
    def training(self) -> bool:
        """Whether an optimizer made steps."""
        return bool(self.recorder.bounds)

    @cached_property
    def steady(self) -> list[list[Event]]:
        """The events of each steady step: without the first, which warms up, and without unusual ones.

        A step is unusual if its kernels are fewer than half, or more than one and a half times, the median.
        """
        events = self.recorder.events
        bounds = [0, *self.recorder.bounds] if self.training else list(self.recorder.calls)
        if not self.training and self.recorder.out_of_memory is None:
            bounds.append(len(events))  # else the last call didn't end
        steps = [events[a:b] for a, b in itertools.pairwise(bounds) if b > a]
        if not self.training:  # a program that changes its weights itself: its evaluation is no step
            steps = [step for step in steps if any(e.phase == "backward" for e in step)] or steps
        if len(steps) > 1:
            steps = steps[1:]
        counts = [sum(e.kind == "kernel" for e in step) for step in steps]
        usual = median(counts) if counts else 0
        return [s for s, n in zip(steps, counts, strict=True) if n and usual / 2 <= n <= 1.5 * usual]

    @property
    def has_first_step_only(self) -> bool:
        """Whether the program made one training step, so that it can't be told from what comes before."""
        return len(self.recorder.bounds) == 1

    @cached_property
    def steady_events(self) -> list[Event]:
        """The events of all steady steps."""
        return [event for step in self.steady for event in step]

    def model(self, change: Change | None = None, profile: Profile | None = None, host: float = 1.0) -> float:
        """Return a steady step's modelled seconds, changed or on another card; see `tape.replay`."""
        played = replay(self.steady_events, profile or self.profile, self.profile, change=change, host=host)
        return played.seconds / len(self.steady)

    @cached_property
    def step_seconds(self) -> float | None:
        """A steady step's modelled seconds, loading of data apart; None if no step was found."""
        return self.modelled if self.steady else None

    @cached_property
    def modelled(self) -> float:
        """A steady step's seconds in the model, without a change."""
        return self.model()

    @cached_property
    def idle_share(self) -> float:
        """The share of a steady step in which the device computes nothing."""
        played = replay(self.steady_events, self.profile, self.profile)
        return 1 - played.busy / played.seconds

    def likely_range(self, profile: Profile | None = None) -> tuple[float, float]:
        """Return the range of a step's seconds in which 8 of 10 measured networks were.

        It is the card's range of ``spread.json``; where the host sets the pace, it is as wide as hosts
        differ, by a factor of two either way.
        """
        profile = profile or self.profile
        spread, own = profiles.spread(profile.key), self.model(profile=profile)
        quick, slow = (self.model(profile=profile, host=factor) for factor in (0.5, 2.0))
        return min(own * spread.low, quick), max(own * spread.high, slow)

    @cached_property
    def loading_seconds(self) -> float:
        """The seconds that loading took for a step, measured on this machine's CPU, in the same process."""
        totals = [sum(e.seconds for e in step if e.kind == "load") for step in self.steady]
        return median(totals) if totals else 0.0

    @cached_property
    def launches(self) -> float:
        """Kernels a steady step."""
        return sum(e.kind == "kernel" for e in self.steady_events) / max(1, len(self.steady))

    @cached_property
    def waits(self) -> list[tuple[Line, float]]:
        """The lines at which the host waits in a steady step, and for how many seconds, the longest first."""
        found: dict[Line, float] = defaultdict(float)
        for event in self.steady_events:
            if event.waited > 1e-9 and event.line is not None and event.kind in _WAITS:
                found[event.line] += event.waited / len(self.steady)
        return sorted(found.items(), key=lambda item: -item[1])

    @cached_property
    def findings(self) -> list[advice.Finding]:
        """What the advisor found, what saves most first; see `advice`."""
        return advice.findings(self)

    # --- Memory

    @property
    def peak(self) -> int:
        """The most bytes allocated at a time."""
        return self.recorder.peak

    @property
    def needed(self) -> int:
        """The most bytes reserved at a time, and the block that PyTorch gives cuBLAS.

        Without the CUDA context, which takes some hundreds of MB that the model doesn't know.
        """
        blas = 1024 * (4096 * 8 if self.profile.capability >= (9, 0) else 4096 * 2 + 16 * 8)
        return self.recorder.reserved + blas

    def fits(self, memory: int | str | None = None) -> bool:
        """Return whether the program fits into a memory, by default the simulated GPU's: ``fits("16GB")``.

        A program that ran out of memory fits into none that is smaller than what it had.
        """
        capacity = self.capacity if memory is None else parse_memory(memory)
        if self.recorder.out_of_memory is not None and capacity <= self.capacity:
            return False
        return self.needed <= capacity

    def bytes_by(self, what: str) -> dict[str, int]:
        """Return the bytes at the peak by ``"kind"``, ``"module"`` or ``"line"``, the most first.

        Modules of a class whose names differ by numbers alone are joined: ``"layers.*.attention (Linear)"``.
        """
        totals: dict[str, int] = defaultdict(int)
        for piece in self.recorder.peak_pieces:
            totals[str(getattr(piece, what) or "-")] += piece.bytes
        return dict(sorted(totals.items(), key=lambda item: -item[1]))

    # --- Other cards, files

    def compare(self, cards: Sequence[str]) -> Table:
        """Return a table of cards, modelled from the recorded operators without running again.

        Parameters
        ----------
        cards
            Names such as ``["T4", "A100", "H100"]``.
        """
        rows = []
        for card in map(profiles.load, cards):
            times = ("-", "-")
            if self.steady:
                low, high = self.likely_range(card)
                times = seconds(self.model(profile=card)), f"{seconds(low)} - {seconds(high)}"
            rows.append((card.key, _("yes") if self.needed <= card.total_memory else _("no"), *times))
        return Table((_("Card"), _("Fits"), _("A step, modelled"), _("Likely")), rows)

    def export(self, path: str | Path) -> Path:
        """Write the recorded steps as a trace for https://ui.perfetto.dev, and return its path."""
        return Timeline(self.recorder.spans).export(path)

    def as_dict(self) -> dict[str, Any]:
        """Return the report's figures as plain Python, for JSON."""
        step = None
        if self.steady:
            low, high = self.likely_range()
            step = {"seconds": self.step_seconds, "low": low, "high": high, "idle": self.idle_share}
            step |= {"launches": self.launches, "steps": len(self.steady)}
        return {
            "schema": 2,
            "card": self.profile.key,
            "memory": {
                "peak": self.peak,
                "needed": self.needed,
                "fits": self.fits(),
                "kinds": self.bytes_by("kind"),
            },
            "step": step,
            "waits": [{"file": at.file, "line": at.number, "seconds": waited} for at, waited in self.waits],
            "findings": [vars(finding) for finding in self.findings],
        }

    def to_json(self, path: str | Path) -> Path:
        """Write `as_dict` to a file, and return its path."""
        path = Path(path)
        path.write_text(json.dumps(self.as_dict(), indent=1), encoding="utf-8")
        return path

    def write(self, as_json: str | None, as_html: str | None) -> None:
        """Write the report to the files that are given: as JSON, and as a page."""
        if as_json:
            self.to_json(as_json)
        if as_html:
            Path(as_html).write_text(self.html(), encoding="utf-8")

    # --- Text

    def _first_lines(self) -> list[str]:
        """Return the lines that say what to do first."""
        if self.fits():
            if not self.findings:
                if not self.steady:
                    return [_("No whole step was recorded, so there's little to find.")]
                return [_("Nothing. No change was found that is sure to help.")]
            first = self.findings[0]
            if first.where is None:
                return [_("{fix} It's number 1 below.").format(fix=first.fix)]
            return [_("{fix} It's number 1 below, at {line}.").format(fix=first.fix, line=first.where)]
        kinds = self.bytes_by("kind")
        gradients = self.recorder.optimizer["bytes"] if self.recorder.optimizer else 0
        lasting = (
            kinds.get("weights", 0) + max(kinds.get("gradients", 0), gradients) + kinds.get("optimizer", 0)
        )
        largest = max(kinds, key=kinds.__getitem__, default="other")
        if lasting > self.capacity:
            todo = _(
                "Take a smaller model, or an optimizer that keeps less. Weights, gradients and the "
                "optimizer's state take {size} alone, so no batch is small enough."
            ).format(size=size(lasting))
        elif largest in ("activations", "temporary"):
            todo = _(
                "Make the batch smaller, or use activation checkpointing. The largest part of the memory is "
                "{kind}, with {size}, and it grows with the batch."
            ).format(kind=_(largest), size=size(kinds[largest]))
        else:
            todo = _("Make room. The largest part of the memory is {kind}, with {size}.").format(
                kind=_(largest), size=size(kinds.get(largest, 0))
            )
        return [todo, _lesson("memory")]

    def _memory_lines(self) -> list[str]:
        """Return the lines on memory."""
        recorder, figures = self.recorder, {"needed": size(self.needed), "total": size(self.capacity)}
        if recorder.out_of_memory is not None:
            line, asked, free = recorder.out_of_memory
            lines = [
                _("It ran out of memory at {line}: {text}").format(
                    line=line or "-", text=line.text if line else ""
                ),
                _("It asked for {asked}, and {free} of {total} were free.").format(
                    asked=size(asked), free=size(free), **figures
                ),
                _("Run it with --dry to see how much it needs in all."),
            ]
        elif self.fits():
            lines = [_("It fits. It needs {needed}, and the GPU has {total}.").format(**figures)]
        else:
            lines = [
                _(
                    "It doesn't fit. It needs {needed}, and the GPU has {total}. {missing} are missing."
                ).format(missing=size(self.needed - self.capacity), **figures)
            ]
        if recorder.out_of_memory is None and abs(self.needed / self.capacity - 1) < 0.1:
            lines.append(_("That's too close to be sure. The model may be wrong by 10 %."))
        if not recorder.peak:
            return lines
        moments = {
            "forward": _("At the peak, in the forward pass of step {step}, tensors take {peak}."),
            "backward": _("At the peak, in the backward pass of step {step}, tensors take {peak}."),
            "optimizer": _("At the peak, in the optimizer's step {step}, tensors take {peak}."),
        }
        moment = moments[recorder.peak_phase].format(step=recorder.peak_step + 1, peak=size(recorder.peak))
        lines += [moment, _("The rest is reserved by PyTorch and cuBLAS.")]
        for what, head in (
            ("kind", _("By kind: {parts}")),
            ("module", _("By module: {parts}")),
            ("line", _("By line of your program: {parts}")),
        ):
            most = [(_(key), n) for key, n in self.bytes_by(what).items() if key != "-"]
            most = most if what == "kind" else most[:4]
            if most:
                lines.append(head.format(parts=", ".join(f"{key} {size(n)}" for key, n in most)))
        return lines

    def _step_lines(self) -> list[str]:
        """Return the lines on time."""
        if not self.steady:
            return [_("No whole step was recorded, so there's no time of one.")]
        low, high = self.likely_range()
        spread = profiles.spread(self.profile.key)
        lines = [
            _("A step takes {step}, modelled. On a real GPU, expect {low} to {high}.").format(
                step=seconds(self.step_seconds), low=seconds(low), high=seconds(high)
            ),
            _(
                "That range comes from {n} measurements of networks on real GPUs. 8 in 10 took {least:.2f} "
                "to {most:.2f} times the modelled time."
            ).format(n=spread.n, least=spread.low, most=spread.high),
        ]
        if low < spread.low * self.step_seconds or high > spread.high * self.step_seconds:
            lines.append(
                _("The range is wider here because the CPU sets the pace. CPUs differ by a factor of two.")
            )
        lines.append(
            _(
                "Each step launches {launches:.0f} kernels. The GPU is idle for {idle:.0%} of the time."
            ).format(launches=self.launches, idle=self.idle_share)
        )
        if self.has_first_step_only:
            lines.append(
                _("The program made one step, so this includes what comes before it, such as copies.")
            )
        else:
            lines.append(
                _("Each figure is a mean over the recorded steps ({count}).").format(count=len(self.steady))
            )
        if self.loading_seconds:
            lines.append(
                _(
                    "Loading the data of a step took {time}, measured on this machine's CPU. The step's time "
                    "doesn't include it."
                ).format(time=seconds(self.loading_seconds))
            )
        return [*lines, *self._wait_lines()]

    def _wait_lines(self) -> list[str]:
        """Return the lines that say where the CPU waits for the GPU."""
        lines = [_("The CPU waits for the GPU at these lines:")] if self.waits else []
        for line, waited in self.waits[:5]:
            text = _("  {line} waits {time} a step on average: {text}")
            lines.append(text.format(line=line, time=seconds(waited), text=line.text))
        return lines

    def _dry_lines(self) -> list[str]:
        """Return the lines that say what depends on values, which a dry run doesn't have."""
        lines = [_("Nothing was computed, so every value is made up.")]
        for line, count in self.recorder.values.items():
            lines.append(
                _("{line} asked for a value {count} times and got zeros: {text}").format(
                    line=line or "-", count=count, text=line.text if line else ""
                )
            )
        return lines

    def _finding_lines(self) -> list[str]:
        """Return the lines on the findings, numbered."""
        lines = []
        for number, finding in enumerate(self.findings, 1):
            line = finding.where
            lines.append(f"{number}. {line}  {line.text}" if line else f"{number}. " + _("The whole step"))
            details = [finding.text, _("Fix: {fix}").format(fix=finding.fix)]
            if finding.saves is not None:
                saved = _("It would save {time} of a step ({sure}).")
                if finding.kind == "small batch":  # a step gets longer, and has more samples
                    saved = _("It would save {time} for as many samples as a step has now ({sure}).")
                details.append(saved.format(time=seconds(finding.saves), sure=_(finding.sure)))
            details.append(_lesson(finding.topic))
            lines += [f"   {detail}" for detail in details]
        return lines

    def _head(self) -> str:
        """Return the report's first line."""
        return _("Report for the simulated {card}. Its times are modelled.").format(card=self.profile.name)

    def _sections(self) -> list[tuple[str, list[str]]]:
        """Return the titles and the lines of the report, findings apart."""
        sections = [
            (_("What to do first"), self._first_lines()),
            (_("Memory"), self._memory_lines()),
            (_("Time"), self._step_lines()),
        ]
        if self.dry:
            sections.append((_("Values"), self._dry_lines()))
        return sections

    def __str__(self) -> str:
        lines = [self._head()]
        for title, texts in self._sections():
            lines += ["", title, *(f"  {text}" for text in texts)]
        if self.findings:
            lines += ["", _("What was found"), *self._finding_lines()]
        return "\n".join(lines)

    __repr__ = __str__

    def html(self) -> str:
        """Return the report as HTML."""
        parts = []
        for title, texts in self._sections():
            parts.append(f"<h3>{html.escape(title)}</h3>")
            parts += [f"<p>{html.escape(text)}</p>" for text in texts]
        head = (_("Where"), _("What"), _("Fix"), _("Saves a step"))
        rows = [
            (f.where or "-", f.text, f.fix, "-" if f.saves is None else f"{seconds(f.saves)} ({_(f.sure)})")
            for f in self.findings
        ]
        return "".join(parts) + (Table(head, rows).html if rows else "")

    _repr_html_ = html


def _lesson(topic: str) -> str:
    """Return the sentence that names a topic's lesson."""
    number, title, file = advice.LESSONS[topic]
    return _("Lesson {number}, {title}: notebooks/{file}").format(number=number, title=_(title), file=file)
