"""Train a classifier in mixed precision, with gradients of several batches in one step.

python train_accumulate.py --batch-size 32 --accumulate 4
"""

import argparse
import itertools
import math
import os
import time

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


def choose_dtype(name, device):
    """Return the dtype to compute in: bfloat16 where the device has units for it, else float16."""
    if name != "auto":
        return getattr(torch, name)
    if device.type == "cuda" and torch.version.cuda:
        # is_bf16_supported() says yes to emulation, too
        native = torch.cuda.get_device_capability(device) >= (8, 0)
        return torch.bfloat16 if native else torch.float16
    return torch.float16 if device.type == "mps" else torch.bfloat16


def evaluate(model, loader, device, dtype):
    """Return how many of a loader's samples get their right class."""
    model.eval()  # dropout off, BatchNorm by its running figures
    right = torch.zeros((), device=device)
    with torch.inference_mode(), torch.autocast(device.type, dtype):
        for x, y in loader:
            x, y = (part.to(device, non_blocking=loader.pin_memory) for part in (x, y))
            right += (model(x).argmax(1) == y).sum()
    return right.item()


def check_writable(path):
    """Find out before the first epoch, and not after it, whether the weights can be written."""
    if os.path.isdir(path):
        raise SystemExit(f"{path} cannot be written: it is a folder.")
    try:
        open(f"{path}.new", "wb").close()
        os.remove(f"{path}.new")
    except OSError as error:
        raise SystemExit(f"{path} cannot be written: {error}.") from None


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
    parser.add_argument("--accumulate", type=int, default=4, help="batches in a step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=0, help="processes that load")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps, xpu ...")
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float16"], default="auto")
    parser.add_argument("--clip", type=float, default=1.0, help="largest gradient norm; 0 is off")
    parser.add_argument("--compile", action="store_true", help="seconds to begin with, then faster")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10, help="steps to a line of progress")
    parser.add_argument("--output", default="model.pt", help="the weights, after each epoch")
    args = parser.parse_args()
    print(f"PyTorch {torch.__version__}, arguments {vars(args)}")
    # The device and the data.
    if min(args.epochs, args.batch_size, args.accumulate, args.log_every) < 1:
        parser.error("--epochs, --batch-size, --accumulate and --log-every must be at least 1.")
    if args.workers < 0:
        parser.error("--workers must be at least 0.")
    if not 0 <= args.seed < 2**32:
        parser.error("--seed must be at least 0 and less than 2**32.")
    if not (0 <= args.lr < math.inf and 0 <= args.clip < math.inf):
        parser.error("--lr and --clip must be finite numbers, at least 0.")
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")  # TF32 on GPUs that have it: a shorter mantissa
    device = choose_device(args.device)
    dtype = choose_dtype(args.dtype, device)
    print(f"training on {device} in {dtype}")
    train_set, test_set = make_data()
    how = {"batch_size": args.batch_size, "num_workers": args.workers}
    how["pin_memory"] = device.type in ("cuda", "xpu")  # what non_blocking needs
    train_loader = DataLoader(train_set, shuffle=True, **how)
    test_loader = DataLoader(test_set, **how)
    # The model.
    model = make_model().to(device)  # before the optimiser is made
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    rates = [group["lr"] for group in optimizer.param_groups]  # each group may have its own
    if args.compile:
        model.compile()  # in place: the names in its state_dict stay
    scaled = dtype == torch.float16  # bfloat16 needs no scaler
    scaler = torch.amp.GradScaler(device.type, enabled=scaled)
    check_writable(args.output)
    # The training. After each epoch the model is judged on data that it has not seen.
    for epoch in range(args.epochs):
        begin = time.perf_counter()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (1 - epoch / args.epochs)  # a linear schedule
        model.train()
        total = torch.zeros((), device=device)
        batches, steps = iter(train_loader), math.ceil(len(train_loader) / args.accumulate)
        for step in range(1, steps + 1):
            group = list(itertools.islice(batches, args.accumulate))  # the last may be shorter
            samples = sum(len(y) for _, y in group)
            optimizer.zero_grad()
            for x, y in group:
                x, y = (part.to(device, non_blocking=train_loader.pin_memory) for part in (x, y))
                with torch.autocast(device.type, dtype):  # forward and loss only
                    loss = nn.functional.cross_entropy(model(x), y)
                scaler.scale(loss * len(x) / samples).backward()  # sums up to the group's mean
                total += loss.detach() * len(x)  # stays on the device: no wait in the loop
            scaler.unscale_(optimizer)  # before clipping: the gradients as they are
            if args.clip > 0:
                nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            scaler.step(optimizer)  # skips the step where a gradient overflowed
            scaler.update()
            if step % args.log_every == 0:
                print(f"epoch {epoch}, step {step}/{steps}: loss {loss.item():.4f}")
                check_loss(loss.item(), epoch)
        mean = total.item() / len(train_set)  # waits, once an epoch
        seconds = time.perf_counter() - begin
        check_loss(mean, epoch)
        accuracy = evaluate(model, test_loader, device, dtype) / len(test_set)
        print(f"epoch {epoch}: loss {mean:.4f}, accuracy {accuracy:.1%}, {seconds:.2f} s")
        write(model.state_dict(), args.output)
    print(f"weights saved as {args.output}")


if __name__ == "__main__":
    main()
