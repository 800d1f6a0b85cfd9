"""The ledger of a climb: what was tried on a training loop, what it brought, and whether it was kept.

Two loops are compared in turns, so that whatever else the machine does meets both; and a loop that is
faster must still learn before it is kept.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

from . import drawings
from .devices import abilities, synchronize
from .predictions import Prediction
from .progressbar import bar
from .show import show_table
from .timing import Measurement

Parts = Mapping[str, Any]
Training = Callable[[Parts], Iterator[tuple[nn.Module, int]]]

ROUNDS = 9
"""How often two loops take turns."""

TURN = 0.12
"""How long one turn lasts, in seconds, about."""

LEAD_IN = 4
"""Steps before each turn that are not timed: a loader's workers have this many batches ready, two each."""

MARGIN = 0.10
"""How far below the first loop's accuracy a loop that is kept may lie: one epoch of one seed wanders by a few points."""


@dataclass(frozen=True)
class Rung:
    """One change that was tried.

    Attributes
    ----------
    name
        What was changed.
    speed_up
        The new loop's images a second over the old one's: median and quartiles of the rounds. None where
        it was not measured.
    predicted
        The learner's guess of it, or None.
    accuracy
        What the new loop reached after one epoch; None where that was not looked at.
    kept
        Whether it stays.
    why
        The reason, in a few words.
    """

    name: str
    speed_up: Measurement | None
    predicted: float | None
    accuracy: float | None
    kept: bool
    why: str


