"""What wrong answers to several exercises share."""

from __future__ import annotations


def _rescue_lenient(state, model):
    wanted = model.state_dict()
    for prefix in ("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."):
        if found := {key: state[prefix + key] for key in wanted if prefix + key in state}:
            return found
    raise ValueError("another model")
