"""The exercises of lesson 05, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .accumulate import EXERCISE as accumulate
from .amp_step import EXERCISE as amp_step
from .checkpoint import EXERCISE as checkpoint
from .choose_precision import EXERCISE as choose_precision
from .clipped_step import EXERCISE as clipped_step
from .follow_scale import EXERCISE as follow_scale
from .logits_loss import EXERCISE as logits_loss
from .lost import EXERCISE as lost

EXERCISES: tuple[Exercise, ...] = (
    lost,
    amp_step,
    clipped_step,
    checkpoint,
    choose_precision,
    logits_loss,
    follow_scale,
    accumulate,
)
