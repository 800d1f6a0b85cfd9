"""Drawings that explain: too long for a lesson's cell, and nothing a learner should copy.

``lessonNN.py`` holds those of lesson NN, also where a later lesson shows one again; ``core.py`` what
they share. Notebooks call them as ``drawings.roofline(...)``.
"""

from .lesson00 import five_doors
from .lesson01 import peaks, race, roofline, two_processors
from .lesson02 import pinned_route, transfer_chart, two_memories, what_moves
from .lesson03 import checkpoint_moments, loading_bars
from .lesson04 import gradient_sizes, loss_scale, number_formats, scores
from .lesson06 import batch_curve, means, memory_map, turns
from .lesson07 import busy_but, changes, facts, pyramid, timelines

__all__ = [
    "batch_curve",
    "busy_but",
    "changes",
    "checkpoint_moments",
    "facts",
    "five_doors",
    "gradient_sizes",
    "loading_bars",
    "loss_scale",
    "means",
    "memory_map",
    "number_formats",
    "peaks",
    "pinned_route",
    "pyramid",
    "race",
    "roofline",
    "scores",
    "timelines",
    "transfer_chart",
    "turns",
    "two_memories",
    "two_processors",
    "what_moves",
]
