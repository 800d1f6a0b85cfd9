"""Train a small classifier of images on the accelerator that PyTorch finds, unless told "cpu"."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

wanted = sys.argv[1] != "cpu"
if wanted and torch.accelerator.is_available():
    device = torch.accelerator.current_accelerator()
else:
    device = torch.device("cpu")
torch.manual_seed(1)
loader_kwargs = {"batch_size": 16}
if wanted:
    loader_kwargs.update({"num_workers": 0, "pin_memory": True, "shuffle": False})
loader = DataLoader(TensorDataset(torch.randn(64, 1, 12, 12), torch.randint(10, (64,))), **loader_kwargs)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(200, 10),
    nn.LogSoftmax(1),
).to(device)
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
for _ in range(3):
    model.train()
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        print(repr(loss.item()))
    model.eval()
    with torch.no_grad():
        hits = sum((model(x.to(device)).argmax(1) == y.to(device)).sum().item() for x, y in loader)
    print(hits)
    scheduler.step()
print("trained on", next(model.parameters()).device.type)
