"""The course in another language: in step with the English, and what a text is."""

from __future__ import annotations

import ast
import gettext
import io
import os
import re
import subprocess
import symtable
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
from harness import LESSONS, NOTEBOOKS, ROOT, kernel_env, working_copy
from support import skip

import course_language
from course_language import catalogue
from course_language import font as language_font
from course_language.punctuation import punctuated
from course_utils import predict, predictions, todo
from course_utils.exercises import lesson as exercises_of

LANGUAGES = course_language.languages()[1:]
IN = pytest.mark.parametrize("language", LANGUAGES)
# Before, Python does not say where in an f-string a value stands.
NEW_ENOUGH = sys.version_info >= (3, 12)
if NEW_ENOUGH:
    from babel.messages.mofile import read_mo

    from tools.authoring.translation import (
        catalogues,
        cell_texts,
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
        # The end of Python 3.10 and 3.11 here.
        skip("translate needs Python 3.12, and says so", "2027-10-31")


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
    assert list(editions.stale_texts(language)) == []


def _titles():
    """Return the titles of all sections, lessons and exercises."""
    found = {exercise.title for lesson in LESSONS for exercise in exercises_of(lesson.id)}
    for lesson in LESSONS:
        cells = nbformat.read(NOTEBOOKS / lesson.file, as_version=4).cells
        prosaic = (cell.source for cell in cells if cell.cell_type == "markdown")
        found |= {title for text in prosaic for title in re.findall(r"(?m)^#{2,4} (.+)$", text)}
    return found


@TODAY
@IN
def test_a_section_or_an_exercise_is_called_by_the_name_that_it_has_in_that_language(language):
    titles, wrong = {title for title in _titles() if len(title.split()) > 2}, []
    said = {
        **catalogues.translations(language, "packages/"),
        **catalogues.translations(language, "notebooks/"),
    }
    for name in catalogues.sources():
        entries = catalogues.load(catalogues.catalogue_path(name, language)) if "/" in name else ()
        pairs = ((entry.id, entry.string) for entry in entries if entry.id)
        for english, other in (pair for pair in pairs if isinstance(pair[0], str)):
            text = re.sub("`[^`]*`", "`", english)
            named = {title for title in titles - {english} if title in text}
            named = {title for title in named if re.search(rf"(?<!\w){re.escape(title)}(?!\w)", text)}
            named -= {title for title in named for longer in named if title in longer != title}
            wrong += [
                f"{name}: {title}: {other[:80]}"
                for title in named
                if said.get(title, title).rstrip("？") not in other
            ]
    assert wrong == []


@pytest.mark.parametrize("page", ["README.md", "handbook/routes.md", "workshop/lessons.md"])
def test_a_question_in_italics_is_the_name_of_a_section_or_an_exercise(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    asked = set(re.findall(r"(?<!\*)\*([A-Z][^*\n]+\?)\*(?!\*)", text))
    assert asked - _titles() == set()


def test_a_figure_says_the_names_at_its_axes_too(monkeypatch):
    monkeypatch.setenv("COURSE_LANGUAGE", "zh")
    fig, (ax, _) = plt.subplots(1, 2, sharey=True)
    ax.set_yticks([0, 1], ["host", "rank 0"])
    language_font.translate_figure(fig)
    assert [name.get_text() for name in ax.get_yticklabels()] == ["主机", "rank 0"]
    plt.close(fig)


@TODAY
@IN
def test_a_label_a_button_or_a_term_has_one_translation(language):
    """Where a program says it, it can have only one; elsewhere a name of PyTorch's may stay as it is."""
    # About the same: within the spread; what is not, and what is done.
    other = {"the same", "no .item()"}
    found: dict[tuple, set] = {}
    for name in catalogues.sources():
        for entry in catalogues.load(catalogues.catalogue_path(name, language), language):
            label = isinstance(entry.id, str) and 0 < len(entry.id.split()) <= 3
            if label and entry.id not in other | {entry.string}:
                found.setdefault((entry.id, "notebooks/" in name), set()).add(entry.string)
    assert {text: said for text, said in found.items() if len(said) > 1} == {}


@TODAY
@IN
def test_a_font_for_figures_has_every_sign_of_the_catalogues(language):
    have = font.characters_in_font(catalogues.LANGUAGES / language / "font.otf")
    assert "".join(sorted(font.characters_needed(language) - have)) == ""


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Return a translated course of one lesson and one module, with catalogues in a folder of its own."""
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
    made = catalogues.untranslated_catalogue(sources()["notebooks/01_one"]())
    said = {
        "What is a batch?": "什么是批次？",
        "It has 64 images.": "它有 64 张图像。",
        "loss of the batch": "这个批次的损失",
        "one number": "一个数",
    }
    for entry in made:
        entry.string = said.get(entry.id, entry.string)
    catalogues.save(made, catalogues.catalogue_path("notebooks/01_one", "zh"))
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

    catalogues.update_all("zh")
    assert "changed; its translation is of the text before" in "\n".join(progress.problems("zh"))


@TODAY
@IN
def test_what_is_compiled_for_the_programs_is_what_babel_reads_in_the_catalogues(language):
    folder = catalogues.LANGUAGES / language
    wanted = {}
    for path in (folder / "course.po", *folder.glob("packages/*.po")):
        assert b"Generated-By" not in path.read_bytes(), "another Babel would change each file"
        wanted |= {entry.id: entry.string for entry in catalogues.finished(catalogues.load(path))}
    messages = read_mo(io.BytesIO(catalogue.compile_mo(folder)))
    found = {"".join(entry.id): "".join(entry.string) for entry in messages if entry.id}
    assert found == {"".join(key): "".join(text) for key, text in wanted.items()}


def test_a_catalogue_is_read_without_its_doubtful_entries(tmp_path):
    path = tmp_path / "course.po"
    path.write_text(
        '# comment\nmsgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=utf-8\\n"\n'
        '"Plural-Forms: nplurals=1; plural=0;\\n"\n\n'
        '#: a.py\nmsgid "a \\"b\\"\\n"\n"c"\nmsgstr "甲\\n"\n"乙"\n\n'
        '#, fuzzy\nmsgid "changed"\nmsgstr "旧"\n\nmsgid "missing"\nmsgstr ""\n\n'
        'msgid "{n} row"\nmsgid_plural "{n} rows"\nmsgstr[0] "{n} 行"\n',
        encoding="utf-8",
    )
    said = gettext.GNUTranslations(io.BytesIO(catalogue.compile_mo(tmp_path)))
    assert said.gettext('a "b"\nc') == "甲\n乙"
    assert [said.gettext(text) for text in ("changed", "missing")] == ["changed", "missing"]
    assert said.ngettext("{n} row", "{n} rows", 2) == "{n} 行"


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


@TODAY
@pytest.mark.everywhere
def test_another_language_is_a_folder_of_catalogues_and_nothing_else(tmp_path):
    """The Chinese catalogues under another name make the same edition, and the commands speak it."""
    course = working_copy(tmp_path)
    chinese = {path: editions._read(course / path) for path in map(_in("zh"), editions.sources())}
    for path in chinese:
        (course / path).unlink()
    (course / "course_language" / "zh").rename(course / "course_language" / "ja")
    (course / "images" / "zh").rename(course / "images" / "ja")  # README's pictures
    assert _said("translate", "ja", root=course).rstrip().endswith("written")
    for path in editions.sources():
        made = (course / _in("ja")(path)).read_text(encoding="utf-8")
        assert re.sub(r"\bja\b", "zh", made) == _named(chinese[_in("zh")(path)]), path
    told = _said("explain", "显存溢出", COURSE_LANGUAGE="ja", root=course)
    assert "CUDA out of memory" in told
    assert "解决办法" in told
    assert re.search("[\u4e00-\u9fff]", _said("--help", LANG="ja_JP.UTF-8", root=course))


def _in(language):
    return lambda path: editions.translated_path(path, language)


def _named(text):
    return text.replace("zh-CN.md", "zh.md")


# --- what is a text -----------------------------------------------------------------------------


@TODAY
def test_a_text_takes_the_place_of_another_values_and_magics_stay():
    source = (
        "%%writefile work/a.py\n# how many\n# there are\nif n:\n    !ls\n"
        "print(f'{n:,} of {len(x)!r} \"rows\"', 'rows left', key['a b'])  # noqa: F821\n"
        'script = """\nimport os\n\nprint("rows left")\n"""\n'
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
        'script = """\nimport os\n\nprint("剩下的行")\n"""\n'
    )


@TODAY
@IN
def test_the_programs_on_a_page_are_the_same_but_for_their_comments(language):
    fence = re.compile(r"(?ms)^```python[^\n]*\n(.*?)^```")
    pages = [path for path in editions.sources() if path.endswith(".md")]
    both = ((path, editions.translated_path(path, language)) for path in pages)
    texts_of = [[fence.findall(editions._read(ROOT / path)) for path in pair] for pair in both]
    assert sum(len(english) for english, _ in texts_of) > 150
    for english, other in texts_of:
        plain = [[ast.dump(ast.parse(code.without_magics(text))) for text in one] for one in (english, other)]
        assert plain[0] == plain[1]
    written = "".join(text for _, other in texts_of for text in other)
    assert not re.search(r"# [a-z]+ [a-z]+ [a-z]+", re.sub("# torchrun.*", "", written))


@TODAY
def test_a_key_that_a_cell_shows_has_one_translation_wherever_it_stands():
    cells = [
        'runs = {"no wait": 1}',
        'f(runs["no wait"], "no wait" in runs, f"{n} no wait", "no wait, then")',
    ]
    said = {"no wait": "不等"}
    assert code.keys(cells) == {"no wait"}
    assert [code.rewrite(cell, lambda text: said.get(text, text), {"no wait"}) for cell in cells] == [
        'runs = {"不等": 1}',
        'f(runs["不等"], "不等" in runs, f"{n} no wait", "no wait, then")',
    ]


CHOICES = """\
which = predict(
    "05.which",
    todo(),
    choices={"faster": "It waits longer.", "off": "No, never.", "two of them": "", "8": ""},
)
===
which.reveal("off" if slow > quick else "faster", slow / quick)
"""


@TODAY
def test_a_prediction_in_another_language_is_answered_in_it(monkeypatch, capsys):
    said = {
        "faster": "更快",
        "off": "关",
        "two of them": "其中两个",
        "It waits longer.": "它等得更久。",
        "No, never.": "不。",
    }
    cells = CHOICES.split("===\n")
    keys = code.keys(cells)
    assert {piece for cell in cells for piece in code.pieces(cell, keys)} == set(said)
    asks, answers = (code.rewrite(cell, said.get, keys) for cell in cells)
    monkeypatch.setattr(predictions, "all_predictions", {})
    for guess, shown in (("'更快'", "它等得更久。"), ("'关'", "Right"), ("8", "Right answer: 关.")):
        names = {"predict": predict, "todo": todo, "slow": 3, "quick": 1}
        cell = asks.replace("todo()", guess).replace("05.which", f"05.{guess}")
        exec(f"{cell}\n{answers}", names)
        assert shown in capsys.readouterr().out


@TODAY
def test_markdown_is_taken_apart_and_put_together():
    text = "# Title\n\n1. One\n   more\n- [ ] two `x`\n\n| ab cd | 3 |\n|---|---|\n\n"
    text += "```\ncode here\n```\n\n![alt text](a.png)\n"
    assert prose.pieces(text) == [
        "Title",
        "One more",
        "two `x`",
        "| ab cd | 3 |",
        "![alt text](a.png)",
    ]
    assert prose.rewrite(text, lambda piece: piece) == text.replace("One\n   more", "One more")


NOT_TEXTS = (
    "x = {'a key': 1}['a key']",
    "if said == 'the other one': pass",
    "names = 'os sys gc'.split()",
    "open('a file.txt')",
    "x = 'a = b + c'",
    "f(mode='max autotune')",
)


@TODAY
@pytest.mark.parametrize("source", NOT_TEXTS)
def test_what_is_no_text_of_a_cell_stays(source):
    assert cell_texts.find(ast.parse(source)) == []


@TODAY
@pytest.mark.parametrize("source", ["f('two words')", "ax.set_title('loss')", "print(f'{n} rows')"])
def test_what_is_a_text_of_a_cell_is_found(source):
    assert len(cell_texts.find(ast.parse(source))) == 1


# --- what is marked ------------------------------------------------------------------------------


PROGRAMS = sorted(
    path
    for package in ("course_utils", "course_lessons", "simgpu", "tools")
    for path in (ROOT / package).rglob("*.py")
    if "tests" not in path.parts
)


@TODAY
def test_what_a_check_says_is_marked():
    """Of a judge's answers and the parts of a check: each text of two words or more stands in _()."""
    unmarked = []
    for path in PROGRAMS:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            shown = call.args[_SHOWN[name] :][:1] if name in _SHOWN else []
            shown += [keyword.value for keyword in call.keywords if keyword.arg in _SHOWN_KEYWORDS]
            unmarked += [
                f"{path.relative_to(ROOT)}:{node.lineno}: {text[0]}"
                for node in shown
                if (text := cell_texts.message(node)) and cell_texts.reads_as_text(text[0])
                if text[0] not in _CODE
            ]
    assert unmarked == []


_CODE = ("weight: None", "state_dict(): {0}")
_SHOWN = {"expect": 0, "is_a": 2, "listed": 1}
"""Methods of a judge, and which of their arguments a learner reads."""
_SHOWN_KEYWORDS = ("seen", "expected", "note", "question")


def test_no_scope_has_a_variable_that_hides_the_mark():
    """`for _ in range(3)` beside `_("a text")` in one function would call a number."""
    hidden = []
    for path in PROGRAMS:
        tables = [symtable.symtable(path.read_text(encoding="utf-8"), str(path), "exec")]
        for table in tables:
            tables += table.get_children()
            symbols = (symbol for symbol in table.get_symbols() if symbol.get_name() == "_")
            if table.get_type() != "module" and any(
                symbol.is_referenced() and (symbol.is_local() or symbol.is_free()) for symbol in symbols
            ):
                hidden.append(f"{path.relative_to(ROOT)}:{table.get_lineno()} {table.get_name()}")
    assert hidden == []


def test_a_text_is_shown_in_the_language_that_is_chosen(monkeypatch):
    assert course_language._("Seen") == "Seen"
    assert course_language.ngettext("{count} rank", "{count} ranks", 1) == "{count} rank"
    monkeypatch.setenv("COURSE_LANGUAGE", "zh")
    assert course_language._("Seen") == "看到的"
    assert course_language._("") == ""
    assert course_language.ngettext("{count} rank", "{count} ranks", 1) == "{count} 个 rank"


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("结果: 2.34×, 实测. 再猜: 下次", "结果：2.34×，实测。再猜：下次"),
        ("主机（忙碌）, sim:0; 拷贝", "主机（忙碌），sim:0；拷贝"),
        ("445 µs (可能 365 µs), n = 5, 估算; f(x)", "445 µs（可能 365 µs），n = 5，估算；f(x)"),
        ("结果: 1×, 实测. 你没有做 预测  可能", "结果：1×，实测。你没有做预测  可能"),
        ("2. 驱动, torch 2.15: a, b; 3.5 ms. End", "2. 驱动，torch 2.15: a, b; 3.5 ms. End"),
        ('"model": 无法加载 (RuntimeError)', '"model"：无法加载（RuntimeError）'),
        ("8 步, 每步都 .item(): 23.4 ms (估算)", "8 步，每步都 .item()：23.4 ms（估算）"),
        ("最多 33 MiB; step() 之后, 4 B, 其余", "最多 33 MiB；step() 之后，4 B，其余"),
        ("形状 (3, 4); 得到 {'a': 3, 4: 5}", "形状 (3, 4)；得到 {'a': 3, 4: 5}"),
        ("去掉, 快; last: 10 字符, 保留", "去掉，快；last：10 字符，保留"),
        ("x: int = 3  # 三, 或四", "x: int = 3  # 三，或四"),
        ("停下了 <pre>TypeError: a, b</pre>", "停下了 <pre>TypeError: a, b</pre>"),
    ],
)
def test_joined_texts_have_the_languages_own_marks(monkeypatch, said, written):
    assert punctuated(said) == said
    monkeypatch.setenv("COURSE_LANGUAGE", "zh")
    assert punctuated(said) == written


