"""One rank of the experiment ``ddp_step``; ``torchrun`` starts it."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from time import perf_counter

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

STEPS, WARM_UP = 30, 5


def main(batch: int) -> None:
    """Time training steps with and without sending gradients; rank 0 prints the seconds of each as JSON.

    ``batch`` is the number of rows for each rank.
    """
    kind = os.environ["DEVICE"]
    device = torch.device("cpu")
    if kind != "cpu":
        device = torch.device(kind, int(os.environ["LOCAL_RANK"]))
        torch.accelerator.set_device_index(device.index)
    dist.init_process_group(
        dist.get_default_backend_for_device(device), device_id=None if kind == "cpu" else device
    )
    torch.manual_seed(0)
    layers = nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.rand(batch, 784, device=device), torch.randint(10, (batch,), device=device)
    times_of: dict[str, list[float]] = {"time": [], "time without sending": []}
    for step in range(STEPS):
        for name, times in times_of.items():
            dist.barrier()
            start = perf_counter()
            with model.no_sync() if "without" in name else contextlib.nullcontext():
                cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            if kind != "cpu":
                torch.accelerator.synchronize()
            if step >= WARM_UP:
                times.append(perf_counter() - start)
    if dist.get_rank() == 0:
        print(json.dumps(times_of))
    del model
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
