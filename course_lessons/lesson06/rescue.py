"""A checkpoint with strange keys."""

from collections.abc import Mapping

import torch
from torch import nn

from course_language import _
from course_lessons.shared.checking import OrValueError
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.values import same


def rescue(state, model):
    wanted = model.state_dict()
    for prefix in ("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."):
        if {prefix + key for key in wanted} == set(state):
            return {key: state[prefix + key] for key in wanted}
    raise ValueError("this checkpoint is of another model")


def _make_models():
    """Yield models whose keys have "module" or "_orig_mod" nowhere, in the middle, or at the start."""
    plain = nn.ModuleDict({"dense": nn.Linear(2, 3, bias=False)})
    plain["dense"].register_buffer("mask", torch.ones(2, dtype=torch.bool))
    yield plain
    layers = nn.ModuleDict({"_orig_mod": nn.Linear(2, 2), "module": nn.Linear(2, 1)})
    yield nn.ModuleDict({"layers": layers, "submodule": nn.Linear(3, 1, bias=False)})
    child = nn.ModuleDict({"module": nn.Linear(2, 3), "submodule": nn.Linear(3, 1, bias=False)})
    child.register_parameter("scale", nn.Parameter(torch.ones(1)))
    yield child
    yield nn.ModuleDict({"module": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))})


def _make_cases():
    """Yield ``(state, model)``: checkpoints with each prefix, too few or too many keys, or foreign ones."""
    for model in _make_models():
        state = {key: value + 10 * i for i, (key, value) in enumerate(model.state_dict().items())}
        first, *_, last = state
        for prefix in ("module.", "", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."):
            saved = {prefix + key: value for key, value in state.items()}
            yield saved, model
            yield {key: value for key, value in saved.items() if key != prefix + last}, model
            yield {**saved, f"{prefix}other.weight": torch.ones(1)}, model
        yield {f"module.{key}": state[key] for key in reversed(state)}, model
        for prefix in ("net.", "module.module.", "_orig_mod._orig_mod."):
            yield {prefix + key: value for key, value in state.items()}, model
        yield {key if key == first else f"module.{key}": state[key] for key in state}, model
        yield {}, model


def _compared_value(got, state, model):
    """Return, for each key of a result, which tensor of the checkpoint it has, in words."""
    if not isinstance(got, Mapping):
        return "None" if got is None else type(got).__name__
    sources = {}
    for key, value in got.items():
        itself = [name for name, kept in state.items() if kept is value]
        equal = [name for name, kept in state.items() if same(value, kept)]
        copies = [_("a copy of {name}").format(name=name) for name in equal]
        sources[key] = [*itself, *copies, _("no tensor of the checkpoint")][0]
    return sources


_FITS = "{prefix + key for key in wanted} == set(state)"
_REFUSAL = 'raise ValueError("this checkpoint is of another model")'
_FIVE = '("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.")'


def _rescue_by_renaming_keys(change):
    """Return a wrong answer that renames each key by ``change``, independently of the others."""

    def rescue(state, model):
        changed = {change(key): value for key, value in state.items()}
        if changed.keys() != model.state_dict().keys():
            raise ValueError("this checkpoint is of another model")
        return changed

    return rescue


_MISTAKES = {
    "everywhere": _rescue_by_renaming_keys(lambda key: key.replace("module.", "").replace("_orig_mod.", "")),
    "key-by-key": _rescue_by_renaming_keys(
        lambda key: key.removeprefix("module.").removeprefix("_orig_mod.")
    ),
    "two-wrappers": {_FIVE: '("", "module.", "_orig_mod.", "module._orig_mod.")'},
    "not-refused": (
        {_REFUSAL: "return state"},
        {_FITS: "all(prefix + key in state for key in wanted)"},
    ),
    "copied": {"key: state[prefix + key] for": "key: state[prefix + key].clone() for"},
}

EXERCISE = Exercise(
    id="06.rescue",
    title="A checkpoint with strange keys",
    level=2,
    minutes=10,
    task="""
When a checkpoint was saved, the model may have been wrapped. DDP puts `module.` before each key, and
`torch.compile` puts `_orig_mod.` there. Both may have wrapped it, in either order. Write
`rescue(state, model)`. It returns a dict with the keys of `model.state_dict()` and the tensors of `state`
themselves, and leaves `state` as it is. `model` isn't wrapped, but it may have a child that is really called
`module`. If the keys differ in any other way, raise `ValueError`.
""",
    hints=(
        "Ask which keys you want, and who knows them. The checkpoint's keys alone can't tell you where a "
        "prefix ends, because a model may have a child that's really called `module`. So look at both sides "
        "before you cut anything off.",
        "A wrapper puts the same text before every key, so `state` can only have five prefixes. One of them "
        "is the empty text. Put a prefix before each key that the model wants. If the two sets of keys are "
        "equal, you've found it. If no prefix fits, the checkpoint belongs to another model.",
        """Here the same idea finds out which ending the files of a folder have:

```python
wanted = ["cat", "dog.old"]
files = {"cat.png", "dog.old.png"}
for ending in ("", ".jpg", ".png"):
    if {name + ending for name in wanted} == files:
        print("the ending is", ending)  # .png
```""",
    ),
    reference=rescue,
    check_answer=OrValueError(
        rescue,
        _make_cases,
        known_mistakes_of(rescue, _MISTAKES),
        look=_compared_value,
        alike=same,
        situation=lambda s, m: _("a checkpoint with {s}, a model with {state_dict}").format(
            s=[*s], state_dict=[*m.state_dict()]
        ),
    ),
    why="You won't need this for your own checkpoints if you save `model.module.state_dict()`. Other "
    "people's come as they are, though, and `strict=False` would load one with strange keys without an "
    "error and without a single weight.",
    diagnoses={
        "everywhere": "The word is cut out wherever it stands in a key. A key can hold it in its middle, "
        "and as a part of a longer word.",
        "key-by-key": "Each key loses its beginning for itself, without a look at the model's keys. They "
        "can begin with `module.` too, so ask the model which keys it wants.",
        "two-wrappers": "A checkpoint of a model that was wrapped twice is not taken apart. There are two "
        "orders.",
        "not-refused": "The keys of both differ in more than a prefix here, and your function doesn't "
        "refuse. Raise `ValueError`, so that no weight is lost without a word.",
        "copied": "The tensors are copies. A checkpoint can be as large as the memory, so do not double it.",
    },
)
