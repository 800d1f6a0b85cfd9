"""Drawings that explain: too long for a lesson's cell, and nothing a learner should copy.

``lessonNN.py`` holds those of lesson NN, also where a later lesson shows one again; ``core.py`` what
they share. Notebooks call them as ``drawings.roofline(...)``.
"""

from .lesson00 import five_doors
from .lesson01 import peaks, race, roofline, two_processors
from .lesson02 import pinned_route, transfer_chart, two_memories, what_moves
from .lesson03 import checkpoint_moments, loading_bars
from .lesson04 import gradient_sizes, loss_scale, number_formats, scores
from .lesson05 import buckets, chunks, mesh, rank_lanes, ranks, ring, scaling
from .lesson06 import batch_curve, means, memory_map, turns
from .lesson07 import busy_but, changes, facts, pyramid, timelines
from .lesson08 import (
    comparison,
    gradient_gaps,
    memory_fit,
    progress_by_level,
    speed_ups,
    written,
)
from .lesson09 import Height, crops, ladder, report_card, runs

__all__ = [
    "Height",
    "batch_curve",
    "buckets",
    "busy_but",
    "changes",
    "checkpoint_moments",
    "chunks",
    "comparison",
    "crops",
    "facts",
    "five_doors",
    "gradient_gaps",
    "gradient_sizes",
    "ladder",
    "loading_bars",
    "loss_scale",
    "means",
    "memory_fit",
    "memory_map",
    "mesh",
    "number_formats",
    "peaks",
    "pinned_route",
    "progress_by_level",
    "pyramid",
    "race",
    "rank_lanes",
    "ranks",
    "report_card",
    "ring",
    "roofline",
    "runs",
    "scaling",
    "scores",
    "speed_ups",
    "timelines",
    "transfer_chart",
    "turns",
    "two_memories",
    "two_processors",
    "what_moves",
    "written",
]
