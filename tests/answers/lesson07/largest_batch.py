"""Known wrong answers to 07.largest_batch."""

from course_lessons.lesson07.largest_batch import largest_batch
from course_lessons.shared.edited import edited

WRONG = {
    "swallows": {"torch.OutOfMemoryError": "RuntimeError"},
    "not-collected": {"gc.collect()": ""},
    "held-by-error": (
        edited(
            largest_batch,
            {"OutOfMemoryError:": "OutOfMemoryError as error:\n    kept.append(error)"},
            kept=[],
        ),
    ),
    "result-kept": edited(largest_batch, {"works(batch)": "kept.append(works(batch))"}, kept=[]),
    "not-caught": lambda works, start=1, limit=None: works(start + 1000) or start,
    "wrong-value": (
        {"good, bad = 0": "good, bad = start // 2"},
        {"min(bad, batch)": "min(bad, batch + 1)"},
    ),
}
RIGHT = {"rounded up": {"(good + bad) // 2": "(good + bad + 1) // 2"}}
