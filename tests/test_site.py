"""The reader's site: what is built, what is wrong with it, how it looks; and what builds it on GitHub."""

import argparse
import base64
import copy
import dataclasses
import functools
import hashlib
import http.server
import re
import runpy
import shlex
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
import yaml
from browsers import SECOND, chromium
from bs4 import BeautifulSoup
from harness import EXECUTED, LESSONS, NOTEBOOKS, ROOT, notebook

from course_utils import cli
from course_utils.cli import bootstrap
from course_utils.course import load_course
from course_utils.exercises.result import RESULT_MIME
from course_utils.stubs import AuthoringError
from tools.authoring import copies, site
from tools.authoring.cells import header_cell, open_in
from tools.authoring.form import read
from tools.commands import links
from tools.commands import site as command
from tools.commands.pairs import all_pairs

COURSE = load_course()
FILES = [lesson.file for lesson in LESSONS]
NAMED = dataclasses.replace(COURSE, repository="ada/gpu", branch="trunk")
UNNAMED = dataclasses.replace(COURSE, repository=None)
HOME = "https://github.com/ada/gpu/blob/trunk"
LESSON, CHINESE = "notebooks/01_devices.ipynb", "notebooks/zh/01_devices.ipynb"
PNG = base64.b64encode(b"a picture").decode()
RUN = {
    "date": "2026-11-03",
    "torch": "2.13.0",
    "device": "NVIDIA H200",
    "cpu": "AMD EPYC",
    "cores": 2,
}


# --- from a lesson to a page ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "target", "leads_to"),
    [
        (LESSON, "00_start_here.ipynb#summary", "00_start_here.ipynb#summary"),
        (LESSON, "../README.md#course-map", "index.md#course-map"),
        (LESSON, "../colab_links.md", "colab_links.md"),
        (LESSON, "course.yml", f"{HOME}/notebooks/course.yml"),
        ("handbook/claims.md", "../simgpu/", f"{HOME.replace('blob', 'tree')}/simgpu"),
        ("handbook/claims.md", "../images/claims.svg", "../images/claims.svg"),
        ("site/index.md", "about.md", "about.md"),
        (LESSON, f"{HOME}/handbook/templates.md#a", "handbook/templates.md#a"),
        ("handbook/templates.md", f"{HOME}/handbook/claims.md", "claims.md"),
        ("site/about.md", site.REPOSITORY, "https://github.com/ada/gpu"),
        ("handbook/claims.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("handbook/claims.md", "gone.md", "gone.md"),
    ],
)
def test_a_link_leads_to_the_site_or_to_the_repository(at, target, leads_to):
    assert site.page_text(NAMED, f"see [x]({target}).", at, FILES) == f"see [x]({leads_to})."


def test_without_a_name_only_what_is_on_the_site_is_linked():
    there = "[a](handbook/templates.md#a) [b](https://example.org/a.md)"
    text = f"[x](course.yml) [y]({site.REPOSITORY}) {there.replace('(h', '(../h', 1)}"
    assert site.page_text(UNNAMED, text, LESSON, []) == f"x y {there}"


def test_a_lesson_that_the_site_lacks_is_linked_in_the_repository():
    text = site.page_text(NAMED, "[x](00_start_here.ipynb)", LESSON, [])
    assert text == f"[x]({HOME}/notebooks/00_start_here.ipynb)"


@pytest.mark.parametrize(
    ("at", "target", "leads_to"),
    [
        (CHINESE, "../../handbook/zh/templates.md", "handbook/templates.md"),
        (CHINESE, "../../images/map.svg", "images/map.svg"),
        (CHINESE, "../../README.zh-CN.md#course-map", "site:index.html#course-map"),
        ("handbook/zh/templates.md", "../fidelity.md", "site:../../handbook/fidelity.html"),
        ("handbook/zh/templates.md", "../templates/train_amp.py", "templates/train_amp.py"),
    ],
)
def test_a_chinese_page_leads_to_chinese_pages_and_else_to_english_ones(at, target, leads_to):
    text = site.page_text(NAMED, f"[x]({target})", at, FILES, "zh")
    assert text == f"[x]({leads_to})"


