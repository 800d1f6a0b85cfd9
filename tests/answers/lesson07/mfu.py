"""Known wrong answers to 07.mfu, by the diagnosis that each must get."""

from __future__ import annotations


def _mfu_inverted(flops_per_step, seconds_per_step, peak):
    return seconds_per_step * peak / flops_per_step


def _mfu_percent(flops_per_step, seconds_per_step, peak):
    return 100 * flops_per_step / seconds_per_step / peak


def _mfu_without_time(flops_per_step, seconds_per_step, peak):
    return flops_per_step / peak


def _mfu_unbounded(flops_per_step, seconds_per_step, peak):
    return flops_per_step / seconds_per_step / peak


def _mfu_below_one(flops_per_step, seconds_per_step, peak):
    share = flops_per_step / seconds_per_step / peak
    if share >= 1:
        raise ValueError("above the peak")
    return share


def _mfu_asserted(flops_per_step, seconds_per_step, peak):
    share = flops_per_step / seconds_per_step / peak
    assert share <= 1, "above the peak"
    return share


def _mfu_without_words(flops_per_step, seconds_per_step, peak):
    share = flops_per_step / seconds_per_step / peak
    if share > 1:
        raise ValueError
    return share


WRONG = {
    "inverted": _mfu_inverted,
    "percent": _mfu_percent,
    "no-time": _mfu_without_time,
    "above-one": _mfu_unbounded,
    "refused": _mfu_below_one,
    "asserted": _mfu_asserted,
    "no-words": _mfu_without_words,
}
