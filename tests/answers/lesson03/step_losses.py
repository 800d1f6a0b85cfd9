"""Known wrong answers to 03.step_losses, by the diagnosis that each must get."""

from course_lessons.lesson03.step_losses import _GIVES, _LEARNS, EXERCISE

_BACKWARD, _STEP = "loss.backward()", "optimizer.step()"
_GIVEN = "torch.stack(losses).tolist()"
WRONG = {
    **{
        name: known_mistakes
        for name, known_mistakes in _LEARNS.items()
        if name in EXERCISE.diagnoses
    },
    **_GIVES,
    "reads-each-step": {"loss.detach()": "loss.item()", "torch.stack(losses).tolist()": "losses"},
    "reads-at-the-end": {"torch.stack(losses)": "torch.tensor(losses)"},
    "rounded": tuple(
        {_GIVEN: f"[round(v, {n}) for v in torch.stack(losses).tolist()]"} for n in range(6)
    ),
    "changed-input": {"losses.append": "x.sub_(x.mean())\nlosses.append"},
}
RIGHT = {
    "one tensor that grows on the device": {
        "losses = []": "losses = torch.tensor([], device=batches[0][0].device)",
        "losses.append(loss.detach())": "losses = torch.cat((losses, loss.detach()[None]))",
        _GIVEN: "losses.tolist()",
    }
}
