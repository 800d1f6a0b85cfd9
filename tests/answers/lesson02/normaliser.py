"""Known wrong answers to 02.normaliser, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch import nn

from course_lessons.lesson02.checking import second


def _normaliser_attributes(mean, std):
    class Normaliser(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = torch.tensor(mean).view(-1, 1, 1)
            self.std = torch.tensor(std).view(-1, 1, 1)

        def forward(self, images):
            return (images - self.mean) / self.std

    return Normaliser()


def _normaliser_parameters(mean, std):
    module = _normaliser_attributes(mean, std)
    for name in ("mean", "std"):
        value = module.__dict__.pop(name)
        setattr(module, name, nn.Parameter(value))
    return module


def _normaliser_frozen(mean, std):
    return _normaliser_parameters(mean, std).requires_grad_(False)


def _normaliser_made_there(mean, std):
    module, device = _normaliser_attributes(mean, std), second()
    module.mean, module.std = module.mean.to(device), module.std.to(device)
    return module


def _normaliser_on_cpu(mean, std):
    module = _normaliser_attributes(mean, std)
    apply = module.forward
    module.forward = lambda images: apply(images.to("cpu"))
    return module


def _normaliser_unsaved(mean, std):
    module = _normaliser_attributes(mean, std)
    for name in ("mean", "std"):
        module.register_buffer(name, module.__dict__.pop(name), persistent=False)
    return module


def _normaliser_by_hand(mean, std):
    class Normaliser(nn.Module):
        def forward(self, images):
            shift = torch.tensor(mean, device=images.device).view(-1, 1, 1)
            return (images - shift) / torch.tensor(std, device=images.device).view(-1, 1, 1)

    return Normaliser()


def _normaliser_of_numbers(mean, std):
    class Normaliser(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.tensor(mean))
            self.register_buffer("std", torch.tensor(std))

        def forward(self, images):
            parts = zip(images.unbind(1), mean, std, strict=True)
            return torch.stack([(x - shift) / scale for x, shift, scale in parts], dim=1)

    return Normaliser()


def _normaliser_last_dim(mean, std):
    module = _normaliser_attributes(mean, std)
    for name in ("mean", "std"):
        module.register_buffer(name, module.__dict__.pop(name).mean())
    return module


WRONG = {
    "stays": _normaliser_attributes,
    "made-there": _normaliser_made_there,
    "wrong-place": _normaliser_on_cpu,
    "trained": _normaliser_parameters,
    "frozen": _normaliser_frozen,
    "moves-by-hand": _normaliser_by_hand,
    "not-held": _normaliser_of_numbers,
    "not-saved": _normaliser_unsaved,
    "other-values": _normaliser_last_dim,
}
