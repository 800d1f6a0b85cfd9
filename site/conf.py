"""How Sphinx builds the reader's site.

`python3 -m course_utils site` lays out a folder with this file, the pages and the executed lessons, and
calls Sphinx there; nothing is fetched, then or by the reader.
"""

import html
import json
import re
from pathlib import Path

from docutils import nodes

from course_language import chosen, languages, own_name
from course_utils.course import load_course
from tools.authoring.cells import site
from tools.authoring.site import words as words_in
from tools.authoring.translation.catalogues import LOCALES

course, edition = load_course(), chosen()
words = words_in(edition)
ALTERNATIVES = json.loads(Path(__file__).with_name("alternatives.json").read_text(encoding="utf-8"))

project = words["title"]
html_title = project
language = LOCALES.get(edition, edition)
templates_path = ["_templates"]
extensions = ["myst_nb", "sphinx.ext.githubpages", "sphinx_copybutton"]

nb_execution_mode = "off"  # the lessons were executed before
nb_merge_streams = True
myst_heading_anchors = 4
myst_url_schemes = ["http", "https", "mailto", "ftp", "site"]  # the last from page_text
myst_enable_extensions = ["attrs_inline", "tasklist"]  # classes of the first page; a list to tick
myst_enable_checkboxes = True
suppress_warnings = ["misc.highlighting_failure"]  # a fragment need not be a whole program

copybutton_selector = "div.highlight:not(.cell_output *, .output *) > pre"  # code, not what it printed

linkcheck_anchors = False  # many pages make their anchors with a script
linkcheck_ignore = [r"(?!\w+:)"]  # the site's own pages
linkcheck_retries = 2
linkcheck_timeout = 20

html_theme = "sphinx_book_theme"
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system
html_theme_options = {
    "navbar_persistent": [],
    "use_download_button": False,  # it would offer the executed copy; the lesson is in the repository
    "home_page_in_toc": True,
    "show_toc_level": 2,
    "article_header_end": ["switch.html", "article-header-buttons.html"],
    "footer_content_items": ["extra-footer"],
    "extra_footer": words["licence"],
}
if course.repository:
    html_theme_options |= {
        "repository_url": f"https://github.com/{course.repository}",
        "repository_branch": course.branch,
        "path_to_docs": "notebooks" if edition == "en" else f"notebooks/{edition}",
        "use_repository_button": True,
        "launch_buttons": {"colab_url": "https://colab.research.google.com"},
    }
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["course.css"]
html_js_files = ["search_excerpts.js"]
html_search_scorer = str(Path(__file__).with_name("search_scorer.js"))
html_copy_source = False


def describe_pictures(app, doctree):
    """Give each figure of a lesson the text that its output carries; a picture without one is a fault."""
    from sphinx.util import logging

    logger = logging.getLogger(__name__)
    for image in doctree.findall(nodes.image):
        if alt := ALTERNATIVES.get(Path(image["uri"]).stem):
            image["alt"] = alt
        if not image.get("alt", "").strip():
            logger.warning("picture without alternative text: %s", image["uri"], location=image)
        if "://" in image["uri"]:
            logger.warning("loads from another site: %s", image["uri"], location=image)
    for link in doctree.findall(nodes.reference):  # page_text has found where it leads
        if link.get("refuri", "").startswith("site:"):
            link["refuri"] = link["refuri"].removeprefix("site:")


def find_editions(app, pagename, templatename, context, doctree):
    """Tell the switch where the page is in each other language: that language's first page, if nowhere."""
    context["editions"] = []
    for other in languages():
        source = Path(app.srcdir).with_name(other)
        if other != edition and source.is_dir():
            translated = any((source / f"{pagename}{end}").is_file() for end in (".md", ".ipynb"))
            page = pagename if translated or pagename in ("search", "genindex") else "index"
            up = "../" * (pagename.count("/") + (edition != "en")) + f"{other}/" * (other != "en")
            link = {"href": f"{up}{page}.html", "lang": other, "name": own_name(other)}
            context["editions"].append(link)


def describe_page(app, pagename, templatename, context, doctree):
    """Give the page what search engines and shared links show: a description, and Open Graph's fields."""
    if pagename == app.config.root_doc:
        context["docstitle"] = ""  # its title is the site's
    text = description(doctree) if doctree else ""
    title = re.sub(r"<[^>]+>", "", context.get("title", "")) or project
    fields = {"og:title": html.unescape(title), "og:type": "website", "og:site_name": project}
    fields["og:locale"] = language.replace("en", "en_US") if edition == "en" else language
    if text:
        fields["og:description"] = text
    if course.repository:  # Open Graph wants whole addresses
        home = site(course.repository) + ("" if edition == "en" else f"{edition}/")
        fields |= {"og:url": f"{home}{pagename}.html", "og:image": f"{home}_images/gain.png"}
    tags = [f'<meta property="{name}" content="{html.escape(value)}" />' for name, value in fields.items()]
    if text:
        tags.append(f'<meta name="description" content="{html.escape(text)}" />')
    if pagename == "404" and course.repository:  # GitHub shows it at any address
        tags.insert(0, f'<base href="{html.escape(site(course.repository))}" />')
    context["metatags"] = context.get("metatags", "") + "\n".join(tags)


def description(doctree):
    """Return a page's first paragraph of text, cut at a word."""
    for node in doctree.findall(nodes.paragraph):
        text = " ".join(node.astext().split())
        door = any("door" in link.get("classes", ()) for link in node.findall(nodes.reference))
        picture = next(iter(node.findall(nodes.image)), None)
        if len(text) > 20 and not door and picture is None and isinstance(node.parent, nodes.section):
            return text if len(text) <= 200 else text[:200].rsplit(" ", 1)[0] + " …"
    return ""


def search_by_pairs():
    """Return a search that splits Chinese into pairs of signs: Sphinx's own needs another package."""
    from sphinx.search.zh import SearchChinese

    pairs = r"(?=([\u4e00-\u9fff]{2}))|(\w+)"

    class Pairs(SearchChinese):
        language_name = "English"  # the stemmer's name in JavaScript; Sphinx 9.0 and 9.1 take it from here
        js_splitter_code = (
            f"function splitQuery(query) {{ return [...query.matchAll(/{pairs}/g)].map(m => m[1] || m[2]); }}"
        )

        def split(self, text):
            return [pair or latin for pair, latin in re.findall(pairs, text, re.ASCII)]

    return Pairs


def setup(app):
    """Connect what this file adds to Sphinx."""
    app.connect("doctree-read", describe_pictures)
    app.connect("html-page-context", find_editions)
    app.connect("html-page-context", describe_page)
    if edition == "zh":
        app.add_search_language(search_by_pairs())
