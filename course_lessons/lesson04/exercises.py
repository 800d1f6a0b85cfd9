"""The exercises of lesson 04, in their order."""

from . import full_state, index_batches, save_atomic

_MODULES = index_batches, full_state, save_atomic
EXERCISES = tuple(module.EXERCISE for module in _MODULES)
