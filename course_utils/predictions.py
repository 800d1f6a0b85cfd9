"""Predict first: the learner types a number before the measurement, and sees afterwards how near it was."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from course_language import N_, _

from . import progress_file
from .exercises.judge import Todo
from .exercises.values import brief
from .number_format import to_base_unit
from .show import Bundle, real_gpus_link, show

Verdict = Literal["close", "near", "off"]

HEADLINES = {
    "close": _("Close"),
    "near": _("Near"),
    "off": _("A surprise"),
    "": _("The answer"),
}
_KINDS = (N_("counted"), N_("metered"))  # more of them, beside those of records
_COLOURS = {"close": "#2a9d5c", "near": "#c77700", "off": "#4a78b5", "": ""}

WIDTH = 0.10
"""A found number counts as a range of at least this share of itself to either side."""

FACTOR = 2.0
"""*near* is up to this factor beyond the range."""

POINTS = (5.0, 15.0)
"""For percentages, which are compared by difference: how many points are *close*, and how many *near*."""


@dataclass(frozen=True)
class Found:
    """What a measurement gave, in the prediction's unit: the middle, the range, and its kind."""

    middle: float
    low: float
    high: float
    kind: str = ""


@dataclass
class Prediction:
    """One question, the guess made before the answer, and whether the answer has been shown.

    ``guess`` is a float, one of ``choices``, or None where there is none.
    """

    id: str
    unit: str = ""
    choices: tuple[str, ...] = ()
    guess: float | str | None = None
    revealed: bool = field(default=False, repr=False)
    earlier: bool = field(default=False, repr=False)
    """Whether the guess is one of an earlier session, which the progress file has kept."""

    def reveal(self, found: Any, *, kind: str = "") -> None:
        """Show what was found beside the guess, and keep the score. Never raises.

        Parameters
        ----------
        found
            A number, a pair (low, high), a `Measurement` or several of them: then the range is from
            the lowest lower quartile to the highest upper one, or where a real card would likely be. For a
            choice, the right one.
        kind
            ``"modelled"`` where the numbers are; a `Measurement` says it by itself.

        Notes
        -----
        Numbers are compared by factor: *close* is inside the range, which is widened to 10 % on either
        side; *near* is up to a factor of 2 beyond it (for a speed-up in ``"×"`` on the same side of
        1); the rest is *off*. Percentages are compared by difference: up to 5 points beyond the range
        is close, up to 15 near.
        """
        try:
            answer = self._answer(found, kind)
        except UnusableError as problem:
            print(
                _("Prediction {id}: no comparison is possible, because {problem}.").format(
                    id=self.id, problem=problem
                )
            )
            return
        self._recall()
        verdict, comment = self._verdict(answer)
        if not self.revealed and verdict:
            found = answer if isinstance(answer, str) else [answer.low, answer.high]
            progress_file.note_prediction(self.id, verdict, self.guess, found, self.unit)
        self.revealed = True
        show(self._bundle(answer, verdict, comment))

    def _recall(self) -> None:
        """Take the guess from the progress file where this session has none, as after a kernel restart."""
        kept = progress_file.first_guess(self.id, self.unit) if self.guess is None else None
        if kept is not None:
            with suppress(UnusableError):  # damaged, or one of other choices
                self.guess = _guess((kept,), self.choices)
                self.revealed = self.earlier = True

    def _answer(self, found: Any, kind: str) -> Found | str:
        if not self.choices:
            return _found(found, self.unit, kind)
        chosen = _choice(found, self.choices)
        if chosen is None:
            raise UnusableError(
                _("{found} is none of {choices}").format(
                    found=brief(found, 60), choices=", ".join(self.choices)
                )
            )
        return chosen

    def _verdict(self, answer: Found | str) -> tuple[Verdict | Literal[""], str]:
        if self.guess is None:
            return "", _("You made no prediction: next time, type one before you measure.")
        if isinstance(answer, str):
            return ("close", "") if self.guess == answer else ("off", _THINK)
        assert isinstance(self.guess, float)
        return score(self.guess, answer, self.unit)

    def _bundle(self, answer: Found | str, verdict: str, comment: str) -> Bundle:
        lines = []
        if self.guess is not None:
            guess = self._written(self.guess)
            then = _("In an earlier session you predicted {guess}.").format(guess=guess)
            lines = [then if self.earlier else _("You predicted {guess}.").format(guess=guess)]
        if isinstance(answer, str):
            lines.append(_("Found: {answer}.").format(answer=answer))
        else:
            span = _("{low} to {high}").format(low=figure(answer.low), high=figure(answer.high))
            span = f" ({span})" if figure(answer.low) != figure(answer.high) else ""
            kinds = ", ".join(map(_, answer.kind.split(", ")))
            kind = f", {kinds}" if kinds else ""
            lines.append(
                _("Found: {written}{span}{kind}.").format(
                    written=self._written(answer.middle), span=span, kind=_(kind)
                )
            )
        lines += [comment] if comment else []
        picture = ""
        if isinstance(answer, Found) and isinstance(self.guess, float):
            picture = scale(self.guess, answer, self.unit)
        right = verdict == "close" and isinstance(answer, str)
        colour, headline = _COLOURS[verdict], _("Right") if right else HEADLINES[verdict]
        return Bundle(
            text=f"{headline} · {self.id}\n{' '.join(lines)}",
            html=f'<div style="border-left:4px solid {colour};padding:.4em .9em;margin:.3em 0">'
            f'<b style="color:{colour}">{headline}</b> '
            f'<span style="opacity:.6">· {html.escape(self.id)}</span>'
            f"<div>{html.escape(' '.join(lines))}</div>{picture}"
            f"{real_gpus_link() if getattr(answer, 'kind', '') == 'modelled' else ''}</div>",
        )

    def _written(self, value: float | str) -> str:
        return value if isinstance(value, str) else with_unit(value, self.unit)


