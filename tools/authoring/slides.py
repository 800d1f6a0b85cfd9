"""Slides from a lesson's own cells: which cell is a slide follows from what it is, and no one keeps a list.

A section's heading begins a slide. Below it stand its figures, tables, short code, questions and tasks; the
prose between them becomes speaker notes, because the instructor says it.
"""

from __future__ import annotations

import ast
import base64
import copy
import importlib.util
import re
from pathlib import Path

from nbformat import NotebookNode

from course_language import chosen, word
from course_utils.stubs import AuthoringError
from tools.authoring.form import tags

LONG_CODE = {"image": 6, "other": 14}
"""Code with more lines is left out where it has a figure, or another output, to show instead."""

FIGURE = 500
"""The height of a figure that stands alone on its slide, in pixels of 760."""

PARTS = ("dist/reveal.css", "dist/theme/white.css", "dist/reveal.js", "plugin/notes/notes.js")

_SHOWN = re.compile(rf"^\s*([-*] |[|>]|\d+\. |```|!\[|<img)|\*\*{word('Predict')}", re.MULTILINE)
_BADGES = re.compile(r"^\[!\[.*(?:Colab|Kaggle).*\n*", re.MULTILINE)
_IMPORT = (ast.Import, ast.ImportFrom, ast.Expr)


def slide_types(nb: NotebookNode, *, live: bool = False) -> list[str]:
    """Say of each cell what it is in a slide show.

    Parameters
    ----------
    nb
        The lesson.
    live
        Whether cells are run during the talk: then stubs and predictions are shown, to be filled in.

    Returns
    -------
    list of str
        ``"slide"``, ``"subslide"``, ``"fragment"``, ``"notes"`` or ``"skip"`` for each cell.
    """
    return [_slide_type(nb, i, live) for i in range(len(nb.cells))]


def _slide_type(nb: NotebookNode, i: int, live: bool) -> str:
    cell = nb.cells[i]
    ident = cell.get("id", "")
    if ident in ("setup", "footer"):
        return "skip"
    if cell.cell_type == "markdown":
        if ident == "header" or cell.source.lstrip().startswith("## "):
            return "slide"
        asks = i + 1 < len(nb.cells) and _predicts(nb.cells[i + 1])
        shown = ident.startswith("task-") or asks or _SHOWN.search(cell.source)
        return "subslide" if shown or cell.source.lstrip().startswith("#") else "notes"
    if "exercise" in tags(cell) or _predicts(cell):
        return "fragment" if live else "skip"
    return "skip" if _only_imports(cell.source) else "subslide"


