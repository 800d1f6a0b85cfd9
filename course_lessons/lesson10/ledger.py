"""The ledger of a climb: tries changes on a training loop, measures them, and decides which to keep.

Two loops are compared in alternating turns, so that disturbances of the machine affect both; and a faster
loop must still learn before it is kept. Each rung is written to a file at once, so a climb can be resumed in
a later session.
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
from course_lessons.lesson10.climb import MARGIN, Climb
from course_lessons.lesson10.rung import Parts, Rung, described, show_rungs
from course_utils.devices import synchronize
from course_utils.exercises.judge import Todo
from course_utils.predictions import Prediction, predict
from course_utils.timing import Measurement, take_turns
from course_utils.tqdm_bar import bar

Steps = Generator[tuple[nn.Module, int], None, None]

ROUNDS = 9
"""The number of rounds in a comparison of two loops."""

TURN = 0.12
"""The approximate duration of a turn, in seconds."""

LEAD_IN = 4
"""Untimed steps before each turn: the loader's workers have this many batches ready, two each."""


class Ledger(Climb):
    """Tries changes on a training loop one by one, and stores the result of each.

    Parameters
    ----------
    training
        Called with the loop's parts, a dict; returns an infinite generator that trains one step at each
        ``next`` and yields the model and the number of images in the step.
    start
        The parts of the first loop.
    device
        The training's device; not the simulated one.
    evaluate
        Returns a model's accuracy, from 0 to 1.
    epoch
        The number of images after which accuracies are compared.
    folder
        The folder of the climb's JSON file, which is rewritten after each rung. Earlier climbs' files stay.
    name
        The prefix of that file's name: a different one for each ladder.
    unit
        The unit that ``training`` counts.
    lead_in
        The number of untimed steps before each turn.

    Raises
    ------
    ValueError
        For the simulated device, whose wall-clock times are meaningless.
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
        """The speed-up of the best loop over the first, once `whole` has measured it."""
        self._training, self._evaluate, self._lead_in = training, evaluate, lead_in

    @property
    def reference(self) -> float:
        """The accuracy of the first loop after one epoch; trained and printed at the first access."""
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
        """Measure a change against the best loop so far, show the result, and keep the change or not.

        It is kept if the lower quartile of the speed-up is above 1 and the loop still learns. A rung with the
        same name is replaced. A change that raises a RuntimeError, ImportError or OSError is stored as not
        running on this device, and not kept. A rung of a resumed climb is shown instead of measured, once.

        Parameters
        ----------
        name
            The rung's name: what is changed, in a few words.
        change
            The new parts of the loop.
        predicted
            The learner's guess of the speed-up, a number; ``todo()`` or None if there is none.
        keep
            Whether to keep it, in place of the rule; None applies the rule.
        unless
            The reason why this cannot be tried here; if not empty, nothing is measured.
        """
        below = self._kept_below(name)
        now = described(change), tuple(rung.name for rung in below)
        earlier = self._resumed_rungs.pop(name, None)
        if earlier and not unless and (earlier.change, earlier.stands_on) == now:
            self._store_rung(earlier, change)
            show_rungs([earlier], "recorded", _("As found before. Again: run this twice."))
            return
        self._resumed_rungs = {
            n: rung for n, rung in self._resumed_rungs.items() if name not in rung.stands_on
        }
        prediction = self._prediction(name, None if unless else predicted)
        speed_up, accuracy, why, kept = None, None, unless, False
        if not unless:
            old = self._parts_with(below)
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
        self._store_and_show(name, change, prediction, speed_up, accuracy, kept, why)

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
        """Store a change that was measured elsewhere, such as in other processes; decide by the same rule.

        Parameters
        ----------
        name, change, predicted, unless
            See `try_out`.
        ratios
            The speed-up in each round.
        accuracy
            The new loop's accuracy after one epoch.
        """
        prediction = self._prediction(name, None if unless else predicted)
        speed_up, kept, why = None, False, unless
        if not unless:
            speed_up = self._speed_up(ratios, name)
            learned = accuracy if (speed_up.q1 or 0) > 1 else None
            kept, why = _verdict(speed_up, learned, self.reference, None)
        self._store_and_show(name, change, prediction, speed_up, accuracy or None, kept, why)

    def _store_and_show(
        self,
        name: str,
        change: Parts,
        prediction: Prediction | None,
        speed_up: Measurement | None,
        accuracy: float | None,
        kept: bool,
        why: str,
    ) -> None:
        """Store a rung, show its result, and reveal the prediction's."""
        stands_on = tuple(rung.name for rung in self._kept_below(name))
        guess = prediction.guess if prediction and isinstance(prediction.guess, float) else None
        rung = Rung(name, described(change), stands_on, speed_up, guess, accuracy, kept, why)
        self._store_rung(rung, change)
        if speed_up is None:
            print(_("{name}, not measured: {why}").format(name=name, why=why))
            return
        show_rungs([rung], "measured")
        if prediction:
            prediction.reveal(speed_up)

    def _speed_up(self, ratios: Sequence[float], label: str) -> Measurement:
        """Return a measurement of ratios."""
        return Measurement.of(ratios, label, self.device, unit="1", quantity="speed-up")

    def compare(self, old: Parts, new: Parts, label: str = "speed-up") -> Measurement:
        """Run two loops in alternating turns; return the ratio of images per second, new over old.

        Each round gives one ratio; the loops take turns in beginning a round. Warm-up and lead-in are not
        timed. The first comparison with the first loop also sets `base`.
        """
        with closing(self._training(old)) as old_steps, closing(self._training(new)) as new_steps:
            old_training = _TimedTraining(old_steps, self.device, self._lead_in)
            new_training = _TimedTraining(new_steps, self.device, self._lead_in)
            rounds = bar(range(ROUNDS), desc=label, leave=False)
            before, after = take_turns(old_training.turn, new_training.turn, rounds)
        if self.base is None and dict(old) == self.start:
            rate = {"unit": "samples/s", "quantity": "throughput"}
            self.base = Measurement.of(before, _("the first loop"), self.device, **rate)
        ratios = [new / old for old, new in zip(before, after, strict=True)]
        return self._speed_up(ratios, label)

    def accuracy(self, parts: Parts, label: str = _("training")) -> float:
        """Train a new model for one epoch; return its accuracy on held-out data."""
        progress = bar(total=self._epoch, desc=label, leave=False)
        with closing(self._training(parts)) as steps, closing(progress):
            seen = 0
            while seen < self._epoch:
                model, images = next(steps)
                seen += images
                progress.update(min(images, self._epoch - progress.n))
        return self._evaluate(model)

    def whole(self) -> Measurement:
        """Compare the best loop with the first; store and return the speed-up."""
        total = self.compare(self.start, self.best, _("best loop against the first"))
        self.result(_("best loop against the first"), total)
        self.gain = total.median
        return total

    def _prediction(self, name: str, guess: object) -> Prediction | None:
        """Return the rung's prediction; None if there is no guess, or the answer was shown before it."""
        if guess is None or isinstance(guess, Todo):
            return None
        known = next((rung for rung in self.rungs if rung.name == name and rung.speed_up), None)
        if known and known.predicted is None:
            print(_("You have seen the answer already, so this guess does not count."))
            return None
        return predict(f"10.{name}", guess, unit="×")


class _TimedTraining:
    """A training that is run in turns of about `TURN` seconds, and timed."""

    def __init__(self, steps: Steps, device: torch.device, lead_in: int) -> None:
        self._steps, self._device, self._lead_in = steps, device, lead_in
        self._run(3)
        self._count = 2
        while (took := self._run(self._count)[1]) < TURN and self._count < 10_000:
            estimate = min(round(self._count * TURN / took), 8 * self._count)
            self._count = max(self._count + 1, estimate)

    def turn(self) -> float:
        """Train for one turn; return the images per second."""
        self._run(self._lead_in)
        images, took = self._run(self._count)
        return images / took

    def _run(self, count: int) -> tuple[int, float]:
        """Train for ``count`` steps; return the number of images and the seconds."""
        synchronize(self._device)
        begin = perf_counter()
        images = sum(images for _, images in islice(self._steps, count))
        synchronize(self._device)
        return images, perf_counter() - begin


def _verdict(
    speed_up: Measurement, accuracy: float | None, reference: float, keep: bool | None
) -> tuple[bool, str]:
    """Return whether a change is kept, and the reason in a few words."""
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
