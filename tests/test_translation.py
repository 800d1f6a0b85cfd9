"""The course in another language: in step with the English, the same code, and lessons that run."""

from __future__ import annotations

import time

import nbformat
import pytest
from harness import (
    EACH_LESSON,
    NOTEBOOKS,
    TABLE,
    code_cells,
    executed_problems,
    nbval,
    network_attempts,
    outcomes,
)

import course_language
from course_utils.exercises import lesson as exercises_of
from tools.authoring.solve import tried_and_solved

LANGUAGES = course_language.languages()[1:]
TRANSLATED = [pytest.param(language, id=language) for language in LANGUAGES]


@pytest.mark.notebook
@pytest.mark.parametrize("language", TRANSLATED)
@pytest.mark.parametrize("lesson", EACH_LESSON)
def test_a_translated_lesson_runs_as_shipped_and_answered(
    language, lesson, tmp_path, record_property
):
    exercises = exercises_of(lesson.id)
    source = NOTEBOOKS / language / lesson.file
    nb = tried_and_solved(nbformat.read(source, as_version=4), exercises)
    path = tmp_path / lesson.file
    nbformat.write(nb, path)
    start = time.perf_counter()
    found = nbval([path], tmp_path, NBVAL_CWD=str(source.parent))[path.stem]
    minutes = (time.perf_counter() - start) / 60
    record_property(
        f"{TABLE}lessons in {language}: cells run, exercises right, minutes",
        f"{lesson.file:32} {len(code_cells(nb)):4} {len(exercises):4} {minutes:6.2f}",
    )
    ran = nbformat.read(path, as_version=4)
    problems = [*found.others, *executed_problems(ran), *english(ran)]
    assert not problems, "\n".join(problems[:8])
    assert not network_attempts(tmp_path)
    assert outcomes(ran) == {exercise.id: ["not_tried", "right"] for exercise in exercises}