_THINK = _("Why might that be? Think before you read on.")

all_predictions: dict[str, Prediction] = {}


def predict(prediction_id: str, *guess: object, unit: str = "", choices: Sequence[str] = ()) -> Prediction:
    """Take the learner's guess, before the measurement; ``reveal`` scores it afterwards.

    Parameters
    ----------
    prediction_id
        Lesson and name, such as ``"04.amp-speed"``.
    guess
        What stands in place of ``todo()``: one number that is not negative, or one of ``choices``.
        Anything else gets one sentence, and the notebook goes on.
    unit
        The unit the guess is in: ``"×"``, ``"%"``, ``"ms"``, ``"MiB"``, ...
    choices
        The answers to choose from, where it is not a number that is asked for.

    Returns
    -------
    Prediction
        The same object for the same id, as long as the kernel lives: a cell that is run again before
        the answer replaces the guess; after the answer the first guess stays.
    """
    prediction = all_predictions.setdefault(prediction_id, Prediction(prediction_id))
    prediction.unit, prediction.choices = unit, tuple(choices)
    kept = None if prediction.guess is None else prediction._written(prediction.guess)
    what = _("one of {choices}").format(choices=", ".join(map(repr, choices))) if choices else _("a number")
    if not guess or isinstance(guess[0], Todo):
        if not prediction.revealed:
            prediction.guess = None
            prediction._recall()
            if prediction.guess is None:
                print(
                    _("No prediction yet: put {what} in place of todo() and run this cell again.").format(
                        what=what
                    )
                )
            else:
                guess = prediction._written(prediction.guess)
                print(_("Your prediction from an earlier session: {guess}.").format(guess=guess))
        return prediction
    try:
        new = _guess(guess, prediction.choices)
    except UnusableError as problem:
        stands = _(" (Until then {kept} stands.)").format(kept=kept) if kept else ""
        print(
            _("{problem}. Put {what} in place of todo() and run this cell again.{stands}").format(
                problem=problem, what=what, stands=stands
            )
        )
        return prediction
    if prediction.revealed:
        if new != prediction.guess:
            stays = (
                _("your first prediction, {kept}, stays").format(kept=kept)
                if kept
                else _("this guess does not count")
            )
            print(_("You have seen the answer already, so {stays}.").format(stays=stays))
        return prediction
    prediction.guess = new
    print(_("Your prediction: {written}.").format(written=prediction._written(new)))
    return prediction


