"""Gradients that never meet."""

import functools

import torch
from torch import nn
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.checking import LiveTensors, one_thread, relative_error
from course_lessons.shared.edited import edited
from course_utils.exercises import Exercise


def step_in_backward(model, make_optimizer):
    optimizers = {p: make_optimizer([p]) for p in model.parameters() if p.requires_grad}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(update)


def _make_network():
    """Return a network with a frozen layer, and a layer that is used twice."""
    torch.manual_seed(5)
    layers = [nn.Linear(6, 8), *(nn.Linear(8, 8) for _ in range(5))]
    layers[1].requires_grad_(False)
    parts = [part for layer in (*layers, layers[2]) for part in (layer, nn.Tanh())]
    return nn.Sequential(*parts, nn.Linear(8, 3))


def _train_three_steps(make_optimizer, fuse=None):
    """Train for three steps, by the plain loop or with ``fuse``, such as the answer.

    Returns the change of each weight, whether each trainable one was unchanged after the first step, the
    gradients left after backward, and the most bytes of gradients at once.
    """
    model = _make_network()
    parameters = list(model.parameters())
    before = [p.detach().clone() for p in parameters]
    gradients, gradients_left, unchanged = LiveTensors(), [], []
    for p in parameters:
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(lambda p: gradients.add(p.grad))
    optimizer = fuse(model, make_optimizer) if fuse else make_optimizer(parameters)
    for rows in (4, 7, 3):
        x, y = torch.randn(rows, 6), torch.randint(3, (rows,))
        F.cross_entropy(model(x), y).backward()
        if not fuse:
            optimizer.step()
            optimizer.zero_grad()
        gradients_left += [p.grad.clone() for p in parameters if p.grad is not None]
        changes = [p.detach() - b for p, b in zip(parameters, before, strict=True)]
        unchanged = unchanged or [
            not m.any() for p, m in zip(parameters, changes, strict=True) if p.requires_grad
        ]
    return changes, unchanged, gradients_left, gradients.peak


_FORGETFUL = edited(step_in_backward, {"optimizers[parameter].step()": "make_optimizer([parameter]).step()"})


@one_thread()
def _check_answer(answer, judge):
    """Check with two optimisers that all weights are trained rightly, and gradients are freed one by one."""
    largest = max(p.nbytes for p in _make_network().parameters())
    for make_optimizer in (
        functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        functools.partial(torch.optim.Adam, lr=0.01),
    ):
        changes, unchanged, gradients_left, peak = _train_three_steps(make_optimizer, answer)
        right, __, __, usual = _train_three_steps(make_optimizer)
        if all(unchanged[:-1]):
            diagnosis = "none-moved" if unchanged[-1] else "late-names"
            seen = _("{sum_still} of {n_still} parameters are as before the first backward()").format(
                sum_still=sum(unchanged), n_still=len(unchanged)
            )
            judge.no(diagnosis, seen=seen, expected=_("all of them trained"))
        if gradients_left:
            diagnosis = "gradients-stay" if any(g.any() for g in gradients_left) else "wrong-value"
            judge.no(diagnosis, seen=_("gradients after backward()"), expected=_("none is left"))
        if peak > 2 * largest:
            seen = _("{peak:,} bytes of gradients at once").format(peak=peak)
            expected = _("about {largest:,}, the largest one; all together are {usual:,}")
            judge.no("all-at-once", seen=seen, expected=expected.format(largest=largest, usual=usual))
        off = relative_error(changes, right)
        if off > 1e-4:
            forgetful = _train_three_steps(make_optimizer, _FORGETFUL)[0]
            judge.no(
                "forgets" if relative_error(changes, forgetful) < 1e-4 else "wrong-value",
                seen=_("weights whose change is {off:.0%} off after three steps").format(off=off),
                expected=_("those of backward(), step() and zero_grad()"),
            )


EXERCISE = Exercise(
    id="09.step_in_backward",
    title="Gradients that never meet",
    level=3,
    minutes=10,
    task="""
Between `backward()` and `step()` every gradient is in memory at once, as large as the model. Write
`step_in_backward(model, make_optimizer)`: after it, each `loss.backward()` also trains. As soon as a
parameter's gradient is complete, the parameter is updated and its gradient freed.
`make_optimizer(parameters)` takes a list. Some parameters are frozen; one module is used twice. The weights
must be those of `backward()`, `step()` and `zero_grad()`.
""",
    hints=(
        "Autograd has to call you as soon as one parameter's gradient is complete and stored in `.grad`. A "
        "tensor has several methods with `hook` in their name. Ask which of them runs late enough, and what "
        "it gives to your function.",
        "`parameter.register_post_accumulate_grad_hook(f)` calls `f(parameter)` when `parameter.grad` is "
        "complete, even if a module was used twice. In there, update the parameter, and then free its "
        "gradient. Momentum has to last from step to step. So make the optimisers beforehand, one for each "
        "parameter that trains, and keep them where `f` can find the right one.",
        """Here the same kind of hook keeps a note of each gradient's size, and finds its place by the
parameter:

```python
layer = torch.nn.Linear(3, 2)
norms = {}

def note(p):
    norms[p] = p.grad.norm()

for p in layer.parameters():
    p.register_post_accumulate_grad_hook(note)
layer(torch.ones(1, 3)).sum().backward()  # now norms has two entries
```""",
    ),
    reference=step_in_backward,
    check_answer=_check_answer,
    why="Only one gradient is in memory at a time, which saves a quarter of what Adam in float32 needs "
    "beside the activations. In return you can't clip by the norm of all gradients, accumulate, or use a "
    "GradScaler, because each of them must see all gradients before the first step.",
    diagnoses={
        "none-moved": "No parameter changed in the first `backward()`. A step has nothing to do while "
        "`.grad` is None, and what `register_hook` registers runs before the gradient is in `.grad`.",
        "late-names": "Only the last parameter changed. A function made in a loop looks up the loop's names "
        "when it is called, and then they hold what the last turn left.",
        "gradients-stay": "Gradients are left after `backward()`, and the next ones are added to them.",
        "all-at-once": "Most gradients were in memory at once: they were freed only at the end.",
        "forgets": "The weights are those of optimizers that forget: what one remembers, such as momentum, "
        "must last from step to step.",
    },
    may_change=True,
)
