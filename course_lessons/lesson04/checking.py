"""What the checks of this lesson say of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch

from course_utils.exercises import Judge
from course_utils.exercises.forms import several

from .runs import Run


def judge_precision(run: Run, dtype: torch.dtype, judge: Judge) -> None:
    """Refuse a run that did not compute in the asked dtype, with float32 weights."""
    others = (run.held | {p.dtype for p in run.model.parameters()}) - {torch.float32}
    if others:
        judge.no("half-model", seen=f"weights in {others.pop()}", expected="float32")
    others = [name for name in run.asked if name != "cpu"]
    if others or (run.asked and not run.looked):
        judge.no(
            "named-device",
            seen=f"autocast for {(others or run.asked)[0]!r}, and no look at where the data is",
            expected="autocast for the device of the data",
        )
    if not run.outputs or set(run.outputs) != {dtype}:
        found = ", ".join(sorted({str(d) for d in run.outputs})) or "nothing"
        judge.no("no-autocast", seen=f"{found} out of the linear layers", expected=str(dtype))
    if run.low_loss:
        judge.no("loss-outside", seen="the loss outside autocast", expected="inside")
    if "backward" in run.inside:
        judge.no("backward-inside", seen="backward() inside autocast", expected="after it")


def judge_scaler(run: Run, judge: Judge) -> None:
    """Refuse a run that passed a scaler by that is enabled."""
    if run.own_scalers:
        judge.no("own-scaler", seen="a scaler made by the answer", expected="the one that is given")
    if "backward" not in run.log:
        judge.no("no-backward", seen="no backward pass", expected="a backward pass too")
    if "empty step" in run.log:
        judge.no("zeroed-late", seen="no gradients at the step", expected="those of backward()")
    if run.log.count("made step") > 1:
        steps = f"{run.log.count('made step')} steps"
        judge.no("steps-twice", seen=steps, expected="one step")
    if not run.scaler.is_enabled():
        return
    if run.overflowed and "made step" in run.log and "blind step" not in run.log:
        judge.no("overflow-kept", seen="a step", expected="a step that is left out")
    if "scale" not in run.log and "get_scale" in run.log:
        judge.no(
            "reads-scale", seen="the scale is read, and nothing scaled", expected="scale(loss)"
        )
    if "bare step" in run.log:
        used = {"scale", "unscale", "step", "update"} & set(run.log)
        diagnosis = "step-bypassed" if "scale" in used else "no-scaler"
        if "step" in used:
            diagnosis = "steps-twice"
        elif "unscale" in used or "get_scale" in run.log:
            diagnosis = "steps-anyway"
        if diagnosis != "steps-anyway" or "blind step" in run.log:  # one who looks may step by hand
            judge.no(diagnosis, seen="optimizer.step() by itself", expected="by the scaler")
    if "scale" not in run.log:
        judge.no("not-scaled", seen="the backward pass of the loss itself", expected="scaled")
    if "step" in run.log and "update" in run.log[: run.log.index("step")]:
        judge.no("update-early", seen="`update()` before `step()`", expected="after it")
    if "step" in run.log and "update" not in run.log:
        judge.no("no-update", seen="the scaler's step, no update", expected="both")
    if run.scaler.refusal:
        judge.no("refused-by-scaler", seen=run.scaler.refusal, expected="calls in their order")


Play = Callable[[Callable[..., Any], bool], Iterator[tuple[Run, Any]]]
"""Makes a run with a function, watched where told, and gives the run and what came back after each step."""


def judge_runs(
    answer: Callable[..., Any],
    judge: Judge,
    right: Callable[..., Any],
    twins: Mapping[str, Any],
    plays: Sequence[Play],
    look: Callable[[Run, Any], Any],
) -> tuple[list[Any], list[Any]]:
    """Refuse runs after which weights and scale are not the right run's; say which twin they follow.

    ``look`` judges a step of the answer by what was noted, and makes of what came back what is compared
    later. Returned is that, of the answer and of the right function.
    """
    got, expected, back = [], [], ([], [])
    for play in plays:
        for (run, value), (other, gave) in zip(play(answer, True), play(right, False), strict=True):
            back[0].append(look(run, value))
            back[1].append(gave)
            got.append(run.moved())
            expected.append(other.moved())

    def moves(twin: Callable[..., Any]) -> list[Any]:
        """Return what a twin does, or nothing where the answer does not follow it."""
        found: list[Any] = []
        for play in plays:
            for run, _ in play(twin, False):
                found.append(run.moved())
                case = got[len(found) - 1], expected[len(found) - 1]
                if not any(_alike(found[-1], one) for one in case):
                    return []
        return found

    def say(at: int) -> tuple[str, str]:
        way, off = (float(w.abs().max()) for w in (expected[at][0], got[at][0] - expected[at][0]))
        texts = (
            f"weights that are off by {off / way if way else off:.0%} of the step",
            "the weights of a right step",
        )
        scales = [found[at][1] for found in (got, expected)]
        if scales[0] == scales[1]:
            return texts
        return f"{texts[0]}, scale {scales[0]:g}", f"{texts[1]}, scale {scales[1]:g}"

    if not all(map(_alike, got, expected)):
        known = {name: [moves(one) for one in several(twin)] for name, twin in twins.items()}
        judge.closest(
            got,
            expected,
            {name: [found for found in all_of if found] for name, all_of in known.items()},
            alike=_alike,
            say=say,
        )
    return back


def _near(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether weights have come the same way, but for 16-bit rounding."""
    return float((a - b).abs().max()) <= 0.02 * float(b.abs().max())


def _alike(a: tuple[torch.Tensor, float], b: tuple[torch.Tensor, float]) -> bool:
    return a[1] == b[1] and _near(a[0], b[0])


def judge_back(
    judge: Judge,
    back: tuple[list[Any], list[Any]],
    twins: Mapping[str, Any],
    plays: Sequence[Play],
    otherwise: str,
    rel: float = 1e-3,
) -> None:
    """Refuse what came back where it is not what the right function gave; infinite values do not count."""
    finite = [at for at, value in enumerate(back[1]) if math.isfinite(value)]
    right = [float(back[1][at]) for at in finite]
    got = [back[0][at] for at in finite]
    got = [judge.number(g.item() if isinstance(g, numpy.generic) else g) for g in got]

    def values(twin: Callable[..., Any]) -> list[float]:
        found = [value for play in plays for _, value in play(twin, False)]
        return [float(found[at]) for at in finite]

    def alike(a: float, b: float) -> bool:
        return math.isclose(a, b, rel_tol=rel)

    if not all(map(alike, got, right)):
        known = {name: [values(one) for one in several(twin)] for name, twin in twins.items()}
        judge.closest(got, right, known, alike=alike, otherwise=otherwise)


def listed(values: torch.Tensor) -> str:
    """Write a tensor's values, whatever its shape, with few digits."""
    return f"[{', '.join(f'{value:.4g}' for value in values.flatten().tolist())}]"


PRECISION = {
    "half-model": "The weights themselves were put into 16 bits: what is rounded off does not come back, and small "
    "updates vanish. With autocast the model stays in float32.",
    "named-device": "Autocast was asked for one device by name. Where the data is on another, it does nothing "
    "at all. Ask the data where it is.",
}
"""What ``judge_precision`` says."""

REFUSED = {
    "no-scaler": "The scaler took no part. In float16 small gradients become zero without it, and a step with "
    "infinite ones is made.",
    "steps-anyway": "`optimizer.step()` also steps when the gradients overflowed. Leave the step to the scaler.",
}
"""What ``judge_scaler`` and ``judge_runs`` say."""
