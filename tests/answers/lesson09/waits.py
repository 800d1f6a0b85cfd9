"""Known answers to 09.waits."""

import numpy as np

WRONG = {
    "eight-few": 7,
    "four-few": 11,
    "two-few": 13,
    "end-only": 1,
    "four-many": 19,
}
RIGHT = {"as a float": 15.0, "of NumPy": np.int64(15)}
