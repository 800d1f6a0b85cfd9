"""Train a small language model on the device that the command line names: "cpu", "cuda", "cuda:0"."""

import contextlib
import sys

import torch
from torch import nn

device = sys.argv[1]
device_type = "cuda" if "cuda" in device else "cpu"
amp = torch.amp.autocast(device_type, torch.bfloat16) if device_type == "cuda" else contextlib.nullcontext()
torch.manual_seed(1337)
text = torch.randint(50, (4000,))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (4, 8)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2))


def batch():
    starts = torch.randint(len(text) - 17, (8,))
    x, y = (torch.stack([text[i + shift : i + shift + 16] for i in starts]) for shift in (0, 1))
    if device_type == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x.to(device), y.to(device)


model = nn.Sequential(nn.Embedding(50, 32), Block(), Block(), nn.LayerNorm(32), nn.Linear(32, 50)).to(device)
decay = [
    {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
    {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(decay, lr=1e-3, betas=(0.9, 0.95), fused=device_type == "cuda")
scaler = torch.amp.GradScaler(device_type, enabled=False)
for _ in range(6):
    for _ in range(2):
        x, y = batch()
        with amp:
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / 2
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(repr(loss.item() * 2))
print("trained on", next(model.parameters()).device.type)
