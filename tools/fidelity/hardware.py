"""Which profile stands for the card that a file names."""

from __future__ import annotations

import re

from simgpu import profiles

from .workload import Uninterpretable

CARDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"GH200|GB200|B300|MI-?\d", ()),
    # Modelled, or a GeForce with more behind its number: another card.
    (r"Simulated|RTX \d+ \S", ()),
    (r"H100.*(PCIe|96GB)", ()),  # less memory bandwidth and fewer processors than the H100 SXM
    (r"H200", ("H200",)),
    (r"H100", ("H100",)),
    (r"B200", ("B200",)),
    (r"A100.*40 ?GB", ("A100-40GB", "A100")),
    (r"A100", ("A100",)),
    (r"V100", ("V100",)),
    (r"(rtx ?|^|1x )3090", ("RTX 3090",)),
    (r"(rtx ?|^|1x )4090", ("RTX 4090",)),
    (r"(rtx ?|^|1x )5090", ("RTX 5090",)),
    (r"\bT4\b", ("T4",)),
    (r"\bL4\b", ("L4",)),
)
"""A pattern for the name in a file, and the profiles that may stand for it: the first that there is.
The first pattern that fits decides; no profile stands for a card whose figures differ too much."""


def profile_of(hardware: str) -> str:
    """Return the name of the profile for a card.

    Raises
    ------
    Uninterpretable
        Where there is none, or not yet.
    """
    for pattern, candidates in CARDS:
        if re.search(pattern, hardware, re.IGNORECASE):
            there = [name for name in candidates if name in profiles.names()]
            if there:
                return there[0]
            if candidates:
                raise Uninterpretable(f"there is no profile {candidates[0]!r} yet")
            break
    raise Uninterpretable(f"no profile stands for the card {hardware!r}")
