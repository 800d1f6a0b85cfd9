"""The exercises of lesson 08, in their order."""

from . import event_seconds, mend_a, mend_b, mend_c, mend_d, mend_e, mend_f, mfu, regime

_MODULES = event_seconds, regime, mfu, mend_a, mend_b, mend_c, mend_d, mend_e, mend_f
EXERCISES = tuple(module.EXERCISE for module in _MODULES)
