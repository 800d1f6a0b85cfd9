"""The course in another language: in step with the English, the same code, and lessons that run."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
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
    kernel_env,
    nbval,
    network_attempts,
    outcomes,
)
from support import skip

import course_language
from course_language import texts
from course_utils.exercises import lesson as exercises_of
from tools.authoring.solve import tried_and_solved

LANGUAGES = course_language.languages()[1:]
IN = pytest.mark.parametrize("language", LANGUAGES)
NEW_ENOUGH = sys.version_info >= (
    3,
    12,
)  # before, Python does not say where in an f-string a value stands
if NEW_ENOUGH:
    from tools.authoring.translation import (
        catalogues,
        checks,
        code,
        editions,
        font,
        progress,
        prose,
    )
TODAY = pytest.mark.usefixtures("translator")


@pytest.fixture
def translator():
    if not NEW_ENOUGH:
        skip(
            "translate needs Python 3.12, and says so", "2027-10-31"
        )  # the end of Python 3.10 and 3.11 here


def test_there_is_chinese():
    assert LANGUAGES == ("zh",)


# --- in step with the English ---------------------------------------------------------------------


@TODAY
@IN
def test_every_text_is_translated_and_nothing_is_out_of_step(language):
    assert progress.problems(language)[:20] == []


@TODAY
@pytest.mark.slow
@IN
def test_notebooks_and_pages_are_what_the_catalogues_make(language):
    assert list(editions.stale(language)) == []


@TODAY
@IN
def test_a_font_for_figures_has_every_sign_of_the_catalogues(language):
    have = font.covered(catalogues.LANGUAGES / language / "font.otf")
    assert "".join(sorted(font.signs(language) - have)) == ""


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course of one lesson and one module, translated, whose catalogues stand in a folder of their own."""
    (tmp_path / "notebooks").mkdir()
    cells = [
        nbformat.v4.new_markdown_cell("## What is a batch?\n\nIt has 64 images.", id="prose"),
        nbformat.v4.new_code_cell('print("loss of the batch")  # one number', id="code"),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebooks" / "01_one.ipynb")
    lesson = "{id: '01', file: 01_one.ipynb, title: One, minutes: 5, question: 'Why?'}"
    (tmp_path / "notebooks" / "course.yml").write_text(f"repository:\nlessons: [{lesson}]\n")
    monkeypatch.setattr(catalogues, "LANGUAGES", tmp_path / "languages")
    every = catalogues.sources

    def sources(root=tmp_path):
        return {name: got for name, got in every(root).items() if name.startswith("notebooks")}

    monkeypatch.setattr(catalogues, "sources", sources)
    (tmp_path / "languages" / "zh").mkdir(parents=True)
    terms = catalogues.LANGUAGES / "zh" / "terms.tsv"
    terms.write_text("English\tChinese\tnot\nbatch\t批次\t批量\n", encoding="utf-8")
    made = catalogues.fresh("notebooks/01_one")
    said = {
        "What is a batch?": "什么是批次？",
        "It has 64 images.": "它有 64 张图像。",
        "loss of the batch": "这个批次的损失",
        "one number": "一个数",
    }
    for entry in made:
        entry.string = said.get(entry.id, entry.string)
    catalogues.save(made, catalogues.catalogue("notebooks/01_one", "zh"))
    catalogues.compiled("zh").write_bytes(catalogues.runtime("zh"))
    assert progress.problems("zh") == []
    return tmp_path / "notebooks" / "01_one.ipynb"


@TODAY
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("It has 64 images.", "It has 64 small images."),
        ("64 images", "32 images"),
        ("loss of the batch", "mean loss of the batch"),
        ("one number", "one Python number"),
    ],
)
def test_a_changed_sentence_number_label_or_comment_is_told_with_its_cell(course, old, new):
    course.write_text(course.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    told = "\n".join(progress.problems("zh"))
    place = "prose" if "images" in old else "code"
    assert re.search(rf"notebooks/01_one, {place}: '[^']*{new}[^']*': new or changed", told)
    assert "no longer in the course" in told

    catalogues.renew("zh")
    assert "changed; its translation is of the text before" in "\n".join(progress.problems("zh"))


WRONG = {
    "": "missing",
    "见 `loss` 的 3 个值。": "code",
    "见 `loss.item()` 的 4 个值。": "numbers",
    "见 `loss.item()` 的 3 个值：{n}。": "values",
    "见 [这里](a.md) 的 3 个 `loss.item()` 值。": "links",
    "见 `loss.item()` 的 <b>3</b> 个值。": "tags",
    "见 **3** 个 `loss.item()` 值。": "**",
    "见`loss.item()` 的 3 个值。": "space is missing",
    "见 `loss.item()` 的 3个值。": "space is missing",
    "见 `loss.item()` 的 3 个值,如下。": "full-width",
    "见 `loss.item()` 的 3 个值 (如下)。": "parentheses",
    '见 `loss.item()` 的 3 个"值"。': "quotation",
    "见 `loss.item()` 的 3 个批量值。": "'batch' is 批次",
}


@TODAY
@pytest.mark.parametrize("other", WRONG)
def test_a_translation_of_something_else_is_refused(tmp_path, other):
    base = tmp_path / "terms.tsv"
    base.write_text("English\tChinese\tnot\nbatch\t批次\t批量\n", encoding="utf-8")
    english = "See 3 values of `loss.item()` in the batch."
    assert checks.problems(english, "见这个批次里 `loss.item()` 的 3 个值。", base) == []
    assert WRONG[other] in "\n".join(checks.problems(english, other, base))


# --- the same code --------------------------------------------------------------------------------


@TODAY
@IN
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.id)
def test_the_code_is_the_same_but_for_texts_and_comments(language, lesson):
    english = nbformat.read(NOTEBOOKS / lesson.file, as_version=4)
    other = nbformat.read(NOTEBOOKS / language / lesson.file, as_version=4)
    assert [cell.id for cell in other.cells] == [cell.id for cell in english.cells]
    for mine, theirs in zip(code_cells(other), code_cells(english), strict=True):
        if "generated" not in mine.metadata.get("tags", ()):
            trees = [ast.parse(code.plain(cell.source)) for cell in (mine, theirs)]
            assert not list(_differ(*trees, set(map(id, texts.found(trees[1], docs=True))))), (
                mine.id
            )


