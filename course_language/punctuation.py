"""Replace the punctuation of texts that a program composed by that of the chosen language."""

from __future__ import annotations

import re

from course_language import N_, _, chosen

MARKS = (N_(", "), N_("; "), N_(": "), N_(". "), N_(" ("), N_(")"))


def punctuated(text: str) -> str:
    """Return a text with the chosen language's punctuation next to its own characters, such as 。 for "." .

    Punctuation between Latin words, in code or in quotations stays; in English nothing changes.
    """
    translated_marks = {mark: _(mark) for mark in MARKS}
    beside = r"[^\W\d_\0-\u024f\u2070-\u209f]|[）”]"  # letters that are not Latin, and closing marks
    if chosen() == "en":
        return text
    remark = rf"[^()]*(?:{beside})[^()]*"
    bracket = rf" \(({remark})\)|(?<={beside}) \(([^(),]+)\)"  # but not a tuple after a word
    text = re.sub(
        bracket, lambda match: translated_marks[" ("] + (match[1] or match[2]) + translated_marks[")"], text
    )
    marks = rf"(?<={beside})[,;:.] |(?<!\d)\. (?={beside})|[,;:] (?={beside})"
    text = re.sub(marks, lambda match: translated_marks[match[0]], text)
    text = re.sub(
        "[,;:] (?! )",
        lambda match: translated_marks[match[0]] if _in_a_sentence(match, beside) else match[0],
        text,
    )
    full = "".join(
        mark for mark in translated_marks.values() if " " not in mark
    )  # marks without a space: the language writes no spaces
    spaces = rf"(?<=[{full}]|{beside}) (?={beside})|(?<=[，。；：！？（“]) (?=[^ ])"
    return re.sub(spaces, "", text) if full else text


def _in_a_sentence(mark: re.Match[str], letter: str) -> bool:
    """Return whether the clause around a mark has such a letter, and is not in code or quotation marks."""
    before = re.split(r"[\n<>，。；：！？（“]", mark.string[: mark.start()])[-1]
    after = re.split(r"[\n<>，。；：！？（“#]", mark.string[mark.end() :])[0]
    whole = all(before.count(left) == before.count(right) for left, right in ("()", "[]", "{}"))
    whole = whole and not any(before.count(sign) % 2 for sign in "\"'`")
    return whole and re.search(letter, before + after) is not None
