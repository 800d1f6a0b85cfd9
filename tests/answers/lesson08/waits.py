"""Known answers to 08.waits: wrong ones by the diagnosis that each must get, and a right one."""

import numpy as np

WRONG = {
    "eight-few": 7,
    "four-few": 11,
    "two-few": 13,
    "one-few": 14,
    "end-only": 1,
    "one-many": 16,
    "two-many": 17,
    "four-many": 19,
    "too-few": 9,
    "too-many": 100,
}
RIGHT = {"as a float": 15.0, "of NumPy": np.int64(15)}