def test_the_chinese_pages_are_laid_out_whole(tmp_path):
    site.write_sphinx_source(COURSE, {}, tmp_path / "zh", "zh")
    index = (tmp_path / "zh" / "index.md").read_text(encoding="utf-8")
    assert "@" not in re.sub(r"`[^`]*`", "", index) and "git clone" in index
    named = re.findall(r"(?m)^[\w/]+\.md$", index)
    assert {"handbook/routes.md", "colab_links.md", "handbook/claims.md"} <= {*named}
    assert "handbook/fidelity.md" not in named
    assert all((tmp_path / "zh" / name).is_file() for name in named)


def test_the_sidebar_has_every_page_once_in_four_parts(tmp_path):
    folder = tmp_path / "en"
    site.write_sphinx_source(COURSE, {}, folder)
    index = (folder / "index.md").read_text(encoding="utf-8")
    captions = re.findall(r"(?m)^:caption: (.+)$", index)
    assert captions == [site.WORDS[name] for name in ("begin", "handbook", "trust")], "no lesson, no part"
    listed = re.findall(r"(?m)^[\w/]+\.md$", index)
    assert listed.index("handbook/benchmark.md") > listed.index("handbook/errors.md")
    for page, beginning in site.FOLDED.items():
        text = (folder / page).read_text(encoding="utf-8")
        below = re.findall(r"(?m)^([\w/]+\.md)$", text[text.rindex("```{toctree}") :])
        listed += [f"handbook/{name}" for name in below]
        assert below and all(f"handbook/{name}".startswith(beginning) for name in below)
    pages = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")} - {"index.md", "404.md"}
    assert sorted(listed) == sorted(pages)


def test_the_first_page_has_doors_that_lead_somewhere(tmp_path):
    for course, doors in ((UNNAMED, 1), (NAMED, 3)):
        folder = tmp_path / str(doors)
        site.write_sphinx_source(course, {}, folder)
        line = (folder / "index.md").read_text(encoding="utf-8").splitlines()[2]
        assert line.count("{.door") == doors and "](#start){" in line
        assert ("](https://colab.research.google.com/github/ada/gpu/blob/trunk/" in line) == (doors == 3)


def test_the_glossary_has_an_entry_of_the_index_for_each_term():
    for path, language, names in (
        ("handbook/glossary.md", "en", ["pinned memory"]),
        ("handbook/zh/glossary.md", "zh", ["锁页内存", "pinned memory"]),
    ):
        text = site.page_text(COURSE, (ROOT / path).read_text(encoding="utf-8"), path, [], language)
        entries = re.findall(r"```\{index\} ! single: (.+)\n```\n", text)
        assert {*names} <= {*entries}
        assert not re.search(r"</div>\n\S", text), "Markdown below it would be HTML"


def test_badges_become_buttons_and_comments_go():
    lesson = COURSE.lesson("01")
    nb = nbformat.v4.new_notebook(cells=[header_cell(NAMED, lesson)])
    assert "https://ada.github.io/gpu/01_devices.html" in nb.cells[0].source
    text = site.lesson_page(NAMED, nb, lesson.file, FILES).cells[0].source
    assert "github.io" not in text, "a page does not lead to itself"
    assert "badge.svg" not in text and "![" not in text
    alone = nbformat.v4.new_notebook(cells=[header_cell(UNNAMED, lesson)])
    for page in (text, site.lesson_page(UNNAMED, alone, lesson.file, FILES).cells[0].source):
        assert "中文" not in page, "the switch leads there"
    for name, url in open_in(NAMED, lesson).items():
        assert f'<a class="open-in" href="{url}">Open in {name}</a>' in text
    noted = "In 3 s.\n<!-- a note\nof two lines -->\nMore."
    assert site.page_text(COURSE, noted, "README.md", FILES) == "In 3 s.\nMore."
    assert site.page_text(COURSE, '<a id="a-b"></a>\n\n## T', "README.md", ()) == "(a-b)=\n\n## T"


