"""Known answers to 09.hottest."""

from course_lessons.lesson09.hottest import MISTAKES, hottest


def _sorted_by(time):
    """Return an answer that sorts by ``time(event)``, whether there is a device or not."""
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
    **MISTAKES,
    "children-too": _sorted_by(lambda event: event.cuda_time_total),
    "changed-input": _in_place,
    "wrong-value": {
        "event.self_device": "event.self_cuda",
        '"self_device_time_total" if': '"self_cuda_time_total" if',
    },
}
RIGHT = {"by index": _by_index, "a tuple": lambda events, n: (*hottest(events, n),)}
