"""Known wrong answers to 03.step_losses, by the diagnosis that each must get."""

import torch
from torch.nn import functional as F

from course_lessons.lesson03.step_losses import _GIVES, _LEARNS


def _losses_without_training(model, batches, optimizer):
    with torch.inference_mode():
        return torch.stack([F.cross_entropy(model(x), y) for x, y in batches]).tolist()


_BACKWARD, _STEP = "loss.backward()", "optimizer.step()"
_GIVEN = "torch.stack(losses).tolist()"
WRONG = {
    **_LEARNS,
    **_GIVES,
    "no-step": _losses_without_training,
    "reads-twice": {_GIVEN: "torch.stack(losses[:1]).tolist() + torch.stack(losses[1:]).tolist()"},
    "eval-mode": (_LEARNS["eval-mode"], {_STEP: f"{_STEP}\nmodel.eval()"}),
    "other-rate": {"losses = []": 'losses = []\noptimizer.param_groups[0]["lr"] /= 2'},
    "one-per-step": {_GIVEN: f"{_GIVEN}[:-1]"},
    "steps": {_STEP: f"{_STEP}\n{_STEP}"},
    "weights": {_BACKWARD: "(2 * loss).backward()"},
    "wrong-loss": {_GIVEN: "(torch.stack(losses) + 1).tolist()"},
    "reads-each-step": {"loss.detach()": "loss.item()", "torch.stack(losses).tolist()": "losses"},
    "reads-at-the-end": {"torch.stack(losses)": "torch.tensor(losses)"},
    "copied-one-by-one": {"loss.detach()": 'loss.detach().to("cpu", non_blocking=True)'},
    "rounded": tuple(
        {_GIVEN: f"[round(v, {n}) for v in torch.stack(losses).tolist()]"} for n in range(6)
    ),
    "changed-input": {"losses.append": "x.sub_(x.mean())\nlosses.append"},
    "not-floats": {"torch.stack(losses).tolist()": "losses"},
}
RIGHT = {
    "one tensor that grows on the device": {
        "losses = []": "losses = torch.tensor([], device=batches[0][0].device)",
        "losses.append(loss.detach())": "losses = torch.cat((losses, loss.detach()[None]))",
        _GIVEN: "losses.tolist()",
    }
}
