"""The lessons in another language: the same code, and they run."""

from __future__ import annotations

import ast
import copy
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
from test_translation import IN, NEW_ENOUGH, PROGRAMS, TODAY, translator  # noqa: F401  (a fixture)

from course_utils.exercises import lesson as exercises_of
from tools.authoring.solve import tried_and_solved

if NEW_ENOUGH:
    from tools.authoring.translation import catalogues, cell_texts, code


@TODAY
@IN
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.id)
def test_the_code_is_the_same_but_for_texts_and_comments(language, lesson):
    english = nbformat.read(NOTEBOOKS / lesson.file, as_version=4)
    other = nbformat.read(NOTEBOOKS / language / lesson.file, as_version=4)
    assert [cell.id for cell in other.cells] == [cell.id for cell in english.cells]
    pairs = zip(code_cells(other), code_cells(english), strict=True)
    pairs = [pair for pair in pairs if "generated" not in pair[0].metadata.get("tags", ())]
    known = catalogues.translations(language, f"notebooks/{lesson.file.removesuffix('.ipynb')}")
    for mine, theirs in pairs:
        trees = [ast.parse(code.without_magics(cell.source)) for cell in (mine, theirs)]
        shown = [{ast.dump(_bare(value.value)) for value in _values(tree)} for tree in trees]
        assert shown[0] <= shown[1], "a value that the English doesn't show"
        compared = cell_texts.compared(trees[0])
        assert not {text for text in compared if known.get(text, text) != text}, "never equal"
        assert ast.dump(_bare(trees[0])) == ast.dump(_bare(trees[1])), mine.id
    keys = code.keys(theirs.source for _, theirs in pairs)
    assert len({known.get(key, key) for key in keys}) == len(keys), "two keys became one"


def _values(tree):
    """Return the nodes of the values in f-strings."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FormattedValue)]


def _bare(tree):
    """Return a copy of a syntax tree in which all strings are empty."""

    class Emptied(ast.NodeTransformer):
        def visit_Constant(self, node):
            return ast.Constant("") if isinstance(node.value, str) else node

        def visit_JoinedStr(self, node):
            return ast.Constant("")

    return Emptied().visit(copy.deepcopy(tree))


_ENGLISH = re.compile(r"(?:(?<![\w`./'\"-])[a-z]{2,}(?:[ ,] ?|$)){4,}")
"""Four words in a row that nobody translated."""


@cache
def _programs() -> list[ast.Module]:
    """Return the syntax trees of the course's own modules and cells."""
    sources = [path.read_text(encoding="utf-8") for path in PROGRAMS if "tools" not in path.parts]
    for lesson in LESSONS:
        cells = code_cells(nbformat.read(NOTEBOOKS / lesson.file, 4))
        sources += [code.without_magics(cell.source) for cell in cells]
    return [ast.parse(source) for source in sources]


@cache
def _ours() -> str:
    """Return all strings in them, without docstrings and embedded programs."""
    nodes = [node for tree in _programs() for node in ast.walk(tree)]
    told = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    found = [n.value for n in nodes if isinstance(n, ast.Constant) and id(n) not in told]
    return "\n".join(text for text in found if isinstance(text, str) and "import " not in text)


@cache
def _kept(language: str) -> str:
    """Return strings that stay English: keys, records, and texts whose translation is the same."""
    same = [text for english, text in catalogues.translations(language).items() if english == text]
    records = [path.read_text("utf-8") for path in (ROOT / "course_lessons" / "recorded").glob("*.json")]
    keys = (key for tree in _programs() for key in cell_texts.compared(tree))
    return "\n".join([*same, *records, *keys])


def english(nb, language):
    """Return the outputs that contain the course's own English texts, except keys and PyTorch's messages."""
    for cell in code_cells(nb):
        for output in cell.outputs:
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            if re.match(r"\w+Error: ", text):
                continue  # an error that the cell shows, maybe of several lines
            for line in text.splitlines():
                if "missing from font" in line:
                    yield f"cell {cell.id}: {line}"
                for found in _ENGLISH.finditer(re.sub(r"\w+Error: .*", "", line)):
                    words = found[0].strip(" ,")
                    if words in _ours() and words not in _kept(language):
                        yield f"cell {cell.id}: {line[:160]}"


@TODAY
@pytest.mark.notebook
@pytest.mark.everywhere  # and on the pair colab: it is the code that test_as_shipped.py runs, see above
@IN
@pytest.mark.parametrize("lesson", EACH_LESSON)
def test_a_translated_lesson_runs_as_shipped_and_answered(language, lesson, tmp_path, record_property):
    """One run for both, as test_as_shipped.py has it; a sign that a figure lacks is an error."""
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
