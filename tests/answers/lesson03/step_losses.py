"""Known answers to 03.step_losses: wrong ones by their diagnosis, right ones by a name."""

from course_lessons.lesson03.step_losses import _MISTAKES_IN_RESULT, _MISTAKES_IN_WEIGHTS

_GIVEN = "torch.stack(losses).tolist()"
WRONG = {
    **_MISTAKES_IN_WEIGHTS,
    **_MISTAKES_IN_RESULT,
    "reads-each-step": {"loss.detach()": "loss.item()", _GIVEN: "losses"},
    "reads-at-the-end": {"torch.stack(losses)": "torch.tensor(losses)"},
    "rounded": {_GIVEN: f"[round(v, 3) for v in {_GIVEN}]"},
    "changed-input": {"losses.append": "x.sub_(x.mean())\nlosses.append"},
}
RIGHT = {
    "one tensor that grows on the device": {
        "losses = []": "losses = torch.tensor([], device=batches[0][0].device)",
        "losses.append(loss.detach())": "losses = torch.cat((losses, loss.detach()[None]))",
        _GIVEN: "losses.tolist()",
    }
}
