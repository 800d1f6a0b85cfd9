"""Known answers to 04.full_state: wrong ones by their diagnosis, right ones by a name."""

from course_lessons.lesson04.full_state import full_state


def _with_lines(disturbance):
    """Return edits that put lines before the reference's ``return``."""
    return {"return {": f"{disturbance}\nreturn {{"}


def _stepping(model, optimizer, scheduler):
    """Train on after the state is taken, so that the caller's run is changed."""
    state = full_state(model, optimizer, scheduler)
    optimizer.step()
    scheduler.step()
    return state


_MODEL = "model.state_dict()"
WRONG = {
    "not-called": {"torch.get_rng_state()": "torch.get_rng_state"},
    "a-seed": {"torch.get_rng_state()": "torch.initial_seed()"},
    "no-buffers": {_MODEL: "dict(model.named_parameters())"},
    "moved-generator": (_with_lines("torch.manual_seed(0)\nrandom.seed(0)"), _with_lines("random.random()")),
    "changed-input": (_with_lines("model.eval()"), _stepping),
    "not-plain": {"optimizer.state_dict()": "optimizer.state"},
}