def _differ(mine, theirs, found):
    """Yield where two programs differ in more than the texts that were found in the second."""
    if id(theirs) in found:
        values = [{ast.dump(value) for value in texts.message(node)[1]} for node in (mine, theirs)]
        if not values[0] <= values[1] and not any(
            id(part) in found for part in ast.walk(theirs) if part is not theirs
        ):
            yield ast.dump(mine)
    elif type(mine) is not type(theirs):
        yield ast.dump(mine)
    else:
        for name, wanted in ast.iter_fields(theirs):
            got = getattr(mine, name)
            if isinstance(wanted, list) and all(isinstance(part, ast.AST) for part in wanted):
                if len(got) != len(wanted):
                    yield ast.dump(mine)
                for pair in zip(got, wanted, strict=False):
                    yield from _differ(*pair, found)
            elif isinstance(wanted, ast.AST):
                yield from _differ(got, wanted, found)
            elif got != wanted:
                yield ast.dump(mine)


@TODAY
def test_a_text_takes_the_place_of_another_values_and_magics_stay():
    source = (
        "%%writefile work/a.py\n# how many\n# there are\nif n:\n    !ls\n"
        "print(f'{n:,} of {len(x)!r} \"rows\"', 'rows left', key['a b'])  # noqa: F821\n"
    )
    said = {
        "how many there are": "共有多少",
        '{n} of {1} "rows"': "{1} 行中的 {n} 行",
        "rows left": "剩下的行",
    }
    assert set(code.pieces(source)) == set(said)
    assert code.rewrite(source, said.get) == (
        "%%writefile work/a.py\n# 共有多少\nif n:\n    !ls\n"
        "print(f'{len(x)!r} 行中的 {n:,} 行', '剩下的行', key['a b'])  # noqa: F821\n"
    )


@TODAY
def test_markdown_is_taken_apart_and_put_together():
    text = "# Title\n\n1. One\n   more\n- [ ] two `x`\n\n| ab cd | 3 |\n|---|---|\n\n```\ncode here\n```\n\n![alt text](a.png)\n"
    assert prose.pieces(text) == [
        "Title",
        "One more",
        "two `x`",
        "| ab cd | 3 |",
        "![alt text](a.png)",
    ]
    assert prose.rewrite(text, lambda piece: piece) == text.replace("One\n   more", "One more")


