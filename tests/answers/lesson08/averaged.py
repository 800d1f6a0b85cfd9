"""Known wrong answers to 08.averaged, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson08.averaged import AVERAGE_TWINS, average_with, rounded_mix

WRONG = {
    "in-16-bits": average_with(first=torch.clone, mix=rounded_mix),
    **AVERAGE_TWINS,
    "averages-counter": average_with(whole=lambda v: False),
}
