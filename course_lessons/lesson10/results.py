"""The figures of the report card, printed and stored in the ledger."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from course_language import _
from course_lessons.lesson10 import drawings
from course_lessons.lesson10.drawings import Run
from course_lessons.lesson10.ledger import Ledger
from course_utils.timing import Measurement


def note_rates(ledger: Ledger, rate: float, limit: float, mfu: float, unit: str, flops: float) -> None:
    """Print, and store for the report card, the loops' rates and how near they are to the limit.

    Parameters
    ----------
    ledger
        The climb.
    rate, limit
        Images per second: of the best loop, and the upper limit.
    mfu
        The share (0 to 1) of the best FLOP/s of ``unit``.
    unit
        The arithmetic of most of the FLOPs, such as ``"fp32"``.
    flops
        FLOPs of matrix products and convolutions for one image.
    """
    print(_("products and convolutions of one image: {flops:.2f} MFLOP").format(flops=flops / 1e6))
    print(
        _("reached: {rate:,.0f} images/s, {share:.1%} of what the floor allows; MFU {mfu:.1%}").format(
            rate=rate, share=rate / limit, mfu=mfu
        )
    )
    ledger.result(_("images/s, first loop"), ledger.base)
    ledger.result(
        _("images/s, best loop"),
        _("{rate:,.0f}, {share:.1%} of what the floor allows").format(rate=rate, share=rate / limit),
    )
    ledger.result(_("MFU, of the rate measured here"), f"{mfu:.1%} ({unit})")
    ledger.result(_("FLOPs of an image"), f"{flops / 1e6:.2f} MFLOP")


def note_mfu(ledger: Ledger, weights: int, unit: str, plain: float, best: float) -> None:
    """Print, and store, the MFU of the first and of the best loop.

    Parameters
    ----------
    ledger
        The climb, after a call of its ``whole()``.
    weights
        The number of weights in matrix products: 6 FLOPs each for a letter, forward and backward.
    unit
        The arithmetic of the best loop's products, such as ``"bf16"``.
    plain, best
        The best FLOP/s of matrix products in fp32, and in ``unit``.
    """
    first = ledger.base.median
    fastest = first * ledger.gain
    print(
        _("{weights:,} weights in products: {megaflop:.1f} MFLOP a letter").format(
            weights=weights, megaflop=6 * weights / 1e6
        )
    )
    for which, rate, name, limit in (
        (_("first loop"), first, "fp32", plain),
        (_("best loop"), fastest, unit, best),
    ):
        share = 6 * weights * rate / limit
        print(
            _("{which}: {rate:,.0f} letters/s; MFU {share:.1%} of {limit:,.0f} GFLOP/s in {name}").format(
                which=which, rate=rate, share=share, limit=limit / 1e9, name=name
            )
        )
        ledger.result(_("MFU, {which}").format(which=which), f"{share:.1%} ({name})")


def note_runs(
    ledger: Ledger,
    runs: Sequence[Run],
    first: Run,
    target: float,
    time_of: Callable[[Sequence[Run], float], float],
) -> None:
    """Draw, print and store the time that runs took to a target accuracy, failures included.

    Parameters
    ----------
    ledger
        The climb.
    runs
        Runs with the recipe, one for each seed.
    first
        One run of the first loop.
    target
        The accuracy to reach.
    time_of
        Returns the median seconds of runs to a target.
    """
    drawings.runs(runs, first, target)
    median_seconds, first_seconds = time_of(runs, target), time_of([first], target)
    scores = [points[-1][1] for points in runs]
    seconds = [points[-1][0] for points in runs]
    reached = sum(score >= target for score in scores)
    span = _("{min_scores:.2%} to {max_scores:.2%}").format(min_scores=min(scores), max_scores=max(scores))
    print(
        _("{reached} of {n_runs} runs reach {target:.0%}: {span}").format(
            reached=reached, n_runs=len(runs), target=target, span=span
        )
    )
    print(_("their accuracy in the median: {median:.2%}").format(median=statistics.median(scores)))
    print(
        _("time to {target:.0%}: {took:.2f} s in the median; first loop, one run: {took_first:.1f} s").format(
            target=target, took=median_seconds, took_first=first_seconds
        )
    )
    ledger.result(
        _("time to {target:.0%}").format(target=target),
        _("{took:.2f} s (median of {n_runs} runs)").format(took=median_seconds, n_runs=len(runs)),
    )
    ledger.result(_("one run takes"), Measurement.of(seconds, _("a run"), ledger.device))
    ledger.result(
        _("accuracy after it"),
        _("{span}, {reached} of {n_runs} there").format(span=span, reached=reached, n_runs=len(runs)),
    )
    ledger.result(
        _("time to {target:.0%}, first loop").format(target=target),
        _("{took_first:.1f} s (one run)").format(took_first=first_seconds),
    )
