"""The ledger of a climb: what was tried on a training loop, what it brought, and whether it was kept.

Two loops are compared in turns, so that whatever else the machine does meets both; and a loop that is
faster must still learn before it is kept. Each rung is written to a file at once: a climb goes on where
its session ended.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

from course_language import word
from course_lessons.lesson09.drawings import Height, ladder, report_card
from course_utils.devices import abilities, synchronize
from course_utils.exercises.judge import Todo
from course_utils.files import write
from course_utils.predictions import Prediction, predict
from course_utils.show import show_table
from course_utils.timing import Measurement, take_turns
from course_utils.tqdm_bar import bar

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
    change
        The parts that are new, in words.
    stands_on
        The names of the rungs kept before it.
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
    change: dict[str, str]
    stands_on: tuple[str, ...]
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
        training: Training,
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
            raise ValueError('the ledger needs a real clock: give it torch.device("cpu")')
        self.device = torch.device(device)
        self.start = dict(start)
        self.folder = Path(folder)
        self.rungs: list[Rung] = []
        self.results: dict[str, Measurement | str] = {}
        self.gain = 1.0
        """How many times as fast as the first loop the best one is, once `whole` has measured it."""
        self.base: Measurement | None = None
        """Images a second of the first loop."""
        self._training, self._evaluate, self._epoch = training, evaluate, epoch
        self._name, self._unit, self._lead_in = name, unit, lead_in
        self._changes: dict[str, dict[str, Any]] = {}
        self._reference: float | None = None
        self._earlier: dict[str, Rung] = {}
        self._path: Path | None = None

    @property
    def best(self) -> dict[str, Any]:
        """The parts of the fastest loop so far: the first one's, with every change that was kept."""
        return self._parts(self._below(None))

    @property
    def reference(self) -> float:
        """The accuracy of the first loop after one epoch; it is trained, and shown, when first asked for."""
        if self._reference is None:
            self._reference = self.accuracy(self.start, "the first loop learns")
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
        described, stands_on = _described(change), tuple(rung.name for rung in below)
        earlier = self._earlier.pop(name, None)
        if earlier and not unless and (earlier.change, earlier.stands_on) == (described, stands_on):
            self._note(earlier, change)
            show_table(
                _HEAD, [_row(earlier)], ["recorded"], "As found before. Again: run this twice."
            )
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
                    accuracy = self.accuracy({**old, **change}, f"{name}: does it learn?")
                kept, why = _verdict(speed_up, accuracy, reference, keep)
            except (RuntimeError, ImportError, OSError) as error:
                first = (str(error).strip().splitlines() or ["no message"])[0]
                speed_up, why = None, f"does not run here: {type(error).__name__}, {first[:120]}"
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
        rung = Rung(name, _described(change), stands_on, speed_up, guess, accuracy, kept, why)
        self._note(rung, change)
        if speed_up is None:
            print(f"{name}, not measured: {why}")
            return
        show_table(_HEAD, [_row(rung)], ["measured"])
        if prediction:
            prediction.reveal(speed_up)

    def _speed_up(self, ratios: Sequence[float], label: str) -> Measurement:
        return Measurement.of(ratios, label, self.device, unit="1", quantity="speed-up")

    def compare(self, old: Parts, new: Parts, label: str = "speed-up") -> Measurement:
        """Run two loops in turns; return how many times as many images a second the new one takes.

        Each round gives one ratio; the two begin a round alternately. Warm-up and `LEAD_IN` are not timed.
        """
        with ExitStack() as stack:
            paces = [
                stack.enter_context(
                    closing(_Pace(self._training(parts), self.device, self._lead_in))
                )
                for parts in (old, new)
            ]
            rounds = bar(range(ROUNDS), desc=label, leave=False)
            before, after = take_turns(paces[0].turn, paces[1].turn, rounds)
        if self.base is None and dict(old) == self.start:
            rate = {"unit": "samples/s", "quantity": "throughput"}
            self.base = Measurement.of(before, "the first loop", self.device, **rate)
        ratios = [new / old for old, new in zip(before, after, strict=True)]
        return self._speed_up(ratios, label)

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
        total = self.compare(self.start, self.best, "best loop against the first")
        self.result("best loop against the first", total)
        self.gain = total.median
        return total

    def result(self, name: str, value: Measurement | str) -> None:
        """Note something for the report card: a measurement, or a figure already in words."""
        self.results[name] = value
        self._write()

    def resume(self, file: Path | str | None = None) -> None:
        """Take up an earlier climb: what it measured is shown, and not measured again.

        A rung counts as measured where its name, its change and all rungs below it are what they were; a
        change of a function that kept its name is not seen. Says in a sentence where there is no such climb.

        Parameters
        ----------
        file
            The JSON file of that climb; by default the newest of this kind of device in the folder.
        """
        found = [path for path in self.folder.glob(self._stem("*") + ".json") if path != self._path]
        if file is None and not found:
            print(f"There is no earlier climb in {self.folder}: this one begins at the first rung.")
            return
        path = Path(file) if file else max(found, key=lambda path: path.stat().st_mtime)
        try:
            then = json.loads(path.read_text(encoding="utf-8"))
            if then.pop("sha256", None) not in (None, _sum(then)):
                raise ValueError("not what was written")
            order = then.get("measured in this order", [])
            rungs = [_rung(fields) for fields in then["rungs"]]
            still = {r.name: r for r in rungs if r.speed_up and not _outdated(r, order)}
            base = then["first loop"] and Measurement(**then["first loop"])
            other = [name for name, value in self._conditions().items() if then[name] != value]
            reference = then["accuracy of the first loop"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(f"{path} cannot be read ({type(error).__name__}): this climb begins anew.")
            return
        if other:
            print(
                f"{path.name} was another climb: not the same {', '.join(other)}. This one is new."
            )
            return
        self.base, self._reference = self.base or base, self._reference or reference
        self._earlier = still
        print(
            f"{path.name}: {len(self._earlier)} rungs are taken up. Run their cells: each shows at once "
            "what it found."
        )
        if reference:
            self._show_reference()

    def table(self) -> None:
        """Show all rungs; a note names what was not measured, and what stands on another ladder now."""
        notes = [f"{r.name}: {r.why}" for r in self.rungs if not r.speed_up]
        moved = [r.name for r in self.rungs if self._moved(r)]
        if moved:
            notes.append(f"measured on another ladder than this one: {', '.join(moved)}")
        kinds = ["measured"] * len(self.rungs)
        show_table(_HEAD, [_row(rung) for rung in self.rungs], kinds, " · ".join(notes))

    def draw(self, limit: float | None = None) -> None:
        """Draw the ladder: images a second, rung by rung, what was left out hollow.

        Parameters
        ----------
        limit
            The images (or what else is counted) a second that nothing on this device can exceed, if known.
        """
        ladder(self._heights(), limit, self._unit)

    def save(self, *headlines: str) -> tuple[Path, Path]:
        """Write the report card, a picture beside the climb's JSON file, and show it.

        Parameters
        ----------
        headlines
            The names of the results that stand above the ladder in large print.

        Returns
        -------
        tuple
            The paths of the PNG and the JSON file.

        Raises
        ------
        ValueError
            Where nothing has been tried yet.
        OSError
            Where the folder cannot be written to.
        """
        if self.base is None:
            raise ValueError("nothing has been measured yet: try a rung first")
        data = self._file()
        picture = data.with_suffix(".png")
        self._put(data)
        title = f"{self.base.machine} ({self.device}), PyTorch {self.base.torch}, {self.base.date}"
        report_card(self._heights(), title, self._written(), headlines, picture, self._unit)
        return picture, data

    def as_dict(self) -> dict[str, Any]:
        """Return all that is known as plain values, ready for JSON."""
        return {
            "schema": 2,
            **self._conditions(),
            "first loop": self.base and self.base.as_dict(),
            "accuracy of the first loop": self._reference,
            "rungs": [asdict(rung) for rung in self.rungs],
            "measured in this order": list(self._changes),
            "results": {
                name: value.as_dict() if isinstance(value, Measurement) else value
                for name, value in self.results.items()
            },
        }

    def _conditions(self) -> dict[str, Any]:
        """Return what must be the same where two climbs are to be one."""
        return {
            "device": str(self.device),
            "machine": abilities(self.device).name,
            "torch": str(torch.__version__),
            f"{self._unit} in an epoch": self._epoch,
            "parts of the first loop": _described(self.start),
        }

    def _put(self, path: Path) -> None:
        """Write all that is known, so that the file is whole at every moment (lesson 03)."""
        known = self.as_dict()
        write(path, json.dumps(known | {"sha256": _sum(known)}, indent=1, ensure_ascii=False))

    def _stem(self, when: str) -> str:
        return f"{self._name}_{self.device.type}_{when}"

    def _file(self) -> Path:
        """Return this climb's file, whose name no other has."""
        if self._path is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            stem = self._stem(f"{datetime.now():%Y-%m-%d_%H%M%S}")
            number = len(list(self.folder.glob(f"{stem}*.json")))
            self._path = self.folder / f"{stem}{f'_{number + 1}' if number else ''}.json"
        return self._path

    def _write(self) -> None:
        try:
            self._put(self._file())
        except OSError as error:
            print(
                f"{self.folder} cannot be written to ({error.strerror}): keep this session alive."
            )

    def _below(self, name: str | None) -> list[Rung]:
        """Return the rungs that are kept below the one of this name."""
        names = [rung.name for rung in self.rungs]
        place = names.index(name) if name in names else None
        return [rung for rung in self.rungs[:place] if rung.kept]

    def _moved(self, rung: Rung) -> bool:
        """Return whether other rungs stand below one that was measured than then, or newer ones."""
        below = tuple(known.name for known in self._below(rung.name))
        changed = rung.stands_on != below or _outdated(rung, list(self._changes))
        return rung.speed_up is not None and changed

    def _parts(self, below: list[Rung]) -> dict[str, Any]:
        parts = dict(self.start)
        for rung in below:
            parts |= self._changes[rung.name]
        return parts

    def _prediction(self, name: str, guess: object) -> Prediction | None:
        """Return the prediction of a rung, if one was made before its answer was seen."""
        if guess is None or isinstance(guess, Todo):
            return None
        known = next((rung for rung in self.rungs if rung.name == name and rung.speed_up), None)
        if known and known.predicted is None:
            print("You have seen the answer already, so this guess does not count.")
            return None
        return predict(f"09.{name}", guess, unit="×")

    def _note(self, rung: Rung, change: Parts) -> None:
        self._changes.pop(rung.name, None)  # the newest stands last
        self._changes[rung.name] = dict(change)
        names = [known.name for known in self.rungs]
        if rung.name in names:
            self.rungs[names.index(rung.name)] = rung
        else:
            self.rungs.append(rung)
        self._write()

    def _heights(self) -> list[Height]:
        """Return each rung as it is drawn: what was measured of it, times what stands below it."""
        below = self.base.median if self.base else 1.0
        heights = [Height("the first loop", (below,) * 3, True)]
        for rung in self.rungs:
            found = rung.speed_up
            if found is None:
                heights.append(Height(rung.name, None, False))
                continue
            reached = tuple(below * x for x in (found.q1, found.median, found.q3))
            guess = None if rung.predicted is None else below * rung.predicted
            heights.append(Height(rung.name, reached, rung.kept, found.median, guess))
            below = reached[1] if rung.kept else below
        return heights

    def _show_reference(self) -> None:
        lowest = self._reference - MARGIN
        print(
            f"The first loop has {self._reference:.1%} after one epoch; what is kept, at least {lowest:.1%}."
        )

    def _written(self) -> dict[str, str]:
        return {
            name: value if isinstance(value, str) else _spread(value)
            for name, value in self.results.items()
        }


class _Pace:
    """A training that goes on in turns, and how many images a second it takes in each."""

    def __init__(
        self,
        steps: Iterator[tuple[nn.Module, int]],
        device: torch.device,
        lead_in: int = LEAD_IN,
    ) -> None:
        self._steps, self._device, self._lead_in = steps, device, lead_in
        self._run(3)
        self._count = 2
        while (took := self._run(self._count)[1]) < TURN and self._count < 10_000:
            self._count = max(
                self._count + 1, min(round(self._count * TURN / took), 8 * self._count)
            )

    def turn(self) -> float:
        """Train for one turn; return the images a second."""
        self._run(self._lead_in)
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


def _described(parts: Parts) -> dict[str, str]:
    """Return parts in words: functions by their names, with what was given to them."""
    return {name: _in_words(part) for name, part in parts.items()}


def _in_words(part: Any) -> str:
    if isinstance(part, partial):
        given = ", ".join(f"{name}={value}" for name, value in part.keywords.items())
        return f"{_in_words(part.func)}({given})"
    return getattr(part, "__name__", str(part))


def _sum(known: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _rung(fields: dict[str, Any]) -> Rung:
    speed_up = fields["speed_up"] and Measurement(**fields["speed_up"])
    return Rung(**{**fields, "speed_up": speed_up, "stands_on": tuple(fields["stands_on"])})


def _outdated(rung: Rung, order: list[str]) -> bool:
    """Return whether a rung that this one stands on was measured after it."""
    later = order[order.index(rung.name) :] if rung.name in order else ()
    return any(name in later for name in rung.stands_on)


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
        word("yes") if rung.kept else word("no"),
        rung.why if found else word("not measured"),
    )


def _spread(value: Measurement) -> str:
    if value.unit == "samples/s":
        return f"{value.median:,.0f} ({value.q1:,.0f} to {value.q3:,.0f}), n = {value.n}"
    return f"{value.written()} ({value.written('q1')} to {value.written('q3')}), n = {value.n}"
