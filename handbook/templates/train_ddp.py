"""Train a classifier on several GPUs, or as several processes on a CPU; it goes on from its last checkpoint.

torchrun --standalone --nproc-per-node 2 train_ddp.py --epochs 5
"""

import argparse
import hashlib
import io
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
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
        raise SystemExit(f"Use torchrun --standalone --nproc-per-node {gpus or 2} train_ddp.py")
    gpu = torch.device("cuda", local) if gpus else None  # one of its own, or the CPU
    torch.cuda.set_device(gpu or -1)  # -1: none
    dist.init_process_group("nccl" if gpu else "gloo", device_id=gpu)
    return gpu or torch.device("cpu"), dist.get_rank(), dist.get_world_size()


def save(state, folder):
    """Write a checkpoint; it takes its name when it is whole and on the disk. The one before stays."""
    torch.save(state, buffer := io.BytesIO())
    data = buffer.getvalue()
    try:
        with open(folder / "unfinished", "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)  # torch.load alone misses a wrong bit
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SystemExit(f"No checkpoint: {error}. Those in {folder} are whole.") from None
    os.replace(folder / "unfinished", folder / f"epoch-{state['epochs']:04}.ckpt")
    for old in sorted(folder.glob("epoch-*.ckpt"))[:-2]:
        old.unlink()


def load(folder):
    """Return the newest checkpoint that is whole, or one of no epochs; a damaged one is put aside."""
    for path in sorted(folder.glob("epoch-*.ckpt"), reverse=True):
        data = path.read_bytes()
        if hashlib.sha256(data[32:]).digest() == data[:32]:
            return torch.load(io.BytesIO(data[32:]), map_location="cpu", weights_only=True)
        os.replace(path, f"{path}.damaged")
        print(f"{path} is damaged: put aside")
    return {"epochs": 0}


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
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")  # TF32 on GPUs that have it: a shorter mantissa
    device, rank, ranks = start()
    say = print if rank == 0 else lambda text: None
    train_set, test_set = make_data()
    how = {"batch_size": args.batch_size, "num_workers": args.workers}
    how["pin_memory"] = device.type == "cuda"  # what non_blocking needs
    order = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, sampler=order, **how)
    test_loader = DataLoader(Subset(test_set, range(rank, len(test_set), ranks)), **how)
    model = make_model().to(device)  # before the optimiser is made
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    parts = {"model": model, "optimizer": optimizer}  # a scaler, too, if there is one
    args.folder.mkdir(parents=True, exist_ok=True)
    dist.broadcast_object_list(found := [load(args.folder) if rank == 0 else None])  # one for all
    for name, part in parts.items() if (state := found[0])["epochs"] else ():
        part.load_state_dict(state[name])
    ddp = nn.parallel.DistributedDataParallel(model)  # averages the gradients in backward
    say(f"training on {ranks} x {device.type}, {state['epochs']} epochs are done")
    for epoch in range(state["epochs"], args.epochs):
        begin = time.perf_counter()
        torch.manual_seed(ranks * (args.seed + epoch) + rank)  # dropout differs on each rank
        order.set_epoch(epoch)  # another order in each epoch, the same on all ranks
        optimizer.param_groups[0]["lr"] = args.lr * (1 - epoch / args.epochs)  # a linear schedule
        model.train()
        total = torch.zeros((), device=device)
        for batch, (x, y) in enumerate(train_loader, 1):
            x, y = (part.to(device, non_blocking=train_loader.pin_memory) for part in (x, y))
            loss = nn.functional.cross_entropy(ddp(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)  # stays on the device: no wait in the loop
            if batch % args.log_every == 0:
                say(f"epoch {epoch}, batch {batch}/{len(train_loader)}: loss {loss.item():.4f}")
        dist.all_reduce(total)
        mean = total.item() / order.total_size  # waits, once an epoch
        seconds = time.perf_counter() - begin
        if not math.isfinite(mean):
            raise SystemExit(f"The loss is {mean} in epoch {epoch}. Try a smaller --lr.")
        accuracy = evaluate(model, test_loader, device) / len(test_set)
        say(f"epoch {epoch}: loss {mean:.4f}, accuracy {accuracy:.1%}, {seconds:.2f} s")
        if rank == 0:  # the weights are the same on all
            save({n: p.state_dict() for n, p in parts.items()} | {"epochs": epoch + 1}, args.folder)
    del ddp  # before the group that it uses
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        torch.save(model.state_dict(), args.folder / "model.pt")


if __name__ == "__main__":
    main()
