"""The scaler has a memory too."""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_utils.exercises import Exercise, Judge

from ..shared.checking import one_thread
from .checking import Batches, Run, made_batches


def checkpoint(model, optimizer, scaler):
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
    }


def _train(run: Run, batches: Batches, overflow: int | None = None) -> list[float]:
    """Train on batches, of which one may overflow; return the scale after each."""
    scales = []
    for number, (x, y) in enumerate(batches):
        loss = run.loss_fn(run.model(x), y) * (math.inf if number == overflow else 1.0)
        run.optimizer.zero_grad()
        run.scaler.scale(loss).backward()
        run.scaler.step(run.optimizer)
        run.scaler.update()
        scales.append(run.scaler.get_scale())
    return scales


@one_thread()
def _check_checkpoint(answer: Callable[..., Any], judge: Judge) -> None:
    keys = {"model", "optimizer", "scaler"}
    for use_scaler, before in ((True, 4), (False, 2)):
        batches = made_batches((4,) * 9)
        run = Run(use_scaler=use_scaler, between=lambda: nn.BatchNorm1d(8))
        _train(run, batches[:before], overflow=1 if use_scaler else None)
        state = judge.is_a(
            answer(run.model, run.optimizer, run.scaler), dict, "a dict with the keys of the task"
        )
        if "scaler" not in state:
            judge.no("no-scaler", seen=f"the keys {', '.join(map(str, state))}", expected="scaler")
        if set(state) != keys:
            judge.no("other-keys", seen=", ".join(map(str, state)), expected=", ".join(keys))
        _judge_parts(state, run, judge)
        try:
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
        except (pickle.UnpicklingError, AttributeError, TypeError, RuntimeError) as error:
            judge.no("not-plain", seen=str(error).splitlines()[0], expected="plain state")
        _judge_restart(run, state, batches[before:], use_scaler, judge)


def _judge_parts(state: dict[str, Any], run: Run, judge: Judge) -> None:
    """Refuse parts that are not what their ``state_dict`` gives."""
    for key in ("model", "optimizer", "scaler"):
        part, whole = state[key], getattr(run, key).state_dict()
        if isinstance(part, (nn.Module, torch.optim.Optimizer, torch.amp.GradScaler)):
            judge.no("not-plain", seen=f"the whole {key}", expected="its state")
        if key == "scaler" and part is None:
            judge.no("none-for-disabled", seen=part, expected=whole)
        if key == "scaler" and part != whole:
            judge.no("scale-only", seen=part, expected=whole)
        if not isinstance(part, dict) or part.keys() != whole.keys():
            judge.no(key, seen=part, expected=f"the {key}'s state_dict()")
    weights = [value for value in state["model"].values() if value.is_floating_point()]
    if {value.dtype for value in weights} != {torch.float32}:
        judge.no("half", seen="weights in 16 bits", expected="float32")


def _judge_restart(
    run: Run, state: dict[str, Any], batches: Batches, use_scaler: bool, judge: Judge
) -> None:
    """Refuse a state from which another run does not go on as this one does."""
    resumed = Run(use_scaler=use_scaler, scale=2.0, between=lambda: nn.BatchNorm1d(8))
    with torch.no_grad():
        for parameter in resumed.model.parameters():
            parameter.zero_()
    resumed.model.load_state_dict(state["model"])
    resumed.optimizer.load_state_dict(state["optimizer"])
    resumed.scaler.load_state_dict(state["scaler"])
    expected, found = _train(run, batches), _train(resumed, batches)
    if found != expected:
        judge.no("scale-only", seen=f"the scales {found}", expected=f"{expected}")
    if run.apart(resumed) > 1e-6:
        judge.no("weights", seen="other weights after some steps", expected="the same")


EXERCISE = Exercise(
    id="04.checkpoint",
    title="The scaler has a memory too",
    level=1,
    minutes=5,
    task="""
Write `checkpoint(model, optimizer, scaler)`: a dict with the keys `"model"`, `"optimizer"` and
`"scaler"` from which training goes on as if nothing had happened: the same weights and the same scales,
step by step. It must load with `weights_only=True`, and serve where the scaler is disabled too.
""",
    hints=(
        "Besides its scale, what does a scaler need to remember to know when to double it?",
        "Model, optimiser and scaler have a method of the same name that returns their state.",
    ),
    reference=checkpoint,
    check_answer=_check_checkpoint,
    why="A new scaler starts at 65536 and has to come down again, with a skipped step for every halving. "
    "Where the old scale had grown, small gradients get lost until the new one has grown too.",
    diagnoses={
        "no-scaler": "The scaler is missing: after a restart it begins at its first scale.",
        "scale-only": "The scale alone is not the scaler's state: the count of good steps since the last "
        "change is lost, and the next doubling comes late.",
        "none-for-disabled": "A disabled scaler has a `state_dict()` too: `{}`. It needs no case of its own.",
        "not-plain": "The checkpoint holds whole objects. Keep their state: tensors, numbers, strings, and "
        "containers of them.",
        "half": "The weights were saved in 16 bits. The float32 weights hold what many small updates "
        "added up to, and that is lost.",
        "optimizer": "The optimiser does not come back: its momentum starts from nothing.",
        "model": "The model does not come back whole. Besides parameters it has buffers, such as BatchNorm's "
        "running statistics.",
        "scaler": "The scaler does not come back.",
        "weights": "After the restart, training takes another way.",
        "other-keys": "Use just the keys the task names.",
    },
)
