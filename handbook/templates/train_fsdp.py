"""Train a model too large for one GPU: FSDP keeps a part of it on each; it goes on from its last checkpoint.

torchrun --standalone --nproc-per-node 2 train_fsdp.py --epochs 5
"""

import argparse
import gc
import hashlib
import json
import math
import os
import re
import shutil
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

# What may differ when a run goes on. All other arguments must be those of its checkpoint.
MAY_CHANGE = ("epochs", "workers", "log_every", "folder")


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
    local = int(os.environ.get("LOCAL_RANK", -1))
    kind = torch.accelerator.current_accelerator(check_available=True)
    backends = {"cuda": "nccl", "xpu": "xccl"}
    gpus = torch.accelerator.device_count() if kind and kind.type in backends else 0
    if local < 0 or 0 < gpus <= local:
        raise SystemExit(f"Use torchrun --standalone --nproc-per-node {gpus or 2} train_fsdp.py")
    if gpus:
        device = torch.device(kind.type, local)  # one of its own
        torch.accelerator.set_device_index(local)  # or a collective takes GPU 0 on each rank
        dist.init_process_group(backends[kind.type], device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    return device, dist.get_rank(), dist.get_world_size()


def stop(sentence):
    """End on all ranks, which call it together; rank 0 says why."""
    if dist.get_rank() == 0:
        print(sentence, file=sys.stderr, flush=True)
    dist.barrier()  # or torchrun ends rank 0 before it has said it
    raise SystemExit(1)


def check_loss(loss, epoch):
    """Stop when the loss is nan or inf, because the weights soon are, too."""
    if not math.isfinite(loss):
        stop(
            f"The loss is {loss} in epoch {epoch}. Try a smaller --lr. "
            "What was saved after earlier epochs is still there."
        )


def mean_over_ranks(loss):
    """Return the mean of a number of each rank, the same on all."""
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def sha256(path):
    """Return a file's SHA-256. It is read in pieces: a checkpoint may be larger than the memory."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            found.update(piece)
    return found.hexdigest()


def digest(folder):
    """Return the SHA-256 of the sums of a checkpoint's files. Each rank reads those that it wrote itself."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sums = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        writer = re.match(r"__(\d+)_", path.name)
        reader = int(writer[1]) % ranks if writer else 0  # there may have been more ranks then
        if reader == rank:
            sums[path.name] = sha256(path)
    found = [None] * ranks
    dist.all_gather_object(found, sums)
    lines = sorted(f"{part[name]}  {name}\n" for part in found for name in part)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def checkpoints(folder):
    """Return a folder's checkpoints, the oldest first; epoch-10000 comes after epoch-9999."""
    return sorted(folder.glob("epoch-*-*"), key=lambda path: (len(path.name), path.name))


def save(model, optimizer, epochs, arguments, folder):
    """Write what each rank holds; the folder takes its name, with its digest, when all is there."""
    new, rank = folder / "unfinished", dist.get_rank()
    if rank == 0:
        shutil.rmtree(new, ignore_errors=True)  # what a killed run left there
    dist.barrier()
    weights, moments = get_state_dict(model, optimizer)
    try:
        dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=new)
    except dcp.CheckpointException as error:  # the same on all ranks
        reasons = {str(failure) for failure, _ in error.failures.values()}
        stop(f"No checkpoint: {'; '.join(reasons)}. Those in {folder} are whole.")
    if rank == 0:
        (new / "arguments.json").write_text(json.dumps(arguments))
    whole = digest(new)
    if rank == 0:
        os.replace(new, folder / f"epoch-{epochs:04}-{whole}")
        for old in checkpoints(folder)[:-2]:
            shutil.rmtree(old)


def newest(folder):
    """Return the newest checkpoint that is whole, or None; what is damaged is put aside."""
    found, problem = [], None
    if dist.get_rank() == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "writable").write_bytes(b"")  # if it can't be written, say so before training
            (folder / "writable").unlink()
            found = checkpoints(folder)[::-1]
        except OSError as error:
            problem = f"No folder for checkpoints: {error}."
    shared = [found, problem]
    dist.broadcast_object_list(shared)  # one list for all
    found, problem = shared
    if problem:
        stop(problem)
    for path in found:
        if path.name.endswith(digest(path)):
            return path
        if dist.get_rank() == 0:
            os.replace(path, folder / f"damaged-{path.name}")
            print(f"{path} is damaged: put aside")
    return None


def load(model, optimizer, arguments, path):
    """Load a checkpoint, saved by any number of ranks with the same arguments; return its epochs."""
    saved = json.loads((path / "arguments.json").read_text())
    for name, value in arguments.items():
        before = saved.get(name, value)
        if before != value:
            raise ValueError(
                f"{path} was made with {name} = {before}, and now it is {value}. Give the same, "
                f"or another --folder. Only these may change: {', '.join(MAY_CHANGE)}."
            )
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    return int(path.name.split("-")[1])


