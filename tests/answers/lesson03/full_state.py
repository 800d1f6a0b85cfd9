"""Known wrong answers to 03.full_state, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson03.full_state import full_state
from course_utils.exercises.edited import edited


def _with(part, other):
    return edited(full_state, {part: other})


def _after(disturbance):
    return edited(full_state, {"return {": f"{disturbance}\nreturn {{"})


def _stepping(model, optimizer, scheduler):
    state = full_state(model, optimizer, scheduler)
    optimizer.step()
    scheduler.step()
    return state


WRONG = {
    "optimizer": _with('"optimizer": optimizer.state_dict(),', ""),
    "scheduler": _with('"scheduler": scheduler.state_dict(),', ""),
    "torch_rng": _with("torch.get_rng_state()", "torch.initial_seed()"),
    "python_rng": _with('"python_rng": random.getstate(),', ""),
    "model": _with("model.state_dict()", "dict(model.named_parameters())"),
    "moved-generator": (_after("torch.manual_seed(0)\nrandom.seed(0)"), _after("random.random()")),
    "changed-input": (_after("model.eval()"), _stepping),
    "not-plain": _with("model.state_dict()", "model"),
}
