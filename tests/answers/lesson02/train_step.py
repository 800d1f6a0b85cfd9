"""Known wrong answers to 02.train_step, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson02.train_step import train_step


def _step_on_cpu(model, optimizer, images, labels, device):
    return train_step(model, optimizer, images, labels, torch.device("cpu"))


def _step_loss_on_cpu(model, optimizer, images, labels, device):
    model.to(device)
    logits = model(images.to(device))
    loss = F.cross_entropy(logits.cpu(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return logits.detach().cpu().numpy()


def _step_logits_on_cpu(model, optimizer, images, labels, device):
    model.to(device)
    logits = model(images.to(device)).cpu()
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return logits.detach().numpy()


def _step_sends_twice(model, optimizer, images, labels, device):
    images.to(device)
    return train_step(model, optimizer, images, labels, device)


def _step_too_early(model, optimizer, images, labels, device):
    model.to(device)
    logits = model(images.to(device))
    optimizer.zero_grad()
    F.cross_entropy(logits, labels.to(device)).backward()
    optimizer.step()
    return logits.detach().to("cpu", non_blocking=True).numpy()


def _step_tensor(model, optimizer, images, labels, device):
    return torch.from_numpy(train_step(model, optimizer, images, labels, device))


def _step_detached(model, optimizer, images, labels, device):
    model.to(device)
    with torch.no_grad():
        return model(images.to(device)).cpu().numpy()


WRONG = {
    "stays": _step_on_cpu,
    "round-trip": _step_loss_on_cpu,
    "loss-on-host": _step_logits_on_cpu,
    "sends-more": _step_sends_twice,
    "too-early": _step_too_early,
    "tensor": _step_tensor,
    "not-trained": _step_detached,
}
