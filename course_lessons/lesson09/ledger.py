"""The ledger of a climb: what was tried on a training loop, what it brought, and whether it was kept.

Two loops are compared in turns, so that whatever else the machine does meets both; and a loop that is
faster must still learn before it is kept. Each rung is written to a file at once: a climb goes on where
its session ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from time import perf_counter

import torch
from torch import nn

from course_language import _
from course_lessons.lesson09.climb import MARGIN, Climb
from course_lessons.lesson09.rung import Parts, Rung, described, show_rungs
from course_utils.devices import synchronize
from course_utils.exercises.judge import Todo
from course_utils.predictions import Prediction, predict
from course_utils.timing import Measurement, take_turns
from course_utils.tqdm_bar import bar

Steps = Generator[tuple[nn.Module, int], None, None]

ROUNDS = 9
"""How often two loops take turns."""

TURN = 0.12
"""How long one turn lasts, in seconds, about."""

LEAD_IN = 4
"""Steps before each turn that are not timed: a loader's workers have this many batches ready, two each."""


class Ledger(Climb):
    """Tries changes on a training loop one by one, and remembers what became of each.

    Parameters
    ----------
    training
        Called with the loop's parts, a dict; a generator that trains one step at each ``next`` and yields
        the model and how many images it has just seen. It never ends.
    start
        The parts of the loop that everything begins with.
    device
        Where it trains. Its clock must be a real one.
    evaluate
        Returns a model's accuracy, from 0 to 1.
    epoch
        After how many images a loop must have learned something.
    folder
        Where the climb is kept: one JSON file, written anew after each rung. Files of earlier climbs stay.
    name
        The first word of that file's name: one for each ladder.
    unit
        What ``training`` counts.
    lead_in
        Steps before each turn that are not timed.

    Raises
    ------
    ValueError
        For the simulated device, whose real times mean nothing.
    """

    def __init__(
        self,
        training: Callable[[Parts], Steps],
        start: Parts,
        device: torch.device | str,
        *,
        evaluate: Callable[[nn.Module], float],
        epoch: int,
        folder: Path | str,
        name: str = "capstone",
        unit: str = "images",
        lead_in: int = LEAD_IN,
    ) -> None:
        if str(device).startswith("sim"):
            raise ValueError(_('the ledger needs a real clock: give it torch.device("cpu")'))
        super().__init__(start, torch.device(device), epoch, Path(folder), name, unit)
        self.gain = 1.0
        """How many times as fast as the first loop the best one is, once `whole` has measured it."""
        self._training, self._evaluate, self._lead_in = training, evaluate, lead_in

    @property
    def reference(self) -> float:
        """The accuracy of the first loop after one epoch; it is trained, and shown, when first asked for."""
        if self._reference is None:
            self._reference = self.accuracy(self.start, _("the first loop learns"))
            self._show_reference()
        return self._reference

    def try_out(
        self,
        name: str,
        change: Parts,
        predicted: object = None,
        *,
        keep: bool | None = None,
        unless: str = "",
    ) -> None:
        """Measure a change against the best loop so far, in turns, show what came out, and keep it or not.

        It is kept where the lower quartile of the speed-up is above 1 and the loop still learns. The same
        name again replaces the rung in its place. A change that raises a RuntimeError, ImportError or
        OSError is noted as not running on this device, and not kept.

        Parameters
        ----------
        name
            What is changed, in a few words.
        change
            The parts that are new.
        predicted
            The learner's guess of the speed-up, a number; ``todo()`` where there is none.
        keep
            Your own decision in place of the rule.
        unless
            Why this cannot be tried here: where that is a sentence, nothing is measured.
        """
        below = self._below(name)
        now = described(change), tuple(rung.name for rung in below)
        earlier = self._earlier.pop(name, None)
        if earlier and not unless and (earlier.change, earlier.stands_on) == now:
            self._note(earlier, change)
            show_rungs([earlier], "recorded", _("As found before. Again: run this twice."))
            return
        self._earlier = {n: rung for n, rung in self._earlier.items() if name not in rung.stands_on}
        prediction = self._prediction(name, None if unless else predicted)
        speed_up, accuracy, why, kept = None, None, unless, False
        if not unless:
            old = self._parts(below)
            reference = self.reference
            try:
                speed_up = self.compare(old, {**old, **change}, name)
                if keep or (keep is None and (speed_up.q1 or 0) > 1):
                    accuracy = self.accuracy({**old, **change}, _("{name}: does it learn?").format(name=name))
                kept, why = _verdict(speed_up, accuracy, reference, keep)
            except (RuntimeError, ImportError, OSError) as error:
                first = (str(error).strip().splitlines() or [_("no message")])[0]
                speed_up, why = (
                    None,
                    _("does not run here: {error}, {first}").format(
                        error=type(error).__name__, first=first[:120]
                    ),
                )
        self._enter(name, change, prediction, speed_up, accuracy, kept, why)

    def take_in(
        self,
        name: str,
        change: Parts,
        ratios: Sequence[float] = (),
        accuracy: float = 0.0,
        predicted: object = None,
        *,
        unless: str = "",
    ) -> None:
        """Judge by the same rule a change that was measured elsewhere, such as in processes of its own.

        Parameters
        ----------
        name, change, predicted, unless
            As of `try_out`.
        ratios
            How many times as fast the new loop was, in each round.
        accuracy
            What it reached after one epoch.
        """
        prediction = self._prediction(name, None if unless else predicted)
        speed_up, kept, why = None, False, unless
        if not unless:
            speed_up = self._speed_up(ratios, name)
            learned = accuracy if (speed_up.q1 or 0) > 1 else None
            kept, why = _verdict(speed_up, learned, self.reference, None)
        self._enter(name, change, prediction, speed_up, accuracy or None, kept, why)

    def _enter(
        self,
        name: str,
        change: Parts,
        prediction: Prediction | None,
        speed_up: Measurement | None,
        accuracy: float | None,
        kept: bool,
        why: str,
    ) -> None:
        """Note a rung, and show what came out."""
        stands_on = tuple(rung.name for rung in self._below(name))
        guess = prediction.guess if prediction and isinstance(prediction.guess, float) else None
        rung = Rung(name, described(change), stands_on, speed_up, guess, accuracy, kept, why)
        self._note(rung, change)
        if speed_up is None:
            print(_("{name}, not measured: {why}").format(name=name, why=why))
            return
        show_rungs([rung], "measured")
        if prediction:
            prediction.reveal(speed_up)

    def _speed_up(self, ratios: Sequence[float], label: str) -> Measurement:
        return Measurement.of(ratios, label, self.device, unit="1", quantity="speed-up")

    def compare(self, old: Parts, new: Parts, label: str = "speed-up") -> Measurement:
        """Run two loops in turns; return how many times as many images a second the new one takes.

        Each round gives one ratio; the two begin a round alternately. Warm-up and `LEAD_IN` are not timed.
        """
        with closing(self._training(old)) as old_steps, closing(self._training(new)) as new_steps:
            old_pace = _Pace(old_steps, self.device, self._lead_in)
            new_pace = _Pace(new_steps, self.device, self._lead_in)
            rounds = bar(range(ROUNDS), desc=label, leave=False)
            before, after = take_turns(old_pace.turn, new_pace.turn, rounds)
        if self.base is None and dict(old) == self.start:
            rate = {"unit": "samples/s", "quantity": "throughput"}
            self.base = Measurement.of(before, _("the first loop"), self.device, **rate)
        ratios = [new / old for old, new in zip(before, after, strict=True)]
        return self._speed_up(ratios, label)

    def accuracy(self, parts: Parts, label: str = _("training")) -> float:
        """Train a loop anew for one epoch; return its accuracy on images that it has never seen."""
        progress = bar(total=self._epoch, desc=label, leave=False)
        with closing(self._training(parts)) as steps, closing(progress):
            seen = 0
            while seen < self._epoch:
                model, images = next(steps)
                seen += images
                progress.update(min(images, self._epoch - progress.n))
        return self._evaluate(model)

    def whole(self) -> Measurement:
        """Compare the first loop with the best one, in turns, and note it as a result."""
        total = self.compare(self.start, self.best, _("best loop against the first"))
        self.result(_("best loop against the first"), total)
        self.gain = total.median
        return total

    def _prediction(self, name: str, guess: object) -> Prediction | None:
        """Return the prediction of a rung, if one was made before its answer was seen."""
        if guess is None or isinstance(guess, Todo):
            return None
        known = next((rung for rung in self.rungs if rung.name == name and rung.speed_up), None)
        if known and known.predicted is None:
            print(_("You have seen the answer already, so this guess does not count."))
            return None
        return predict(f"09.{name}", guess, unit="×")


