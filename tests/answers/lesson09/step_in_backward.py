"""Known answers to 09.step_in_backward."""

from course_lessons.shared.edited import edited


def _late_binding(model, make_optimizer):
    """Update with the optimiser of the last parameter, whichever has its gradient."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            optimizer = make_optimizer([parameter])

            def update(parameter):
                optimizer.step()  # noqa: B023  (this is the fault)
                optimizer.zero_grad()  # noqa: B023

            parameter.register_post_accumulate_grad_hook(update)


def _too_early(model, make_optimizer):
    """Update before the gradient is accumulated."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            optimizer = make_optimizer([parameter])
            parameter.register_hook(lambda gradient, optimizer=optimizer: optimizer.step())


def _by_closures(model, make_optimizer):
    def hook(parameter):
        optimizer = make_optimizer([parameter])

        def update(_):
            optimizer.step()
            parameter.grad = None

        return update

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(hook(parameter))


def _one_optimizer(model, make_optimizer):
    optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])

    def update(parameter):
        optimizer.step()
        parameter.grad = None

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(update)


_STEP = "optimizers[parameter].step()"
_ZERO = "optimizers[parameter].zero_grad()"
WRONG = {
    "none-moved": (_too_early, {f"{_STEP}\n{_ZERO}": f"{_ZERO}\n{_STEP}"}),
    "late-names": _late_binding,
    "gradients-stay": {_ZERO: ""},
    "all-at-once": edited(
        _one_optimizer,
        {
            "parameter.grad = None": "optimizer.zero_grad()",
            "if parameter.requires_grad": "if parameter in set(model[0].parameters())",
        },
    ),
    "forgets": {_STEP: "make_optimizer([parameter]).step()"},
}
RIGHT = {"closures": _by_closures, "one optimizer": _one_optimizer}
