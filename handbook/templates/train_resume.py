"""Train a classifier; killed at any moment, it goes on from its last checkpoint.

python train_resume.py --epochs 5
"""

import argparse
import hashlib
import math
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# What may differ when a run goes on. All other arguments must be those of its checkpoint.
MAY_CHANGE = ("epochs", "workers", "device", "log_every", "folder")


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


def sha256(path):
    """Return a file's SHA-256. It is read in pieces: a checkpoint may be larger than the memory."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            found.update(piece)
    return found.hexdigest()


def is_whole(path):
    """Return whether a checkpoint is what was saved. torch.load alone misses a wrong bit."""
    try:
        saved = Path(f"{path}.sha256").read_text().split()[:1]
    except (OSError, UnicodeDecodeError):
        return False
    return path.is_file() and saved == [sha256(path)]


def checkpoints(folder):
    """Return a folder's checkpoints, the oldest first; epoch-10000 comes after epoch-9999."""
    return sorted(folder.glob("epoch-*.ckpt"), key=lambda path: (len(path.name), path.name))


def save(state, folder):
    """Write a checkpoint; it takes its name when it is whole and on the disk. The one before stays."""
    new, path = folder / "unfinished", folder / f"epoch-{state['epochs']:04}.ckpt"
    try:
        with open(new, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        with open(f"{path}.sha256", "w") as file:  # for sha256sum --check, too
            file.write(f"{sha256(new)}  {path.name}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        raise SystemExit(f"No checkpoint: {error}. Those in {folder} are whole.") from None
    except RuntimeError as error:  # from torch.save; its context says what the system said
        reason = error.__context__ or error
        raise SystemExit(f"No checkpoint: {reason}. Those in {folder} are whole.") from None
    for old in checkpoints(folder)[:-2]:
        old.unlink()
        Path(f"{old}.sha256").unlink(missing_ok=True)


def newest(folder):
    """Return the newest checkpoint that is whole, or None; what is damaged is put aside."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "unfinished").write_bytes(b"")  # if it can't be written, say so before training
    (folder / "unfinished").unlink()
    for path in reversed(checkpoints(folder)):
        if is_whole(path):
            return path
        os.replace(path, f"{path}.damaged")
        print(f"{path} is damaged: put aside")
    return None


def load(path, parts, arguments):
    """Load a checkpoint into the parts, if it was made with the same arguments; return its epochs."""
    # Processes share the memory of a mapped file. Windows cannot delete one, so not there.
    state = torch.load(path, map_location="cpu", mmap=os.name != "nt", weights_only=True)
    for name, value in arguments.items():
        before = state["arguments"].get(name, value)
        if before != value:
            raise ValueError(
                f"{path} was made with {name} = {before}, and now it is {value}. Give the same, "
                f"or another --folder. Only these may change: {', '.join(MAY_CHANGE)}."
            )
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return state["epochs"]


def evaluate(model, loader, device):
    """Return how many of a loader's samples get their right class."""
    model.eval()  # dropout off, BatchNorm by its running figures
    right = torch.zeros((), device=device)
    with torch.inference_mode():
        for x, y in loader:
            x, y = (part.to(device, non_blocking=loader.pin_memory) for part in (x, y))
            right += (model(x).argmax(1) == y).sum()
    return right.item()


def write(state, path):
    """Write a new file, then give it the old one's name. If the write fails, the old file is still whole."""
    try:
        with open(f"{path}.new", "wb") as file:
            torch.save(state, file)
        os.replace(f"{path}.new", path)
    except OSError as error:
        raise SystemExit(f"{path} cannot be written: {error}.") from None
    except RuntimeError as error:  # from torch.save; its context says what the system said
        raise SystemExit(f"{path} cannot be written: {error.__context__ or error}.") from None


def check_loss(loss, epoch):
    """Stop when the loss is nan or inf, because the weights soon are, too."""
    if not math.isfinite(loss):
        raise SystemExit(
            f"The loss is {loss} in epoch {epoch}. Try a smaller --lr. "
            "What was saved after earlier epochs is still there."
        )


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
    print(f"PyTorch {torch.__version__}, arguments {vars(args)}")
    # The device and the data.
    if min(args.epochs, args.batch_size, args.log_every) < 1:
        parser.error("--epochs, --batch-size and --log-every must be at least 1.")
    if args.workers < 0:
        parser.error("--workers must be at least 0.")
    if not 0 <= args.seed < 2**32:
        parser.error("--seed must be at least 0 and less than 2**32.")
    if not 0 <= args.lr < math.inf:
        parser.error("--lr must be a finite number, at least 0.")
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")  # TF32 on GPUs that have it: a shorter mantissa
    device = choose_device(args.device)
    train_set, test_set = make_data()
    how = {"batch_size": args.batch_size, "num_workers": args.workers}
    how["pin_memory"] = device.type in ("cuda", "xpu")  # what non_blocking needs
    order = torch.Generator()
    train_loader = DataLoader(train_set, shuffle=True, generator=order, **how)
    test_loader = DataLoader(test_set, **how)
    # The model.
    model = make_model().to(device)  # before the optimiser is made
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    rates = [group["lr"] for group in optimizer.param_groups]  # each group may have its own
    parts = {"model": model, "optimizer": optimizer}  # a scaler, too, if there is one
    try:
        path = newest(args.folder)
    except OSError as error:
        raise SystemExit(f"No folder for checkpoints: {error}.") from None
    arguments = {name: value for name, value in vars(args).items() if name not in MAY_CHANGE}
    try:
        first = load(path, parts, arguments) if path else 0
    except ValueError as error:
        raise SystemExit(str(error)) from None
    print(f"training on {device}, {first} epochs are done")
    if first >= args.epochs:
        print("Nothing is left to train. Give more --epochs to go on.")
    # The training. After each epoch the model is judged on data that it has not seen.
    for epoch in range(first, args.epochs):
        begin = time.perf_counter()
        torch.manual_seed(args.seed + epoch)  # dropout and the like, and below the order:
        order.manual_seed(args.seed + epoch)  # an epoch is the same, resumed or not
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (1 - epoch / args.epochs)  # a linear schedule
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
                check_loss(loss.item(), epoch)
        mean = total.item() / len(train_set)  # waits, once an epoch
        seconds = time.perf_counter() - begin
        check_loss(mean, epoch)
        accuracy = evaluate(model, test_loader, device) / len(test_set)
        print(f"epoch {epoch}: loss {mean:.4f}, accuracy {accuracy:.1%}, {seconds:.2f} s")
        state = {name: part.state_dict() for name, part in parts.items()}
        save(state | {"epochs": epoch + 1, "arguments": arguments}, args.folder)
    write(model.state_dict(), args.folder / "model.pt")
    print(f"weights saved as {args.folder / 'model.pt'}")


if __name__ == "__main__":
    main()
