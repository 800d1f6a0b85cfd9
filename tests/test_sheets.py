"""The sheets to print: the cheat sheet's code runs, and each sheet is one legible side of paper."""

import re
import shutil
import subprocess
import sys

import pytest
from browsers import chromium
from harness import ROOT
from support import skip

import simgpu
from course_language import languages
from course_utils import cli
from tools.authoring import sheets
from tools.authoring.links import translated_path

CHEATSHEET = "handbook/cheatsheet.md"
BLOCKS = re.findall(
    r"^## ([^\n]+)\n\n```python\n(.*?)```",
    (ROOT / CHEATSHEET).read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
YOURS = """
import torch
from torch.utils.data import TensorDataset

draw = torch.Generator().manual_seed(0)
rows = torch.randn(4_300, 32, generator=draw)
classes = (rows @ torch.randn(32, 10, generator=draw)).argmax(1)
train_set = TensorDataset(rows[:4_000], classes[:4_000])
test_set = TensorDataset(rows[4_000:], classes[4_000:])

def make_model():
    sizes = torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    return torch.nn.Sequential(*sizes)
"""
SEVERAL = "Several GPUs"
AFTER = """
evaluation = sum((model(x.to(device)).argmax(1).cpu() == y).sum() for x, y in test_loader) / len(test_set)
print("at the end", evaluation.item(), first)
"""


def test_the_sheet_has_every_block_and_a_list_of_ten():
    assert len(BLOCKS) == 9 and SEVERAL in dict(BLOCKS)
    text = (ROOT / CHEATSHEET).read_text(encoding="utf-8").partition("## Before a long run")[2]
    assert len(re.findall(r"^\d+\. ", text, re.MULTILINE)) == 10


def run(folder, source, *start):
    path = folder / "train.py"
    path.write_text(source, encoding="utf-8")
    call = [sys.executable, *start, str(path)]
    options = {"capture_output": True, "encoding": "utf-8", "errors": "replace", "timeout": 180}
    done = subprocess.run(call, cwd=folder, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_the_blocks_run_from_top_to_bottom(tmp_path, device):
    if device == "sim" and (reason := simgpu.unavailable_reason()):
        skip(reason, "2027-11-30")
    path = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nimport simgpu\nsimgpu.enable()\n"
    source = YOURS + "\n".join(code for title, code in BLOCKS if title != SEVERAL) + AFTER
    if device == "cpu":
        source = source.replace("(check_available=True)", "(check_available=True) and None")
    said = run(tmp_path, (path if device == "sim" else "") + source)
    losses = [float(loss) for loss in re.findall(r"^\d (\d\.\d+)$", said, re.MULTILINE)]
    assert len(losses) == 2 and losses[1] < losses[0]
    accuracy, first = re.search(r"at the end ([\d.]+) (\d)", said).groups()
    assert float(accuracy) > 0.5 and first == "2"
    assert "s a step" in said and "aten::" in said
    assert (tmp_path / "trace.json").stat().st_size > 1000
    assert not (tmp_path / "last.pt.new").exists()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_block_for_several_gpus_trains_on_ranks(tmp_path, ranks):
    source = YOURS + dict(BLOCKS)[SEVERAL].replace("torch.cuda.is_available()", "False")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    run(tmp_path, source + "\nprint('loss', loss.item())", *launch)
    assert (tmp_path / "model.pt").is_file()


# --- on paper ---------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path):
    """Return a folder with the source pages of the site."""
    (tmp_path / "handbook").mkdir()
    (tmp_path / CHEATSHEET).write_text("# Cheat sheet\n\nText.\n", encoding="utf-8")
    return tmp_path


def test_without_a_browser_one_sentence_says_that_the_pdf_is_left_out(site, monkeypatch, capsys):
    monkeypatch.setattr(sheets, "BROWSERS", ("no-such-browser",))
    assert sheets.add_sheets(ROOT, site) == []
    said = capsys.readouterr().out
    assert CHEATSHEET in said and said.count(".\n") == 1
    assert (site / CHEATSHEET).read_text(encoding="utf-8") == "# Cheat sheet\n\nText.\n"
    assert list(site.rglob("*.pdf")) == []


def test_a_browser_that_fails_is_named_with_its_page(site, monkeypatch):
    monkeypatch.setattr(sheets, "find_browser", lambda: str(site / "gone"))
    (fault,) = sheets.add_sheets(ROOT, site)
    assert fault.startswith(f"{CHEATSHEET} cannot be printed")


SEEN = """
() => {
  const main = document.querySelector('main');
  const boxes = [...document.querySelectorAll('main, pre, td, li')];
  const cut = boxes.filter(e => e.scrollWidth > e.clientWidth + 1);
  const texts = [...document.querySelectorAll('main *')].filter(e => e.innerText && e.innerText.trim());
  return {
    cut: cut.map(e => e.innerText.slice(0, 60)),
    height: main.getBoundingClientRect().height,
    smallest: Math.min(...texts.map(e => parseFloat(getComputedStyle(e).fontSize))) * 72 / 96,
    text: main.innerText,
  };
}
"""
HEIGHTS = {"landscape": 196, "portrait": 277}  # mm between the margins


@pytest.mark.slow
@pytest.mark.parametrize("language", languages())
@pytest.mark.parametrize("page", sheets.SHEETS)
def test_a_sheet_is_one_legible_side_with_all_of_its_text(page, language, tmp_path):
    (tmp_path / "sheet.html").write_text(sheets.sheet_html(ROOT, page, language), encoding="utf-8")
    with chromium() as browser:
        shown = browser.new_page(viewport={"width": 1200, "height": 1200})
        shown.emulate_media(media="print")
        shown.goto((tmp_path / "sheet.html").as_uri())
        seen = shown.evaluate(SEEN)
    assert seen["cut"] == []
    assert seen["height"] <= HEIGHTS[sheets.SHEETS[page]] * 96 / 25.4
    assert seen["smallest"] >= 6.5
    source = (ROOT / translated_path(page, language)).read_text(encoding="utf-8")
    for code in re.findall(r"```\w*\n(.*?)```", source, re.DOTALL):
        for line in code.splitlines():
            assert line.strip() in seen["text"]
    assert sheets.print_sheet(ROOT, page, tmp_path / "sheet.pdf", language) == []


@pytest.mark.everywhere
def test_a_page_of_the_site_links_its_sheet(site):
    with chromium():
        pass  # or the test is skipped
    assert sheets.add_sheets(ROOT, site) == []
    assert (site / "handbook" / "cheatsheet.pdf").read_bytes().startswith(b"%PDF")
    assert "](cheatsheet.pdf)" in (site / CHEATSHEET).read_text(encoding="utf-8")


@pytest.mark.everywhere
def test_a_sheet_that_is_too_long_is_refused(tmp_path, site):
    with chromium():
        pass
    shutil.copytree(ROOT / "site", site / "site")
    text = (ROOT / CHEATSHEET).read_text(encoding="utf-8")
    longer = text.replace("\n7. ", "\n\n```python\n" + "x\n" * 30 + "```\n\n7. ")
    (site / CHEATSHEET).write_text(longer, encoding="utf-8")
    assert sheets.print_sheet(site, CHEATSHEET, tmp_path / "long.pdf") == [
        f"{CHEATSHEET} takes 2 pages of paper, and shall take one."
    ]


def test_the_command_prints_both_sheets_or_says_what_is_missing(tmp_path, monkeypatch, capsys):
    printed = []
    monkeypatch.setattr(sheets, "print_sheet", lambda root, page, pdf: printed.append(pdf.name) or [])
    monkeypatch.setattr(sheets, "find_browser", lambda: "a browser")
    assert cli.main(["site", "--sheets", str(tmp_path / "out")]) == 0
    assert printed == ["cheatsheet.pdf", "run_sheet.pdf"]
    monkeypatch.setattr(sheets, "find_browser", lambda: None)
    assert cli.main(["site", "--sheets", str(tmp_path / "out")]) == 1
    assert "nothing is printed" in capsys.readouterr().err