def score(guess: float, found: Found, unit: str = "") -> tuple[Verdict, str]:
    """Compare a guess with what was found; return the verdict and one sentence. See `Prediction.reveal`."""
    high = guess > found.high
    side = _("too high") if high else _("too low")
    beyond = max(found.low - guess, guess - found.high, 0.0)
    if unit == "%":
        verdict: Verdict = "off"
        if beyond <= POINTS[1]:
            verdict = "close" if beyond <= POINTS[0] else "near"
        off_by = _("{beyond} points {side}").format(beyond=figure(beyond), side=side)
    else:
        if found.low * (1 - WIDTH) <= guess <= found.high * (1 + WIDTH):
            return "close", _within(found, beyond, unit)
        nearest = found.high if high else found.low
        factor = max(guess / nearest, nearest / guess) if min(guess, nearest) > 0 else math.inf
        other_side = unit == "×" and (guess - 1) * (nearest - 1) < 0
        verdict = "near" if factor <= FACTOR and not other_side else "off"
        off_by = side + (_(" by a factor of {factor}").format(factor=figure(factor)) * math.isfinite(factor))
        off_by += _(", and on the other side of 1") * other_side
    if verdict == "close":
        return verdict, _within(found, beyond, unit)
    return verdict, f"{off_by[0].upper()}{off_by[1:]}{_('.')}" + f" {_THINK}" * (verdict == "off")


def _within(found: Found, beyond: float, unit: str) -> str:
    if not beyond:
        return _("Exactly.") if found.low == found.high else _("Inside the range.")
    within = (
        _("{first_POINTS:.0f} points").format(first_POINTS=POINTS[0])
        if unit == "%"
        else f"{100 * WIDTH:.0f} %"
    )
    return _("Within {within} of it.").format(within=within)


def figure(value: float) -> str:
    """Write a number for reading: three digits, thousands with commas, no exponent where it can be."""
    if abs(value) >= 1e9 or 0 < abs(value) < 1e-4:
        return f"{value:.2e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):.7g}"


def with_unit(value: float, unit: str) -> str:
    """Write a number with its unit: ``"4×"``, ``"2 ms"``."""
    return f"{figure(value)}{'' if unit in ('', '×') else ' '}{unit}"


def scale(guess: float, found: Found, unit: str = "") -> str:
    """Return a small drawing: the range found on a line, and the guess below it.

    The line is logarithmic and at least a factor of 10 long; for percentages it goes from 0 to 100.
    """
    points = [found.low, found.high, guess]
    percent = unit == "%" and max(points) <= 100
    linear = unit == "%" or min(points) <= 0
    places = points if linear else [math.log10(p) for p in points]
    least, most = (0.0, 100.0) if percent else (min(places), max(places))
    spare = max(0.15 * (most - least), 0.5 * (1 - (most - least)) if not linear else 0)
    spare = 0.0 if percent else spare or 1.0
    x = [60 + 280 * (p - least + spare) / (most - least + 2 * spare) for p in places]
    width = max(x[1] - x[0], 4)
    middle, below = (
        (x[0] + x[1]) / 2,
        html.escape(_("you: {guess}").format(guess=with_unit(guess, unit))),
    )
    above = html.escape(_("found: {middle}").format(middle=with_unit(found.middle, unit)))
    return (
        f'<svg width="400" height="52" role="img" aria-label="{above}; {below}" '
        'style="font-size:11px;margin-top:.3em" fill="currentColor">'
        '<line x1="60" y1="26" x2="340" y2="26" stroke="currentColor" opacity=".5"/>'
        f'<rect x="{middle - width / 2:.1f}" y="20" width="{width:.1f}" height="12" fill="#2a9d5c"/>'
        f'<path d="M{x[2]:.1f} 29 l5 9 h-10 z"/>'
        f'<text x="{middle:.1f}" y="14" text-anchor="middle">{above}</text>'
        f'<text x="{x[2]:.1f}" y="49" text-anchor="middle">{below}</text></svg>'
    )


