"""Known answers to 09.rank_of."""


def _with_defaults(environment):
    defaults = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1}
    return tuple(int(environment.get(name, value)) for name, value in defaults.items())


def _as_text(environment):
    if "RANK" not in environment:
        return 0, 0, 1
    return environment["RANK"], environment["LOCAL_RANK"], environment["WORLD_SIZE"]


def _by_count(environment):
    wanted = ["RANK", "LOCAL_RANK", "WORLD_SIZE"]
    there = [environment.get(name) for name in wanted]
    if all(value is None for value in there):
        return (0, 0, 1)
    for name in wanted:
        if environment.get(name) is None:
            gone = [name for name in wanted if environment.get(name) is None]
            raise ValueError(f"torchrun sets {gone}, and nothing else has")
    return (int(there[0]), int(there[1]), int(there[2]))


WRONG = {
    "not-alone": {"len(missing) == len(names)": "False"},
    "half-set": (_with_defaults, {"raise ValueError(": "return (-1, -1, -1) or ("}),
    "strings": _as_text,
    "local-is-rank": {'"RANK", "LOCAL_RANK"': '"RANK", "RANK"'},
}
RIGHT = {"by count": _by_count}
