"""Train a model that is too large for one GPU: FSDP keeps a part of it on each; it goes on from its last checkpoint.

torchrun --standalone --nproc-per-node 2 train_fsdp.py --epochs 5
"""

import argparse
import gc
import hashlib
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
    """Join the group that torchrun starts; return this process's device, its rank and their number."""
    local, gpus = int(os.environ.get("LOCAL_RANK", -1)), torch.cuda.device_count()
    if local < 0 or 0 < gpus <= local:
        raise SystemExit(f"Use torchrun --standalone --nproc-per-node {gpus or 2} train_fsdp.py")
    gpu = torch.device("cuda", local) if gpus else None  # one of its own, or the CPU
    torch.cuda.set_device(gpu or -1)  # -1: none
    dist.init_process_group("nccl" if gpu else "gloo", device_id=gpu)
    return gpu or torch.device("cpu"), dist.get_rank(), dist.get_world_size()


def digest(folder):
    """Return the SHA-256 of the sums of a checkpoint's files."""
    sums = [hashlib.sha256(path.read_bytes()).digest() for path in sorted(folder.iterdir())]
    return hashlib.sha256(b"".join(sums)).hexdigest()


def save(model, optimizer, epochs, folder):
    """Write what each rank holds; the folder takes its name, with its digest, when all is there."""
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=(new := folder / "unfinished"))
    if dist.get_rank() == 0:
        os.replace(new, folder / f"epoch-{epochs:04}-{digest(new)}")
        for old in sorted(folder.glob("epoch-*-*"))[:-2]:
            shutil.rmtree(old)


def load(model, optimizer, folder):
    """Load the newest checkpoint that is whole, saved by any number of ranks; return its epochs."""
    found = sorted(folder.glob("epoch-*-*")) if dist.get_rank() == 0 else []
    while found and not found[-1].name.endswith(digest(found[-1])):
        print("damaged, put aside:", found[-1].replace(folder / f"damaged-{found.pop().name}"))
    dist.broadcast_object_list(last := [found[-1] if found else None])
    if last[0]:
        weights, moments = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=last[0])
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    return int(last[0].name.split("-")[1]) if last[0] else 0


def evaluate(model, loader, device):
    """Return how many of a loader's samples get their right class."""
    model.eval()  # dropout off, BatchNorm by its running figures
    right = torch.zeros((), device=device)
    with torch.inference_mode():
        for x, y in loader:
            x, y = (part.to(device, non_blocking=loader.pin_memory) for part in (x, y))
            right += (model(x).argmax(1) == y).sum()
    dist.all_reduce(right)
    return right.item()


def main():
    """Train, and say how it goes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="of each process")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=0, help="processes that load")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=50, help="batches to a line of progress")
    parser.add_argument("--folder", type=Path, default="checkpoints")
    args = parser.parse_args()
    if min(args.epochs, args.batch_size, args.log_every) < 1 or args.lr < 0:
        raise SystemExit("--epochs, --batch-size and --log-every begin at 1, --lr at 0.")
    device, rank, ranks = start()
    say = print if rank == 0 else lambda text: None
    train_set, test_set = make_data()
    how = {"batch_size": args.batch_size, "num_workers": args.workers}
    how["pin_memory"] = device.type == "cuda"  # what non_blocking needs
    order = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, sampler=order, **how)
    even = len(test_set) // ranks * ranks  # all ranks take part in each forward
    test_loader = DataLoader(Subset(test_set, range(rank, even, ranks)), **how)
    torch.manual_seed(args.seed + (0 if device.type == "cuda" else rank))  # each draws its part
    with torch.device("meta"):  # shapes without numbers: no rank ever holds the whole
        model = make_model()
    mesh = dist.init_device_mesh(device.type, (ranks,))  # these ranks, on their devices
    for part in (*model, model):  # each is gathered at once: give blocks of yours, and mp_policy
        fully_shard(part, mesh=mesh)
    model.to_empty(device=device)  # and now the numbers:
    model.apply(lambda part: hasattr(part, "reset_parameters") and part.reset_parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    args.folder.mkdir(parents=True, exist_ok=True)  # now, or after an hour
    first = load(model, optimizer, args.folder)
    say(f"training on {ranks} x {device.type}, {first} epochs are done; folder {args.folder}")
    for epoch in range(first, args.epochs):
        torch.manual_seed(ranks * (args.seed + epoch) + rank)  # dropout differs on each rank
        order.set_epoch(epoch)  # another order in each epoch, the same on all ranks
        optimizer.param_groups[0]["lr"] = args.lr * (1 - epoch / args.epochs)  # a linear schedule
        model.train()
        begin, total = time.perf_counter(), torch.zeros((), device=device)
        for batch, (x, y) in enumerate(train_loader, 1):
            x, y = (part.to(device, non_blocking=train_loader.pin_memory) for part in (x, y))
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)  # stays on the device: no wait in the loop
            if batch % args.log_every == 0:
                say(f"epoch {epoch}, batch {batch}/{len(train_loader)}: loss {loss.item():.4f}")
        dist.all_reduce(total)
        mean, seconds = total.item() / order.total_size, time.perf_counter() - begin  # waits
        if not total.isfinite():
            raise SystemExit(f"The loss is {mean} in epoch {epoch}. Try a smaller --lr.")
        accuracy = evaluate(model, test_loader, device) / even
        say(f"epoch {epoch}: loss {mean:.4f}, accuracy {accuracy:.1%}, {seconds:.2f} s")
        save(model, optimizer, epoch + 1, args.folder)


if __name__ == "__main__":
    main()
    gc.collect()  # the model, before the group that it uses
    dist.destroy_process_group()  # the last save ended on all ranks at once