NOT_TEXTS = (
    '"""A docstring of a module."""',
    "x = {'a key': 1}['a key']",
    "if said == 'the other one': pass",
    "edited(f, {'return a': 'return b + c'})",
    "names = 'os sys gc'\nfor name in names.split(): pass",
    "open('a file.txt')",
    "x = 'a = b + c'",
    "def answer():\n    return 'the reference says'\nExercise(reference=answer)",
)


@pytest.mark.parametrize("source", NOT_TEXTS)
def test_what_is_no_text_stays(source):
    assert texts.found(ast.parse(source)) == []


@pytest.mark.parametrize(
    "source", ["say('two words')", "ax.set_title('loss')", "word('Right')", "f(seen='nothing')"]
)
def test_what_is_a_text_is_found(source):
    assert len(texts.found(ast.parse(source))) == 1


def test_a_module_is_compiled_with_its_texts_replaced():
    source = 'def f(n):\n    """Docs stay."""\n    return f"{n} of {n + 1} rows", {"two words": "other words"}\n'
    said = {"{n} of {1} rows": "{1} 行中的 {n} 行", "other words": "别的词", "two words": "不可"}
    space: dict = {}
    exec(compile(texts.translated(ast.parse(source), said.get), "f", "exec"), space)
    assert space["f"](3) == ("4 行中的 3 行", {"two words": "别的词"})
    assert space["f"].__doc__ == "Docs stay."


# --- which language -------------------------------------------------------------------------------


def _said(*words: str, **env: str) -> str:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LC_ALL", "LC_MESSAGES", "LANG")
    }
    inherited.pop("COURSE_LANGUAGE", None)
    done = subprocess.run(
        [sys.executable, "-m", "course_utils", *words],
        env={**inherited, "PYTHONUTF8": "1", **env}, cwd=ROOT, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("env", "chinese"),
    [
        ({}, False),
        ({"LANG": "zh_CN.UTF-8"}, True),
        ({"LANG": "de_DE.UTF-8"}, False),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, False),
        ({"COURSE_LANGUAGE": "zh"}, True),
        ({"COURSE_LANGUAGE": "zh-CN"}, True),
        ({"COURSE_LANGUAGE": "en", "LANG": "zh_CN.UTF-8"}, False),
        ({"COURSE_LANGUAGE": "xx", "LANG": "zh_CN.UTF-8"}, False),
    ],
)
def test_commands_speak_the_chosen_or_the_systems_language(env, chinese):
    assert bool(re.search("[\u4e00-\u9fff]", _said("--help", **env))) is chinese


@pytest.mark.parametrize("words", ["显存不足", "显存溢出", "端口被占用", "CUDA out of memory"])
def test_an_error_is_found_by_chinese_words_and_by_its_own_message(words):
    told = _said("explain", words, COURSE_LANGUAGE="zh")
    assert "解决办法" in told
    assert ("Address already in use" if "端口" in words else "CUDA out of memory") in told


def test_progress_is_shared_between_languages(tmp_path):
    check = "import course_utils; ex = course_utils.start('00'); ex.{0}.check(ex.{0}.reference)"
    slug = exercises_of("00").__iter__().__next__().slug
    for language in ("zh", "en"):
        env = kernel_env(tmp_path, COURSE_LANGUAGE=language, COURSE_DEVICE="cpu")
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env["PYTHONPATH"]])
        subprocess.run(
            [sys.executable, "-c", check.format(slug)], env=env, cwd=tmp_path, check=True
        )
    lines = (tmp_path / "progress.jsonl").read_text(encoding="utf-8").splitlines()
    chinese, english = (re.sub('"time": "[^"]*"', "", line) for line in lines)
    assert chinese == english


# --- the lessons ----------------------------------------------------------------------------------

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
    cells = (
        cell.source
        for lesson in LESSONS
        for cell in code_cells(nbformat.read(NOTEBOOKS / lesson.file, 4))
    )
    trees += [ast.parse(code.plain(source)) for source in cells]
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
