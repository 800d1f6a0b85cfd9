"""How Sphinx builds the reader's site.

`python3 -m course_utils site` lays out a folder with this file, the pages and the executed lessons, and
calls Sphinx there; nothing is fetched, then or by the reader.
"""

import json
from pathlib import Path

from docutils import nodes

from course_utils.course import load_course

course = load_course()
ALTERNATIVES = json.loads(Path(__file__).with_name("alternatives.json").read_text(encoding="utf-8"))

project = "GPU Training with PyTorch"
html_title = project
language = "en"
extensions = ["myst_nb", "sphinx.ext.githubpages"]

nb_execution_mode = "off"  # the lessons were executed before
nb_merge_streams = True
nb_code_prompt_show = "Show the setup cell"  # the only cell that is folded
nb_code_prompt_hide = "Hide the setup cell"
myst_heading_anchors = 4
myst_enable_extensions = ["tasklist"]  # a list to tick, of the short path
myst_enable_checkboxes = True
suppress_warnings = ["misc.highlighting_failure"]  # a fragment need not be a whole program

linkcheck_anchors = False  # many pages make their anchors with a script
linkcheck_retries = 2
linkcheck_timeout = 20

html_theme = "sphinx_book_theme"
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system
html_theme_options = {
    "navbar_persistent": [],
    "use_download_button": False,  # it would offer the executed copy; the lesson is in the repository
    "home_page_in_toc": True,
    "show_toc_level": 2,
    "footer_content_items": ["extra-footer"],
    "extra_footer": "Text and pictures: CC BY 4.0. Code: Apache-2.0.",
}
if course.repository:
    html_theme_options |= {
        "repository_url": f"https://github.com/{course.repository}",
        "repository_branch": course.branch,
        "path_to_docs": "notebooks",
        "use_repository_button": True,
        "launch_buttons": {"colab_url": "https://colab.research.google.com"},
    }
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["course.css"]
html_copy_source = False


def describe_pictures(app, doctree):
    """Give each figure of a lesson the alternative text that its output carries."""
    for image in doctree.findall(nodes.image):
        if alt := ALTERNATIVES.get(Path(image["uri"]).stem):
            image["alt"] = alt


def setup(app):
    """Connect what this file adds to Sphinx."""
    app.connect("doctree-read", describe_pictures)
