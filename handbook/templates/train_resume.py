"""Train a classifier; killed at any moment, it goes on from its last checkpoint.

python train_resume.py --epochs 5
"""

import argparse
import hashlib
import io
import math
import os
import time
from pathlib import Path

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
    return right.item()


def main():
    """Train, and say how it goes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=0, help="processes that load")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps, xpu ...")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=50, help="batches to a line of progress")
    parser.add_argument("--folder", type=Path, default="checkpoints")
    args = parser.parse_args()
    # The device and the data.
    if min(args.epochs, args.batch_size, args.log_every) < 1 or args.lr < 0:
        raise SystemExit("--epochs, --batch-size and --log-every begin at 1, --lr at 0.")
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")  # TF32 on GPUs that have it: a shorter mantissa
    device = choose_device(args.device)
    train_set, test_set = make_data()
    how = {"batch_size": args.batch_size, "num_workers": args.workers}
    how["pin_memory"] = device.type == "cuda"  # what non_blocking needs
    order = torch.Generator()
    train_loader = DataLoader(train_set, shuffle=True, generator=order, **how)
    test_loader = DataLoader(test_set, **how)
    # The model.
    model = make_model().to(device)  # before the optimiser is made
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    parts = {"model": model, "optimizer": optimizer}  # a scaler, too, if there is one
    try:
        args.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"No folder for checkpoints: {error}.") from None
    state = load(args.folder)
    for name, part in parts.items() if state["epochs"] else ():
        part.load_state_dict(state[name])
    print(f"training on {device}, {state['epochs']} epochs are done")
    # The training. After each epoch the model is judged on data that it has not seen.
    for epoch in range(state["epochs"], args.epochs):
        begin = time.perf_counter()
        torch.manual_seed(args.seed + epoch)  # dropout and the like, and below the order:
        order.manual_seed(args.seed + epoch)  # an epoch is the same, resumed or not
        optimizer.param_groups[0]["lr"] = args.lr * (1 - epoch / args.epochs)  # a linear schedule
        model.train()
        total = torch.zeros((), device=device)
        for batch, (x, y) in enumerate(train_loader, 1):
            x, y = (part.to(device, non_blocking=train_loader.pin_memory) for part in (x, y))
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)  # stays on the device: no wait in the loop
            if batch % args.log_every == 0:
                print(f"epoch {epoch}, batch {batch}/{len(train_loader)}: loss {loss.item():.4f}")
        mean = total.item() / len(train_set)  # waits, once an epoch
        seconds = time.perf_counter() - begin
        if not math.isfinite(mean):
            raise SystemExit(f"The loss is {mean} in epoch {epoch}. Try a smaller --lr.")
        accuracy = evaluate(model, test_loader, device) / len(test_set)
        print(f"epoch {epoch}: loss {mean:.4f}, accuracy {accuracy:.1%}, {seconds:.2f} s")
        save({n: p.state_dict() for n, p in parts.items()} | {"epochs": epoch + 1}, args.folder)
    torch.save(model.state_dict(), args.folder / "model.pt")
    print(f"weights saved as {args.folder / 'model.pt'}")


if __name__ == "__main__":
    main()