class Ledger:
    """Tries changes on a training loop one by one, and remembers what became of each.

    Parameters
    ----------
    training
        Called with the loop's parts, a dict; returns an iterator that trains one step at each ``next`` and
        yields the model and how many images it has just seen. It never ends.
    start
        The parts of the loop that everything begins with.
    device
        Where it trains. Its clock must be a real one.
    evaluate
        Returns a model's accuracy, from 0 to 1.
    epoch
        After how many images a loop must have learned something.

    Raises
    ------
    ValueError
        For the simulated device, whose real times mean nothing.
    """

    def __init__(
        self,
        training: Training,
        start: Parts,
        device: torch.device | str,
        *,
        evaluate: Callable[[nn.Module], float],
        epoch: int,
    ) -> None:
        if str(device).startswith("sim"):
            raise ValueError('the ledger needs a real clock: give it torch.device("cpu")')
        self.device = torch.device(device)
        self.start = dict(start)
        self.rungs: list[Rung] = []
        self.results: dict[str, Measurement | str] = {}
        self.base: Measurement | None = None
        """Images a second of the first loop."""
        self._training, self._evaluate, self._epoch = training, evaluate, epoch
        self._changes: dict[str, dict[str, Any]] = {}
        self._reference: float | None = None

    @property
    def best(self) -> dict[str, Any]:
        """The parts of the fastest loop so far: the first one's, with every change that was kept."""
        return self._before(None)

    @property
    def reference(self) -> float:
        """The accuracy of the first loop after one epoch; it is trained when first asked for."""
        if self._reference is None:
            self._reference = self.accuracy(self.start, "the first loop learns")
        return self._reference

    def try_out(
        self,
        name: str,
        change: Parts,
        predicted: Prediction | None = None,
        *,
        keep: bool | None = None,
        unless: str = "",
    ) -> Rung:
        """Measure a change against the best loop so far, in turns, show what came out, and keep it or not.

        It is kept where the lower quartile of the speed-up is above 1 and the loop still learns. The same
        name again replaces the rung in its place.

        Parameters
        ----------
        name
            What is changed, in a few words.
        change
            The parts that are new.
        predicted
            The learner's prediction of the speed-up.
        keep
            Your own decision in place of the rule.
        unless
            Why this cannot be tried here: where that is a sentence, nothing is measured.

        Returns
        -------
        Rung
            What was found. A change that raises a RuntimeError, ImportError or OSError is noted as not
            running on this device, and not kept.
        """
        old = self._before(name)
        guess = predicted.guess if predicted and isinstance(predicted.guess, float) else None
        speed_up, accuracy, why, kept = None, None, unless, False
        if not unless:
            reference = self.reference
            try:
                speed_up = self.compare(old, {**old, **change}, name)
                if keep or (keep is None and _quartile(speed_up) > 1):
                    accuracy = self.accuracy({**old, **change}, f"{name}: does it learn?")
            except (RuntimeError, ImportError, OSError) as error:
                first = (str(error).strip().splitlines() or ["no message"])[0]
                speed_up, why = None, f"does not run here: {type(error).__name__}, {first[:120]}"
        if speed_up:
            kept, why = _verdict(speed_up, accuracy, reference, keep)
        rung = Rung(name, speed_up, guess, accuracy, kept, why)
        self._note(rung, dict(change))
        if speed_up:
            show_table(_HEAD, [_row(rung)], ["measured"])
        else:
            print(f"{name}, not measured: {why}")
        return rung

    def compare(self, old: Parts, new: Parts, label: str = "speed-up") -> Measurement:
        """Run two loops in turns; return how many times as many images a second the new one takes.

        Each round gives one ratio; the two begin a round alternately. Warm-up and `LEAD_IN` are not timed.
        """
        paces = [_Pace(self._training(parts), self.device) for parts in (old, new)]
        try:
            rates: tuple[list[float], list[float]] = ([], [])
            for turn in bar(range(ROUNDS), desc=label, leave=False):
                for which in (0, 1) if turn % 2 == 0 else (1, 0):
                    rates[which].append(paces[which].turn())
        finally:
            for pace in paces:
                pace.close()
        if self.base is None and dict(old) == self.start:
            self.base = self._measurement("the first loop", rates[0], "samples/s", "throughput")
        ratios = [after / before for before, after in zip(*rates, strict=True)]
        return self._measurement(label, ratios, "1", "speed-up")

    def accuracy(self, parts: Parts, label: str = "training") -> float:
        """Train a loop anew for one epoch; return its accuracy on images that it has never seen."""
        steps = self._training(parts)
        progress = bar(total=self._epoch, desc=label, leave=False)
        try:
            seen = 0
            while seen < self._epoch:
                model, images = next(steps)
                seen += images
                progress.update(min(images, self._epoch - progress.n))
        finally:
            progress.close()
            _close(steps)
        return self._evaluate(model)

    def whole(self) -> Measurement:
        """Compare the first loop with the best one, in turns, and note it as a result."""
        total = self.compare(self.start, self.best, "first loop against best")
        self.results["first loop against best"] = total
        return total

    def result(self, name: str, value: Measurement | str) -> None:
        """Note something for the report card: a measurement, or a figure already in words."""
        self.results[name] = value

    def table(self) -> None:
        """Show all rungs."""
        notes = [f"{r.name}: {r.why}" for r in self.rungs if not r.speed_up]
        kinds = ["measured"] * len(self.rungs)
        show_table(_HEAD, [_row(rung) for rung in self.rungs], kinds, " · ".join(notes))

    def draw(self, limit: float | None = None) -> None:
        """Draw the ladder: images a second, rung by rung, what was left out hollow.

        Parameters
        ----------
        limit
            The images a second that nothing on this device can exceed, if known.
        """
        drawings.ladder(self._heights(), limit)

    def save(self, folder: Path | str) -> tuple[Path, Path]:
        """Write the report card: a picture and a JSON file, named by device and time, beside older ones.

        Returns
        -------
        tuple
            The paths of the PNG and the JSON file.

        Raises
        ------
        ValueError
            Where nothing has been tried yet.
        """
        if self.base is None:
            raise ValueError("nothing has been measured yet: try a rung first")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        now = datetime.now()
        stem = f"capstone_{self.device.type}_{now:%Y-%m-%d_%H%M%S}"
        number = len(list(folder.glob(f"{stem}*.json")))
        stem += f"_{number + 1}" if number else ""
        picture, data = folder / f"{stem}.png", folder / f"{stem}.json"
        data.write_text(json.dumps(self.as_dict(), indent=1, ensure_ascii=False), encoding="utf-8")
        title = f"{self.base.machine} ({self.device}), PyTorch {self.base.torch}, {now:%Y-%m-%d}"
        drawings.report_card(self._heights(), title, self._written(), picture)
        return picture, data

    def as_dict(self) -> dict[str, Any]:
        """Return all that is known as plain values, ready for JSON."""
        return {
            "schema": 1,
            "device": str(self.device),
            "machine": abilities(self.device).name,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "first loop": self.base and self.base.as_dict(),
            "accuracy of the first loop": self._reference,
            "rungs": [asdict(rung) for rung in self.rungs],
            "results": {
                name: value.as_dict() if isinstance(value, Measurement) else value
                for name, value in self.results.items()
            },
        }

    def _before(self, name: str | None) -> dict[str, Any]:
        """Return the parts as they are below the rung of this name."""
        parts = dict(self.start)
        for rung in self.rungs:
            if rung.name == name:
                break
            if rung.kept:
                parts |= self._changes[rung.name]
        return parts

    def _note(self, rung: Rung, change: dict[str, Any]) -> None:
        self._changes[rung.name] = change
        names = [known.name for known in self.rungs]
        if rung.name in names:
            self.rungs[names.index(rung.name)] = rung
        else:
            self.rungs.append(rung)

    def _heights(self) -> list[drawings.Height]:
        """Return each rung as it is drawn: what was measured of it, times what stands below it."""
        below = self.base.median if self.base else 1.0
        heights = [drawings.Height("the first loop", (below,) * 3, True)]
        for rung in self.rungs:
            found = rung.speed_up
            if found is None:
                heights.append(drawings.Height(rung.name, None, False))
                continue
            reached = tuple(below * x for x in (found.q1, found.median, found.q3))
            guess = None if rung.predicted is None else below * rung.predicted
            heights.append(drawings.Height(rung.name, reached, rung.kept, guess))
            below = reached[1] if rung.kept else below
        return heights

    def _written(self) -> dict[str, str]:
        return {
            name: value if isinstance(value, str) else _spread(value)
            for name, value in self.results.items()
        }

    def _measurement(
        self, label: str, values: list[float], unit: str, quantity: str
    ) -> Measurement:
        q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
        return Measurement(
            label=label,
            median=median,
            q1=q1,
            q3=q3,
            n=len(values),
            device=str(self.device),
            machine=abilities(self.device).name,
            torch=torch.__version__,
            threads=torch.get_num_threads(),
            date=datetime.now().date().isoformat(),
            unit=unit,
            quantity=quantity,
        )

    def times(self, label: str, values: list[float]) -> Measurement:
        """Return times in seconds as one measurement, with its median and quartiles."""
        return self._measurement(label, values, "s", "time")


