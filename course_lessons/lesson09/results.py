"""The figures of the report card, printed and noted in the ledger."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from course_language import word
from course_lessons.lesson09 import drawings
from course_lessons.lesson09.drawings import Run
from course_lessons.lesson09.ledger import Ledger
from course_utils.timing import Measurement


def note_rates(
    ledger: Ledger, rate: float, limit: float, mfu: float, unit: str, flops: float
) -> None:
    """Print, and note for the report card, how fast the loops are, and how far from the limit.

    Parameters
    ----------
    ledger
        The climb.
    rate, limit
        Images a second: of the best loop, and what the floor allows.
    mfu
        The share of the best FLOP/s of ``unit``.
    unit
        What computes most of the FLOPs, such as ``"fp32"``.
    flops
        Of the products and convolutions of one image.
    """
    print(f"products and convolutions of one image: {flops / 1e6:.2f} MFLOP")
    print(
        f"reached: {rate:,.0f} images/s, {rate / limit:.1%} of what the floor allows; MFU {mfu:.1%}"
    )
    ledger.result("images/s, first loop", ledger.base)
    ledger.result(
        "images/s, best loop", f"{rate:,.0f}, {rate / limit:.1%} of what the floor allows"
    )
    ledger.result("MFU, of the rate measured here", f"{mfu:.1%} ({unit})")
    ledger.result("FLOPs of an image", f"{flops / 1e6:.2f} MFLOP")


def note_mfu(ledger: Ledger, weights: int, unit: str, plain: float, best: float) -> None:
    """Print, and note, which share of the best product rate the first and the best loop get.

    Parameters
    ----------
    ledger
        The climb; its ``whole()`` has been asked for.
    weights
        Those that are multiplied: 6 FLOPs each for a letter, forward and backward.
    unit
        In which the best loop multiplies, such as ``"bf16"``.
    plain, best
        The best FLOP/s of a large product in fp32, and in ``unit``.
    """
    first = ledger.base.median
    fastest = first * ledger.gain
    print(f"{weights:,} weights in products: {6 * weights / 1e6:.1f} MFLOP a letter")
    for which, rate, name, limit in (
        (word("first loop"), first, "fp32", plain),
        ("best loop", fastest, unit, best),
    ):
        share = 6 * weights * rate / limit
        print(
            f"{which}: {rate:,.0f} letters/s; MFU {share:.1%} of {limit / 1e9:,.0f} GFLOP/s in {name}"
        )
        ledger.result(f"MFU, {which}", f"{share:.1%} ({name})")


def note_runs(
    ledger: Ledger,
    runs: Sequence[Run],
    first: Run,
    target: float,
    time_of: Callable[[Sequence[Run], float], float],
) -> None:
    """Draw, print and note how long runs took to a target, failures included.

    Parameters
    ----------
    ledger
        The climb.
    runs
        Those with the recipe, one for each seed.
    first
        One run of the first loop.
    target
        The accuracy to reach.
    time_of
        Returns for runs and a target the seconds in the median.
    """
    drawings.runs(runs, first, target)
    took, took_first = time_of(runs, target), time_of([first], target)
    scores = [points[-1][1] for points in runs]
    seconds = [points[-1][0] for points in runs]
    reached = sum(score >= target for score in scores)
    span = f"{min(scores):.2%} to {max(scores):.2%}"
    print(f"{reached} of {len(runs)} runs reach {target:.0%}: {span}")
    print(f"their accuracy in the median: {statistics.median(scores):.2%}")
    print(
        f"time to {target:.0%}: {took:.2f} s in the median; first loop, one run: {took_first:.1f} s"
    )
    ledger.result(f"time to {target:.0%}", f"{took:.2f} s (median of {len(runs)} runs)")
    ledger.result("one run takes", Measurement.of(seconds, "a run", ledger.device))
    ledger.result("accuracy after it", f"{span}, {reached} of {len(runs)} there")
    ledger.result(f"time to {target:.0%}, first loop", f"{took_first:.1f} s (one run)")
