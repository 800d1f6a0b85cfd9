"""A constant that travels."""

import torch
from torch import nn

from course_language import _
from course_utils.exercises import Exercise
from course_utils.exercises.forms import nearly

from .checking import count_copies, equal, run_once, second_device


def normaliser(mean, std):
    class Normaliser(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = nn.Buffer(torch.tensor(mean).view(-1, 1, 1))
            self.std = nn.Buffer(torch.tensor(std).view(-1, 1, 1))

        def forward(self, images):
            return (images - self.mean) / self.std

    return Normaliser()


def _make_cases():
    """Yield ``(mean, std, images)``; some images broadcast along a wrong dimension too, without an error."""
    random = torch.Generator().manual_seed(2)
    for mean, std, shape in (
        ([0.5, 0.25, 1.5], [2.0, 0.5, 4.0], (4, 3, 3, 5)),
        ([0.125], [0.25], (4, 1, 3, 5)),
        ([0.75, 0.5, 0.125], [0.5, 3.0, 0.25], (3, 3, 3, 3)),
    ):
        yield mean, std, torch.rand(shape, generator=random)


def _check_answer(answer, judge):
    """Check results on the CPU and on another device, and that mean and std are buffers which are saved."""
    device = second_device()
    for mean, std, images in _make_cases():
        module = judge.is_a(answer(mean, std), nn.Module, _("a module"))
        right = normaliser(mean, std)(images)
        before = images.clone()
        got = run_once(module, images, "made-there", judge)
        if not equal(images, before):
            judge.no(seen=_("other images after forward"), expected=_("the same images"))
        if not nearly(1e-4, 1e-5)(got, right):
            judge.no(seen=got, expected=right)
        if trained := [name for name, p in module.named_parameters() if p.requires_grad]:
            judge.no(
                "trained",
                seen=_("parameters: {trained}").format(trained=trained),
                expected=_("none that is trained"),
            )
        used = _count_numbers_used(module, images, right)
        module, images = module.to(device), images.to(device)
        with count_copies() as counted:
            got = run_once(module, images, "stays", judge)
        if got.device != device:
            judge.no(
                seen=_("a result on {device}").format(device=got.device),
                expected=_("a result on {device}").format(device=device),
            )
        if not equal(got, right):
            judge.no(seen=got.cpu(), expected=right)
        if counted.copies_to_device:
            seen = _("{bytes_to_device} bytes sent to the device by forward").format(
                bytes_to_device=counted.bytes_to_device
            )
            judge.no("moves-by-hand", seen=seen, expected=_("none"))
        constants = 2 * len(mean)
        if used < constants:
            seen = _("{used} numbers in buffers that the result depends on").format(used=used)
            judge.no(seen=seen, expected=f"{constants}")
        if sum(value.numel() for value in module.state_dict().values()) < constants:
            judge.no("not-saved", seen=f"state_dict(): {list(module.state_dict())}")


def _count_numbers_used(module, images, right):
    """Return the number of elements in the buffers and parameters on which the result depends."""
    used = 0
    for name, buffer in [*module.named_buffers(), *module.named_parameters()]:
        got = torch.func.functional_call(module, {name: buffer + 1}, (images,))
        used += 0 if equal(got, right) else buffer.numel()
    return used


EXERCISE = Exercise(
    id="02.normaliser",
    title="A constant that travels",
    task="`normaliser(mean, std)` builds a module that subtracts a mean and divides by a standard deviation, "
    "one for each channel (dimension 1 of a batch of images). The two constants should move with the module "
    "and be saved with it, but not be trained. Fix it.",
    level=1,
    minutes=6,
    hints=(
        "A module can hold a tensor as a parameter, as a buffer or as a plain attribute. Which of the "
        "three moves with the module and is saved with it, but isn't trained?",
        "A buffer does all of this. When you assign an `nn.Buffer` to an attribute, the module "
        "registers the tensor under that name. Then `.to(device)` moves it and `state_dict()` holds "
        "it, but `parameters()` leaves it out, so no optimiser will change it. You still read it as an "
        "attribute, and that's why `forward` needs no change.",
        "Here a layer gets a limit, first as a plain tensor and then as a buffer.\n\n"
        """```python
layer = torch.nn.Linear(2, 1)
layer.limit = torch.tensor([6.0])
print(list(layer.state_dict()))  # weight and bias only
layer.top = torch.nn.Buffer(torch.tensor([6.0]))
print(list(layer.state_dict()))  # now top is there too
print([name for name, _ in layer.named_parameters()])  # weight and bias only
```""",
    ),
    reference=normaliser,
    check_answer=_check_answer,
    why="BatchNorm keeps its running statistics as buffers, for the same reason. A model that carries its "
    "normalisation cannot be served with another one by mistake.",
    diagnoses={
        "stays": "`.to(device)` left a constant that `forward` uses where it was: to a module, a tensor that "
        "is a plain attribute is like any other Python object.",
        "made-there": "A constant was put on one device when it was made, and the batch came on another. The "
        "module should work on the CPU until **it** is moved, and then take its constants along.",
        "trained": "As parameters the constants move, but an optimiser will also **train** them.",
        "moves-by-hand": "It runs on any device, but `forward` carries constants there again at each call. "
        "Let it use what the module holds, which moves once and is in a checkpoint.",
        "not-saved": "They move, but `state_dict()` does not hold them: with `persistent=False` a checkpoint "
        "leaves them out.",
    },
)
