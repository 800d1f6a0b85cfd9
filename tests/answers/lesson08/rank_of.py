"""Known answers to 08.rank_of: wrong ones by the diagnosis that each must get, and a right one."""


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


_RETURN = "return tuple(int(environment[name]) for name in names)"
WRONG = {
    "not-alone": {"len(missing) == len(names)": "False"},
    "alone-other": {"0, 0, 1": "0, 0, 0"},
    "made-up": _with_defaults,
    "takes-alone": (
        {"len(missing) == len(names)": '"RANK" in missing'},
        {"len(missing) == len(names)": "missing"},
    ),
    "half-set": {"raise ValueError(": "return (-1, -1, -1) or ("},
    "other-error": ({"if missing": "if False"}, {"ValueError": "RuntimeError"}),
    "unnamed": {"', '.join(missing)": "missing[0]"},
    "all-named": {"', '.join(missing)": "names"},
    "not-how": {"torchrun": "several processes"},
    "strings": _as_text,
    "floats": {"int(": "float("},
    "three": {"in names)": "in names[:2])"},
    "other-order": (
        {'"RANK", "LOCAL_RANK"': '"LOCAL_RANK", "RANK"'},
        {'"LOCAL_RANK", "WORLD_SIZE"': '"WORLD_SIZE", "LOCAL_RANK"', "0, 0, 1": "0, 1, 0"},
    ),
    "order-of-dict": {
        _RETURN: "return tuple(int(v) for k, v in environment.items() if k in names)"
    },
    "local-is-rank": {
        _RETURN: "r, w = (int(environment[n]) for n in names[::2])\nreturn r, r % w, w"
    },
    "refuses": {"if missing:": "if missing or environment['RANK'] == '0':"},
    "ignores": lambda environment: (0, 0, 1),
    "other-numbers": {"int(environment[name])": "int(environment[name]) + 1"},
}
RIGHT = {"by count": _by_count}
