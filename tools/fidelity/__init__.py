"""The simulated device beside real ones: what others measured, and what it makes of the same work.

``python -m tools.fidelity FILE…`` prints how far the two are apart. To read how it is made:

================== ========================================================
``rows.py``         the files; ``units.py``: figures in seconds and bytes
``workload.py``     what a row can mean; ``interpret.py``: who reads which row
``operators.py``    rows of single operators; ``calls.py``: their calls
``transfers.py``    rows of bandwidths and collectives
``hardware.py``     which profile stands for which card
``model.py``        how long the simulated device takes
``report.py``       sums and tables
================== ========================================================
"""

from .model import Found, LeftOut, hold, modelled
from .rows import Row, Unreadable, read, without_repeats

__all__ = ["Found", "LeftOut", "Row", "Unreadable", "hold", "modelled", "read", "without_repeats"]
