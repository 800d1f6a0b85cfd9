"""Performance claims of the project's source documents, weighed against recorded numbers.

``claims.yml`` holds the claims; ``numbers.py`` computes numbers from records, and ``weighing.py`` derives the
verdicts. The page ``handbook/claims.md`` and the card in a lesson are generated from these and from
``recorded/`` alone.
"""

from __future__ import annotations

from course_language import _
from course_utils.show import show

from .numbers import DataPoint, Ratio, Value
from .weighing import CLAIMS, WORDS, Claim, card, weigh

__all__ = ["CLAIMS", "WORDS", "Claim", "DataPoint", "Ratio", "Value", "card", "claim", "weigh"]


def claim(id: str) -> None:
    """Display a claim as a card: its verdict and the numbers it rests on.

    Parameters
    ----------
    id
        Such as ``"amp-speed"``; ``handbook/claims.md`` lists them.

    Raises
    ------
    ValueError
        If there is no such claim.
    """
    known = {c.id: c for c in CLAIMS}
    if id not in known:
        raise ValueError(
            _("There is no claim {id!r}; choose from {known}.").format(id=id, known=", ".join(known))
        )
    show(card(known[id]))