def executed_notebook():
    """Return a lesson as `executed_copy` does, with a figure and a check's result."""
    nb = notebook("import course_utils", "draw()", "ex.a.check(a)")
    for cell, name in zip(nb.cells, ("setup", "figure", "exercise"), strict=True):
        cell.id = name
    data = {"image/png": PNG, "text/plain": "t"}
    meta = {"image/png": {"alt": "It rises."}}
    nb.cells[1].outputs = [nbformat.v4.new_output("display_data", data, metadata=meta)]
    data = {RESULT_MIME: {"outcome": "right"}, "text/html": "Right", "text/plain": "Right"}
    nb.cells[2].outputs = [nbformat.v4.new_output("display_data", data)]
    header = nbformat.v4.new_markdown_cell("# T", id="header")
    footer = nbformat.v4.new_markdown_cell("Next", id="footer")
    fetch = nbformat.v4.new_code_cell("# fetch", id="fetch")
    nb.cells = [header, fetch, *nb.cells, footer]
    nb.metadata["course"] = {"lesson": "01", "run": {**RUN, "key": "k"}}
    return nb


def test_a_page_says_on_what_it_ran_and_leaves_out_what_is_not_for_readers():
    nb = executed_notebook()
    before = copy.deepcopy(nb)
    page = site.lesson_page(COURSE, nb, "01_devices.ipynb", FILES)
    assert nb == before
    ids = [cell.id for cell in page.cells]
    assert ids == ["header", "about-run", "setup", "figure", "exercise"]
    said = page.cells[1].source
    for words in ("2026-11-03", "PyTorch 2.13.0", "NVIDIA H200 on AMD EPYC, 2 cores"):
        assert words in said
    told = site.lesson_page(COURSE, nb, "01_devices.ipynb", FILES, "zh").cells[1].source
    for words in ("2026-11-03", "PyTorch 2.13.0", "AMD EPYC 上的 NVIDIA H200，2 个核"):
        assert words in told
    assert set(page.cells[4].outputs[0].data) == {"text/html", "text/plain"}
    nb.metadata.course.run |= {"device": "AMD EPYC", "cores": 1}
    said = site.lesson_page(COURSE, nb, "01_devices.ipynb", FILES).cells[1].source
    assert said.count("AMD EPYC") == 1 and "1 core." in said


def test_each_picture_has_its_text():
    nb = executed_notebook()
    assert site.alternatives(nb) == {hashlib.sha256(b"a picture").hexdigest(): "It rises."}


# --- executed copies --------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Return a course of one lesson, with a fake kernel and the list of its runs."""
    (tmp_path / "notebooks").mkdir()
    lesson = COURSE.lesson("00")
    course = SimpleNamespace(path=tmp_path / "notebooks" / "course.yml")
    nbformat.write(notebook("print(1)"), tmp_path / "notebooks" / lesson.file)
    runs = []

    def run(nb, folder, env, name):
        runs.append((folder, env))
        done = copy.deepcopy(nb)
        text = f"in {folder} and {copies.ROOT}\n"
        done.cells[0].outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
        return done

    facts = dict(RUN)
    monkeypatch.setattr(copies, "executed", run)
    monkeypatch.setattr(copies, "machine_facts", lambda device="": {**facts, "device": device or "best"})
    kept = tmp_path / "kept"

    def call(device=""):
        return copies.executed_copy(course, lesson, kept, device)

    file = tmp_path / "notebooks" / lesson.file
    return SimpleNamespace(call=call, runs=runs, facts=facts, file=file, kept=kept / lesson.file)


