"""Who started me?"""

import itertools
import operator
import re
from numbers import Integral

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.judge import Raised


def rank_of(environment):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    missing = [name for name in names if name not in environment]
    if len(missing) == len(names):
        return 0, 0, 1
    if missing:
        raise ValueError(f"{', '.join(missing)} not set: start with torchrun --nproc-per-node=2")
    return tuple(int(environment[name]) for name in names)


_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_HALVES = [{n: "1" for n in some} for k in (2, 1) for some in itertools.combinations(_NAMES, k)]


def _random_case(rng):
    """Return the environment of one of several processes, its variables in any order, as a case."""
    world = rng.randrange(2, 40)
    local = rng.randrange(world)
    values = dict(zip(_NAMES, (rng.randrange(local, world), local, world), strict=True))
    return ({name: str(values[name]) for name in rng.sample(_NAMES, 3)},)


def _validated_result(judge, got):
    """Return the three numbers as a tuple, or refuse the result."""
    judge.is_a(got, (tuple, list), _("three numbers, in a tuple"))
    if any(isinstance(number, str) for number in got):
        judge.no("strings", seen=got, expected=_("whole numbers"))
    return tuple(judge.is_a(number, Integral, _("whole numbers")) for number in got)


_compare_to_reference = ComparesToReference(
    rank_of,
    [
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1"},),
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"},),
    ],
    known_mistakes_of(rank_of, {"local-is-rank": {'"RANK", "LOCAL_RANK"': '"RANK", "RANK"'}}),
    read=_validated_result,
    draw=_random_case,
    alike=operator.eq,
)


def _check_answer(answer, judge):
    """Check an environment without the variables, complete ones, and incomplete ones."""
    for environment in ({}, {"PATH": "/usr/bin", "MASTER_PORT": "29500"}):
        try:
            got = _validated_result(judge, answer(environment))
        except Raised as raised:
            if not isinstance(raised.error, (KeyError, TypeError, ValueError)):
                raise
            seen = _("{error} for {environment}").format(
                error=type(raised.error).__name__, environment=environment
            )
            judge.no("not-alone", seen=seen, expected="(0, 0, 1)")
        judge.expect(_("result for {environment}").format(environment=environment), got, (0, 0, 1))
    _compare_to_reference(answer, judge)
    texts = []
    for environment in _HALVES:
        missing = [name for name in _NAMES if name not in environment]
        expected = _("a ValueError that names {missing} and torchrun").format(missing=", ".join(missing))
        try:
            got = answer(environment)
        except Raised as raised:
            if not isinstance(raised.error, ValueError):
                raise
            texts.append(str(raised.error))
        else:
            judge.no(
                "half-set",
                seen=_("{got} for {environment}").format(got=got, environment=environment),
                expected=expected,
            )
        named = set(re.findall(r"[A-Z_]+", texts[-1]))
        how = re.search(r"torchrun|torch\.distributed\.(run|launch)", texts[-1], re.IGNORECASE)
        if not named >= set(missing) or not how:
            judge.no(
                seen=_("{last_text} for {environment}").format(last_text=texts[-1], environment=environment),
                expected=expected,
            )
    if len(set(texts)) == 1:
        judge.no(
            seen=_("{first_text!r}, whichever is missing").format(first_text=texts[0]),
            expected=_("the missing ones"),
        )


EXERCISE = Exercise(
    id="09.rank_of",
    title="Who started me?",
    level=1,
    minutes=5,
    task="""
In a script started by `python`, `init_process_group()` ends with *environment variable RANK expected, but not
set*. Write `rank_of(environment)`: the tuple `(rank, local_rank, world_size)` of whole numbers. `environment`
is a dict of texts, such as `os.environ`, in which torchrun sets `RANK`, `LOCAL_RANK` and `WORLD_SIZE`. Where
none is set, the process is alone: rank 0 of 1. Where only some are, raise a `ValueError` whose text names the
missing ones and says to start with `torchrun`.
""",
    hints=(
        "There are three cases. All three variables are set, or none is, or only some are. Ask which of "
        "these must never pass in silence, and what the other two should return.",
        "Collect the names that aren't in `environment` in a list. Its length tells you which case you have. "
        "If only some are missing, put their names into the error's text, and say how to start the script. "
        "The values are texts, so turn each one into a number.",
        """This function needs two settings, and its error names the ones that it didn't get. Yours has one
case more.

```python
def area(options):
    absent = [key for key in ("width", "height") if key not in options]
    if absent:
        raise ValueError(f"please set {' and '.join(absent)}")
    return int(options["width"]) * int(options["height"])

print(area({"width": "8", "height": "5"}))  # 40
```""",
    ),
    reference=rank_of,
    check_answer=_check_answer,
    why="One script now serves a laptop and a cluster. Default values from `environment.get` would do that "
    "too, until a variable is lost: then every process thinks that it's alone, trains on all the data and "
    "writes over the others' checkpoints, without an error.",
    diagnoses={
        "not-alone": "A script that was started without torchrun must go on, as rank 0 of 1.",
        "half-set": "Some variables are missing, and there was no error.",
        "strings": "The environment holds texts. Ranks are whole numbers.",
        "local-is-rank": "The local rank has a variable of its own, `LOCAL_RANK`.",
    },
)
