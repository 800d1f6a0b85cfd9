"""Predictions: the learner enters a guess before a measurement, and afterwards sees how close it was."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
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
HEADLINES_OF_CHOICES = {"close": _("Right"), "off": _("Not quite"), "": HEADLINES[""]}
_KINDS = (N_("counted"), N_("metered"))  # kinds of found numbers, besides those of records
_COLOURS = {"close": "#2a9d5c", "near": "#c77700", "off": "#4a78b5", "": ""}

WIDTH = 0.10
"""The range that counts as *close* is widened by this fraction at either end."""

FACTOR = 2.0
"""A guess is *near* if it is at most this factor beyond the range."""

POINTS = (5.0, 15.0)
"""For percentages, which are compared by difference: the points beyond the range for *close* and *near*."""


@dataclass(frozen=True)
class Found:
    """The result to compare a guess with: median and range in the prediction's unit, and its kind."""

    middle: float
    low: float
    high: float
    kind: str = ""


@dataclass
class Prediction:
    """A question, the learner's guess, and whether the answer has been revealed.

    ``guess`` is a float, one of ``choices``, or None if there is none yet.
    """

    id: str
    unit: str = ""
    choices: Sequence[str] | Mapping[str, str] = ()
    """The possible answers; if it is a mapping, from each to the sentence shown to who chose it wrongly."""
    guess: float | str | None = None
    revealed: bool = field(default=False, repr=False)
    earlier: bool = field(default=False, repr=False)
    """Whether the guess was made in an earlier session and restored from the progress file."""

    def reveal(self, found: Any, measured: Any = None, *, kind: str = "") -> None:
        """Show the result and how close the guess was; the first time, record it in the progress file.

        Problems are printed, not raised.

        Parameters
        ----------
        found
            A number, a sequence of numbers such as (low, high), or one or several `Measurement`: the range
            is then from the lowest lower quartile to the highest upper one, or that of a real card's likely
            values. For a choice, the right one: the text, or a number such as 8 for ``"8"``.
        measured
            What was found on this machine, if ``found`` is not: numbers or measurements like those of
            ``found``. It is shown, and decides nothing.
        kind
            The kind of plain numbers, such as ``"modelled"``; a `Measurement` has its own.

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
        self._restore_earlier_guess()
        verdict, comment = self._verdict(answer)
        shown = "" if measured is None else self._measured_sentence(measured, kind)
        if not self.revealed and verdict:
            found = answer if isinstance(answer, str) else [answer.low, answer.high]
            progress_file.record_prediction(self.id, verdict, self.guess, found, self.unit)
        self.revealed = True
        show(self._display(answer, verdict, comment, shown))

    def _restore_earlier_guess(self) -> None:
        """If this session has no guess, restore the one in the progress file, as after a kernel restart.

        The answer then counts as revealed.
        """
        earlier_guess = progress_file.first_guess(self.id, self.unit) if self.guess is None else None
        if earlier_guess is not None:
            with suppress(UnusableError):  # damaged, or one of other choices
                self.guess = _validated_guess((earlier_guess,), self.choices)
                self.revealed = self.earlier = True

    def _measured_sentence(self, measured: Any, kind: str) -> str:
        """Return a sentence with what was measured; if it is unusable, print why and return "".

        ``measured`` and ``kind`` are those of `reveal`.
        """
        try:
            if not self.unit and hasattr(measured, "written"):
                text, kind = measured.written(), measured.kind
            else:
                numbers = _to_found(measured, self.unit, kind)
                text, kind = self._format(numbers.middle) + _span(numbers), numbers.kind
        except UnusableError as problem:
            print(
                _("Prediction {id}: the figure can't be shown, because {problem}.").format(
                    id=self.id, problem=problem
                )
            )
            return ""
        if kind in ("", "measured"):
            return _("Measured here: {figure}.").format(figure=text)
        if kind == "modelled":
            return _("Modelled here: {figure}.").format(figure=text)
        return _("The figure: {figure}, {kind}.").format(figure=text, kind=_written_kinds(kind))

    def _answer(self, found: Any, kind: str) -> Found | str:
        """Return the argument of `reveal` as a `Found`, or one of the choices; else raise `UnusableError`."""
        if not self.choices:
            return _to_found(found, self.unit, kind)
        chosen = _matching_choice(found, self.choices)
        if chosen is None:
            raise UnusableError(
                _("{found} is none of {choices}").format(
                    found=brief(found, 60), choices=", ".join(self.choices)
                )
            )
        return chosen

    def _verdict(self, answer: Found | str) -> tuple[Verdict | Literal[""], str]:
        """Return the verdict ("" without a guess) and a comment for the learner."""
        if self.guess is None:
            return "", _("You made no prediction: next time, type one before you measure.")
        if isinstance(answer, str):
            if self.guess == answer:
                return "close", ""
            sentences = self.choices if isinstance(self.choices, Mapping) else {}
            return "off", sentences.get(str(self.guess)) or _THINK_AGAIN
        assert isinstance(self.guess, float)
        return score(self.guess, answer, self.unit)

    def _display(self, answer: Found | str, verdict: str, comment: str, measured: str) -> Bundle:
        """Return the comparison as text and HTML."""
        lines = []
        if self.guess is not None:
            guess = self._format(self.guess)
            then = _("In an earlier session you predicted {guess}.").format(guess=guess)
            lines = [then if self.earlier else _("You predicted {guess}.").format(guess=guess)]
        if isinstance(answer, Found):
            kinds = _written_kinds(answer.kind)
            lines.append(
                _("Found: {written}{span}{kind}.").format(
                    written=self._format(answer.middle),
                    span=_span(answer),
                    kind=f", {kinds}" if kinds else "",
                )
            )
        elif self.guess != answer:
            lines.append(_("Right answer: {answer}.").format(answer=answer))
        lines += [text for text in (comment, measured) if text]
        picture = ""
        if isinstance(answer, Found) and isinstance(self.guess, float):
            picture = scale(self.guess, answer, self.unit)
        headlines = HEADLINES_OF_CHOICES if isinstance(answer, str) else HEADLINES
        colour, headline = _COLOURS[verdict], headlines[verdict]
        return Bundle(
            text=f"{headline} · {self.id}\n{' '.join(lines)}",
            html=f'<div style="border-left:4px solid {colour};padding:.4em .9em;margin:.3em 0">'
            f'<b style="color:{colour}">{headline}</b> '
            f'<span style="opacity:.6">· {html.escape(self.id)}</span>'
            f"<div>{html.escape(' '.join(lines))}</div>{picture}"
            f"{real_gpus_link() if getattr(answer, 'kind', '') == 'modelled' else ''}</div>",
        )

    def _format(self, value: float | str) -> str:
        """Return a number with the prediction's unit, or a choice, as text."""
        return value if isinstance(value, str) else with_unit(value, self.unit)


