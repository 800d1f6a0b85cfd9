"""Known answers to 08.bad_labels."""

from course_lessons.lesson08.bad_labels import bad_labels


def _one_by_one(labels, classes, ignore_index=-100):
    return [
        i
        for i, label in enumerate(labels.tolist())
        if label != ignore_index and not 0 <= label < classes
    ]


WRONG = {
    "mask": {"bad.nonzero().flatten()": "outside"},
    "no-such-row": lambda labels, *rest: [len(labels)],
    "order": lambda *case: bad_labels(*case)[::-1],
    "a-good-one": lambda labels, *rest: list(range(len(labels))),
    "one-missing": lambda *case: bad_labels(*case)[1:],
    "tensor": {".tolist()": ""},
}
RIGHT = {"one by one": _one_by_one, "a tuple": lambda *case: tuple(bad_labels(*case))}
