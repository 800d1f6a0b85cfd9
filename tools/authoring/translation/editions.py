"""Generates translated notebooks and pages from the English ones and the catalogues.

Run as a program with ``COURSE_LANGUAGE`` set it prints them as JSON, so that what generates headers, tasks
and footers speaks that language: ``COURSE_LANGUAGE=zh python -m tools.authoring.translation.editions``.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import nbformat

import course_language
from course_language import own_name
from course_utils.cli.bootstrap import ROOT
from tools.authoring import claims, guide
from tools.authoring.links import slug, translated_path
from tools.authoring.translation import catalogues, code, prose

_LINK = re.compile(
    r"(?:(?<=\]\()|(?<=src=\")|(?<=srcset=\")|(?<=href=\"))(?![a-z]+:|[#@])([^)\s#\"]+)(#[^)\s\"]*)?"
)


def sources() -> list[str]:
    """Return the English notebooks and pages that have a translation, as paths from the course's root."""
    names = list(catalogues.sources())
    pages = [name.removeprefix("pages/") for name in names if name.startswith("pages/")]
    lessons = [name for name in names if name.startswith("notebooks/")]
    return [*(f"{name}.md" for name in pages), *(f"{name}.ipynb" for name in lessons), claims.PAGE]


def stale_texts(language: str, root: Path = ROOT) -> dict[str, str]:
    """Return the up-to-date text of each translated notebook and page whose file differs from it, by path.

    Generates all in a subprocess, as `translated_texts` does; writes nothing.
    """
    return {
        path: text for path, text in translated_texts(language, root).items() if _read(root / path) != text
    }