_THINK_AGAIN = _("Why might that be? Think before you read on.")

all_predictions: dict[str, Prediction] = {}


def predict(
    prediction_id: str,
    *guess: object,
    unit: str = "",
    choices: Sequence[str] | Mapping[str, str] = (),
) -> Prediction:
    """Record the learner's guess before a measurement; `Prediction.reveal` scores it afterwards.

    Parameters
    ----------
    prediction_id
        Lesson and name, such as ``"05.amp-speed"``.
    guess
        The learner's guess, in place of ``todo()``: one non-negative number, or one of ``choices``. For
        anything else a message is printed and an earlier guess stays; nothing is raised. With ``todo()``, or
        nothing, a guess of this session is dropped unless the answer has been revealed, and that of the
        progress file restored, if there is one: its answer then counts as revealed.
    unit
        The unit the guess is in: ``"×"``, ``"%"``, ``"ms"``, ``"MiB"``, ...
    choices
        The possible answers, if the question does not ask for a number: a sequence, or a mapping from each
        answer to a sentence for the learner who chose it and was wrong. The right answer's may be ``""``.
        All are strings; a learner may write 8 for ``"8"``.

    Returns
    -------
    Prediction
        The same object for the same id during a session. Running the cell again replaces the guess until
        the answer is revealed; then the guess stays, also if there was none.
    """
    prediction = all_predictions.setdefault(prediction_id, Prediction(prediction_id))
    prediction.unit, prediction.choices = unit, choices
    earlier_guess = None if prediction.guess is None else prediction._format(prediction.guess)
    what = _("one of {choices}").format(choices=", ".join(map(repr, choices))) if choices else _("a number")
    if not guess or isinstance(guess[0], Todo):
        if not prediction.revealed:
            prediction.guess = None
            prediction._restore_earlier_guess()
            if prediction.guess is None:
                print(
                    _("No prediction yet: put {what} in place of todo() and run this cell again.").format(
                        what=what
                    )
                )
            else:
                guess = prediction._format(prediction.guess)
                print(_("Your prediction from an earlier session: {guess}.").format(guess=guess))
        return prediction
    try:
        new = _validated_guess(guess, prediction.choices)
    except UnusableError as problem:
        stands = _(" (Until then {kept} stands.)").format(kept=earlier_guess) if earlier_guess else ""
        print(
            _("{problem}. Put {what} in place of todo() and run this cell again.{stands}").format(
                problem=problem, what=what, stands=stands
            )
        )
        return prediction
    if prediction.revealed:
        if new != prediction.guess:
            stays = (
                _("your first prediction, {kept}, stays").format(kept=earlier_guess)
                if earlier_guess
                else _("this guess does not count")
            )
            print(_("You have seen the answer already, so {stays}.").format(stays=stays))
        return prediction
    prediction.guess = new
    print(_("Your prediction: {written}.").format(written=prediction._format(new)))
    return prediction


