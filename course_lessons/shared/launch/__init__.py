"""Run a script in several processes from a notebook, and leave none behind.

``run`` does what ``torchrun`` does in a terminal, with a time limit, the output of all ranks in a readable
order, and one short message if a rank fails.
"""

from .output import RankError
from .prepare import Kill
from .torchrun import Finished, run

__all__ = ["Finished", "Kill", "RankError", "run"]