def translated_texts(language: str, root: Path = ROOT) -> dict[str, str]:
    """Return the generated text of all notebooks and pages of a language, by path from ``root``.

    Runs this module in a subprocess whose ``COURSE_LANGUAGE`` is the language.
    """
    env = {**os.environ, "COURSE_LANGUAGE": language, "PYTHONPATH": str(root), "PYTHONUTF8": "1"}
    call = [sys.executable, "-m", __name__]
    done = subprocess.run(call, env=env, cwd=root, stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return json.loads(done.stdout)


def _read(path: Path) -> str:
    """Return a file's text, or "" if there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def relink(text: str, path: str, language: str, known: Iterable[str], headings: Mapping[str, str]) -> str:
    """Return Markdown with its relative links adapted to the folder of the translation.

    ``path`` is the English file's, from the course's root, as are those in ``known``. A link to a page in
    ``known`` leads to its translation, one to a picture leads to ``images/LANGUAGE/`` if it is there, and any
    other to the same file as before. ``headings`` maps English anchors of notebooks to translated ones.
    """
    here = posixpath.dirname(translated_path(path, language))

    def there(link: re.Match[str]) -> str:
        """Return one link, adapted."""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1]))
        if target.startswith(".."):
            return link[0]
        end = link[2] or ""
        if target in known and target.endswith(".ipynb"):
            end = "#" * bool(end) + headings.get(end[1:], end[1:])
        drawn = target.startswith("images/") and (ROOT / translated_path(target, language)).is_file()
        goal = translated_path(target, language) if target in known or drawn else target
        return posixpath.relpath(goal, here or ".") + "/" * link[1].endswith("/") + end

    parts = re.split(r"(?ms)(^ *```.*?^ *```)", text)  # code blocks contain no links
    parts[::2] = [_LINK.sub(there, part) for part in parts[::2]]
    parts[1::2] = [part.replace("%run ../", "%run ../../") for part in parts[1::2]]
    return "".join(parts)


def _translate_urls(text: str, home: str, language: str, known: Iterable[str]) -> str:
    """Return a text whose GitHub, Colab and Kaggle URLs of files in ``known`` lead to their translations."""
    pattern = re.escape(home.removeprefix("https://github.com/")) + r"([\w./-]+)"

    def there(found: re.Match[str]) -> str:
        """Return one URL, translated."""
        path = translated_path(found[1], language) if found[1] in known else found[1]
        return found[0].removesuffix(found[1]) + path

    return re.sub(pattern, there, text)


class _Edition:
    """Generates one language's notebooks and pages; the process's language must be that one."""

    def __init__(self, language: str):
        from course_utils.course import load_course

        self.language, self.known, self.course = language, frozenset(sources()), load_course()
        titles = self.titles = catalogues.translations(language, "notebooks/")
        self.sections = catalogues.translations(language, "course.po")
        self.headings = {one.replace(" ", "-"): other.replace(" ", "-") for one, other in titles.items()}
        texts = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in self.known)
        self.anchors = set(re.findall(r"\]\([^)\s]*#([\w-]+)\)", texts))
        self.home = self.course.page("") if self.course.repository else ""

    def texts(self) -> dict[str, str]:
        """Return the generated text of every translated file, by its path from the root."""
        return {translated_path(path, self.language): self.text_of(path) for path in sorted(self.known)}

    def text_of(self, path: str) -> str:
        """Return the translation of the English file at ``path`` (from the root): generated, not read."""
        text = (ROOT / path).read_text(encoding="utf-8")
        name, _, end = path.rpartition(".")
        if end == "ipynb":
            words = catalogues.translations(self.language, f"{name}.po")
            return self.notebook(path, text, words)
        if path == claims.PAGE:  # generated; its texts are in the catalogues of packages
            return self.markdown(path, claims.page())
        return self.page(path, text, catalogues.translations(self.language, f"pages/{name}.po"))

    def markdown(self, path: str, text: str) -> str:
        """Return translated Markdown with links and URLs adapted, and the link to the other language.

        ``path``, here as in `page` and `notebook`, is that of the English file.
        """
        text = relink(text, path, self.language, self.known, self.headings)
        english = posixpath.relpath(path, posixpath.dirname(translated_path(path, self.language)) or ".")
        text = re.sub(rf"\[{own_name(self.language)}\]\([^)]*\)", f"[{own_name('en')}]({english})", text)
        return _translate_urls(text, self.home, self.language, self.known) if self.home else text

    def page(self, path: str, text: str, words: Mapping[str, str]) -> str:
        """Return the translation of a page; ``words`` maps English texts to translations.

        A text without one stays English.
        """
        from tools.authoring import pages

        if path == guide.PAGE:
            text = guide.render(self.course, text, lambda title: self.titles.get(title, title))
        text = re.sub(r"(?m)^(<a id=.*\n\n)?#{2,6} (.+)$", self._with_anchor, text)
        text = prose.rewrite(text, lambda piece: words.get(piece, piece), catalogues.GENERATED)
        text = re.sub(r'(catch_up\("\d\d", )"([^"]+)"', self._translate_catch_up, text)
        # Commands in the text open this language's lessons.
        text = re.sub(r"(?<= notebooks/)(?=\d\d_\w+\.ipynb`)", f"{self.language}/", text)
        if catalogues.GENERATED.intersection(pages.PAGES.get(path, ())):
            text = pages.render(self.course, path, text)
        return self.markdown(path, text)

    def _translate_catch_up(self, call: re.Match[str]) -> str:
        """Return a call of ``catch_up`` with the translated heading."""
        translations = (other for one, other in self.sections.items() if call[2].lower() in one.lower())
        return f'{call[1]}"{next(translations, call[2])}"'

    def _with_anchor(self, heading: re.Match[str]) -> str:
        """Return a heading, preceded by its English anchor if some page links to it."""
        plain = re.sub(r"[^\w -]", "", heading[2].lower()).replace(" ", "-")
        name = next((name for name in (slug(heading[2]), plain) if name in self.anchors), "")
        has_one = heading[1] or not name
        return heading[0] if has_one else f'<a id="{name}"></a>\n\n{heading[0]}'

    def notebook(self, path: str, text: str, words: Mapping[str, str]) -> str:
        """Return the translation of a notebook as JSON text, without outputs.

        ``words`` maps English texts to translations; a text without one stays English.
        """
        from course_utils.exercises import lesson as exercises_of
        from tools.authoring.cells import regenerate
        from tools.authoring.form import dumps

        def translate(piece: str) -> str:
            """Return the translation of a piece, or the piece itself if there is none."""
            return words.get(piece, piece)

        notebook = nbformat.reads(text, as_version=4)
        keys = code.keys(
            cell.source
            for cell in notebook.cells
            if cell.cell_type == "code" and "generated" not in cell.metadata.get("tags", ())
        )
        lesson = next(lesson for lesson in self.course.lessons if path.endswith(lesson.file))
        for cell in notebook.cells:
            generated = "generated" in cell.metadata.get("tags", ())
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
                if "nbval-check-output" in cell.metadata.get("tags", ()):
                    cell.metadata["tags"].remove("nbval-check-output")
                if not generated:
                    cell.source = code.rewrite(cell.source, translate, keys)
            elif not generated:
                source = cell.source.replace(self.home, "../") if self.home else cell.source
                cell.source = prose.rewrite(source, translate)
        notebook = regenerate(notebook, self.course, lesson, exercises_of(lesson.id))
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = self.markdown(path, cell.source)
        return dumps(notebook)


if __name__ == "__main__":
    json.dump(_Edition(course_language.chosen()).texts(), sys.stdout, ensure_ascii=False)
