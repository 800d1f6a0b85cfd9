"""Known wrong answers to 01.least_seconds, by the diagnosis that each must get."""

from __future__ import annotations

WRONG = {
    "added": lambda flops, bytes_moved, peak_flops, bandwidth: (
        flops / peak_flops + bytes_moved / bandwidth,
        "memory",
    ),
    "easier-limit": lambda flops, bytes_moved, peak_flops, bandwidth: (
        min(flops / peak_flops, bytes_moved / bandwidth),
        "memory",
    ),
    "other-limit": lambda flops, bytes_moved, peak_flops, bandwidth: (
        max(flops / peak_flops, bytes_moved / bandwidth),
        "memory" if flops / peak_flops > bytes_moved / bandwidth else "compute",
    ),
    "upside-down": lambda flops, bytes_moved, peak_flops, bandwidth: (
        max(peak_flops / max(flops, 1), bandwidth / bytes_moved),
        "memory",
    ),
}
