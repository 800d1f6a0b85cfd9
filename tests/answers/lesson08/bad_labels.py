"""Known wrong answers to 08.bad_labels, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lessons.lesson08.bad_labels import BAD_TWINS, bad_labels


def _bad_with(twin: str) -> Callable[..., Any]:
    def bad_labels(labels, classes, ignore_index=-100):
        return BAD_TWINS[twin](labels, classes, ignore_index).nonzero().flatten().tolist()

    return bad_labels


def _bad_values(labels, classes, ignore_index=-100):
    return labels[bad_labels(labels, classes, ignore_index)].tolist()


def _bad_nested(labels, classes, ignore_index=-100):
    return [[row] for row in bad_labels(labels, classes, ignore_index)]


def _bad_mask(labels, classes, ignore_index=-100):
    return BAD_TWINS["ignored-is-bad"](labels, classes, ignore_index).tolist()


WRONG = {
    "top-forgotten": _bad_with("top-forgotten"),
    "negative-forgotten": _bad_with("negative-forgotten"),
    "ignored-is-bad": _bad_with("ignored-is-bad"),
    "fixed-ignore": _bad_with("fixed-ignore"),
    "good-ones": _bad_with("good-ones"),
    "values": _bad_values,
    "mask": _bad_mask,
    "nested": _bad_nested,
}
