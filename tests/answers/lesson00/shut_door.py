"""Known answers to 00.shut_door: wrong ones by their diagnosis, right ones by a name."""

import numpy as np

_DOORS = {"A": 1, "B": 3, "C": 2, "D": 5}
WRONG = {
    "driver-is-there": _DOORS | {"A": 2},
    "open-for-b": _DOORS | {"B": 2},
    "first-shut-door": _DOORS | {"B": 4},
    "no-card": _DOORS | {"C": 1},
    "emulated": _DOORS | {"D": 4},
    "wrong-type": list(_DOORS.values()),
}
RIGHT = {"NumPy's numbers": {who: np.int64(door) for who, door in _DOORS.items()}}
