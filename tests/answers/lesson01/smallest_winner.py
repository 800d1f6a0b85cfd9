"""Known wrong answers to 01.smallest_winner, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson01.smallest_winner import winner, winner_or_tie, winner_overlapping


def _winner_no_transfers(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    return winner(sizes, cpu_flops, device_flops, launch_seconds, 1e30, 3)


def _winner_one_way(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    return winner(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes, 2)


def _winner_no_launch(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    return winner(sizes, cpu_flops, device_flops, 0.0, bus_bytes, 3)


def _winner_not_bytes(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    return winner(sizes, cpu_flops, device_flops, launch_seconds, 4 * bus_bytes, 3)


def _winner_largest(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    found = winner(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes, 3)
    return found and max(sizes)


def _winner_always(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    return winner(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes, 3) or sizes[-1]


WRONG = {
    "no-transfers": _winner_no_transfers,
    "one-way": _winner_one_way,
    "no-launch": _winner_no_launch,
    "not-bytes": _winner_not_bytes,
    "largest": _winner_largest,
    "no-winner": _winner_always,
    "overlap": winner_overlapping,
    "tie": winner_or_tie,
}
