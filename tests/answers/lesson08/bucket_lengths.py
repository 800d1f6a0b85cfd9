"""Known wrong answers to 08.bucket_lengths, by the diagnosis that each must get."""

from __future__ import annotations

import math

from course_lessons.lesson08.bucket_lengths import bucket_lengths


def _buckets_each(lengths, per_shape, per_token):
    return sorted(set(lengths))


def _buckets_longest(lengths, per_shape, per_token):
    return [max(lengths)] if lengths and per_shape else sorted(set(lengths))


def _buckets_of_two(lengths, per_shape, per_token):
    return sorted({2 ** math.ceil(math.log2(n)) for n in lengths})


def _buckets_uncounted(lengths, per_shape, per_token):
    return bucket_lengths(sorted(set(lengths)), per_shape, per_token)


def _buckets_of_the_shorter(lengths, per_shape, per_token):
    return bucket_lengths(sorted(lengths)[:-1], per_shape, per_token)


WRONG = {
    "every-length": _buckets_each,
    "one-length": _buckets_longest,
    "needless": _buckets_of_two,
    "not-least": _buckets_uncounted,
    "too-short": _buckets_of_the_shorter,
}
