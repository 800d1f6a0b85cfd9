"""Known wrong answers to 05.sharded_bytes, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson05.sharded_bytes import (
    bytes_ddp_divided,
    bytes_divided,
    bytes_flat,
    bytes_flat_each,
    bytes_floor,
    bytes_of_parameters,
    bytes_parameters_sharded,
    bytes_states_sharded,
    bytes_vectors_whole,
    bytes_without_adam,
    bytes_without_gradients,
)

WRONG = {
    "divided": bytes_divided,
    "flat": bytes_flat,
    "flat-each": bytes_flat_each,
    "vectors-whole": bytes_vectors_whole,
    "floor": bytes_floor,
    "only-parameters": bytes_of_parameters,
    "three-numbers": bytes_without_gradients,
    "no-optimiser": bytes_without_adam,
    "states-only": bytes_states_sharded,
    "parameters-only": bytes_parameters_sharded,
    "ddp-divided": bytes_ddp_divided,
}