def _predicts(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and bool(re.search(r"\bpredict\(", cell.source))


def _only_imports(source: str) -> bool:
    try:
        return all(isinstance(node, _IMPORT[:2]) for node in ast.parse(source).body)
    except SyntaxError:  # a magic: something happens there
        return False


def for_slides(nb: NotebookNode, *, live: bool = False) -> NotebookNode:
    """Return a copy with ``slideshow`` metadata, which nbconvert and jupyterlab-rise read.

    Badges go; where the talk is not live, so do finished progress bars, and long code that has an output.
    """
    nb = copy.deepcopy(nb)
    nb.cells = [part for cell in nb.cells for part in _parts(cell)]
    for cell, kind in zip(nb.cells, slide_types(nb, live=live), strict=True):
        cell.metadata["slideshow"] = {"slide_type": kind}
        if cell.cell_type == "markdown":
            cell.source = _BADGES.sub("", cell.source)
        elif cell.outputs and not live:
            _shorten(cell)
    return nb


def _parts(cell: NotebookNode) -> list[NotebookNode]:
    """Cut a cell of prose before each heading of a section that stands within it."""
    texts = re.split(r"\n+(?=## )", cell.source) if cell.cell_type == "markdown" else []
    if len(texts) < 2:
        return [cell]
    parts = [copy.deepcopy(cell) for _ in texts]
    for i, (part, text) in enumerate(zip(parts, texts, strict=True)):
        part.source = text
        part.id = f"{cell.id}-{i}" if i else cell.id
    return parts


def _shorten(cell: NotebookNode) -> None:
    """Leave of an executed cell what fits a slide."""
    cell.outputs = [output for output in cell.outputs if not _is_bar(output)]
    if cell.source.startswith("%%writefile"):  # the script is what there is to see
        cell.outputs = []
    figures = [output for output in cell.outputs if "image/png" in output.get("data", ())]
    for figure in figures:
        height = FIGURE if len(figures) == 1 else FIGURE * 2 // 3
        figure.metadata.setdefault("image/png", {})["height"] = height
    most = LONG_CODE["image" if figures else "other"]
    if cell.outputs and len(cell.source.splitlines()) > most:
        cell.metadata["transient"] = {"remove_source": True}


def _is_bar(output: NotebookNode) -> bool:
    return "<progress" in "".join(output.get("data", {}).get("text/html", ""))


def reveal_folder(chosen: Path | None = None) -> Path:
    """Return a folder that holds reveal.js.

    Parameters
    ----------
    chosen
        The package as npm unpacks it; by default the copy that sphinx-revealjs carries.

    Raises
    ------
    AuthoringError
        Where a file of it is missing.
    """
    if chosen is None:
        spec = importlib.util.find_spec("sphinx_revealjs")
        if spec is None or not spec.submodule_search_locations:
            raise AuthoringError(
                "slides need reveal.js: python -m pip install sphinx-revealjs  brings it, or name its "
                "folder with --reveal"
            )
        chosen = Path(spec.submodule_search_locations[0], "_static", "revealjs")
    if missing := [part for part in PARTS if not (chosen / part).is_file()]:
        raise AuthoringError(f"{chosen} is no folder of reveal.js: it lacks {missing[0]}")
    return chosen


def slides_page(nb: NotebookNode, title: str, reveal: Path) -> str:
    """Return an executed lesson as one HTML page of slides, with everything it needs of `reveal_folder` inside."""
    from jinja2 import DictLoader
    from nbconvert import SlidesExporter
    from traitlets.config import Config

    style, theme, script, notes = ((reveal / part).read_text(encoding="utf-8") for part in PARTS)
    styles = re.sub(r"@import [^;]*;", "", style + theme)  # a font; the system's own does
    without = {"exclude_input_prompt": True, "exclude_output_prompt": True}
    exporter = SlidesExporter(
        config=Config({"TemplateExporter": without}),
        extra_loaders=[DictLoader({"course_slides.html.j2": _TEMPLATE})],
        template_file="course_slides.html.j2",
    )
    told = {"title": title, "language": chosen(), "styles": f"{styles}\n{_STYLE}"}
    told["scripts"] = [_embedded(script), _embedded(notes)]
    page, _ = exporter.from_notebook_node(for_slides(nb), resources={"course": told})
    return page


def _embedded(script: str) -> str:
    """Return an address that holds a script: inside an element its own `</script>` would end it."""
    return "data:text/javascript;base64," + base64.b64encode(script.encode()).decode("ascii")


# reveal.js 4 and 5 are set up alike; nbconvert's own page fetches them, and MathJax, from the network.
_TEMPLATE = """\
{%- extends 'index.html.j2' -%}
{%- block header -%}
<!DOCTYPE html>
<html lang="{{ resources.course.language }}"><head><meta charset="utf-8"><title>{{ resources.course.title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
{{ resources.include_css("static/index.css") }}
{{ resources.include_css("static/theme-light.css") }}
{% for css in resources.inlining.css %}<style>{{ css }}</style>{% endfor %}
<style>{{ resources.course.styles }}</style>
</head>
{%- endblock header -%}
{% block data_png scoped %}
<div class="jp-RenderedImage jp-OutputArea-output">
<img src="data:image/png;base64,{{ output.data["image/png"] }}"
 height="{{ output | get_metadata("height", "image/png") }}"
 alt="{{ output | get_metadata("alt", "image/png") | escape_html }}"></div>
{% endblock data_png %}
{%- block footer_js -%}
{% for script in resources.course.scripts %}<script src="{{ script }}"></script>{% endfor %}
<script>
Reveal.initialize({ plugins: [RevealNotes], width: 1280, height: 760, margin: 0.03, hash: true,
  slideNumber: "h.v", center: false, transition: "none" });
</script>
{%- endblock footer_js -%}
"""

_STYLE = """
html, body, main { height: 100%; } body.jp-Notebook { padding: 0; margin: 0; }
:root { --jp-code-font-size: 20px; --jp-content-font-size1: 26px; --jp-ui-font-size1: 20px; }
.reveal { font-size: 26px; } .reveal .slides { text-align: left; }
.reveal .slides section:not(.stack) { max-height: 100%; overflow-y: auto; box-sizing: border-box; }
.reveal h1, .reveal h2, .reveal h3 { text-transform: none; }
.reveal h1 { font-size: 1.9em; } .reveal h2 { font-size: 1.5em; } .reveal h3 { font-size: 1.15em; }
.reveal pre { width: 100%; box-shadow: none; font-size: 20px; line-height: 1.35; margin: 0; }
.reveal .jp-OutputArea pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.reveal .jp-RenderedHTMLCommon table, .reveal .jp-RenderedHTMLCommon pre { font-size: 19px; margin: .4em 0; }
.reveal .jp-RenderedImage img { display: block; margin: .3em auto; max-width: 100%; object-fit: contain; }
.reveal .jp-Cell, .reveal .jp-InputPrompt, .reveal .jp-OutputPrompt { padding: 0; min-width: 0; }
.reveal .jp-InputPrompt, .reveal .jp-OutputPrompt, a.anchor-link { display: none; }
"""
