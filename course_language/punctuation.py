"""The marks of a sentence that a program put together, in the language of its words."""

from __future__ import annotations

import re

from course_language import N_, _, chosen

MARKS = (N_(", "), N_("; "), N_(": "), N_(". "), N_(" ("), N_(")"))


def punctuated(text: str) -> str:
    """Return a text that a program put together, with the language's own marks beside its own letters."""
    own = {mark: _(mark) for mark in MARKS}
    beside = r"[^\W\d_\0-\u024f\u2070-\u209f]|[）”]"  # letters of another script than the Latin one
    if chosen() == "en":
        return text
    said = rf"[^()]*(?:{beside})[^()]*"
    bracket = rf" \(({said})\)|(?<={beside}) \(([^(),]+)\)"  # a tuple after a word is no remark
    text = re.sub(bracket, lambda found: own[" ("] + (found[1] or found[2]) + own[")"], text)
    marks = rf"(?<={beside})[,;:.] |(?<!\d)\. (?={beside})|[,;:] (?={beside})"
    text = re.sub(marks, lambda found: own[found[0]], text)
    text = re.sub(
        "[,;:] (?! )",
        lambda found: own[found[0]] if _in_a_sentence(found, beside) else found[0],
        text,
    )
    full = "".join(mark for mark in own.values() if " " not in mark)  # there are no spaces at all
    spaces = rf"(?<=[{full}]|{beside}) (?={beside})|(?<=[，。；：！？（“]) (?=[^ ])"
    return re.sub(spaces, "", text) if full else text


def _in_a_sentence(mark: re.Match[str], letter: str) -> bool:
    """Tell whether a mark's part of a sentence has such a letter, and the mark is in no code or quotation."""
    before = re.split(r"[\n<>，。；：！？（“]", mark.string[: mark.start()])[-1]
    after = re.split(r"[\n<>，。；：！？（“#]", mark.string[mark.end() :])[0]
    whole = all(before.count(left) == before.count(right) for left, right in ("()", "[]", "{}"))
    whole = whole and not any(before.count(sign) % 2 for sign in "\"'`")
    return whole and re.search(letter, before + after) is not None
