"""Train a model that is too large for one GPU: FSDP keeps a part of it on each; it goes on from its last checkpoint.

torchrun --nproc-per-node 2 train_fsdp.py --epochs 5
"""

import argparse
import math
import os
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def make_data():
    """Return a training set and a test set. Replace it with your own; here points of a made-up task."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12_000, 32, generator=generator)
    y = (x @ torch.randn(32, 10, generator=generator)).argmax(1)
    return TensorDataset(x[:10_000], y[:10_000]), TensorDataset(x[10_000:], y[10_000:])


def make_model():
    """Return the network. Replace it with your own."""
    return nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 10))


def start():
    """Join the group that torchrun starts; return this process's device: a GPU of its own, or the CPU."""
    if "LOCAL_RANK" not in os.environ:
        raise SystemExit("Start it with torchrun --nproc-per-node N train_fsdp.py")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def save(model, optimizer, epochs, folder):
    """Write what each rank holds into a folder that gets its name when all of it is there."""
    weights, moments = get_state_dict(model, optimizer)
    new = folder / "unfinished"
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=new)
    if dist.get_rank() == 0:
        os.replace(new, folder / f"epoch-{epochs:04}")
        for old in sorted(folder.glob("epoch-*"))[:-2]:
            shutil.rmtree(old)
    dist.barrier()


def load(model, optimizer, folder):
    """Load the newest checkpoint, saved by any number of ranks; return how many epochs are done."""
    if not (found := sorted(folder.glob("epoch-*"))):
        return 0
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=found[-1])
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    return int(found[-1].name.removeprefix("epoch-"))


def evaluate(model, loader, device):
    """Return how many of a loader's samples get their right class."""
    model.eval()  # dropout off, BatchNorm by its running figures
    right = torch.zeros((), device=device)
    with torch.inference_mode():
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            right += (model(x).argmax(1) == y).sum()
    dist.all_reduce(right)
    return right.item()


def main():
    """Train, and say after each epoch how it goes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="of each process")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=0, help="processes that load")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default="checkpoints")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = start()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    say = print if rank == 0 else lambda text: None
    say(f"training on {ranks} × {device.type}")
    train_set, test_set = make_data()
    how = {"batch_size": args.batch_size, "num_workers": args.workers}
    how["pin_memory"] = device.type == "cuda"  # what non_blocking needs
    order = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, sampler=order, **how)
    test_loader = DataLoader(Subset(test_set, range(rank, len(test_set), ranks)), **how)
    with torch.device("meta"):  # shapes without numbers: no rank ever holds the whole
        model = make_model()
    for layer in model:  # what is gathered at once: give a block of your network
        fully_shard(layer)
    fully_shard(model).to_empty(device=device)
    for layer in model.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()  # to_empty wrote nothing
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loss_fn = nn.CrossEntropyLoss()
    args.folder.mkdir(parents=True, exist_ok=True)
    if first := load(model, optimizer, args.folder):
        say(f"going on after {first} epochs")

    for epoch in range(first, args.epochs):
        begin = time.perf_counter()
        torch.manual_seed(ranks * (args.seed + epoch) + rank)  # dropout differs on each rank
        order.set_epoch(epoch)  # another order in each epoch, the same on all ranks
        model.train()
        total = torch.zeros((), device=device)
        for x, y in train_loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = loss_fn(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)  # stays on the device: no wait in the loop
        dist.all_reduce(total)
        mean = total.item() / order.total_size  # waits, once an epoch
        seconds = time.perf_counter() - begin
        if not math.isfinite(mean):
            raise SystemExit(f"The loss is {mean} in epoch {epoch}. Try a smaller --lr.")
        accuracy = evaluate(model, test_loader, device) / len(test_set)
        say(f"epoch {epoch}: loss {mean:.4f}, accuracy {accuracy:.1%}, {seconds:.2f} s")
        save(model, optimizer, epoch + 1, args.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
