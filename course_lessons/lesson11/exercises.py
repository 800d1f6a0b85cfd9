"""The exercises of lesson 11, in their order."""

from . import build_sharded, column_parallel, microbatches, sharded_bytes

_MODULES = sharded_bytes, build_sharded, column_parallel, microbatches
EXERCISES = tuple(module.EXERCISE for module in _MODULES)
