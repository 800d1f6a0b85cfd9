"""The exercises of lesson 07, in their order."""

from . import (
    average_loss,
    batch_that_fits,
    checkpointed,
    diagnose,
    frugal_step,
    largest_batch,
    state_bytes,
)

_MODULES = (
    state_bytes,
    average_loss,
    diagnose,
    checkpointed,
    largest_batch,
    batch_that_fits,
    frugal_step,
)
EXERCISES = tuple(module.EXERCISE for module in _MODULES)
