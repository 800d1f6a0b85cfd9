"""A checkpoint with strange keys."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several
from course_utils.exercises.judge import NotTried, NotYet, Raised
from course_utils.exercises.values import apart


def rescue(state, model):
    wanted = model.state_dict()
    for prefix in ("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."):
        if {prefix + key for key in wanted} == set(state):
            return {key: state[prefix + key] for key in wanted}
    raise ValueError("this checkpoint is of another model")


def _models() -> Iterator[nn.Module]:
    """Yield models in whose keys the words stand nowhere, in the middle, at the beginning, and at that of every key."""
    yield nn.Sequential(OrderedDict(dense=nn.Linear(2, 3), norm=nn.BatchNorm1d(3)))
    layers = nn.ModuleDict({"_orig_mod": nn.Linear(2, 2), "module": nn.Linear(2, 1)})
    yield nn.ModuleDict({"layers": layers, "submodule": nn.Linear(3, 1)})
    child = nn.ModuleDict({"module": nn.Linear(2, 3), "submodule": nn.Linear(3, 1)})
    child.register_parameter("scale", nn.Parameter(torch.ones(1)))
    yield child
    yield nn.ModuleDict({"module": nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))})


_PREFIXES = ("module.", "", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.")


def _cases() -> Iterator[tuple[str, dict[str, Tensor], nn.Module]]:
    """Yield checkpoints, what they are called, and the model that is to take them."""
    for model in _models():
        own = {key: value + 10 * at for at, (key, value) in enumerate(model.state_dict().items())}
        first, *_, last = own
        for prefix in _PREFIXES:
            saved = {prefix + key: own[key] for key in own}
            yield (
                f"a checkpoint with {prefix} before each key" if prefix else "its own keys",
                saved,
                model,
            )
            fewer = {key: value for key, value in saved.items() if key != prefix + last}
            yield f"a checkpoint without {prefix}{last}", fewer, model
            more = {**saved, f"{prefix}other.weight": torch.ones(1)}
            yield f"a checkpoint that also has {prefix}other.weight", more, model
        turned = {f"module.{key}": own[key] for key in reversed(own)}
        yield "a checkpoint with module. before each key, the last key first", turned, model
        for prefix in ("net.", "module.module.", "_orig_mod._orig_mod."):
            other = {prefix + key: own[key] for key in own}
            yield f"a checkpoint with {prefix} before each key", other, model
        some = {key if key == first else f"module.{key}": own[key] for key in own}
        yield f"a checkpoint with module. before each key but {first}", some, model
        yield "an empty checkpoint", {}, model


_REFUSED = "ValueError"


def _sources(function: Callable[..., Any], state: dict[str, Tensor], model: nn.Module) -> Any:
    """Return, for each key of a result, the key of the tensor in the checkpoint; or that it was refused."""
    try:
        got = function(state, model)
    except ValueError:
        return _REFUSED
    names = {id(value): key for key, value in state.items()}
    return {key: names.get(id(value)) or _copied(value, state) for key, value in got.items()}


def _copied(value: Any, state: Mapping[str, Tensor]) -> str:
    same = (
        key for key, kept in state.items() if isinstance(value, Tensor) and torch.equal(value, kept)
    )
    return next((_copy_of(key) for key in same), "no tensor of the checkpoint")


def _check_rescue(answer: Callable[..., Any], judge: Judge) -> None:
    def own(state: dict[str, Tensor], model: nn.Module) -> Any:
        try:
            return judge.is_a(answer(state, model), Mapping, "a dict")
        except Raised as raised:
            raise raised.error from None

    cases = list(_cases())
    right = [_sources(rescue, state, model) for _, state, model in cases]
    got = []
    for (name, state, model), expected in zip(cases, right, strict=True):
        wanted = "ValueError" if expected == _REFUSED else "the model's keys"
        try:
            got.append(_sources(own, state, model))
        except LookupError as error:
            judge.no(
                "other-error",
                seen=f"{type(error).__name__} {error} for {name}",
                expected=wanted,
            )
        except NotTried:
            raise
        except NotYet as refusal:
            if refusal.diagnosis != "returned-nothing" or expected != _REFUSED:
                raise
            judge.no("not-refused", seen=f"None for {name}", expected=wanted)
        except Exception as error:  # noqa: BLE001  (whatever it was, it is the learner's)
            raise Raised(error) from None

    def say(at: int) -> tuple[str, str]:
        seen, expected = got[at], right[at]
        if _REFUSED in (seen, expected):
            seen, expected = (each if each == _REFUSED else "a dict" for each in (seen, expected))
        seen, expected = apart(seen, expected)
        return f"{seen} for {cases[at][0]}", expected

    twins = {
        name: [[_outcome(one, state, model) for _, state, model in cases] for one in several(twin)]
        for name, twin in TWINS.items()
    }
    judge.closest(got, right, twins, otherwise=lambda at: _otherwise(got[at], right[at]), say=say)


def _outcome(twin: Callable[..., Any], state: dict[str, Tensor], model: nn.Module) -> Any:
    try:
        return _sources(twin, state, model)
    except LookupError:
        return "LookupError"


def _copy_of(key: str) -> str:
    return f"a copy of {key}"


def _otherwise(got: Any, right: Any) -> str:
    if _REFUSED in (got, right):
        return "refused" if got == _REFUSED else "not-refused"
    if got.keys() != right.keys():
        return "other-keys"
    copies = {key: value == _copy_of(right[key]) for key, value in got.items()}
    same = all(copies[key] or value == right[key] for key, value in got.items())
    return "copied" if same and any(copies.values()) else "other-tensors"


def _stripped(strip: Callable[[str], str]) -> tuple[Callable[..., Any], ...]:
    """Return twins that change each key for itself: one refuses what does not fit, one takes what comes."""

    def taking(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
        return {strip(key): value for key, value in state.items()}

    def refusing(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
        found = taking(state, model)
        if found.keys() != model.state_dict().keys():
            raise ValueError
        return found

    return refusing, taking


def _first_words(key: str) -> str:
    while key.startswith(("module.", "_orig_mod.")):
        key = key.split(".", 1)[1]
    return key


_TRIED = '("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.")'
_FITS = "{prefix + key for key in wanted} == set(state)"
_REFUSAL = 'raise ValueError("this checkpoint is of another model")'


def _trying(*prefixes: str) -> tuple[Callable[..., Any], ...]:
    """Return twins that know other prefixes: one refuses what does not fit, one gives it back."""
    tried = {_TRIED: repr(prefixes)}
    return edited(rescue, tried), edited(rescue, {**tried, _REFUSAL: "return state"})


_MISTAKES = {
    "everywhere": (
        *_stripped(lambda key: key.replace("module.", "").replace("_orig_mod.", "")),
        *_stripped(lambda key: key.replace("module.", "")),
        *_stripped(lambda key: key.replace("_orig_mod.", "").removeprefix("module.")),
    ),
    "letters": (
        *_stripped(lambda key: reduce(str.lstrip, ("module.", "_orig_mod."), key)),
        *_stripped(lambda key: reduce(str.lstrip, ("_orig_mod.", "module."), key)),
        *_stripped(lambda key: reduce(str.lstrip, ("module.",), key)),
    ),
    "child-module": _stripped(_first_words),
    "first-part": _stripped(lambda key: key.split(".", 1)[-1]),
    "last-parts": _stripped(lambda key: ".".join(key.split(".")[-2:])),
    "key-by-key": (
        *_stripped(lambda key: key.removeprefix("module.").removeprefix("_orig_mod.")),
        *_stripped(lambda key: key.removeprefix("_orig_mod.").removeprefix("module.")),
    ),
    "only-one": (
        *_stripped(lambda key: key.removeprefix("module.")),
        *_stripped(lambda key: key.removeprefix("_orig_mod.")),
    ),
    "already-right": _trying(*(prefix for prefix in _PREFIXES if prefix))[0],
    "still-there": _trying(*(prefix for prefix in _PREFIXES if prefix != "module.")),
    "compiled": (*_trying("module.", ""), *_trying(*(p for p in _PREFIXES if p != "_orig_mod."))),
    "two-wrappers": (
        *_trying("module.", "_orig_mod.", ""),
        *_trying("module.", "_orig_mod.", "", "module._orig_mod."),
        *_trying("module.", "_orig_mod.", "", "_orig_mod.module."),
    ),
    "passed-on": {_REFUSAL: "return state"},
    "twice": _trying(*_PREFIXES, "module.module.", "_orig_mod._orig_mod."),
    "extra-keys": (
        {_FITS: "all(prefix + key in state for key in wanted)"},
        {_FITS: "all(prefix + key in state for key in wanted)", _REFUSAL: "return state"},
    ),
    "missing-keys": {
        _FITS: "set(state) <= {prefix + key for key in wanted}",
        "{key: state[prefix + key] for key in wanted}": "{k.removeprefix(prefix): v for k, v in state.items()}",
    },
}
TWINS: dict[str, Any] = twins_of(rescue, _MISTAKES)


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
        "everywhere": "The word is cut out wherever it stands in a key. A key can hold it in its middle, and as a part of "
        "a longer word.",
        "letters": "`lstrip` and `strip` take off all letters at the beginning that are among those they were given. `removeprefix` takes off a "
        "word; and a model's own keys can begin with that word: ask the model for them.",
        "child-module": "All words `module.` and `_orig_mod.` at the beginning go. A model's own keys can begin like that: ask "
        "the model for its keys.",
        "first-part": "The first part of each key goes, whatever it is.",
        "last-parts": "The last two parts of a key are kept. A model can have layers within layers.",
        "key-by-key": "Each key loses a prefix for itself, in one order of the two, without a look at the model's own keys, "
        "which can begin with one.",
        "only-one": "Only one of the two prefixes is taken off, and from each key for itself: a model's own keys can begin with it.",
        "refused": "This checkpoint is of this model: one of the five prefixes stands before every key, in whatever order "
        "the keys come.",
        "already-right": "These keys were right already: the empty prefix.",
        "still-there": "A checkpoint of a model that only DDP wrapped is not taken apart.",
        "compiled": "A checkpoint of a model that only `torch.compile` wrapped is not taken apart.",
        "two-wrappers": "A checkpoint of a model that was wrapped twice is not taken apart. There are two orders.",
        "other-error": "Your function looked for a key that is not there.",
        "other-keys": "The keys given back are not the model's.",
        "passed-on": "The keys fit under none of the five prefixes, and something is given back. Raise `ValueError`.",
        "twice": "The same prefix twice is none of the five. Refuse it.",
        "extra-keys": "This checkpoint has a key that the model does not have. Refuse it.",
        "missing-keys": "The checkpoint lacks a key of the model. Refuse it.",
        "copied": "The tensors are copies. A checkpoint can be as large as the memory, so do not double it.",
        "other-tensors": "The keys are right, and the tensors under them are not those that the checkpoint has there. Its keys "
        "say where each belongs.",
        "not-refused": "No prefix of the five, put before each key of the model, gives the checkpoint's keys. Raise `ValueError`.",
    },
)