def score(guess: float, found: Found, unit: str = "") -> tuple[Verdict, str]:
    """Compare a guess with the result; return the verdict and a sentence. The rules: `Prediction.reveal`.

    Guess and result are in ``unit``. The sentence is in the chosen language, the verdict in English.
    """
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
            return "close", _closeness_comment(found, beyond, unit)
        nearest = found.high if high else found.low
        factor = max(guess / nearest, nearest / guess) if min(guess, nearest) > 0 else math.inf
        other_side = unit == "×" and (guess - 1) * (nearest - 1) < 0
        verdict = "near" if factor <= FACTOR and not other_side else "off"
        off_by = side + (_(" by a factor of {factor}").format(factor=figure(factor)) * math.isfinite(factor))
        off_by += _(", and on the other side of 1") * other_side
    if verdict == "close":
        return verdict, _closeness_comment(found, beyond, unit)
    return verdict, f"{off_by[0].upper()}{off_by[1:]}{_('.')}" + f" {_THINK_AGAIN}" * (verdict == "off")


def _closeness_comment(found: Found, beyond: float, unit: str) -> str:
    """Return the comment on a close guess; ``beyond`` is its distance from the range, 0 inside."""
    if not beyond:
        return _("Exactly.") if found.low == found.high else _("Inside the range.")
    within = (
        _("{first_POINTS:.0f} points").format(first_POINTS=POINTS[0])
        if unit == "%"
        else f"{100 * WIDTH:.0f} %"
    )
    return _("Within {within} of it.").format(within=within)


def figure(value: float) -> str:
    """Format a number with three digits, thousands separators, and an exponent if it is extreme."""
    if abs(value) >= 1e9 or 0 < abs(value) < 1e-4:
        return f"{value:.2e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):.7g}"


def _span(found: Found) -> str:
    """Return a range in brackets, with a space before it, or "" if both ends are written alike."""
    low, high = figure(found.low), figure(found.high)
    return f" ({_('{low} to {high}').format(low=low, high=high)})" if low != high else ""


def _written_kinds(kinds: str) -> str:
    """Return kinds separated by commas in the chosen language."""
    return ", ".join(map(_, kinds.split(", ")))


def with_unit(value: float, unit: str) -> str:
    """Format a number with its unit: ``"4×"``, ``"2 ms"``."""
    return f"{figure(value)}{'' if unit in ('', '×') else ' '}{unit}"


def scale(guess: float, found: Found, unit: str = "") -> str:
    """Return an SVG of a number line with the range found, and the guess below it.

    The line is logarithmic and at least a factor of 10 long; for percentages it goes from 0 to 100.
    """
    points = [found.low, found.high, guess]
    percent = unit == "%" and max(points) <= 100
    linear = unit == "%" or min(points) <= 0
    positions = points if linear else [math.log10(p) for p in points]
    least, most = (0.0, 100.0) if percent else (min(positions), max(positions))
    margin = max(0.15 * (most - least), 0.5 * (1 - (most - least)) if not linear else 0)
    margin = 0.0 if percent else margin or 1.0
    x = [60 + 280 * (p - least + margin) / (most - least + 2 * margin) for p in positions]
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
    """A guess or a result of the wrong kind; the message is the first part of a sentence."""


def _validated_guess(given: tuple[object, ...], choices: Collection[str]) -> float | str:
    """Return the guess in the arguments of `predict`: a float or one of ``choices``; else `UnusableError`."""
    if choices:
        chosen = _matching_choice(given[0], choices) if len(given) == 1 else None
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
    value = _finite_number(given[0])
    if value < 0:
        raise UnusableError(_("{value} is negative, and this quantity cannot be").format(value=figure(value)))
    return value


def _matching_choice(value: object, choices: Collection[str]) -> str | None:
    """Return the choice that equals a value, ignoring case and surrounding spaces; None if there is none.

    A number equals a choice that is written like it: 8 and 8.0 equal ``"8"``.
    """
    if not isinstance(value, str | bool):
        with suppress(UnusableError):
            value = f"{_finite_number(value):.15g}"
    text = str(value).strip().lower() if isinstance(value, str | bool) else None
    return next((choice for choice in choices if choice.lower() == text), None)


def _finite_number(value: Any) -> float:
    """Return a number, or an array or tensor of one element, as a finite float; else `UnusableError`.

    Neither a text such as ``"3.5"`` nor a bool is a number.
    """
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


def _to_found(value: Any, unit: str, kind: str) -> Found:
    """Return the argument of `Prediction.reveal` (numbers or measurements) as a `Found` in ``unit``.

    Numbers are in ``unit`` already and get ``kind``; measurements are converted and have their own kinds.
    `UnusableError` for anything else.
    """
    if hasattr(value, "median") and hasattr(value, "q1"):
        return _found_from_measurements([value], unit)
    if isinstance(value, list | tuple) and value:
        if all(hasattr(item, "median") and hasattr(item, "q1") for item in value):
            return _found_from_measurements(value, unit)
        numbers = sorted(_finite_number(item) for item in value)
        return Found(statistics.median(numbers), numbers[0], numbers[-1], kind)
    number = _finite_number(value)
    return Found(number, number, number, kind)


def _found_from_measurements(measurements: Sequence[Any], unit: str) -> Found:
    """Return the median of the measurements' medians, their range, and their kinds, as a `Found` in ``unit``.

    The range is from the lowest lower end of an interval to the highest upper one; a measurement without an
    interval counts with its median. Each must be in the base unit of ``unit``, such as s for ms, and is
    converted; else `UnusableError`.
    """
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
