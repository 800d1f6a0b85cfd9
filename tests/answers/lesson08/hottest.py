"""Known answers to 08.hottest."""

from course_lessons.lesson08.hottest import HOT_TWINS, hottest


def _by(time):
    """Return an answer that sorts by a time, on whatever device."""
    return lambda events, n: [e.key for e in sorted(events, key=time, reverse=True)][:n]


def _by_index(events, n):
    device = [event.self_device_time_total for event in events]
    times = device if max(device) > 0 else [event.self_cpu_time_total for event in events]
    order = sorted(range(len(events)), key=lambda i: -times[i])
    return [events[i].key for i in order][:n]


def _in_place(events, n):
    events.sort(key=lambda event: event.self_device_time_total, reverse=True)
    if not events[0].self_device_time_total:
        events.sort(key=lambda event: event.self_cpu_time_total, reverse=True)
    return [event.key for event in events[:n]]


WRONG = {
    **HOT_TWINS,
    "children-too": (*HOT_TWINS["children-too"], _by(lambda event: event.cuda_time_total)),
    "per-call": (
        *HOT_TWINS["per-call"],
        _by(lambda event: event.self_device_time_total / event.count),
    ),
    "changed-input": _in_place,
}
RIGHT = {"by index": _by_index, "a tuple": lambda events, n: (*hottest(events, n),)}
