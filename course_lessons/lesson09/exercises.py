"""The exercises of lesson 09, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .accumulation_gap import EXERCISE as accumulation_gap
from .as_numpy import EXERCISE as as_numpy
from .averaged import EXERCISE as averaged
from .bad_labels import EXERCISE as bad_labels
from .batch_statistics import EXERCISE as batch_statistics
from .bucket_lengths import EXERCISE as bucket_lengths
from .choose_checkpoints import EXERCISE as choose_checkpoints
from .compare import EXERCISE as compare
from .crossover import EXERCISE as crossover
from .first_that_runs import EXERCISE as first_that_runs
from .first_tokens import EXERCISE as first_tokens
from .fit_mixed import EXERCISE as fit_mixed
from .fit_the_card import EXERCISE as fit_the_card
from .gather_rows import EXERCISE as gather_rows
from .gpu_list import EXERCISE as gpu_list
from .hottest import EXERCISE as hottest
from .keep_best import EXERCISE as keep_best
from .leaving import EXERCISE as leaving
from .left_behind import EXERCISE as left_behind
from .masked_loss import EXERCISE as masked_loss
from .memory_ledger import EXERCISE as memory_ledger
from .memory_line import EXERCISE as memory_line
from .newest import EXERCISE as newest
from .optimizer_steps import EXERCISE as optimizer_steps
from .predictions import EXERCISE as predictions
from .prefetch import EXERCISE as prefetch
from .race import EXERCISE as race
from .rank_of import EXERCISE as rank_of
from .save_on_one import EXERCISE as save_on_one
from .steady_loop import EXERCISE as steady_loop
from .step_in_backward import EXERCISE as step_in_backward
from .train_logged import EXERCISE as train_logged
from .train_watched import EXERCISE as train_watched
from .two_steps import EXERCISE as two_steps
from .waits import EXERCISE as waits
from .without_sigmoid import EXERCISE as without_sigmoid

TAKE_HOME = (race, crossover, compare, memory_line, accumulation_gap)
DEVICES = (gpu_list, bad_labels, as_numpy, first_that_runs, predictions, left_behind)
LOOP = (optimizer_steps, waits, keep_best, newest, train_watched)
PRECISION = (leaving, without_sigmoid, fit_mixed, averaged, two_steps)
MEMORY = (
    memory_ledger,
    first_tokens,
    steady_loop,
    fit_the_card,
    step_in_backward,
    choose_checkpoints,
)
SPEED = (hottest, masked_loss, train_logged, bucket_lengths, prefetch)
SEVERAL = (rank_of, save_on_one, batch_statistics, gather_rows)
EXERCISES: tuple[Exercise, ...] = (
    *TAKE_HOME,
    *DEVICES,
    *LOOP,
    *PRECISION,
    *MEMORY,
    *SPEED,
    *SEVERAL,
)
