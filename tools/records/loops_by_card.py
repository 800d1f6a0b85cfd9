"""Prints lesson 07's five loops on every simulated card: their batches, and what sets their pace."""

from __future__ import annotations

from functools import partial

import simgpu
from course_lessons.lesson07 import sizes
from course_lessons.lesson07.regime import regime
from course_lessons.shared.profiling import Facts, facts
from simgpu import profiles

from .lesson07 import LOOPS, make_step


def loops_on(card: str) -> dict[str, tuple[int, str, Facts]]:
    """Return for each loop its batch on a simulated card, its regime by the lesson's rule, and its facts."""
    device = simgpu.enable(card)
    step_of = partial(make_step, device)
    smallest = {f"loop {number}": how for number, how in enumerate(LOOPS.values(), 1)}
    loops = {}
    for name, how in sizes.fitted(smallest, step_of, device).items():
        of = facts(step_of(**how), device, calls=2, values=False)
        loops[name] = how["batch"], regime(of), of
    return loops


if __name__ == "__main__":
    for card in profiles.names():
        print(f"{card} (modelled)")
        for name, (batch, called, of) in loops_on(card).items():
            print(
                f"  {name}  batch {batch:6,}  {called:15}  {1e3 * of.seconds:5.2f} ms  "
                f"busy {of.busy:4.0%}  loading {of.loading:4.0%}  waiting {of.waiting:4.0%}  "
                f"FLOP/s {of.flop_share:4.0%}  bytes/s {of.byte_share:4.0%}"
            )
