"""How right the simulated device is: peak memory and step time beside those of a real card.

A few training steps of three small models are made twice, by the simulated device with the figures
of a card and by that card itself. Memory should agree within 5 %, time within 30 %; what does not is
named. Each side has a process of its own, one after the other, so that neither disturbs the other.

The exit status is 0 where everything agrees, 1 where something is off, and 2 where there is nothing
to compare with. This has not been run on a real card yet.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import date
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import simgpu
from course_utils.show import table
from course_utils.timing import measure, seconds
from course_utils.tqdm_bar import bar
from simgpu.profiles import names
from tools.records import machine

TOLERANCE = {"memory": 0.05, "seconds": 0.30}
"""By how much of the measured figure the modelled one may be off."""

BATCHES = (8, 32, 128, 512, 1024)
QUICK = (8, 128)
PRECISIONS = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}
STEPS = 2  # timed on the virtual clock; the one before them makes Adam's state

Step = Callable[[], None]
Found = dict[str, float]
"""What one side found: ``memory`` is the peak in bytes, ``seconds`` the time of a step, and ``held``
the bytes still allocated when every tensor is gone. On CUDA those are the workspaces of cuBLAS."""


class Case(NamedTuple):
    """What is compared: a key of ``MODELS``, a key of ``PRECISIONS`` and a batch size."""

    model: str
    precision: str
    batch: int


def _mlp() -> nn.Module:
    first, second, last = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)


def _cnn() -> nn.Module:
    features = (nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2))
    head = (nn.Flatten(), nn.Linear(32 * 12 * 12, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.Sequential(*features, *head)


def _block() -> nn.Module:
    block = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    return nn.Sequential(block, nn.Flatten(), nn.Linear(32 * 128, 10))


MODELS = {"CNN": (_cnn, (1, 28, 28)), "MLP": (_mlp, (784,)), "transformer": (_block, (32, 128))}
"""How a model is made, and the shape of one of its inputs."""


def training_step(case: Case, device: torch.device) -> Step:
    """Return a step of training with Adam: autocast for 16 bits, and a GradScaler for float16."""
    make, shape = MODELS[case.model]
    dtype = PRECISIONS[case.precision]
    torch.manual_seed(0)
    model = make().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(case.batch, *shape).to(device)
    y = torch.randint(10, (case.batch,)).to(device)
    # The usual first scale, 2**16, may overflow, and then the first steps change nothing.
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**7, enabled=dtype is torch.float16)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype, enabled=dtype is not None):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def modelled(profile: str, case: Case) -> Found:
    """Return the figures of the simulated device."""
    device = simgpu.enable(profile)
    return _run(case, device, partial(_virtual_time, simgpu.clock(device)))


def measured(case: Case) -> Found:
    """Return the figures of the real card."""
    device = torch.device("cuda")
    return _run(case, device, lambda step: measure(step, device=device).median)


def _virtual_time(clock: Any, step: Step) -> float:
    clock.synchronize()
    start = clock.host
    for _ in range(STEPS):
        step()
    clock.synchronize()
    return (clock.host - start) / STEPS


def _run(case: Case, device: torch.device, step_time: Callable[[Step], float]) -> Found:
    backend = getattr(torch, device.type)  # torch.cuda and torch.sim have the same functions
    backend.empty_cache()
    backend.reset_peak_memory_stats()
    step = training_step(case, device)
    step()
    took = step_time(step)
    peak = backend.max_memory_allocated()
    del step
    gc.collect()
    return {"memory": peak, "held": backend.memory_allocated(), "seconds": took}


def compare(case: Case, model: Found, real: Found | None) -> dict[str, Any]:
    """Return a case's entry in the JSON file; without ``real`` it has the modelled figures alone."""
    entry: dict[str, Any] = {**case._asdict(), "modelled": model}
    if real is None:
        return entry
    ratio = {what: round(model[what] / real[what], 4) for what in TOLERANCE}
    within = {what: abs(ratio[what] - 1) <= TOLERANCE[what] for what in TOLERANCE}
    return {**entry, "measured": real, "ratio": ratio, "within": within}