def test_a_lesson_runs_once_and_its_place_is_not_published(small):
    first = small.call()
    folder, env = small.runs[0]
    said = first.cells[0].outputs[0].text
    assert said == f"in {copies.SHOWN}/notebooks and {copies.SHOWN}\n"
    assert first.metadata["course"]["run"]["device"] == "best"
    assert Path(env["COURSE_PROGRESS"]).parent == folder.parent
    assert "COURSE_DEVICE" not in env
    small.facts["date"] = "2026-11-04"
    assert small.call() == first and len(small.runs) == 1


@pytest.mark.parametrize("change", ["lesson", "torch", "device", "damaged"])
def test_a_lesson_runs_again_where_something_has_changed(small, change):
    small.call()
    if change == "lesson":
        nbformat.write(notebook("print(2)"), small.file)
    elif change == "torch":
        small.facts["torch"] = "2.14.0"
    elif change == "damaged":
        small.kept.write_text(small.kept.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    small.call("cpu" if change == "device" else "")
    assert len(small.runs) == 2
    assert small.runs[1][1].get("COURSE_DEVICE") == ("cpu" if change == "device" else None)


# --- the command ------------------------------------------------------------------------------


@pytest.mark.parametrize(("module", "extra"), [(command, "everywhere"), (links, "test")])
def test_where_packages_are_missing_they_are_set_up_first(tmp_path, monkeypatch, module, extra):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "PACKAGES", ("no_such_package",))
    monkeypatch.setattr(bootstrap, "prepare", lambda extra: Path(f"python-with-{extra}"))
    monkeypatch.setattr(bootstrap, "hand_over", lambda argv: argv[0])
    assert cli.main([module.__name__.rpartition(".")[2]]) == f"python-with-{extra}"


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    assert cli.main(["site", "--output", str(tmp_path)]) == 2
    assert "holds something else: name another place with --output" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").read_text(encoding="utf-8") == "mine"


def test_a_lesson_that_fails_stops_the_site(tmp_path, capsys, monkeypatch):
    def fails(nb, folder, env, name):
        raise AuthoringError("cell x raised ValueError: no")

    monkeypatch.setattr(command, "PACKAGES", ())  # it stops before Sphinx is needed
    monkeypatch.setattr(copies, "executed", fails)
    monkeypatch.setattr(copies, "_cache_key", lambda *run: "another than any kept")
    assert cli.main(["site", "--output", str(tmp_path / "out")]) == 1
    assert f"{FILES[0]}: cell x raised ValueError: no" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# --- on GitHub --------------------------------------------------------------------------------

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


def steps(path):
    return [step for job in jobs(path).values() for step in job["steps"]]


def called(text):
    """Return the course's commands in a script, as lists of words."""
    lines = re.findall(r"python3? -m course_utils (.+)", text)
    return [shlex.split(line) for line in lines]


def test_there_is_a_workflow_for_tests_for_the_site_and_for_drift():
    assert {path.name for path in WORKFLOWS} >= {"tests.yml", "site.yml", "weekly.yml"}
    run = {path.name: [step.get("run", "") for step in steps(path)] for path in WORKFLOWS}
    assert any(call.startswith("bash .ci/run ") for call in run["tests.yml"])
    assert "python -m course_utils site" in run["site.yml"]
    weekly = yaml.safe_load((ROOT / ".github/workflows/weekly.yml").read_text(encoding="utf-8"))
    assert weekly[True]["schedule"]  # YAML 1.1 reads `on` as a truth value


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_calls_exists(path):
    text = "\n".join(step.get("run", "") for step in steps(path))
    assert text
    commands = called(text)
    for name, *words in commands:
        assert name in cli.COMMANDS
        parser = argparse.ArgumentParser(exit_on_error=False)
        cli.module_of(name).add_arguments(parser)
        parser.parse_args(words)
    scripts = re.findall(r"(?:bash|python3?) (\.ci/[\w.]+)", text)
    assert commands or scripts
    for script in scripts:
        assert (ROOT / script).is_file(), script


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_do_little_and_ends(path):
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}
    for job in jobs(path).values():
        assert 0 < job["timeout-minutes"] <= 60
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"])


