"""A checkpoint with strange keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import Raised


def rescue(state, model):
    wanted = model.state_dict()
    for prefix in ("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."):
        if {prefix + key for key in wanted} == set(state):
            return {key: state[prefix + key] for key in wanted}
    raise ValueError("this checkpoint is of another model")


class _Inner(nn.Module):
    """A model with a child that is really called ``module``, and others whose names hold the word."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(2, 3)
        self.submodule = nn.Linear(3, 1)
        self.scale = nn.Parameter(torch.ones(1))


class _OnlyModule(nn.Module):
    """A model of which every key begins with ``module.``, before anything wrapped it."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))


def _check_rescue(answer: Callable[..., Any], judge: Judge) -> None:
    plain = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    prefixes = ("module.", "", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.")
    for model in (plain, _Inner(), _OnlyModule()):
        for prefix in prefixes:
            saved = {prefix + key: value + 1 for key, value in model.state_dict().items()}
            _judge_rescued(answer, saved, model, prefix, judge)
    own = plain.state_dict()
    turned = {f"module.{key}": own[key] for key in reversed(own)}
    _judge_rescued(answer, turned, plain, "module.", judge)
    for strange in (
        {f"net.{key}": value for key, value in own.items()},
        dict(list(own.items())[1:]),
        {f"module.{key}": own[key] for key in list(own)[:-1]},
        {f"module.module.{key}": value for key, value in own.items()},
        {f"module.{key}" if "weight" in key else key: value for key, value in own.items()},
        {**own, "2.weight": torch.ones(1)},
        {},
    ):
        try:
            got = answer(strange, plain)
        except Raised as raised:
            if isinstance(raised.error, ValueError):
                continue
            raise
        judge.no(
            "not-refused",
            seen=f"{_keys(got)} for a checkpoint with {_keys(strange)}",
            expected=f"ValueError: the model has {_keys(own)}",
        )


def _judge_rescued(
    answer: Callable[..., Any],
    saved: Mapping[str, Tensor],
    model: nn.Module,
    prefix: str,
    judge: Judge,
) -> None:
    wanted = model.state_dict()
    try:
        got = judge.is_a(answer(saved, model), Mapping, "a dict")
    except Raised as raised:
        if not isinstance(raised.error, ValueError):
            raise
        judge.no("refused", seen=f"ValueError for {_keys(saved)}", expected=_keys(wanted))
    if set(got) != set(wanted):
        judge.no(
            _why_keys(set(got), set(saved), set(wanted), prefix),
            seen=f"{_keys(got)} from {_keys(saved)}",
            expected=_keys(wanted),
        )
    for key, value in got.items():
        if value is not saved[prefix + key]:
            alike = isinstance(value, Tensor) and torch.equal(value, saved[prefix + key])
            judge.no(
                "copied" if alike else "other-tensors",
                seen=f"another tensor under {key!r}",
                expected="the checkpoint's own",
            )


def _why_keys(got: set[str], saved: set[str], wanted: set[str], prefix: str) -> str:
    if got == {key.replace("module.", "").replace("_orig_mod.", "") for key in saved}:
        return "everywhere"
    if any(key.startswith("module.") for key in wanted) and got != saved:
        return "child-module"
    if not prefix:
        return "already-right"
    if "_orig_mod." not in prefix:
        return "still-there"
    return "compiled" if prefix == "_orig_mod." else "two-wrappers"


def _keys(state: Any) -> str:
    if not isinstance(state, Mapping):
        return repr(state)
    return ", ".join(list(state)[:4]) + (" …" if len(state) > 4 else "") or "no keys"


EXERCISE = Exercise(
    id="05.rescue",
    title="A checkpoint with strange keys",
    level=2,
    minutes=10,
    task="""
A checkpoint was saved while the model was wrapped: by DDP, which puts `module.` before each key, by `torch.compile`, which puts
`_orig_mod.` there, by both, in either order, or by neither. Write `rescue(state, model)`: a dict with the keys of
`model.state_dict()` and the tensors of `state`, not copies of them. `state` stays as it is, and `model` is not wrapped. Some models
have a child that is really called `module`. Where the keys of both differ in any other way, raise `ValueError`.
""",
    hints=(
        "Which keys do you want? Who knows them?",
        "There are only five prefixes that `state` can have, and one of them is the empty text.",
        "For each prefix, compare `set(state)` with the set of `prefix + key` for the model's keys. The one that fits "
        "tells you where each tensor is.",
    ),
    reference=rescue,
    check_answer=_check_rescue,
    why="It is better not to need it: save `model.module.state_dict()`. Checkpoints of others come as they are, though, "
    "and `strict=False` would load such a one without an error and without a single weight.",
    diagnoses={
        "everywhere": "The word is cut out wherever it stands. `submodule.weight` has become another key.",
        "child-module": "This model has a child that is called `module`, so its own keys begin like that. A prefix "
        "was put before *every* key, and before those too. Ask the model for its keys.",
        "refused": "This checkpoint is of this model: one of the five prefixes stands before every key, in whatever order they "
        "come. The model's own keys may begin with `module.` too.",
        "already-right": "These keys were right already.",
        "still-there": "The prefix `module.` is still there.",
        "compiled": "This one was saved from a compiled model.",
        "two-wrappers": "This one was wrapped twice, and one of the two prefixes is still there.",
        "copied": "The tensors are copies. A checkpoint can be as large as the memory, so do not double it.",
        "other-tensors": "The tensors are not where they belong. Their keys say where, not their order.",
        "not-refused": "None of the five prefixes, put before each key of the model, gives these keys. Refuse it.",
    },
)
