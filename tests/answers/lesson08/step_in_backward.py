"""Known wrong answers to 08.step_in_backward, by the diagnosis that each must get."""

from __future__ import annotations


def _fused_late_binding(model, make_optimizer):
    for parameter in model.parameters():
        if parameter.requires_grad:
            optimizer = make_optimizer([parameter])

            def update(parameter):
                optimizer.step()  # noqa: B023  (this is the fault)
                optimizer.zero_grad()  # noqa: B023

            parameter.register_post_accumulate_grad_hook(update)


def _fused_too_early(model, make_optimizer):
    for parameter in model.parameters():
        if parameter.requires_grad:
            optimizer = make_optimizer([parameter])
            parameter.register_hook(lambda gradient, optimizer=optimizer: optimizer.step())


def _fused_without_clearing(model, make_optimizer):
    optimizers = {p: make_optimizer([p]) for p in model.parameters() if p.requires_grad}
    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())


def _fused_at_the_last(model, make_optimizer):
    optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])

    def update(parameter):
        optimizer.step()
        optimizer.zero_grad()

    model.first.weight.register_post_accumulate_grad_hook(update)
    model.first.bias.register_post_accumulate_grad_hook(update)


def _fused_new_each_time(model, make_optimizer):
    def update(parameter):
        make_optimizer([parameter]).step()
        parameter.grad = None

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(update)


WRONG = {
    "none-moved": _fused_too_early,
    "some-moved": _fused_late_binding,
    "gradients-stay": _fused_without_clearing,
    "all-at-once": _fused_at_the_last,
    "other-weights": _fused_new_each_time,
}
