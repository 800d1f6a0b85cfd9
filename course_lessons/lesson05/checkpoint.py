"""The scaler has a memory too."""

import copy
import math
import pickle

import torch
from torch import nn

from course_language import _
from course_utils.exercises import Exercise
from course_utils.exercises.values import nearly

from ..shared.checking import made_batches, one_thread, save_and_load
from .runs import Run


def checkpoint(model, optimizer, scaler):
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
    }


def _trained_run(use_scaler):
    """Return a run after four steps, with running statistics, momentum, and a scaler that met an overflow."""
    run = Run(use_scaler=use_scaler, between=lambda: nn.BatchNorm1d(8))
    for number, (x, y) in enumerate(made_batches((4,) * 4)):
        loss = run.loss_fn(run.model(x), y) * (math.inf if use_scaler and number == 1 else 1.0)
        run.optimizer.zero_grad()
        run.scaler.scale(loss).backward()
        run.scaler.step(run.optimizer)
        run.scaler.update()
    return run


@one_thread()
def _check_answer(answer, judge):
    """Check the keys and the state of each part, with an enabled and a disabled scaler."""
    for use_scaler in (True, False):
        run = _trained_run(use_scaler)
        right = copy.deepcopy(checkpoint(run.model, run.optimizer, run.scaler))
        state = answer(run.model, run.optimizer, run.scaler)
        judge.is_a(state, dict, _("a dict with the keys of the task"))
        if missing := [key for key in right if key not in state]:
            diagnosis = "no-scaler" if use_scaler and missing == ["scaler"] else "wrong-value"
            seen = _("the keys {keys}").format(keys=", ".join(map(str, state)) or _("(none)"))
            judge.no(diagnosis, seen=seen, expected=", ".join(right))
        try:
            save_and_load(state)
        except (pickle.PickleError, AttributeError, TypeError, RuntimeError) as error:
            judge.no("not-plain", seen=str(error).splitlines()[0], expected=_("plain state"))
        for name, whole in right.items():
            _judge_saved_part(name, state[name], whole, judge)
        if not run.model.training:
            judge.no("changed-input", seen=_("the model in eval mode"), expected=_("still in train mode"))
        for name, whole in right.items():
            if not nearly(0, 0)(getattr(run, name).state_dict(), whole):
                judge.no(
                    "changed-input",
                    seen=_("the {name} in another state").format(name=name),
                    expected=_("as it was"),
                )


def _judge_saved_part(name, part, whole, judge):
    """Refuse a part that cannot be loaded as the ``state_dict`` ``whole`` can, or holds other values."""
    if name == "scaler":
        if not whole and part != whole:
            judge.no(seen=repr(part), expected="{}")
        is_number = isinstance(part, (int, float, torch.Tensor))
        if is_number or (isinstance(part, dict) and set(part) == {"scale"}):
            judge.no("scale-only", seen=repr(part), expected=repr(whole))
    if not isinstance(part, dict):
        judge.no(
            seen=_("a {kind}").format(kind=type(part).__name__),
            expected=_("the {name}'s state_dict()").format(name=name),
        )
    if missing := [str(key) for key in whole if key not in part]:
        buffers = name == "model" and all("running" in key or "num" in key for key in missing)
        diagnosis = "buffers" if buffers else "wrong-value"
        judge.no(
            diagnosis,
            seen=_("nothing for {missing}").format(missing=", ".join(missing)),
            expected=_("all of it"),
        )
    if name == "optimizer" and not part["state"]:
        judge.no("no-moments", seen=_("no state of any parameter"), expected=_("the momentum of each"))
    part = {key: part[key] for key in whole}
    if name == "model":
        dtypes = [[str(getattr(v, "dtype", type(v))) for v in d.values()] for d in (part, whole)]
        judge.expect("dtypes", *dtypes)
    judge.expect(_("the {name}'s state").format(name=name), part, whole, alike=nearly(0, 0))


EXERCISE = Exercise(
    id="05.checkpoint",
    title="The scaler has a memory too",
    level=1,
    minutes=5,
    task="""
Write `checkpoint(model, optimizer, scaler)`: a dict with the keys `"model"`, `"optimizer"` and `"scaler"`.
With it a training must go on as if nothing had happened, with the same weights and the same scales, step by
step. It must load with `weights_only=True`. The scaler may be disabled.
""",
    hints=(
        "Imagine that training stops tonight and goes on tomorrow with new objects. What would each of the "
        "three have forgotten? The scaler, for example, has to know more than its scale, because it also "
        "counts good steps until the next doubling.",
        "Don't collect the parts yourself. The model, the optimiser and the scaler have a method of the "
        "same name, and it returns all their state as plain tensors, numbers and containers. "
        "`weights_only=True` loads these, and refuses whole objects. The method works for a disabled scaler "
        "too, whose state is an empty dict.",
        "A learning rate schedule has that method too. Here a new schedule gets the state of the old "
        "one:\n\n"
        """```python
optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.8)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
kept = {"epoch": 4, "schedule": schedule.state_dict()}
other = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
other.load_state_dict(kept["schedule"])
print(other.step_size)  # 30
```""",
    ),
    reference=checkpoint,
    check_answer=_check_answer,
    why="A new scaler starts at 65536 and has to come down again, with a skipped step for every halving. "
    "Where the old scale had grown, small gradients get lost until the new one has grown too.",
    diagnoses={
        "no-scaler": "The scaler is missing: after a restart it begins at its first scale.",
        "scale-only": "The scale alone is not the scaler's state: the count of good steps since the last "
        "change is lost, and the next doubling comes late.",
        "not-plain": "The checkpoint holds whole objects. Keep their state: tensors, numbers, strings, and "
        "containers of them.",
        "buffers": "The parameters alone are not the model's state: buffers, such as BatchNorm's running "
        "statistics, are missing.",
        "no-moments": "The optimiser's state of each parameter is missing: its momentum starts from nothing.",
    },
)