def test_the_tests_cover_what_the_course_promises():
    path = ROOT / ".github" / "workflows" / "tests.yml"
    runs = jobs(path)["pairs"]["strategy"]["matrix"]["include"]
    of = {run["words"].split()[1]: run["python"] for run in runs}
    assert of == {pair.name: pair.python for pair in all_pairs(ROOT).values()}
    assert {"--pair newest --full", "--pair newest --everywhere"} <= {run["words"] for run in runs}
    systems = {run["system"] for run in jobs(path)["quick"]["strategy"]["matrix"]["include"]}
    assert systems == {"ubuntu-latest", "macos-latest", "windows-latest"}


COLAB_VERSIONS = runpy.run_path(str(ROOT / ".ci" / "colab_versions.py"))
FREEZE = """# a list
torch @ https://download.pytorch.org/whl/cpu/torch-2.11.0%2Bcpu-cp313-cp313-linux_x86_64.whl
torchvision==0.26.0
cloudpickle==3.1.2
numpy==2.1.3
matplotlib==3.10.0
matplotlib-inline==0.2.2
tqdm==4.67.3
ipython==7.34.0
ipython-genutils==0.2.0
PyYAML==6.0.3
setuptools==75.2.0
ipykernel==6.17.1
ipywidgets==7.7.1
"""


