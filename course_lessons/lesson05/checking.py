"""Helpers for the checks of lesson 05: they judge how a training step was made, and compare its results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from course_language import _
from course_utils.exercises import Judge
from course_utils.exercises.forms import ComparesToReference, as_tuple

from ..shared.checking import one_thread
from .runs import Run


def over_runs(
    run_with: Callable[..., Callable[..., Any]],
    reference: Callable[..., Any],
    cases: Sequence[tuple[Any, ...]],
    known_mistakes: Mapping[str, Any],
    situation: Callable[..., str] | None = None,
) -> Callable[[Any, Judge], None]:
    """Return a check that compares runs with the reference's, step by step.

    ``run_with(step, judge)`` returns a function that runs a case with a learner's step and returns the result
    of each step (``Run.step_made``); given a judge, it also judges how the steps were made.
    """
    check = ComparesToReference(
        run_with(reference),
        cases,
        {name: tuple(map(run_with, as_tuple(mistake))) for name, mistake in known_mistakes.items()},
        read=lambda judge, got: got,
        alike=_same_steps,
        situation=situation,
        shown=_describe_last_step,
    )
    return one_thread()(lambda answer, judge: check(run_with(answer, judge), judge))


def judge_precision(run: Run, dtype: torch.dtype, judge: Judge) -> None:
    """Refuse a run that did not compute in ``dtype`` under autocast, with float32 weights."""
    others = (run.weight_dtypes | {p.dtype for p in run.model.parameters()}) - {torch.float32}
    if others:
        judge.no(
            "half-model",
            seen=_("weights in {others}").format(others=others.pop()),
            expected="float32",
        )
    others = [name for name in run.autocast_for if name != "cpu"]
    if others or (run.autocast_for and not run.device_read):
        name = (others or run.autocast_for)[0]
        seen = _("autocast for {name!r}, and no look at where the data is").format(name=name)
        judge.no("named-device", seen=seen, expected=_("autocast for the device of the data"))
    if run.outputs != {dtype}:
        dtypes = ", ".join(sorted(map(str, run.outputs))) or "nothing"
        judge.no(seen=_("{dtypes} out of the linear layers").format(dtypes=dtypes), expected=str(dtype))
    if run.low_loss:
        judge.no(seen=_("the loss outside autocast"), expected=_("inside"))
    if run.low_backward:
        judge.no(seen=_("backward() inside autocast"), expected=_("after it"))


def judge_scaler(run: Run, judge: Judge) -> None:
    """Refuse a run that bypassed an enabled scaler."""
    if run.own_scalers:
        judge.no(seen=_("a scaler made by the answer"), expected=_("the one that is given"))
    if run.log.count("made step") > 1:
        judge.no(seen=_("{count} steps").format(count=run.log.count("made step")), expected=_("one step"))
    if run.scaler.is_enabled() and "bare step" in run.log:
        used = not {"scale", "unscale", "step", "update"}.isdisjoint(run.log)
        looked = "unscale" in run.log or "get_scale" in run.log
        # An answer may unscale, look for overflows and step by hand.
        if not looked or "step" in run.log or "blind step" in run.log:
            diagnosis = "wrong-value" if used else "no-scaler"
            diagnosis = "steps-anyway" if looked and "blind step" in run.log else diagnosis
            judge.no(diagnosis, seen=_("optimizer.step() by itself"), expected=_("by the scaler"))
    if run.scaler.refusal:
        judge.no(seen=run.scaler.refusal, expected=_("calls in their order"))


def _same_steps(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether two runs agree step by step, up to 16-bit rounding, ignoring losses not finite."""
    return all(
        got["scale"] == right["scale"]
        and float((got["moved"] - right["moved"]).abs().max()) <= 0.02 * float(right["moved"].abs().max())
        and (not math.isfinite(right["back"]) or math.isclose(got["back"], right["back"], rel_tol=1e-4))
        for got, right in zip(a, b, strict=True)
    )


def _describe_last_step(steps: Sequence[Mapping[str, Any]]) -> str:
    """Describe a run's last step for the learner."""
    last = steps[-1]
    back = _(", {back:.5g} returned").format(back=last["back"]) if last["back"] else ""
    number = _("after step {n_steps}").format(n_steps=len(steps)) if len(steps) > 1 else _("after the step")
    return _("{number} a weight has moved by {first_moved:.4g}, scale {scale:g}{back}").format(
        number=number, first_moved=float(last["moved"][0]), scale=last["scale"], back=back
    )


def listed(values: torch.Tensor) -> str:
    """Return a tensor's values as text, flattened, with few digits."""
    return f"[{', '.join(f'{value:.4g}' for value in values.flatten().tolist())}]"


PRECISION = {
    "half-model": _(
        "The weights themselves were put into 16 bits: what is rounded off does not come back, and "
        "small updates vanish. With autocast the model stays in float32."
    ),
    "named-device": _(
        "Autocast was asked for one device by name. Where the data is on another, it does "
        "nothing at all. Ask the data where it is."
    ),
}
"""Diagnoses of ``judge_precision``."""

REFUSED = {
    "no-scaler": _(
        "The scaler took no part. In float16 small gradients become zero without it, and a step "
        "with infinite ones is made."
    ),
    "steps-anyway": _(
        "`optimizer.step()` also steps when the gradients overflowed. Leave the step to the scaler."
    ),
}
"""Diagnoses of ``judge_scaler``."""
