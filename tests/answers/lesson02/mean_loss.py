"""Known wrong answers to 02.mean_loss, by the diagnosis that each must get."""

from __future__ import annotations

import torch


def _mean_blocking(batches, step, device):
    losses = [step(batch.to(device)) for batch in batches]
    return torch.stack(losses).mean().item()


def _mean_reads_each(batches, step, device):
    losses = [step(batch.to(device, non_blocking=True)).item() for batch in batches]
    return sum(losses) / len(losses)


def _mean_reads_some(batches, step, device):
    losses = []
    for i, batch in enumerate(batches):
        loss = step(batch.to(device, non_blocking=True))
        losses.append(loss if i % 2 else torch.full((), loss.item(), device=device))
    return torch.stack(losses).mean().item()


def _mean_of_one_step(batches, step, device):
    return step(torch.cat(list(batches)).to(device)).item()


def _mean_loads_first(batches, step, device):
    losses = [step(batch.to(device, non_blocking=True)) for batch in list(batches)]
    return torch.stack(losses).mean().item()


def _mean_too_early(batches, step, device):
    losses = [step(batch.to(device, non_blocking=True)) for batch in batches]
    return torch.stack(losses).to("cpu", non_blocking=True).mean().item()


def _mean_races(batches, step, device):
    accelerator = torch.get_device_module(device)
    stream, losses = accelerator.Stream(), []
    for batch in batches:
        with accelerator.stream(stream):
            there = batch.to(device, non_blocking=True)
        losses.append(step(there))
    return torch.stack(losses).mean().item()


def _mean_waits(batches, step, device):
    losses = []
    for batch in batches:
        losses.append(step(batch.to(device, non_blocking=True)))
        torch.accelerator.synchronize()
    return torch.stack(losses).mean().item()


def _mean_sum(batches, step, device):
    losses = [step(batch.to(device, non_blocking=True)) for batch in batches]
    return torch.stack(losses).sum().item()


def _mean_tensor(batches, step, device):
    losses = [step(batch.to(device, non_blocking=True)) for batch in batches]
    return torch.stack(losses).mean()


WRONG = {
    "reads-each": _mean_reads_each,
    "reads-some": _mean_reads_some,
    "other-steps": _mean_of_one_step,
    "blocking": _mean_blocking,
    "waits": _mean_waits,
    "loads-first": _mean_loads_first,
    "too-early": _mean_too_early,
    "race": _mean_races,
    "sum": _mean_sum,
    "tensor": _mean_tensor,
}
