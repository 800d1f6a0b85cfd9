"""Known wrong answers to 03.full_state, by the diagnosis that each must get."""

from course_lessons.lesson03.full_state import full_state


def _after(disturbance):
    return {"return {": f"{disturbance}\nreturn {{"}


def _stepping(model, optimizer, scheduler):
    state = full_state(model, optimizer, scheduler)
    optimizer.step()
    scheduler.step()
    return state


_MODEL = "model.state_dict()"
WRONG = {
    "missing-key": (
        {'"optimizer": optimizer.state_dict(),': ""},
        {'"python_rng": random.getstate(),': ""},
    ),
    "other-keys": {'"python_rng"': '"epoch": 0, "python_rng"'},
    "not-called": {"torch.get_rng_state()": "torch.get_rng_state"},
    "whole-object": ({_MODEL: "model"}, {"scheduler.state_dict()": "scheduler"}),
    "a-seed": {"torch.get_rng_state()": "torch.initial_seed()"},
    "swapped": (
        {
            "optimizer.state_dict()": "scheduler.state_dict()",
            "scheduler.state_dict()": "optimizer.state_dict()",
        },
        {"random.getstate()": "torch.get_rng_state()"},
    ),
    "not-loadable": {"random.getstate()": "repr(random.getstate())"},
    "no-buffers": {_MODEL: "dict(model.named_parameters())"},
    "buffers": {_MODEL: "{k: v * ('running' not in k) for k, v in model.state_dict().items()}"},
    "other-precision": {_MODEL: "{k: v.half() for k, v in model.state_dict().items()}"},
    "model": {_MODEL: "{k: torch.zeros_like(v) for k, v in model.state_dict().items()}"},
    "optimizer": {"optimizer.state_dict()": '{**optimizer.state_dict(), "state": {}}'},
    "scheduler": {"scheduler.state_dict()": '{"last_epoch": scheduler.last_epoch}'},
    "torch_rng-elsewhere": {"torch.get_rng_state()": "torch.Generator().get_state()"},
    "python_rng-elsewhere": {"random.getstate()": "random.Random(0).getstate()"},
    "moved-generator": (_after("torch.manual_seed(0)\nrandom.seed(0)"), _after("random.random()")),
    "changed-input": (_after("model.eval()"), _stepping),
    "not-plain": {"optimizer.state_dict()": "optimizer.state"},
}