class _Pace:
    """A training that goes on in turns, and how many images a second it takes in each."""

    def __init__(self, steps: Steps, device: torch.device, lead_in: int) -> None:
        self._steps, self._device, self._lead_in = steps, device, lead_in
        self._run(3)
        self._count = 2
        while (took := self._run(self._count)[1]) < TURN and self._count < 10_000:
            estimate = min(round(self._count * TURN / took), 8 * self._count)
            self._count = max(self._count + 1, estimate)

    def turn(self) -> float:
        """Train for one turn; return the images a second."""
        self._run(self._lead_in)
        images, took = self._run(self._count)
        return images / took

    def _run(self, count: int) -> tuple[int, float]:
        synchronize(self._device)
        begin = perf_counter()
        images = sum(images for _, images in islice(self._steps, count))
        synchronize(self._device)
        return images, perf_counter() - begin


def _verdict(
    speed_up: Measurement, accuracy: float | None, reference: float, keep: bool | None
) -> tuple[bool, str]:
    """Return whether a change is kept, and why, in a few words."""
    if keep is not None:
        return keep, _("you decided so")
    if accuracy is None:
        slower = speed_up.q3 is not None and speed_up.q3 < 1
        return False, _("slower") if slower else _("no gain beyond the spread")
    if accuracy < reference - MARGIN:
        return False, _("faster, but it learns less: the first loop has {reference:.0%}").format(
            reference=reference
        )
    return True, _("faster, and it learns")
