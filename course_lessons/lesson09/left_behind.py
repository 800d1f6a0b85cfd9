"""What did .to() leave behind?"""

import torch
from torch import nn

import simgpu
from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference

from .checking import other_device


def left_behind(module, device):
    def tensors(value):
        if isinstance(value, torch.Tensor):
            return [value]
        if isinstance(value, nn.Module):
            return [*value.parameters(), *value.buffers()]
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            return [t for item in value for t in tensors(item)]
        return []

    named = [*module.named_parameters(), *module.named_buffers()]
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                named.append((f"{path}.{name}".lstrip("."), value))
    return sorted(name for name, value in named if any(t.device != device for t in tensors(value)))


class Part(nn.Module):
    """A module whose attributes are the keyword arguments."""

    def __init__(self, **held):
        super().__init__()
        for name, value in held.items():
            setattr(self, name, value)


_MODULES = (
    "Part(weight=Parameter(cpu), mean=Buffer(meta))",
    "Part(mean=Buffer(cpu, persistent=False))",
    "Part(scale=cpu, decay=0.1, note=None, names=['a', 'b'])",
    "Sequential(Part(scale=meta), ModuleDict({'head': Part(weight=Parameter(cpu), scale=cpu)}))",
    "Part(_cache=cpu, table=meta)",
    "Part(_kept=[0.5, (cpu,)], extra={'a': [meta]})",
    "Part(masks=[meta, cpu], kept=(cpu, meta))",
    "Part(layers=[Part(mean=Buffer(cpu))], heads=(Part(weight=Parameter(meta)),))",
    "Part(layers={'a': Part(mean=Buffer(meta, persistent=False))})",
    "Part(inner=Part(weight=Parameter(cpu), scale=meta), mean=Buffer(cpu))",
)


def _make_cases():
    """Yield a new module for each text of ``_MODULES``, with each device; ``module.text`` is the text."""
    names = {name: torch.empty(1, device=name) for name in ("cpu", "meta")}
    for text in _MODULES:
        for name in names:
            module = eval(text, {**vars(nn), "Part": Part, **names})
            module.text = text
            yield module, torch.device(name)


def _compared_value(got, module, device):
    """Return what is compared: the names, and what is left behind after the call."""
    return {"names": got, "left behind after the call": left_behind(module, device)}


_OWN = 'name not in ("_parameters", "_buffers", "_modules")'
MISTAKES = {
    "registered-only": {_OWN: "False"},
    "no-buffers": {", *module.named_buffers()": ""},
    "no-containers": {"[t for item in value for t in tensors(item)]": "[]"},
    "torchs-own": ({_OWN: "True"}, {_OWN: 'name not in ("_parameters", "_buffers")'}),
}
_compare_to_reference = ComparesToReference(
    left_behind,
    _make_cases,
    known_mistakes_of(left_behind, MISTAKES),
    read=lambda judge, got: list(judge.is_a(got, (list, tuple), _("a list of names"))),
    look=_compared_value,
    situation=lambda module, device: _("device {device} and {text}").format(device=device, text=module.text),
)


def _check_answer(answer, judge):
    """Check the names, and two devices of one type where there is a simulated GPU."""
    _compare_to_reference(answer, judge)
    if simgpu.unavailable_reason():
        return  # there is no second device of one type to be had
    with other_device() as first, other_device() as second:
        module = Part(weight=nn.Parameter(torch.empty(1, device=first)))
        module.mean = nn.Buffer(torch.empty(1, device=second))
        names = list(answer(module, second))
    judge.expect(_("a weight on card 0, a mean on card 1"), names, ["weight"], "type-only")


EXERCISE = Exercise(
    id="09.left_behind",
    title="What did .to() leave behind?",
    level=3,
    minutes=15,
    task="""
Write the tool you wish for when a model says *Expected all tensors to be on the same device*:
`left_behind(module, device)` returns the sorted names of all that holds a tensor which is not on `device`.
These are parameters and buffers, named as in `named_parameters()`, and plain attributes, of the module and of
those inside it: tensors, and lists, tuples and dicts, however deep, of tensors or modules (with their
parameters and buffers). An attribute is named by its path, such as `"0.scale"` or `"1.head.layers"`, whatever
it contains. It may begin with an underscore.
""",
    hints=(
        "Ask what `.to()` can see. It moves what a module has registered, and nothing else. So look in two "
        "places. `named_parameters()` and `named_buffers()` give you what's registered. The rest is in each "
        "part's `vars()`, and `module.named_modules()` gives you every part with its path.",
        "`vars(part)` also holds `_parameters`, `_buffers` and `_modules`, where PyTorch keeps what is "
        "registered. Skip these three, because you have their tensors already. A value may be nested, and "
        "you don't know how deep. So write a function that calls itself on each item that it finds inside.",
        """Here's a function that adds up all numbers in a value, however deep they are. Yours collects
tensors in a list, and it has more kinds of values to look into.

```python
def total(value):
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return sum(total(item) for item in value)
    return 0  # anything else counts nothing

print(total([1, (2, [0.5]), "text"]))  # 3.5
```""",
    ),
    reference=left_behind,
    check_answer=_check_answer,
    why="`.to()` moves only what is registered, so a tensor in a plain attribute stays where it was. Each "
    "name of that kind in your list shows you a place where a `register_buffer` or a `ModuleList` is "
    "missing.",
    diagnoses={
        "registered-only": "Plain attributes are missing, and they are what `.to()` leaves behind.",
        "no-buffers": "Buffers that are elsewhere are missing.",
        "no-containers": "What lists, tuples and dicts hold was not found.",
        "torchs-own": "`_parameters`, `_buffers` and `_modules` are where torch keeps what is registered. "
        "That is in the list already, under better names.",
        "type-only": "Two cards have the same type of device. Compare the whole device, its index too.",
    },
)
