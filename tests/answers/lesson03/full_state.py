"""Known wrong answers to 03.full_state, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson03.full_state import full_state
from course_lessons.shared.edited import edited


def _with(part, other):
    return edited(full_state, {part: other})


def _after(disturbance):
    return edited(full_state, {"return {": f"{disturbance}\nreturn {{"})


def _stepping(model, optimizer, scheduler):
    state = full_state(model, optimizer, scheduler)
    optimizer.step()
    scheduler.step()
    return state


_MODEL = "model.state_dict()"
WRONG = {
    "missing-key": (
        _with('"optimizer": optimizer.state_dict(),', ""),
        _with('"python_rng": random.getstate(),', ""),
    ),
    "other-keys": _with('"python_rng"', '"epoch": 0, "python_rng"'),
    "not-called": _with("torch.get_rng_state()", "torch.get_rng_state"),
    "whole-object": (_with(_MODEL, "model"), _with("scheduler.state_dict()", "scheduler")),
    "a-seed": _with("torch.get_rng_state()", "torch.initial_seed()"),
    "swapped": {
        "optimizer.state_dict()": "scheduler.state_dict()",
        "scheduler.state_dict()": "optimizer.state_dict()",
    },
    "not-loadable": _with("random.getstate()", "repr(random.getstate())"),
    "no-buffers": _with(_MODEL, "dict(model.named_parameters())"),
    "buffers": _with(
        _MODEL, "{k: v * ('running' not in k) for k, v in model.state_dict().items()}"
    ),
    "other-precision": _with(_MODEL, "{k: v.half() for k, v in model.state_dict().items()}"),
    "model": _with(_MODEL, "{k: torch.zeros_like(v) for k, v in model.state_dict().items()}"),
    "optimizer": _with("optimizer.state_dict()", '{**optimizer.state_dict(), "state": {}}'),
    "scheduler": _with("scheduler.state_dict()", '{"last_epoch": scheduler.last_epoch}'),
    "torch_rng-elsewhere": _with("torch.get_rng_state()", "torch.Generator().get_state()"),
    "python_rng-elsewhere": _with("random.getstate()", "random.Random(0).getstate()"),
    "moved-generator": (_after("torch.manual_seed(0)\nrandom.seed(0)"), _after("random.random()")),
    "changed-input": (_after("model.eval()"), _stepping),
    "not-plain": _with("optimizer.state_dict()", "optimizer.state"),
}