class UnusableError(Exception):
    """A guess or a finding that is not what was asked for; the message is the start of a sentence."""


def _guess(given: tuple[object, ...], choices: tuple[str, ...]) -> float | str:
    if choices:
        chosen = _choice(given[0], choices) if len(given) == 1 else None
        if chosen is None:
            raise UnusableError(
                _("{first_given} is none of the answers").format(first_given=brief(given[0], 60))
            )
        return chosen
    if len(given) > 1:
        shown = ", ".join(brief(value, 20) for value in given)
        raise UnusableError(
            _("{shown} are several values (a decimal point is a point, not a comma)").format(shown=shown)
        )
    if isinstance(given[0], str):
        raise UnusableError(
            _("{first_given} is a text; a bare number is wanted, no unit").format(
                first_given=brief(repr(given[0]), 60)
            )
        )
    value = _number(given[0])
    if value < 0:
        raise UnusableError(_("{value} is negative, and this quantity cannot be").format(value=figure(value)))
    return value


def _choice(value: object, choices: Sequence[str]) -> str | None:
    text = str(value).strip().lower() if isinstance(value, str | int | float) else None
    return next((choice for choice in choices if choice.lower() == text), None)


def _number(value: Any) -> float:
    """Return a finite float of a number, or of an array or tensor that holds one."""
    try:
        if hasattr(value, "item"):
            value = value.item()
        if isinstance(value, bool | str | bytes) or value is None:
            raise TypeError
        number = float(value)
    except Exception:  # noqa: BLE001  (a learner's object can do anything; it is no number then)
        text = brief(repr(value) if isinstance(value, str | None) else value, 60)
        shown = _("a function") if callable(value) else text
        raise UnusableError(_("{shown} is no number").format(shown=shown)) from None
    if not math.isfinite(number):
        raise UnusableError(_("{number} is no finite number").format(number=number))
    return number


def _found(value: Any, unit: str, kind: str) -> Found:
    """Turn what ``reveal`` was given into the prediction's unit."""
    if hasattr(value, "median") and hasattr(value, "q1"):
        return _of_measurements([value], unit)
    if isinstance(value, list | tuple) and value:
        if all(hasattr(one, "median") and hasattr(one, "q1") for one in value):
            return _of_measurements(value, unit)
        numbers = sorted(_number(one) for one in value)
        return Found(statistics.median(numbers), numbers[0], numbers[-1], kind)
    number = _number(value)
    return Found(number, number, number, kind)


def _of_measurements(measurements: Sequence[Any], unit: str) -> Found:
    base, size = to_base_unit(unit)
    lows, middles, highs = [], [], []
    for m in measurements:
        if m.unit != base:
            raise UnusableError(
                _("a prediction in {unit} is set beside figures in {m_unit}").format(
                    unit=unit or _("no unit"), m_unit=m.unit
                )
            )
        middles.append(m.median / size)
        low, high = m.interval
        lows.append(middles[-1] if low is None else low / size)  # published: no quartiles
        highs.append(middles[-1] if high is None else high / size)
    kinds = ", ".join(sorted({m.kind for m in measurements}))
    return Found(statistics.median(middles), min(lows), max(highs), kinds)
