"""Choose, and do not trust."""

import operator

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def pick_device(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if kind in available and works(kind):
            return kind
    return "cpu"


_KINDS = ("cuda", "xpu", "mps")


class _Works:
    """A stand-in for ``works``; ``asked_absent`` lists its calls with kinds that are not available."""

    def __init__(self, available, broken):
        self.available, self.broken = list(available), broken
        self.asked_absent = []

    def __call__(self, kind):
        if kind not in self.available:
            self.asked_absent.append(kind)
        return kind not in self.broken


def _make_cases():
    """Return new ``(available, works)`` cases; ``works`` records its calls, so no case is used twice."""
    machines = (["cuda"], []), ([], []), (["cuda"], ["cuda"]), (["mps", "xpu", "cuda"], ["cuda"])
    return [(list(available), _Works(available, broken)) for available, broken in machines]


def _random_case(rng):
    """Return a random ``(available, works)``; each available kind fails with a probability of 40 %."""
    available = rng.sample(_KINDS, rng.randrange(4))
    return available, _Works(available, [kind for kind in available if rng.random() < 0.4])


def _validated_result(judge, got):
    """Return the result if it is a string or None, else refuse it."""
    return got if got is None else judge.is_a(got, str, _("a string such as 'cuda'"))


def _format_value(seen):
    """Return a compared value as text: the result, and the first call of ``works`` with an absent kind."""
    got, absent = seen
    return (
        _("{got!r} after works({first_absent!r})").format(got=got, first_absent=absent[0])
        if absent
        else repr(got)
    )


def _describe_case(available, works):
    """Return the case in words: the available kinds, and those that fail."""
    fails = _(", but {broken} fails").format(broken=" and ".join(works.broken)) if works.broken else ""
    return _("available {available}{fails}").format(available=available, fails=fails)


def _fallback_diagnosis(seen, _, available, works):
    """Return "not-there" for the name of a kind that is not available, else "wrong-value"."""
    return "not-there" if seen[0] in _KINDS and seen[0] not in available else "wrong-value"


_BOTH = "kind in available and works(kind)"
_GIVES_UP = 'if kind in available:\n    return kind if works(kind) else "cpu"'
_MISTAKES = known_mistakes_of(
    pick_device,
    {
        "order": {'("cuda", "xpu", "mps")': "available"},
        "available-is-not-works": (
            {_BOTH: "kind in available"},
            {_BOTH: "kind in available", '("cuda", "xpu", "mps")': "available"},
        ),
        "gave-up": {f"if {_BOTH}:\n    return kind": _GIVES_UP},
        "no-fallback": {'return "cpu"': "return None"},
    },
)


EXERCISE = Exercise(
    id="01.pick_device",
    title="Choose, and do not trust",
    task="PyTorch may report a device on which nothing runs. `available` lists the kinds that it "
    "reports. It holds some of `'cuda'`, `'xpu'` and `'mps'`, in any order, or none of them. "
    "`works(kind)` tries a small product there and returns whether the result was right. You may call it "
    "only for kinds in the list. Return the first of `'cuda'`, `'xpu'`, `'mps'` that is available "
    "**and** works. If there is none, return `'cpu'`.",
    level=1,
    minutes=6,
    hints=(
        "There are two orders here. Which one decides, the order in `available` or your order of "
        "preference? And what must you know about a kind before you may call `works` on it?",
        "Take the three kinds one after another, the best one first. Ask whether the kind is in "
        "`available`, and then whether it works. Python's `and` asks the second question only if the "
        "first answer is yes. If a kind fails, go on to the next one. Think about what's left when the "
        "loop ends.",
        "Here you see that `and` saves a call. Nobody calls a shop that isn't in the list.\n\n"
        """```python
def is_open(shop):
    print("calling", shop)
    return shop != "baker"

known = ["baker", "market"]
for shop in ("kiosk", "market", "baker"):
    print(shop, shop in known and is_open(shop))  # no call for the kiosk
```""",
    ),
    reference=pick_device,
    check_answer=ComparesToReference(
        pick_device,
        _make_cases,
        _MISTAKES,
        read=_validated_result,
        look=lambda got, available, works: (got, works.asked_absent),
        draw=_random_case,
        alike=operator.eq,
        otherwise=_fallback_diagnosis,
        situation=_describe_case,
        shown=_format_value,
    ),
    why="This is what `get_device()` does. Because one place chooses the device and tests it, the rest "
    "of your program runs on any machine without a change.",
    diagnoses={
        "order": "The preference decides, not the order in which the kinds are reported: CUDA, then "
        "XPU, then MPS.",
        "not-there": "You chose a device that this machine does not have. The first tensor sent there "
        "raises an error: look into `available` before you choose.",
        "no-fallback": "With no accelerator that works, the program must still get a device: every "
        "machine has a CPU.",
        "available-is-not-works": "Available means that a driver and a device were found. It does "
        "not mean that a kernel runs there: ask `works` before you trust it.",
        "gave-up": "One kind failed its test, and the answer fell back to the CPU at once. A machine can "
        "have a second accelerator that works: go on to the next kind.",
    },
)
