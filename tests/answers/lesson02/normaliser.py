"""Known answers to 02.normaliser: wrong ones by their diagnosis, right ones by a name."""

import torch
from torch import nn

from course_lessons.lesson02.normaliser import normaliser
from course_lessons.shared.edited import edited


def _with_line(line):
    """Return the reference with another line, in which {0} is mean or std, for each constant."""
    held = "self.{0} = nn.Buffer(torch.tensor({0}).view(-1, 1, 1))"
    names = ("mean", "std")
    return edited(normaliser, {held.format(name): line.format(name) for name in names})


def _one_buffer(mean, std):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("both", torch.tensor([mean, std]))

        def forward(self, images):
            shift, scale = self.both[:, None, :, None, None]
            return (images - shift) / scale

    return Both()


def _norm_layer(mean, std):
    norm = nn.BatchNorm2d(len(mean), affine=False, eps=1e-12).eval()  # PyTorch 2.10 refuses 0
    norm.running_mean, norm.running_var = torch.tensor(mean), torch.tensor(std) ** 2
    return norm


_ATTRIBUTES = _with_line("self.{0} = torch.tensor({0}).view(-1, 1, 1)")
WRONG = {
    "stays": _ATTRIBUTES,
    "made-there": _with_line("self.{0} = torch.tensor({0}).view(-1, 1, 1).to(second_device())"),
    "trained": _with_line("self.{0} = nn.Parameter(torch.tensor({0}).view(-1, 1, 1))"),
    "moves-by-hand": edited(
        _with_line(""),
        {
            "self.mean": "torch.tensor(mean, device=images.device).view(-1, 1, 1)",
            "self.std": "torch.tensor(std, device=images.device).view(-1, 1, 1)",
        },
    ),
    "not-saved": _with_line(
        'self.register_buffer("{0}", torch.tensor({0}).view(-1, 1, 1), persistent=False)'
    ),
}
RIGHT = {
    "register_buffer": _with_line('self.register_buffer("{0}", torch.tensor({0}).view(-1, 1, 1))'),
    "parameters that do not train": _with_line(
        "self.{0} = nn.Parameter(torch.tensor({0}).view(-1, 1, 1), False)"
    ),
    "one buffer": _one_buffer,
    "a layer of PyTorch's": _norm_layer,
}
