"""Known wrong answers to 01.speedup, by the diagnosis that each must get."""

from __future__ import annotations

WRONG = {
    "upside-down": lambda cpu_seconds, device_seconds: device_seconds / cpu_seconds,
    "difference": lambda cpu_seconds, device_seconds: cpu_seconds - device_seconds,
    "share-saved": lambda cpu_seconds, device_seconds: 1 - device_seconds / cpu_seconds,
    "percent": lambda cpu_seconds, device_seconds: 100 * cpu_seconds / device_seconds,
    "gain": lambda cpu_seconds, device_seconds: cpu_seconds / device_seconds - 1,
    "never-below-1": lambda cpu_seconds, device_seconds: (
        max(cpu_seconds, device_seconds) / min(cpu_seconds, device_seconds)
    ),
}
