"""The list of the handbook's errors: each with its message, linked to its page."""

from __future__ import annotations

from course_utils.course import Course
from course_utils.error_index import entries, link


def errors(course: Course) -> str:
    """Return a section for each page of errors, as Markdown: the titles and the messages."""
    folder = course.path.parent.parent / "handbook" / "errors"
    parts, page = [], ""
    for entry in entries():
        if entry.page != page:
            page = entry.page
            text = (folder / f"{page}.md").read_text(encoding="utf-8")
            title = text.partition("\n")[0].removeprefix("# ")
            parts += ["", f"## [{title}](errors/{page}.md)", ""]
        forms = " · ".join(f"`` {form} ``" if "`" in form else f"`{form}`" for form in entry.forms)
        parts.append(f"- {link(entry).replace('](', '](errors/')}: {forms}")
    return "\n".join(parts[1:])
