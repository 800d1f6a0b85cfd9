"""The exercises of lesson 08, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import (
    accumulation_gap,
    as_numpy,
    averaged,
    bad_labels,
    batch_statistics,
    bucket_lengths,
    choose_checkpoints,
    compare,
    crossover,
    first_that_runs,
    first_tokens,
    fit_mixed,
    fit_the_card,
    gather_rows,
    gpu_list,
    hottest,
    keep_best,
    leaving,
    left_behind,
    masked_loss,
    memory_ledger,
    memory_line,
    newest,
    optimizer_steps,
    predictions,
    prefetch,
    race,
    rank_of,
    save_on_one,
    steady_loop,
    step_in_backward,
    train_logged,
    train_watched,
    two_steps,
    waits,
    without_sigmoid,
)

TAKE_HOME = (
    race.EXERCISE,
    crossover.EXERCISE,
    compare.EXERCISE,
    memory_line.EXERCISE,
    accumulation_gap.EXERCISE,
)
DEVICES = (
    gpu_list.EXERCISE,
    bad_labels.EXERCISE,
    as_numpy.EXERCISE,
    first_that_runs.EXERCISE,
    predictions.EXERCISE,
    left_behind.EXERCISE,
)
LOOP = (
    optimizer_steps.EXERCISE,
    waits.EXERCISE,
    keep_best.EXERCISE,
    newest.EXERCISE,
    train_watched.EXERCISE,
)
PRECISION = (
    leaving.EXERCISE,
    without_sigmoid.EXERCISE,
    fit_mixed.EXERCISE,
    averaged.EXERCISE,
    two_steps.EXERCISE,
)
MEMORY = (
    memory_ledger.EXERCISE,
    first_tokens.EXERCISE,
    steady_loop.EXERCISE,
    fit_the_card.EXERCISE,
    step_in_backward.EXERCISE,
    choose_checkpoints.EXERCISE,
)
SPEED = (
    hottest.EXERCISE,
    masked_loss.EXERCISE,
    train_logged.EXERCISE,
    bucket_lengths.EXERCISE,
    prefetch.EXERCISE,
)
SEVERAL = (
    rank_of.EXERCISE,
    save_on_one.EXERCISE,
    batch_statistics.EXERCISE,
    gather_rows.EXERCISE,
)
EXERCISES: tuple[Exercise, ...] = (
    *TAKE_HOME,
    *DEVICES,
    *LOOP,
    *PRECISION,
    *MEMORY,
    *SPEED,
    *SEVERAL,
)
