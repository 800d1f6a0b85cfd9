"""Comparison of the simulated device with real ones: what others measured, and the modelled values.

``python -m tools.fidelity FILE…`` prints how far the two are apart. To read how it is made:

==================================== =====================================================================
``table.py``                         a measured table's rows: units, dtypes, which profile is which card
``work.py``                          what a row can mean
``operators.py``, ``steps.py``       who reads which row: single calls, copies and collectives; whole networks
``compare.py``                       how long the simulated device takes; a network's step: ``stepping.py``
``networks.py``                      the networks: ``convolutional.py``, ``transformers.py``
``report.py``                        sums and tables
==================================== =====================================================================
"""

from .compare import Comparison, LeftOut, compare_row
from .table import Row, Unreadable, read, without_repeats

__all__ = ["Comparison", "LeftOut", "Row", "Unreadable", "compare_row", "read", "without_repeats"]
