"""Known answers to 03.full_state: wrong ones by their diagnosis, right ones by a name."""

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
    "not-called": {"torch.get_rng_state()": "torch.get_rng_state"},
    "a-seed": {"torch.get_rng_state()": "torch.initial_seed()"},
    "no-buffers": {_MODEL: "dict(model.named_parameters())"},
    "moved-generator": (_after("torch.manual_seed(0)\nrandom.seed(0)"), _after("random.random()")),
    "changed-input": (_after("model.eval()"), _stepping),
    "not-plain": {"optimizer.state_dict()": "optimizer.state"},
}