def local(tensor):
    """Return the part of a tensor that this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def unlikely_value(tensor):
    """Return a value that no initializer writes, or None for bool and unsigned integers: they have none."""
    if tensor.is_floating_point() or tensor.is_complex():
        return math.nan
    if tensor.dtype == torch.bool or torch.iinfo(tensor.dtype).min == 0:
        return None
    return torch.iinfo(tensor.dtype).min


def reset(module):
    """Let a module write its own parameters and buffers, where it has a method for that."""
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()
    elif hasattr(module, "_reset_parameters"):  # the name in nn.MultiheadAttention
        module._reset_parameters()


@torch.no_grad()
def initialise(model):
    """Write the parameters and buffers that to_empty made; stop with the names of those left unwritten.

    A model's own init_weights() does it, or else the modules' reset_parameters(). Before that each tensor is
    filled with an unlikely value. Where there is none, its version tells: PyTorch counts it up at each write.
    """
    versions = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        value = unlikely_value(tensor)
        tensor.fill_(0 if value is None else value)
        versions[name] = (tensor, tensor._version)
    if hasattr(model, "init_weights"):
        model.init_weights()
    else:
        model.apply(reset)
    unwritten = []
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        value = unlikely_value(tensor)
        if value is None:
            before, version = versions.get(name, (None, 0))
            missing = tensor is before and tensor._version == version
        elif math.isnan(value):
            missing = local(tensor).isnan().any()
        else:
            missing = (local(tensor) == value).any()
        if missing:
            unwritten.append(name)
    everywhere = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, unwritten)
    names = sorted({name for part in everywhere for name in part})
    if names:
        stop(
            f"Nothing has written {', '.join(names)}: to_empty() leaves there what was in memory. "
            "Give the model a method init_weights() that writes every parameter and buffer, or give "
            "the modules that hold these a method reset_parameters()."
        )


def evaluate(model, loader, device):
    """Return how many of a loader's samples get their right class."""
    model.eval()  # dropout off, BatchNorm by its running figures
    right = torch.zeros((), device=device)
    with torch.no_grad():  # in inference_mode FSDP would gather weights that cannot be trained
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
    if min(args.epochs, args.batch_size, args.log_every) < 1:
        parser.error("--epochs, --batch-size and --log-every must be at least 1.")
    if args.workers < 0:
        parser.error("--workers must be at least 0.")
    if not 0 <= args.seed < 2**32:
        parser.error("--seed must be at least 0 and less than 2**32.")
    if not 0 <= args.lr < math.inf:
        parser.error("--lr must be a finite number, at least 0.")
    device, rank, ranks = start()
    say = print if rank == 0 else lambda text: None
    say(f"PyTorch {torch.__version__}, {ranks} ranks, arguments {vars(args)}")
    train_set, test_set = make_data()
    how = {"batch_size": args.batch_size, "num_workers": args.workers}
    how["pin_memory"] = device.type in ("cuda", "xpu")  # what non_blocking needs
    order = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, sampler=order, **how)
    even = len(test_set) // ranks * ranks  # all ranks take part in each forward
    test_loader = DataLoader(Subset(test_set, range(rank, even, ranks)), **how)
    # GPUs share one draw, of which each rank takes its part. On a CPU each rank draws by itself.
    torch.manual_seed(args.seed + rank if device.type == "cpu" else args.seed)
    with torch.device("meta"):  # shapes without numbers: no rank ever holds the whole
        model = make_model()
    mesh = dist.init_device_mesh(device.type, (ranks,))  # these ranks, on their devices
    for part in model.children():  # what is gathered at a time: give your model's blocks
        blocks = part if isinstance(part, nn.ModuleList) else [part]
        for block in blocks:
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)  # what lies outside the blocks
    model.to_empty(device=device)  # memory for this rank's shards, with whatever was in it
    initialise(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    rates = [group["lr"] for group in optimizer.param_groups]  # each group may have its own
    arguments = {name: value for name, value in vars(args).items() if name not in MAY_CHANGE}
    path = newest(args.folder)
    try:
        first = load(model, optimizer, arguments, path) if path else 0
    except ValueError as error:
        stop(str(error))
    say(f"training on {ranks} x {device.type}, {first} epochs are done; folder {args.folder}")
    if first >= args.epochs:
        say("Nothing is left to train. Give more --epochs to go on.")
    for epoch in range(first, args.epochs):
        torch.manual_seed(ranks * (args.seed + epoch) + rank)  # dropout differs on each rank
        order.set_epoch(epoch)  # another order in each epoch, the same on all ranks
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (1 - epoch / args.epochs)  # a linear schedule
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
                mean = mean_over_ranks(loss)
                say(f"epoch {epoch}, batch {batch}/{len(train_loader)}: loss {mean:.4f}")
                check_loss(mean, epoch)
        dist.all_reduce(total)
        mean, seconds = total.item() / order.total_size, time.perf_counter() - begin  # waits
        check_loss(mean, epoch)
        accuracy = evaluate(model, test_loader, device) / even
        say(f"epoch {epoch}: loss {mean:.4f}, accuracy {accuracy:.1%}, {seconds:.2f} s")
        save(model, optimizer, epoch + 1, arguments, args.folder)


if __name__ == "__main__":
    main()
    gc.collect()  # the model, before the group that it uses
    dist.destroy_process_group()  # the last save ended on all ranks at once