# --- which language -------------------------------------------------------------------------------


def _said(*words: str, root: Path = ROOT, **env: str) -> str:
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("LC_ALL", "LC_MESSAGES", "LANG")
    }
    inherited.pop("COURSE_LANGUAGE", None)
    done = subprocess.run(
        [sys.executable, "-m", "course_utils", *words],
        env={**inherited, "PYTHONUTF8": "1", "PYTHONPATH": str(root), **env},
        cwd=root,
        capture_output=True,
        encoding="utf-8",
    )
    return done.stdout + done.stderr


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("words", ["显存不足", "显存溢出", "端口被占用", "CUDA out of memory"])
def test_an_error_is_found_by_chinese_words_and_by_its_own_message(words):
    told = _said("explain", words, COURSE_LANGUAGE="zh")
    assert "解决办法" in told
    assert ("Address already in use" if "端口" in words else "CUDA out of memory") in told


@pytest.mark.slow
def test_progress_is_shared_between_languages(tmp_path):
    check = "import course_utils; ex = course_utils.start('00'); ex.{0}.check(ex.{0}.reference)"
    slug = exercises_of("00").__iter__().__next__().slug
    for language in ("zh", "en"):
        env = kernel_env(tmp_path, COURSE_LANGUAGE=language, COURSE_DEVICE="cpu")
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env["PYTHONPATH"]])
        subprocess.run([sys.executable, "-c", check.format(slug)], env=env, cwd=tmp_path, check=True)
    lines = (tmp_path / "progress.jsonl").read_text(encoding="utf-8").splitlines()
    chinese, english = (re.sub('"time": "[^"]*"', "", line) for line in lines)
    assert chinese == english
