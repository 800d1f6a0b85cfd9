"""Known wrong answers to 08.hottest, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson08.hottest import row_by_row


def _hottest_with_children(events, n):
    ordered = sorted(events, key=lambda event: event.cuda_time_total, reverse=True)
    return [event.key for event in ordered[:n]]


def _hottest_on_host(events, n):
    ordered = sorted(events, key=lambda event: event.self_cpu_time_total, reverse=True)
    return [event.key for event in ordered[:n]]


def _hottest_per_call(events, n):
    ordered = sorted(events, key=lambda event: event.self_device_time_total / event.count)
    return [event.key for event in ordered[: -n - 1 : -1]]


def _hottest_by_old_name(events, n):
    on_device = any(event.self_cuda_time_total for event in events)
    name = "self_cuda_time_total" if on_device else "self_cpu_time_total"
    ordered = sorted(events, key=lambda event: getattr(event, name), reverse=True)
    return [event.key for event in ordered[:n]]


def _hottest_ascending(events, n):
    ordered = sorted(events, key=lambda event: event.self_device_time_total)
    return [event.key for event in ordered[:n]]


WRONG = {
    "children-too": _hottest_with_children,
    "host-time": _hottest_on_host,
    "per-call": _hottest_per_call,
    "row-by-row": row_by_row,
    "ascending": _hottest_ascending,
    "old-name": _hottest_by_old_name,
}
