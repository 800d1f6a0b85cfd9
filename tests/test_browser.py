"""JupyterLab in a real browser: run lesson 00, answer an exercise; run solved lessons."""

import argparse
import base64
import io
import json
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from browsers import SECOND, chromium
from harness import EXECUTED, LESSONS, NOTEBOOKS, ROOT, kernel_env
from PIL import Image
from playwright.sync_api import expect
from test_explorers import CALLS

from course_language import languages, translation
from course_lessons.shared import explorer
from course_utils.cli import lab as lab_command
from course_utils.exercises import lesson as exercises_of
from course_utils.exercises.result import HEADLINES
from tools.authoring.solve import solved

pytestmark = [pytest.mark.everywhere, pytest.mark.serial]

SETTINGS = {
    # All cells are in the page, not only the visible ones; no word of a newer JupyterLab covers a corner.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"checkForUpdates": False},
}


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with jupyterlab(tmp_path_factory.mktemp("lab")) as started:
        yield started


@contextmanager
def jupyterlab(folder):
    """Start JupyterLab on a copy of the course; yield its URL, its token and the learner's folder."""
    leave = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    course = folder / "course"
    parts = ("course_utils", "course_language", "course_lessons", "simgpu", "notebooks")
    for part in (*parts, "handbook", "images"):
        shutil.copytree(ROOT / part, course / part, ignore=leave)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, course)
    for name, values in SETTINGS.items():
        path = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    env = kernel_env(
        folder,
        JUPYTER_RUNTIME_DIR=str(folder / "runtime"),
        JUPYTER_DATA_DIR=str(folder / "data"),
        JUPYTERLAB_SETTINGS_DIR=str(folder / "settings"),
        JUPYTERLAB_WORKSPACES_DIR=str(folder / "workspaces"),
    )
    more = ["--ip=127.0.0.1", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"]
    args = argparse.Namespace(no_browser=True, port=port, rest=more)
    command = lab_command.command(Path(sys.executable), args, course)  # what a learner's call starts
    with (folder / "server.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(
            command, cwd=course, env=lab_command.with_defaults(env), stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api/status?token={token}", server, folder / "server.log")
        yield address, token, folder
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()


def _wait_for(url, server, log, seconds=90):
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')[-3000:]}")


def _answer(page, cell, line):
    """Replace the exercise's return line by ``line``, run the cell, and return its output."""
    cell.locator(".cm-line", has_text="return").click()
    page.keyboard.press("End")
    page.keyboard.press("Shift+Home")
    page.keyboard.type(line)
    page.keyboard.press("Shift+Enter")
    return cell.locator(".jp-Cell-outputArea")


def _run_all(browser, lab, name):
    """Open a notebook, run all cells, and assert that each ran in order without errors."""
    address, token, _ = lab
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(60 * SECOND)
    page.goto(f"{address}/lab/tree/notebooks/{name}?token={token}&reset")
    idle = page.locator("#jp-main-statusbar").get_by_text("| Idle")
    idle.wait_for()
    assert page.locator(".jp-OutputArea-output").count() == 0, "an output before its cell runs"
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()

    cells = page.locator(".jp-CodeCell")
    last = cells.last.locator(".jp-InputPrompt")
    expect(last).to_have_text(re.compile(r"\[\d+\]:"), timeout=300 * SECOND)
    idle.wait_for()
    prompts = cells.locator(".jp-InputPrompt").all_inner_texts()
    ran = [f"[{i}]:" for i in range(1, len(prompts) + 1)]
    folded = ["", *ran[1:]]  # the setup cell
    assert [prompt.strip() for prompt in prompts] in (ran, folded)
    for kind in ("stderr", "error"):
        assert page.locator(f'[data-mime-type="application/vnd.jupyter.{kind}"]').count() == 0
    return page


@pytest.mark.parametrize("number", ["03", "07"])
def test_a_solved_lesson_on_the_simulated_device_in_jupyterlab(number, browser, lab):
    _, _, folder = lab
    lesson = next(entry for entry in LESSONS if entry.id == number)
    nb = nbformat.read(NOTEBOOKS / lesson.file, as_version=4)
    name = lesson.file.replace(".ipynb", "_solved_in_lab.ipynb")
    nbformat.write(solved(nb, exercises_of(number)), folder / "course" / "notebooks" / name)
    page = _run_all(browser, lab, name)
    card = page.locator(".jp-OutputArea-output", has_text="Native bfloat16").first
    expect(card).to_contain_text("Simulated")
    heads = page.locator(".jp-OutputArea-output b")
    right = heads.filter(has_text=re.compile(f"^{HEADLINES['right']}$"))
    expect(right).to_have_count(len(exercises_of(number)))
    for outcome in ("not_tried", "raised", "not_yet"):
        assert heads.filter(has_text=re.compile(f"^{HEADLINES[outcome]}$")).count() == 0
    right.last.scroll_into_view_if_needed()
    (EXECUTED / "screens").mkdir(parents=True, exist_ok=True)
    page.screenshot(path=EXECUTED / "screens" / f"{number}_solved.png")
    page.close()


@pytest.mark.parametrize("language", languages())
def test_lesson_00_in_jupyterlab(browser, lab, language):
    progress = lab[2] / "progress.jsonl"
    before = progress.read_text(encoding="utf-8") if progress.exists() else ""
    screens = EXECUTED / "screens"
    screens.mkdir(parents=True, exist_ok=True)
    there = "" if language == "en" else f"{language}/"
    page = _run_all(browser, lab, f"{there}{LESSONS[0].file}")
    cells = page.locator(".jp-CodeCell")

    def said(english):
        return translation(language).gettext(english)

    answers = page.locator(".jp-OutputArea-output")
    card = answers.filter(has_text=said("Native bfloat16")).first
    expect(card).to_be_visible()
    expect(answers.filter(has_text="is not defined")).to_be_visible()
    figure = page.locator(".jp-OutputArea-output img").first
    figure.scroll_into_view_if_needed()
    assert figure.evaluate("image => image.naturalWidth") > 200
    png = base64.b64decode(figure.get_attribute("src").partition(",")[2])
    # A sign that the font lacks is a warning.
    told = Image.open(io.BytesIO(png)).text["Description"]
    assert bool(re.search("[\u4e00-\u9fff]", told)) is (language == "zh")
    page.screenshot(path=screens / f"00_figure_{language}.png")
    card.scroll_into_view_if_needed()
    page.screenshot(path=screens / f"00_card_{language}.png")

    exercise = cells.filter(has_text="ex.weight_bytes.check").first
    output = exercise.locator(".jp-Cell-outputArea")
    expect(output).to_contain_text(said(HEADLINES["not_tried"]))
    output = _answer(page, exercise, "return parameters * bits")
    expect(output).to_contain_text(said(HEADLINES["not_yet"]))
    exercise.scroll_into_view_if_needed()
    page.screenshot(path=screens / f"00_not_yet_{language}.png")
    output = _answer(page, exercise, "return parameters * bits / 8")
    expect(output).to_contain_text(said(HEADLINES["right"]))
    expect(output).not_to_contain_text(said(HEADLINES["not_yet"]))
    exercise.scroll_into_view_if_needed()
    page.screenshot(path=screens / f"00_right_{language}.png")

    noted = progress.read_text(encoding="utf-8").removeprefix(before).splitlines()
    outcomes = [json.loads(line)["outcome"] for line in noted if '"00.' in line]
    assert outcomes == ["not_yet", "right"]
    page.close()


def _links(language):
    """Return one link to each page that lessons link to, with an anchor if there is one."""
    there = "" if language == "en" else f"{language}/"
    found = {}
    for lesson in LESSONS:
        name = f"{there}{lesson.file}"
        for cell in nbformat.read(NOTEBOOKS / name, as_version=4).cells:
            for target, anchor in re.findall(r"\]\((\.\./[^)#]*\.md)(#[^)]*)?\)", cell.source):
                if cell.cell_type == "markdown" and anchor >= found.get(target, ("", "", ""))[2]:
                    found[target] = name, target, anchor
    return list(found.values())


# An empty anchor at the upper edge counts, which Playwright's own question leaves out.
_IN_SIGHT = """anchor => {
    const top = document.querySelector(anchor)?.getBoundingClientRect().top;
    return top > 0 && top < innerHeight;
}"""


def _opens(page, link, path, anchor):
    """Click a link to a page of the course and assert that it opens as text, at the anchor."""
    link.scroll_into_view_if_needed()
    link.click()
    text = page.locator(".jp-MarkdownViewer:visible .jp-RenderedMarkdown")
    first = next(line for line in path.read_text("utf-8").splitlines() if line.startswith("# "))
    title = re.compile(f"^{re.escape(first[2:])}")
    expect(text.locator("h1").first).to_have_text(title, timeout=60 * SECOND)
    if anchor:
        page.wait_for_function(_IN_SIGHT, arg=f'[data-jupyter-id="{anchor[1:]}"]')


@pytest.mark.parametrize("language", languages())
def test_a_link_out_of_a_lesson_opens_its_page_at_its_anchor(browser, lab, language):
    address, token, _ = lab
    links = _links(language)
    named = {Path(target).name.partition(".")[0] for _, target, _ in links}
    assert {"README", "colab_links", "glossary", "machines", "short_path", "templates"} <= named
    for name, target, anchor in links:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}/lab/tree/notebooks/{name}?token={token}&reset")
        there = f'.jp-Notebook a[href*="{target.rpartition("../")[2]}"][href$="{anchor}"]'
        link = page.locator(there if anchor else there.removesuffix('[href$=""]')).first
        _opens(page, link, (NOTEBOOKS / name).parent / target, anchor)
        page.close()


def test_what_cells_show_links_to_pages_that_open(browser, lab):
    """Under what is modelled, and in what explain() says."""
    show = "from course_utils import explain\nfrom course_utils.show import show_table\n"
    show += "show_table(['of', 'time'], [['a product', '2 ms']], ['modelled'])\n"
    path = "import sys\n\nsys.path[:0] = ['..']\n"
    cells = [path + show, "explain('CUDA out of memory')"]
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nb.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(nb, lab[2] / "course" / "notebooks" / "links.ipynb")
    page = _run_all(browser, lab, "links.ipynb")
    lesson = page.locator(".jp-OutputArea-output a", has_text="07").first
    lesson.click()
    expect(page.locator(".jp-Notebook:visible h1").first).to_contain_text("Memory", timeout=60 * SECOND)
    page.get_by_role("tab", name="links.ipynb").click()
    link = page.locator(".jp-OutputArea-output a", has_text="How far the simulated GPU").first
    _opens(page, link, ROOT / "handbook" / "fidelity.md", "")
    page.close()


def _moves(page, box, key):
    """Enter a guess, then move each control of an explorer; return the texts of all pictures shown."""
    picture = box.locator("img").first
    movers = [*box.get_by_role("slider").all(), *box.get_by_role("checkbox").all()]
    seen = [picture.get_attribute("alt")]
    movers[0].focus()
    page.keyboard.press(key)
    assert picture.get_attribute("alt") == seen[0], "it moved before a guess was made"
    box.get_by_role("button").first.click()
    for mover in movers:
        expect(mover).to_be_enabled()
        for press in ("ArrowRight", "ArrowLeft", "ArrowLeft"):
            mover.focus()
            page.keyboard.press("Space" if mover.get_attribute("type") == "checkbox" else press)
            page.wait_for_timeout(SECOND)
            if (alt := picture.get_attribute("alt")) not in seen:
                seen.append(alt)
                break
        assert picture.evaluate("image => image.naturalWidth") > 200
    return seen


def test_explorers_in_jupyterlab_ask_first_and_then_move(browser, lab):
    folder = lab[2]
    path = "import sys\n\nsys.path[:0] = ['..', *{!r}]\nfrom test_explorers import CALLS"
    paths = [str(ROOT / "tests"), str(ROOT / "simgpu" / "tests")]
    cells = [path.format(paths), *(f"CALLS[{name!r}]()" for name in CALLS)]
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nb.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(nb, folder / "course" / "notebooks" / "explorer.ipynb")
    page = _run_all(browser, lab, "explorer.ipynb")
    boxes = page.locator(".jp-CodeCell").filter(has=page.locator(".widget-html img"))
    expect(boxes).to_have_count(len(CALLS))
    for theme in ("Light", "Dark"):
        if theme == "Dark":
            page.get_by_role("menuitem", name="Settings", exact=True).click()
            page.locator(".lm-Menu-item", has_text="Theme").first.click()
            page.locator(".lm-Menu-item", has_text="JupyterLab Dark").first.click()
            page.locator("body[data-jp-theme-light=false]").wait_for(state="attached")
        for number, name in enumerate(CALLS):
            box = boxes.nth(number).locator(".jp-OutputArea-output").first
            box.scroll_into_view_if_needed()
            if theme == "Light":
                assert len(_moves(page, box, "ArrowRight")) > 1, f"{name}: nothing moved"
                expect(box).to_contain_text("You said:")
            box.screenshot(path=EXECUTED / "screens" / f"explorer {name} {theme}.png")
    page.close()


_MOVE_TO = """positions => document.querySelectorAll("[data-mover]").forEach((mover, i, movers) => {
  mover.value = mover.checked = positions[i];
  if (i === movers.length - 1) mover.dispatchEvent(new Event("input"));
})"""


@pytest.mark.parametrize("name", CALLS)
def test_an_explorer_on_a_page_without_a_kernel_moves(browser, tmp_path, monkeypatch, name):
    made = []
    monkeypatch.setattr(explorer.Explorer, "show", lambda self: made.append(self))
    CALLS[name]()
    html = f"<!doctype html><meta charset='utf-8'>{explorer.page(made[0])}"
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    page = browser.new_page(viewport={"width": 900, "height": 800}, color_scheme="dark")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    assert len(_moves(page, page.locator(".explorer"), "ArrowRight")) > 1
    said = "Right." if made[0].guesses[0] == made[0].answer else "Not quite."
    ways = {made[0].part(positions): positions for positions in made[0].positions()}
    for part in sorted(ways.keys() - {""})[: made[0].parts]:
        page.evaluate(_MOVE_TO, ways[part])
    expect(page.locator(".note")).to_have_text(f"You said: {made[0].guesses[0]}.")
    expect(page.locator(".found")).to_have_text(f"{said} {made[0].found}")
    expect(page.locator(".found")).to_be_visible()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.screenshot(path=EXECUTED / "screens" / f"explorer {name} page.png")
    page.close()
