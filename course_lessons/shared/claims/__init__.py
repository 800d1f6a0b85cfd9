"""What the documents that set the subject claim in numbers, and how far it is true.

``claims.yml`` holds the claims; ``numbers.py`` says how numbers are formed from records, and ``weighing.py``
how they are weighed. The page ``handbook/claims.md`` and the card in a lesson are made from these and from
``recorded/`` alone.
"""

from __future__ import annotations

from course_language import _
from course_utils.show import show

from .numbers import DataPoint, Ratio, Value
from .weighing import CLAIMS, WORDS, Claim, card, weigh

__all__ = ["CLAIMS", "WORDS", "Claim", "DataPoint", "Ratio", "Value", "card", "claim", "weigh"]


def claim(id: str) -> None:
    """Show a claim, the verdict and the numbers behind it.

    Parameters
    ----------
    id
        Such as ``"amp-speed"``; ``handbook/claims.md`` lists them.

    Raises
    ------
    ValueError
        Where there is no such claim.
    """
    known = {c.id: c for c in CLAIMS}
    if id not in known:
        raise ValueError(
            _("There is no claim {id!r}; choose from {known}.").format(id=id, known=", ".join(known))
        )
    show(card(known[id]))
