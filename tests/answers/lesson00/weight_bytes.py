"""Known wrong answers to 00.weight_bytes, by the diagnosis that each must get."""

from __future__ import annotations

WRONG = {
    "bits": lambda parameters, bits: parameters * bits,
    "always-32": lambda parameters, bits: parameters * 4,
    "eight": lambda parameters, bits: parameters * 8,
    "larger-unit": lambda parameters, bits: parameters * bits / 8 / 1024,
    "whole-bytes": lambda parameters, bits: parameters * (bits // 8),
    "other": lambda parameters, bits: parameters + bits,
    "inverse": lambda parameters, bits: parameters * 32 / bits / 8,
}