class _Pace:
    """A training that goes on in turns, and how many images a second it takes in each."""

    def __init__(self, steps: Iterator[tuple[nn.Module, int]], device: torch.device) -> None:
        self._steps, self._device = steps, device
        self._run(3)
        self._count = 2
        while (took := self._run(self._count)[1]) < TURN and self._count < 10_000:
            self._count = max(
                self._count + 1, min(round(self._count * TURN / took), 8 * self._count)
            )

    def turn(self) -> float:
        """Train for one turn; return the images a second."""
        self._run(LEAD_IN)
        images, took = self._run(self._count)
        return images / took

    def close(self) -> None:
        """Let go of the loop, and of its loader's workers."""
        _close(self._steps)

    def _run(self, count: int) -> tuple[int, float]:
        synchronize(self._device)
        begin = perf_counter()
        images = sum(images for _, images in islice(self._steps, count))
        synchronize(self._device)
        return images, perf_counter() - begin


def _close(steps: Any) -> None:
    if hasattr(steps, "close"):
        steps.close()


def _quartile(speed_up: Measurement) -> float:
    return speed_up.q1 or 0.0


def _verdict(
    speed_up: Measurement, accuracy: float | None, reference: float, keep: bool | None
) -> tuple[bool, str]:
    """Return whether a change is kept, and why, in a few words."""
    if keep is not None:
        return keep, "you decided so"
    if accuracy is None:
        slower = speed_up.q3 is not None and speed_up.q3 < 1
        return False, "slower" if slower else "no gain beyond the spread"
    if accuracy < reference - MARGIN:
        return False, f"faster, but it learns less: the first loop has {reference:.0%}"
    return True, "faster, and it learns"


_HEAD = ("rung", "predicted", "times as fast", "quartiles", "accuracy", "kept", "why")


def _row(rung: Rung) -> tuple[str, ...]:
    found = rung.speed_up
    return (
        rung.name,
        "" if rung.predicted is None else f"{rung.predicted:.3g}",
        f"{found.median:.2f}" if found else "–",
        f"{found.q1:.2f} – {found.q3:.2f}" if found else "",
        "" if rung.accuracy is None else f"{rung.accuracy:.1%}",
        "yes" if rung.kept else "no",
        rung.why if found else "not measured",
    )


def _spread(value: Measurement) -> str:
    if value.unit == "samples/s":
        return f"{value.median:,.0f} ({value.q1:,.0f} to {value.q3:,.0f}), n = {value.n}"
    return f"{value.written()} ({value.written('q1')} to {value.written('q3')}), n = {value.n}"
