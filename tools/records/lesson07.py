"""Experiments of lesson 07: what each means of saving memory saves, and what it costs in time."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from course_utils.devices import abilities

from .experiments import Unsuitable, Work, experiment, grid
from .networks import need_accelerator

BATCH, WIDTH, DEPTH, CLASSES = 2048, 256, 4, 10

MEANS = (
    "as it is",
    "quarter of the batch",
    "accumulation",
    "16 bits",
    "checkpointing",
    "offloading",
    "gradients kept",
    "relu",
    "relu in place",
    "no foreach",
    "fused",
    "no optimizer state",
    "inference",
)


class Block(nn.Module):
    """The MLP half of a transformer block: layer norm, linear, activation, linear; with a residual."""

    def __init__(self, width: int, activation: nn.Module) -> None:
        super().__init__()
        wide = nn.Linear(width, 4 * width), activation, nn.Linear(4 * width, width)
        self.inside = nn.Sequential(nn.LayerNorm(width), *wide)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, of the shape of ``x``."""
        return x + self.inside(x)


def _activation(means: str) -> nn.Module:
    """Return the activation for one of `MEANS`."""
    return nn.ReLU(inplace="place" in means) if "relu" in means else nn.GELU()


def _optimizer(means: str, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser for one of `MEANS`."""
    if means == "no optimizer state":
        return torch.optim.SGD(model.parameters(), lr=1e-3)
    ways = {"no foreach": {"foreach": False}, "fused": {"fused": True}}
    return torch.optim.AdamW(model.parameters(), lr=1e-3, **ways.get(means, {}))


@experiment(
    sweep=grid(means=MEANS),
    quick=grid(means=("as it is", "checkpointing")),
    seconds=5,
    longest=10.0,
)
def means_step(device: torch.device, means: str) -> Work:
    """Train four blocks, 256 → 1024 → 256, on 2,048 synthetic rows for a step of AdamW, in one of many ways.

    ``quarter of the batch`` and ``accumulation`` take 512 rows at a time; ``inference`` only goes forward.

    Claimed: mixed precision saves about 40 % of the memory, and gradient checkpointing trades computation
    for memory (seed "第7章:GPU 训练与性能优化", 7.6).
    Refuted by: a saving far from 40 % in 16 bits; checkpointing that saves nothing, or costs no time.
    """
    can = abilities(device)
    if means == "16 bits" and device.type == "cpu" and not can.bf16:
        raise Unsuitable("it has no 16-bit units")
    if means == "offloading":
        need_accelerator(device, "the activations are on the host already")
    dtype = torch.bfloat16 if can.bf16 else torch.float16
    half = means == "16 bits"
    blocks = nn.Sequential(*[Block(WIDTH, _activation(means)) for _ in range(DEPTH)]).to(device)
    head = nn.Linear(WIDTH, CLASSES).to(device)
    model = nn.Sequential(*blocks, head)
    optimizer = _optimizer(means, model)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**10, enabled=half and dtype is torch.float16)
    x = torch.randn(BATCH, WIDTH).to(device)
    y = torch.randint(CLASSES, (BATCH,)).to(device)
    if means == "quarter of the batch":
        x, y = x[: BATCH // 4], y[: BATCH // 4]
    parts = list(zip(x.split(BATCH // 4), y.split(BATCH // 4), strict=True))
    batches = parts if means == "accumulation" else [(x, y)]
    checkpointed = partial(checkpoint, use_reentrant=False)

    def forward(rows: Tensor) -> Tensor:
        for block in blocks:
            rows = checkpointed(block, rows) if means == "checkpointing" else block(rows)
        return head(rows)

    def loss_of(rows: Tensor, labels: Tensor) -> Tensor:
        if means == "offloading":
            with torch.autograd.graph.save_on_cpu():
                return cross_entropy(forward(rows), labels)
        return cross_entropy(forward(rows), labels)

    def step() -> None:
        optimizer.zero_grad(set_to_none=means != "gradients kept")
        for rows, labels in batches:
            with torch.autocast(device.type, dtype, enabled=half):
                loss = loss_of(rows, labels) / len(batches)
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    @torch.inference_mode()
    def infer() -> None:
        forward(x)

    return infer if means == "inference" else step
