"""Print Markdown pages as PDFs of one side of A4, with an installed Chromium or Chrome."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import course_language
from course_utils import files
from tools.authoring.links import translated_path
from tools.authoring.site import words

SHEETS = {"handbook/cheatsheet.md": "landscape", "workshop/run_sheet.md": "portrait"}
"""The pages to print, and the orientation of each."""

MARGINS = {"landscape": "7mm", "portrait": "10mm"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
FLAGS += ("--disable-background-networking", "--disable-component-update")
NO_BROWSER = "There is no Chromium or Chrome on the PATH"

_HEAD = re.compile(r"(?=<h2\b)")
_A_PAGE = re.compile(rb"/Type\s*/Page\b")


def find_browser() -> str | None:
    """Return the path of a Chromium or Chrome that can print to PDF; None if there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def sheet_html(root: Path, page: str, language: str = "en") -> str:
    """Return a page of `SHEETS`, in a language, as an HTML document laid out for one side of A4.

    It loads the language's font, if there is one, from this machine.
    """
    from nbconvert.filters.markdown import markdown2html

    orientation = SHEETS[page]
    text = (root / translated_path(page, language)).read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    first, *rest = _HEAD.split(markdown2html(text))
    body = first + "".join(f"<section>{part}</section>" for part in rest)
    style = f"@page {{ size: A4 {orientation}; margin: {MARGINS[orientation]}; }}\n"
    style += (root / "site" / "sheet.css").read_text(encoding="utf-8")
    font = course_language.HERE / language / "font.otf"
    if font.is_file():
        style += f'@font-face {{ font-family: "Course Sans"; src: url("{font.as_uri()}"); }}\n'
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8"><title>{title}</title>'
        f'<style>{style}</style></head><body><main class="{orientation}">{body}</main></body></html>'
    )


def print_sheet(root: Path, page: str, pdf: Path, language: str = "en") -> list[str]:
    """Print a page of `SHEETS` to the file ``pdf``; return what is wrong, an empty list if nothing.

    More than one sheet of paper counts as wrong; the file is written all the same. No browser, or one that
    fails or takes 120 s, counts too, and then nothing is written.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        printed = Path(scratch) / "sheet.pdf"
        html = Path(scratch) / "sheet.html"
        html.write_text(sheet_html(root, page, language), encoding="utf-8")
        call = [find_browser() or "", "--headless", *FLAGS, f"--user-data-dir={scratch}/profile"]
        call += ["--no-pdf-header-footer", f"--print-to-pdf={printed}", html.as_uri()]
        try:
            subprocess.run(call, capture_output=True, timeout=120, check=True)
            pages = len(_A_PAGE.findall(data := printed.read_bytes()))
            files.write(pdf, data)
        except (OSError, subprocess.SubprocessError) as error:
            return [f"{page} cannot be printed: {error}"]
    return [] if pages == 1 else [f"{page} takes {pages} pages of paper, and shall take one."]


def add_sheets(root: Path, folder: Path, language: str = "en") -> list[str]:
    """Print the sheets to PDFs beside their pages in the site's source, link them; return what is wrong.

    ``root`` is the repository, ``folder`` the site's source. The pages of `SHEETS` that it has are printed.
    Each call adds the link again, also if printing failed, so call it once. Without a browser it prints a
    message and does nothing.
    """
    there = [page for page in SHEETS if (folder / page).is_file()]
    if find_browser() is None:
        print(f"{NO_BROWSER}: the site goes without the PDF of {', '.join(there)}.")
        return []
    faults = []
    for page in there:
        path = folder / page
        faults += print_sheet(root, page, path.with_suffix(".pdf"), language)
        title, _, rest = path.read_text(encoding="utf-8").partition("\n")
        link = f"[{words(language)['print']}]({path.stem}.pdf)"
        path.write_text(f"{title}\n\n{link}\n{rest}", encoding="utf-8")
    return faults
