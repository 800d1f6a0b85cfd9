"""Known answers to 02.mean_loss: wrong ones by their diagnosis, right ones by a name."""

import torch

from course_lessons.shared.edited import edited

_STEP = "step(batch.to(device, non_blocking=True))"
_MEAN = "torch.stack(losses).mean().item()"


def _running(batches, step, device):
    total, n = torch.zeros((), device=device), 0
    for n, batch in enumerate(batches, 1):  # noqa: B007
        total += step(batch.to(device, non_blocking=True))
    return float(total / n)


def _borrowed_stream(batches, step, device):
    """Copy on one side stream, and tell the allocator which stream uses the batch."""
    accelerator = torch.get_device_module(device)
    stream, losses = accelerator.Stream(), []
    for batch in batches:
        with accelerator.stream(stream):
            there = batch.to(device, non_blocking=True)
        accelerator.current_stream().wait_stream(stream)
        there.record_stream(accelerator.current_stream())
        losses.append(step(there))
    return sum(losses).item() / len(losses)


def _any_stream(batches, step, device):
    """Do as ``_borrowed_stream``, by PyTorch's functions for any accelerator."""
    stream, losses = torch.Stream(device), []
    for batch in batches:
        with stream:
            there = batch.to(device, non_blocking=True)
        torch.accelerator.current_stream().wait_event(stream.record_event())
        there.record_stream(torch.accelerator.current_stream())
        losses.append(step(there))
    return sum(losses).item() / len(losses)


def _all_on_a_stream_of_its_own(batches, step, device):
    accelerator = torch.get_device_module(device)
    with accelerator.stream(accelerator.Stream()):
        return _running(batches, step, device)


_STREAM, _RECORD = "stream, losses =", "there.record_stream(accelerator.current_stream())"
_kept = edited(_borrowed_stream, {_STREAM: f"kept = []\n{_STREAM}", _RECORD: "kept.append(there)"})
WRONG = {
    "wrong-value": {_MEAN: "torch.stack(losses).sum().item()"},
    "let-go": (
        edited(_borrowed_stream, {_RECORD: ""}),
        edited(_borrowed_stream, {_RECORD: "there.record_stream(stream)"}),
    ),
    "reads-each": {_STEP: f"{_STEP}.item()", _MEAN: "sum(losses) / len(losses)"},
    "blocking": {", non_blocking=True": ""},
    "loads-first": {"in batches": "in list(batches)"},
    "race": edited(_borrowed_stream, {"accelerator.current_stream().wait_stream(stream)": "", _RECORD: ""}),
}
RIGHT = {
    "a running mean": _running,
    "by NumPy": {_MEAN: "torch.stack(losses).cpu().numpy().mean()"},
    "a borrowed stream": _borrowed_stream,
    "a stream of any device": _any_stream,
    "batches kept in a list": _kept,
    "all on a stream of its own": _all_on_a_stream_of_its_own,
}