@pytest.mark.parametrize("torch", [None, "torch==2.11.0+cu128"])
def test_colabs_list_becomes_constraints(torch):
    text = re.sub(r"torch @ \S+", torch, FREEZE) if torch else FREEZE
    found = COLAB_VERSIONS["constraints"](text)
    assert found == [
        "torch==2.11.0", "cloudpickle==3.1.2", "numpy==2.1.3", "matplotlib==3.10.0", "tqdm==4.67.3",
        "ipython==7.34.0", "pyyaml==6.0.3", "setuptools==75.2.0", "ipykernel==6.17.1", "ipywidgets==7.7.1",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no version of torch"):
        COLAB_VERSIONS["constraints"](FREEZE.replace("torch @", "other @"))


def test_colabs_list_covers_what_lessons_may_import():
    from course_utils.cli.bootstrap import name_of, requirements

    core = {name_of(item) for item in requirements(ROOT, "docs")}
    core -= {"myst-nb", "sphinx", "sphinx-book-theme", "sphinx-copybutton"}
    assert core <= set(COLAB_VERSIONS["PACKAGES"])


# --- the site itself --------------------------------------------------------------------------

RUNNABLE = ("00", "02")  # the others are built as they are stored, without outputs
WIDTHS = {1280: 900, 390: 844}
LOOKED_AT = (
    "index", "00_start_here", "02_moving_data", "09_exercises", "handbook/claims", "handbook/fidelity",
    "colab_links", "handbook/cheatsheet", "handbook/practices", "zh/index", "zh/02_moving_data",
)  # fmt: skip
FIRST = {  # what a reader looks for, and the page that explains it, among the first two
    "search.html?q=out+of+memory": "handbook/errors/memory.html#cuda-out-of-memory",
    "search.html?q=OOM": "handbook/errors/memory.html",
    "search.html?q=pinned+memory": "handbook/glossary.html#index-",
    "zh/search.html?q=显存": "07_memory.html",
    "zh/search.html?q=显存不足": "handbook/errors/memory.html",
    "zh/search.html?q=OOM": "handbook/errors/memory.html",
}
CONTRAST = """
() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = node => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.querySelectorAll('.cell_output .text_html *')) {
    if (![...node.childNodes].some(child => child.nodeType === 3 && child.data.trim())) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 3) bad.push(`${ratio.toFixed(2)} ${node.textContent.trim().slice(0, 40)}`);
  }
  return bad;
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folder of the built site of every lesson, in both languages."""
    folder = tmp_path_factory.mktemp("site")
    notebooks = {}
    for lesson in command.every_lesson(COURSE):
        notebooks[lesson.file] = read(NOTEBOOKS / lesson.file)
        if lesson.id in RUNNABLE:
            kept = EXECUTED / "site"
            notebooks[lesson.file] = copies.executed_copy(COURSE, lesson, kept, "sim")
    assert command.build(COURSE, notebooks, folder / "out") == 0
    return folder / "out"


@pytest.fixture(scope="module")
def address(built):
    """Serve the site; yield its URL."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    serve = functools.partial(Quiet, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.mark.everywhere
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_reads_well(browser, address, width, scheme):
    screens = EXECUTED / "screens"
    screens.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(viewport={"width": width, "height": WIDTHS[width]}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(60 * SECOND)
    foreign, complaints = [], []
    page.on("request", lambda r: None if r.url.startswith((address, "data:")) else foreign.append(r.url))
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    for name in dict.fromkeys([*LOOKED_AT, *(Path(file).stem for file in FILES)]):
        page.goto(f"{address}/{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        loaded = "[...document.images].every(image => image.complete && image.naturalWidth > 0)"
        page.wait_for_function(loaded)
        assert page.evaluate(CONTRAST) == [], name
        if name in LOOKED_AT:
            clip = {"x": 0, "y": 0, "width": width, "height": 3000}
            path = screens / f"site_{name.replace('/', '_')}_{width}_{scheme}.png"
            page.screenshot(path=path, full_page=True, clip=clip)
    assert (foreign, complaints) == ([], [])
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    context.close()


@pytest.mark.everywhere
def test_a_reader_finds_the_way(browser, address):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60 * SECOND)
    page.goto(f"{address}/index.html")
    page.get_by_role("table").get_by_role("link", name="01 · Devices").click()
    assert page.url.endswith("/01_devices.html")
    before = page.locator("a.prev-page, a.left-prev").first.get_attribute("href")
    assert before.endswith("00_start_here.html")
    page.locator("a.next-page, a.right-next").first.click()
    assert page.url.endswith("/02_moving_data.html")
    launch = page.locator(".dropdown-launch-buttons a[href*='colab']")
    opens = [open_in(COURSE, COURSE.lesson("02"))["Colab"]] if COURSE.repository else []
    assert [a.get_attribute("href") for a in launch.all()] == opens
    for mode in ("Dark", "Light"):
        page.locator("button.theme-switch-button").first.click()
        page.get_by_role("button", name=mode, exact=True).first.click()
        assert page.evaluate("document.documentElement.dataset.theme") == mode.lower()
    for query, first in FIRST.items():  # in each language, and on each Sphinx
        page.goto(f"{address}/{query}")
        results = page.locator("#search-results li")
        results.first.wait_for()
        page.wait_for_function("document.querySelectorAll('#search-results li').length > 1")
        found = [one.get_attribute("href") for one in results.locator("a:first-child").all()]
        assert any(one.startswith(first) for one in found[:2]), (query, found[:5])
        assert "System Settings" not in results.first.inner_text()
    page.goto(f"{address}/02_moving_data.html")
    page.get_by_role("link", name="中文", exact=True).click()
    assert page.url == f"{address}/zh/02_moving_data.html"
    page.get_by_role("link", name="English", exact=True).click()
    assert page.url == f"{address}/02_moving_data.html"
    page.close()


def dead_links(folder):
    """Yield links of built pages to missing files, and resources that they load from other hosts."""
    pages = {
        path: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for path in folder.rglob("*.html")
        if "_static" not in path.parts
    }
    for path, page in pages.items():
        loads = [tag.get("src") or tag["href"] for tag in page.select("[src], link[rel=stylesheet]")]
        for target in dict.fromkeys([*loads, *(tag["href"] for tag in page.select("a[href]"))]):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in loads and parts.scheme != "data":
                    yield path.name, target
                continue
            goal = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            goal = goal / "index.html" if goal.is_dir() else goal
            anchor, there = unquote(parts.fragment), pages.get(goal)
            missing = anchor not in ("", "top") and there and not there.find(id=anchor)
            if missing or not goal.is_file() or not goal.is_relative_to(folder):
                yield path.name, target


@pytest.mark.everywhere
def test_every_link_of_a_built_page_is_alive_and_every_picture_has_a_text(built):
    assert list(dead_links(built)) == []
    for path in built.rglob("*.html"):
        page = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        assert all(image.get("alt", "").strip() for image in page.select("img")), path


@pytest.mark.everywhere
def test_a_shared_link_shows_what_the_page_is(built):
    for name in ("index", "handbook/errors/memory", "02_moving_data", "zh/index"):
        page = BeautifulSoup((built / f"{name}.html").read_text(encoding="utf-8"), "html.parser")
        described = page.select_one('meta[name="description"]')["content"]
        assert 20 < len(described) <= 202
        assert page.select_one('meta[property="og:description"]')["content"] == described
        assert page.title.text.count(page.select_one('meta[property="og:site_name"]')["content"]) == 1
    assert (built / "404.html").is_file() and (built / "zh" / "404.html").is_file()


@pytest.mark.everywhere
def test_code_has_a_button_to_copy_it_and_output_has_none(browser, address):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}/02_moving_data.html")
    page.locator("button.copybtn").first.wait_for(state="attached")
    assert page.locator(".cell_input button.copybtn").count() > 10
    assert page.locator(".cell_output button.copybtn").count() == 0
    page.close()


@pytest.mark.everywhere
def test_every_page_leads_to_itself_in_the_other_language(built):
    pages = [path.relative_to(built) for path in sorted(built.rglob("*.html"))]
    pages = [page for page in pages if "_static" not in page.parts]
    assert len([page for page in pages if page.parts[0] == "zh"]) > 30
    for page in pages:
        html = (built / page).read_text(encoding="utf-8")
        chinese = page.parts[0] == "zh"
        assert f'<html lang="{"zh-CN" if chinese else "en"}"' in html, page
        (switch,) = re.findall(r'<a class="language" href="([^"]+)"', html)
        other = Path(*page.parts[1:]) if chinese else Path("zh", page)
        if not (built / other).is_file():
            other = Path("index.html") if chinese else Path("zh", "index.html")
        assert (built / page.parent / switch).resolve() == (built / other).resolve(), page
    names = {page.as_posix() for page in pages}
    alone = {page for page in names if not page.startswith("zh/") and f"zh/{page}" not in names}
    assert alone == {f"handbook/{name}.html" for name in ("claims_numbers", "fidelity", "checkers")}


@pytest.mark.everywhere
def test_every_figure_of_an_executed_lesson_is_described(built):
    nb = read(EXECUTED / "site" / COURSE.lesson("02").file)
    texts = set(site.alternatives(nb).values())
    html = (built / "02_moving_data.html").read_text(encoding="utf-8")
    shown = re.findall(r'<img alt="([^"]*)" src="_images/[0-9a-f]{64}\.png"', html)
    assert len(shown) >= 5
    assert len(shown) == len(re.findall(r'src="_images/[0-9a-f]{64}\.png"', html))
    assert {text.split(" ")[0] for text in shown} == {text.split(" ")[0] for text in texts}


@pytest.mark.everywhere
def test_a_site_with_a_fault_is_built_and_refused(tmp_path, capfd):
    nb = read(NOTEBOOKS / FILES[0])
    text = "[nowhere](02_gone.ipynb) ![](../images/map.svg) ![a map](https://example.org/map.svg)"
    nb.cells[3:3] = [nbformat.v4.new_markdown_cell(text)]
    assert command.build(COURSE, {FILES[0]: nb}, tmp_path / "out") == 1
    said = capfd.readouterr().err
    assert "02_gone.ipynb" in said and "loads from another site: https://example.org" in said
    assert "picture without alternative text: images/map.svg" in said
    assert (tmp_path / "out" / "index.html").is_file()
    nb.cells.pop(3)
    # What was there is replaced.
    assert command.build(COURSE, {FILES[0]: nb}, tmp_path / "out") == 0
    shutil.rmtree(tmp_path / "out")
