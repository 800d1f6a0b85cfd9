"""Prints lesson 08's five loops on every simulated card: batch size, regime and facts."""

from __future__ import annotations

from functools import partial

import simgpu
from course_lessons.lesson08 import sizes
from course_lessons.lesson08.regime import regime
from course_lessons.shared.profiling import Facts, facts
from simgpu import profiles

from .lesson08 import LOOPS, make_step


def loops_on(card: str) -> dict[str, tuple[int, str, Facts]]:
    """Return each loop's batch size on a simulated card, its regime by the lesson's rule, and its facts."""
    device = simgpu.enable(card)
    step_of = partial(make_step, device)
    smallest = {f"loop {number}": how for number, how in enumerate(LOOPS.values(), 1)}
    loops = {}
    for name, how in sizes.fitted(smallest, step_of, device).items():
        step_facts = facts(step_of(**how), device, calls=2, values=False)
        loops[name] = how["batch"], regime(step_facts), step_facts
    return loops


if __name__ == "__main__":
    for card in profiles.names():
        print(f"{card} (modelled)")
        for name, (batch, called, step_facts) in loops_on(card).items():
            print(
                f"  {name}  batch {batch:6,}  {called:15}  {1e3 * step_facts.seconds:5.2f} ms  "
                f"busy {step_facts.busy:4.0%}  loading {step_facts.loading:4.0%}  "
                f"waiting {step_facts.waiting:4.0%}  FLOP/s {step_facts.flop_share:4.0%}  "
                f"bytes/s {step_facts.byte_share:4.0%}"
            )
