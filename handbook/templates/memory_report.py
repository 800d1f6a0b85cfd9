"""Report what a training step holds in memory: by kind, by moment, and at its peak.

python memory_report.py --batch-size 128
"""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_data():
    """Return a training set and a test set. Replace it with your own; here points of a made-up task."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12_000, 32, generator=generator)
    y = (x @ torch.randn(32, 10, generator=generator)).argmax(1)
    return TensorDataset(x[:10_000], y[:10_000]), TensorDataset(x[10_000:], y[10_000:])


def make_model():
    """Return the network. Replace it with your own."""
    return nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 10))


def choose_device(name):
    """Return the device asked for, after it has really computed something."""
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        name = accelerator or "cpu"
    try:
        device = torch.device(name)
        torch.ones(2, device=device).sum().item()
    except (RuntimeError, AssertionError, ValueError) as error:
        raise SystemExit(f"Nothing runs on {name}: {error}\nTry --device cpu.") from None
    return device


def counts(device):
    """Return whether PyTorch counts what is allocated there: on a CPU it does not."""
    try:
        return device.type != "cpu" and torch.accelerator.memory_allocated(device) > 0
    except RuntimeError:  # a backend without these functions
        return False


def stores(tensors):
    """Return the sizes of the tensors' storages: views of the same numbers share one."""
    return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}


def held(tensors):
    """Return how many bytes tensors hold."""
    return sum(stores(tensors).values())


def mib(count):
    """Return bytes as text."""
    return f"{count / 2**20:10.2f} MiB"


def main():
    """Take two steps, and say what they hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps, xpu ...")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--snapshot", metavar="FILE", help="for pytorch.org/memory_viz")
    args = parser.parse_args()
    # The device and the data.
    if args.batch_size < 1:
        parser.error("--batch-size must be at least 1.")
    if not 0 <= args.seed < 2**32:
        parser.error("--seed must be at least 0 and less than 2**32.")
    if not 0 <= args.lr < math.inf:
        parser.error("--lr must be a finite number, at least 0.")
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")  # TF32 on GPUs that have it: a shorter mantissa
    device = choose_device(args.device)
    print(f"looking at {device}")
    train_set, _ = make_data()
    train_loader = DataLoader(train_set, shuffle=True, batch_size=args.batch_size)
    # The model.
    model = make_model().to(device)  # before the optimiser is made
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    # A step, its moments noted; the first makes gradients, moments of the optimiser, workspaces.
    kept, moments = [], {}
    memory = torch.accelerator
    measured = counts(device)
    if args.snapshot:
        backend = getattr(torch, device.type, None)  # torch.cuda or torch.xpu
        recorder = getattr(backend, "memory", None)
        if not hasattr(recorder, "_record_memory_history"):
            raise SystemExit(f"Only CUDA, ROCm and XPU write a snapshot, and this is {device}.")
        try:
            open(args.snapshot, "ab").close()  # if it can't be written, say so before the steps
        except OSError as error:
            raise SystemExit(f"No snapshot can be written: {error}.") from None
        recorder._record_memory_history(max_entries=100_000)

    def note(moment):
        if measured:
            memory.synchronize(device)
            moments[moment] = memory.memory_allocated(device), memory.memory_reserved(device)

    def keep(tensor):
        kept.append(tensor)
        return tensor

    model.train()
    x, y = (part.to(device) for part in next(iter(train_loader)))
    for step in range(2):
        print(f"step {step + 1}/2")
        optimizer.zero_grad()
        if measured:
            memory.reset_peak_memory_stats(device)
        kept.clear()
        note("before the step")
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = nn.functional.cross_entropy(model(x), y)
        note("after forward")
        new = stores(kept).keys() - stores([*model.parameters(), x, y]).keys()
        activations = sum(stores(kept)[store] for store in new)
        kept.clear()
        loss.backward()
        note("after backward")
        optimizer.step()
        note("after the optimiser")
    # What was seen.
    states = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    kinds = {
        "parameters": held(model.parameters()),
        "buffers": held(model.buffers()),
        "gradients": held(p.grad for p in model.parameters() if p.grad is not None),
        "optimiser": held(states),
        "activations kept": activations,
        "batch": held([x, y]),
    }
    print("Counted from the tensors")
    for kind, count in kinds.items():
        print(f"  {kind:20}{mib(count)}")
    if not measured:
        print(f"Nothing counts what is allocated on {device}: no peak here, no fragmentation.")
        return
    moments["peak of the step"] = (
        memory.max_memory_allocated(device),
        memory.max_memory_reserved(device),
    )
    print(f"Told by the allocator,{'allocated':>14}{'reserved':>16}\n(workspaces of libraries too)")
    for moment, (allocated, reserved) in moments.items():
        print(f"  {moment:20}{mib(allocated)}  {mib(reserved)}")
    if args.snapshot:
        recorder._dump_snapshot(args.snapshot)
        print(f"{args.snapshot} is written: drop it on https://pytorch.org/memory_viz")


if __name__ == "__main__":
    main()
