"""A self-test: whether a training step works on the simulated device with this PyTorch.

The interface of PyTorch that the device uses is experimental, so a release may change it. The step uses
what lessons use: autocast, a gradient scaler, an optimizer, a checkpoint.
"""

from __future__ import annotations

import functools
import io
import warnings

import torch


@functools.cache
def training_step_error() -> str | None:
    """Return None if a training step gives the same weights as on the CPU, else an error message.

    The step runs on a temporary device: clock, memory, counters and random numbers of the other devices
    stay unchanged. The result is cached. PyTorch's optimizers import much at their first step, so the first
    call takes seconds.
    """
    from .clock import HostClock
    from .machine import MACHINE, Device
    from .profiles import load

    host, saved_state = HostClock(), dict(vars(MACHINE))
    try:
        vars(MACHINE).update(host=host, current=0, counting=[], arrivals=[])
        MACHINE.devices = [Device(0, load("T4"), 2**30, host)]
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            on_cpu, on_sim = _train("cpu"), _train("sim:0")
    except Exception as error:  # noqa: BLE001  (whatever it is, the course goes on without the device)
        words = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {words[0]}"
    finally:
        vars(MACHINE).update(saved_state)
    are_equal = all(torch.equal(a, b) for a, b in zip(on_cpu, on_sim, strict=True))
    return None if are_equal else "a training step came out wrong"


def _train(device: str) -> list[torch.Tensor]:
    """Return the weights after two training steps, each followed by saving and loading a checkpoint."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("sim", init_scale=8.0) if device != "cpu" else None
    kind = torch.device(device).type
    x = torch.linspace(-1, 1, 12).reshape(3, 4).to(device, non_blocking=True)
    for _ in range(2):
        with torch.autocast(kind, torch.bfloat16):
            loss = torch.nn.functional.mse_loss(model(x), torch.zeros(3, 2, device=device))
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
        file = io.BytesIO()
        torch.save([model.state_dict(), optimizer.state_dict()], file)
        file.seek(0)
        weights, state = torch.load(file, map_location=device, weights_only=True)
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)
    return [value.detach().cpu() for value in model.parameters()]