def report(entries: Sequence[dict[str, Any]]) -> str:
    """Return the table and, where a card was measured, how much of it agrees and what is off."""
    units = {"memory": lambda value: f"{value / 2**20:.1f} MiB", "seconds": seconds}
    titles = {"memory": "Peak memory", "seconds": "Step time"}
    compared = "measured" in entries[0]
    head = [name.capitalize() for name in Case._fields]
    rows = [[entry[name] for name in Case._fields] for entry in entries]
    for what, text in units.items():
        head += [f"{titles[what]}: modelled", *(["measured", "ratio", ""] if compared else [])]
        for row, entry in zip(rows, entries, strict=True):
            row.append(text(entry["modelled"][what]))
            if compared:
                off = "" if entry["within"][what] else "off"
                row += [text(entry["measured"][what]), f"{entry['ratio'][what]:.2f}", off]
    lines = [table(head, rows)[0]]
    if not compared:
        return lines[0]
    for what, title in titles.items():
        good = sum(entry["within"][what] for entry in entries)
        lines.append(f"{title}: {good} of {len(entries)} within {TOLERANCE[what]:.0%}.")
        for model in MODELS:
            of_model = [e for e in entries if e["model"] == model]
            if off := [e["ratio"][what] for e in of_model if not e["within"][what]]:
                lines.append(
                    f"  off: {model}, {len(off)} cases, ratio {min(off):.2f} to {max(off):.2f}"
                )
    kept = max(entry["measured"]["held"] for entry in entries)
    lines.append(f"CUDA's libraries kept up to {units['memory'](kept)} of the measured memory.")
    return "\n".join(lines)


def profile_of(card: str) -> str | None:
    """Return the profile that a card's name, such as ``"Tesla T4"``, has in it, or None.

    Of ``"A100"`` and ``"A100-40GB"`` it is the one that says more. A GeForce with more behind its
    number, such as ``"RTX 3090 Ti"``, is another card.
    """
    if re.search(r"\bRTX \d+ \S", card):
        return None
    found = [n for n in names() if all(re.search(rf"\b{part}\b", card) for part in n.split("-"))]
    return max(found, key=len, default=None)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the top of this file says what the exit status means."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.records.fidelity", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--profile", choices=names(), help="by default that of the card")
    parser.add_argument("--quick", action="store_true", help="two batch sizes of the five")
    parser.add_argument("--modelled-only", action="store_true", help="ask no card")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the figures as JSON")
    args = parser.parse_args(argv)
    if args.output and not args.output.absolute().parent.is_dir():
        parser.error(f"There is no folder {args.output.parent} to write to.")
    if problem := simgpu.problem():
        print(problem)
        return 2
    if not args.modelled_only and not torch.cuda.is_available():
        print(
            "There is nothing to compare with, because this machine has no CUDA card; "
            "--modelled-only prints the simulated device's figures alone."
        )
        return 2
    try:
        return _both_sides(args)
    except torch.OutOfMemoryError as error:
        print(f"The card has too little free memory: {str(error).splitlines()[0]}")
    except BrokenProcessPool:
        print("One side's process was ended, perhaps because the machine has too little memory.")
    return 2


def _both_sides(args: argparse.Namespace) -> int:
    batches = QUICK if args.quick else BATCHES
    cases = [Case(m, p, batch) for m in MODELS for p in PRECISIONS for batch in batches]
    profile, description = args.profile or "T4", machine([torch.device("cpu")])
    real: list[Found | None] = [None] * len(cases)
    if not args.modelled_only:
        with ProcessPoolExecutor(1, get_context("spawn")) as own:
            description = own.submit(machine, [torch.device("cuda")]).result()
            card = description["device"]
            profile = args.profile or profile_of(card)
            if profile is None:
                print(f"There is no profile for {card}: name the nearest with --profile.")
                return 2
            real = list(bar(own.map(measured, cases), total=len(cases), desc=card))
        if profile_of(card) != profile:
            print(f"The profile is {profile} and the card {card}: that alone makes a difference.")
    with ProcessPoolExecutor(1, get_context("spawn")) as own:
        found = own.map(partial(modelled, profile), cases)
        model = list(bar(found, total=len(cases), desc=f"simulated {profile}"))
    entries = [compare(*sides) for sides in zip(cases, model, real, strict=True)]
    print(report(entries))
    if args.output:
        content = {
            "schema": 1,
            "kind": "modelled" if args.modelled_only else "recorded",
            "date": date.today().isoformat(),
            "profile": profile,
            "machine": description,
            "tolerance": TOLERANCE,
            "results": entries,
        }
        args.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return int(not all(all(entry.get("within", {}).values()) for entry in entries))


if __name__ == "__main__":
    sys.exit(main())
