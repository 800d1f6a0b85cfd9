"""The lessons in another language: the same code, and they run."""

from __future__ import annotations

import ast
import re
import time
from functools import cache

import nbformat
import pytest
from harness import (
    EACH_LESSON,
    LESSONS,
    NOTEBOOKS,
    ROOT,
    TABLE,
    code_cells,
    executed_problems,
    keep,
    nbval,
    network_attempts,
    outcomes,
)
from test_translation import IN, NEW_ENOUGH, TODAY, translator  # noqa: F401  (a fixture)

from course_language import texts
from course_utils.exercises import lesson as exercises_of
from tools.authoring.solve import tried_and_solved

if NEW_ENOUGH:
    from tools.authoring.translation import catalogues, code


@TODAY
@IN
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.id)
def test_the_code_is_the_same_but_for_texts_and_comments(language, lesson):
    english = nbformat.read(NOTEBOOKS / lesson.file, as_version=4)
    other = nbformat.read(NOTEBOOKS / language / lesson.file, as_version=4)
    assert [cell.id for cell in other.cells] == [cell.id for cell in english.cells]
    pairs = zip(code_cells(other), code_cells(english), strict=True)
    pairs = [pair for pair in pairs if "generated" not in pair[0].metadata.get("tags", ())]
    keys, said = code.keys(theirs.source for _, theirs in pairs), {}
    known = catalogues.translations(language, f"notebooks/{lesson.file.removesuffix('.ipynb')}")
    for mine, theirs in pairs:
        trees = [ast.parse(code.plain(cell.source)) for cell in (mine, theirs)]
        found = set(map(id, texts.found(trees[1], docs=True, keys=keys)))
        assert not list(_differ(*trees, found, keys, said)), mine.id
        left = _compared(trees[0])
        assert not {text for text in left if known.get(text, text) != text}, "never equal any more"
    assert {key: others for key, others in said.items() if len(others) > 1} == {}
    assert len({min(others) for others in said.values()}) == len(said), "two keys became one"


def _compared(tree):
    """Return the strings that a program compares something with."""
    sides = (
        part for node in ast.walk(tree) if isinstance(node, ast.Compare) for part in ast.walk(node)
    )
    return {p.value for p in sides if isinstance(p, ast.Constant) and isinstance(p.value, str)}


def _differ(mine, theirs, found, keys, said):
    """Yield where two programs differ in more than the texts that were found in the second; note what keys became."""
    if isinstance(theirs, ast.Constant) and theirs.value in keys:
        said.setdefault(theirs.value, set()).add(getattr(mine, "value", None))
    if id(theirs) in found:
        values = [{ast.dump(value) for value in texts.message(node)[1]} for node in (mine, theirs)]
        if not values[0] <= values[1] and not any(
            id(part) in found for part in ast.walk(theirs) if part is not theirs
        ):
            yield ast.dump(mine)
    elif theirs in code.programs(theirs):
        inner = [ast.parse(node.value) for node in (mine, theirs)]
        yield from _differ(*inner, set(map(id, texts.found(inner[1], docs=True))), keys, said)
    elif type(mine) is not type(theirs):
        yield ast.dump(mine)
    else:
        for name, wanted in ast.iter_fields(theirs):
            got = getattr(mine, name)
            if isinstance(wanted, list) and all(isinstance(part, ast.AST) for part in wanted):
                if len(got) != len(wanted):
                    yield ast.dump(mine)
                for pair in zip(got, wanted, strict=False):
                    yield from _differ(*pair, found, keys, said)
            elif isinstance(wanted, ast.AST):
                yield from _differ(got, wanted, found, keys, said)
            elif got != wanted:
                yield ast.dump(mine)


_ENGLISH = re.compile(r"(?:(?<![\w`./'\"-])[a-z]{2,}(?:[ ,] ?|$)){4,}")
"""Four words in a row that nobody translated."""


@cache
def _ours() -> str:
    """Return all strings of the course's programs and cells, without docstrings and programs in a string."""
    sources = [(ROOT / path).read_text(encoding="utf-8") for path in catalogues.programs()]
    for lesson in LESSONS:
        cells = code_cells(nbformat.read(NOTEBOOKS / lesson.file, 4))
        sources += [code.plain(cell.source) for cell in cells]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    told = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    found = [n.value for n in nodes if isinstance(n, ast.Constant) and id(n) not in told]
    return "\n".join(text for text in found if isinstance(text, str) and "import " not in text)


@cache
def _kept(language: str) -> str:
    """Return what stays English on purpose: keys, records, and what the catalogues give back as it is."""
    same = [text for english, text in catalogues.translations(language).items() if english == text]
    trees = [ast.parse((ROOT / path).read_text(encoding="utf-8")) for path in catalogues.programs()]
    records = [
        path.read_text("utf-8") for path in (ROOT / "course_lessons" / "recorded").glob("*.json")
    ]
    return "\n".join([*same, *records, *(key for tree in trees for key in texts.kept(tree))])


def english(nb, language):
    """Say which outputs have the course's own words in English, keys apart; PyTorch's messages stay as they are."""
    for cell in code_cells(nb):
        for output in cell.outputs:
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            for line in text.splitlines():
                if "missing from font" in line:
                    yield f"cell {cell.id}: {line}"
                for found in _ENGLISH.finditer(re.sub(r"\w+Error: .*", "", line)):
                    words = found[0].strip(" ,")
                    if words in _ours() and words not in _kept(language):
                        yield f"cell {cell.id}: {line[:160]}"


@TODAY
@pytest.mark.notebook
@pytest.mark.everywhere  # and on the pair colab: the code is the one that test_as_shipped.py runs, as the first test says
@IN
@pytest.mark.parametrize("lesson", EACH_LESSON)
def test_a_translated_lesson_runs_as_shipped_and_answered(
    language, lesson, tmp_path, record_property
):
    """One run for both, as test_as_shipped.py has it; figures may lack no sign: a warning is an error there."""
    exercises = exercises_of(lesson.id)
    source = NOTEBOOKS / language / lesson.file
    nb = tried_and_solved(nbformat.read(source, as_version=4), exercises)
    path = tmp_path / lesson.file
    nbformat.write(nb, path)
    start = time.perf_counter()
    found = nbval([path], tmp_path, NBVAL_CWD=str(source.parent))[path.stem]
    minutes = (time.perf_counter() - start) / 60
    ran = nbformat.read(path, as_version=4)
    path = path.rename(path.with_name(f"{path.stem}_{language}.ipynb"))
    keep(path)
    record_property(
        f"{TABLE}lessons in {language}: cells run, exercises right, minutes",
        f"{lesson.file:32} {len(code_cells(nb)):4} {len(exercises):4} {minutes:6.2f}",
    )
    problems = [*found.others, *executed_problems(ran), *english(ran, language)]
    assert not problems, "\n".join(problems[:12])
    assert not network_attempts(tmp_path)
    assert outcomes(ran) == {exercise.id: ["not_tried", "right"] for exercise in exercises}
