"""Lesson 00's predictions: the choices, each with the sentence for a reader who chose it wrongly."""

from __future__ import annotations

from course_language import _

AT_ITEM = {
    "copy": _(
        "Copying one number is quick. But the number has to be there first, and it's the result of all that "
        "Python has sent for this batch."
    ),
    "wait": "",
    "nothing": _(
        "Python has only sent the work, and gone on. The loss is a tensor on the GPU, so Python doesn't know "
        "its value."
    ),
}
TWICE_THE_SIZE = {
    "2": _("2 would be the length of a row. But there are also twice as many rows and columns."),
    "4": _(
        "4 would be the size of the matrix. But each of its numbers takes twice as many multiplications: the "
        "work is n³."
    ),
    "8": "",
}
