"""Known wrong answers to 08.memory_line, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson08.memory_line import LINE_TWINS, memory_line


def _line_all_at_once(make_step, batches, meter):
    steps = {batch: make_step(batch) for batch in batches}
    return memory_line(steps.get, batches, meter)


WRONG = {
    **LINE_TWINS,
    "keeps-all": _line_all_at_once,
}
