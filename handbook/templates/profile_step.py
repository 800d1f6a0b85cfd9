"""Profile a few training steps: where the time goes, as a table and as a trace to look at.

python profile_step.py --steps 5
"""

import argparse
import math
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
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


PARTS = ("data", "forward", "backward", "optimizer")


def kinds(device):
    """Return what the profiler can record there: the host always, and the device where it knows it."""
    known = {"cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}
    return [ProfilerActivity.CPU, *([known[device.type]] if device.type in known else [])]


def main():
    """Profile, and say what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=3, help="steps that are not recorded")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=0, help="processes that load")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps, xpu ...")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=15, help="of the table")
    parser.add_argument("--trace", default="trace.json")
    args = parser.parse_args()
    # The device and the data.
    if min(args.steps, args.batch_size, args.rows) < 1:
        parser.error("--steps, --batch-size and --rows must be at least 1.")
    if min(args.warmup, args.workers) < 0:
        parser.error("--warmup and --workers must be at least 0.")
    if not 0 <= args.seed < 2**32:
        parser.error("--seed must be at least 0 and less than 2**32.")
    if not 0 <= args.lr < math.inf:
        parser.error("--lr must be a finite number, at least 0.")
    try:
        Path(args.trace).open("ab").close()  # where the profiler cannot write, it does not say so
    except OSError as error:
        raise SystemExit(f"No trace can be written: {error}.") from None
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")  # TF32 on GPUs that have it: a shorter mantissa
    device = choose_device(args.device)
    print(f"profiling on {device}")
    train_set, _ = make_data()
    how = {"batch_size": args.batch_size, "num_workers": args.workers}
    how["pin_memory"] = device.type in ("cuda", "xpu")  # what non_blocking needs
    train_loader = DataLoader(train_set, shuffle=True, **how)
    # The model.
    model = make_model().to(device)  # before the optimiser is made
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    # The steps: one to pass by, some to warm up, and those that count.
    skipped = 1 + args.warmup
    plan = schedule(wait=1, warmup=args.warmup, active=args.steps, repeat=1)
    batches = iter(train_loader)
    model.train()
    how = {"activities": kinds(device), "schedule": plan}
    with profile(**how, record_shapes=True, acc_events=True) as profiler:
        for step in range(skipped + args.steps):
            with record_function("data"):  # for Nsight Systems: torch.cuda.nvtx.range("data")
                if (batch := next(batches, None)) is None:
                    raise SystemExit(f"The data ends after {step} steps. Try a smaller --batch-size.")
                x, y = (part.to(device, non_blocking=train_loader.pin_memory) for part in batch)
            with record_function("forward"):
                loss = nn.functional.cross_entropy(model(x), y)
            with record_function("backward"):
                optimizer.zero_grad()
                loss.backward()
            with record_function("optimizer"):
                optimizer.step()
            profiler.step()  # tells the schedule that a step is over
            print(f"step {step + 1}/{skipped + args.steps}")
    # What was seen.
    profiler.export_chrome_trace(args.trace)
    events, host = profiler.key_averages(), torch.autograd.DeviceType.CPU
    named = {event.key for event in events if event.is_user_annotation}
    events[:] = [e for e in events if e.device_type == host or e.key not in named]  # kernels, once
    on_device = len(kinds(device)) > 1
    order = "self_device_time_total" if on_device else "self_cpu_time_total"
    print(events.table(sort_by=order, row_limit=args.rows, max_name_column_width=50))
    for event in events:
        if event.key in PARTS and event.device_type == host:
            took = event.cpu_time_total / args.steps / 1000
            print(f"{event.key:10}{took:9.2f} ms a step on the host")
    if on_device:
        print("The host launches and goes on: what the device took for it stands in the table.")
    elif device.type != "cpu":
        print(f"The profiler does not see {device.type}: these are times of the host alone.")
    print(f"The trace is {args.trace}: open it in https://ui.perfetto.dev")


if __name__ == "__main__":
    main()
